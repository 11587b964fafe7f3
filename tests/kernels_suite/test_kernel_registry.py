"""Finding kernels and workloads, and what happens when they are not there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tirgym.errors import DamagedFileError, InvalidValueError, UnknownNameError, UsageError
from tirgym.kernels_suite import registry
from tirgym.kernels_suite.kernel import Kernel, Split, Workload
from tirgym.kernels_suite.registry import (
    kernel_names,
    list_kernels,
    load_kernel,
    load_workload,
    opens_file,
    register_kernel,
    split_of,
)
from tirgym.kernels_suite.suites import SUITES

OWN = """
from pathlib import Path
from tirgym.kernels_suite.kernel import Kernel

with open(Path(__file__).with_suffix(".log"), "a") as log:
    log.write("executed\\n")

def build(shape):
    from tvm import te
    x = te.placeholder((shape["n"],), "float32", "x")
    return te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] * x[i], "y")])

square = Kernel("square", "mine", build, lambda x: x * x, train=({"n": 300},))
unjudged = Kernel("unjudged", "mine", build, None, train=({"n": 300},))
number = 3
"""


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "my kernels.py"
    path.write_text(OWN)
    return path


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    yield
    registry._registered.clear()
    registry._third_party.cache_clear()


def test_core_v0_holds_what_the_suite_promises() -> None:
    kernels = list_kernels("core-v0")
    assert len(kernels) >= 36
    assert len({kernel.family for kernel in kernels}) >= 13
    assert [kernel.name for kernel in kernels] == list(SUITES["core-v0"].kernels)
    assert {split_of(kernel) for kernel in kernels} == set(Split)
    assert set(SUITES["core-v0"].splits) == {kernel.family for kernel in kernels}
    assert sum("control" in kernel.tags for kernel in kernels) <= 6


def test_split_selects_families() -> None:
    train, test = list_kernels("core-v0", Split.TRAIN), list_kernels("core-v0", Split.TEST)
    assert {k.family for k in train}.isdisjoint(k.family for k in test)
    assert "matmul" in {k.name for k in train}


@pytest.mark.parametrize(
    "kernel", list_kernels(), ids=lambda kernel: f"{kernel.suite}-{kernel.name}"
)
def test_every_workload_uri_round_trips(kernel: Kernel) -> None:
    for shape in (kernel.tiny_shape, *kernel.train, *kernel.holdout):
        workload = Workload.of(kernel, shape)
        assert load_workload(workload.uri) == workload


def test_names_with_and_without_suite_mean_the_same_kernel() -> None:
    assert load_kernel("matmul") is load_kernel("core-v0/matmul")
    uri = "tirgym://core-v0/matmul?m=250&n=264&k=240&dtype=float32"
    assert load_workload("matmul").uri == uri


def test_overrides_replace_single_dimensions() -> None:
    assert load_workload("matmul", {"m": 8}).shape == {"m": 8, "n": 264, "k": 240}
    uri = "tirgym://core-v0/matmul?m=4&n=4&k=4"
    assert load_workload(uri, {"k": 2}).shape == {"m": 4, "n": 4, "k": 2}


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("m=0&n=1&k=1", "dimension m"),
        ("m=-1&n=1&k=1", "dimension m"),
        ("m=1.5&n=1&k=1", "dimension m"),
        ("m=&n=1&k=1", "dimension m"),
        ("m=٣&n=1&k=1", "dimension m"),
        ("m=99999999999&n=1&k=1", "dimension m"),
        ("m=1&n=1", "positive integers for m, n, k"),
        ("m=1&n=1&k=1&q=1", "positive integers for m, n, k"),
        ("m=1&n=1&k=1&k=2", "each dimension once"),
        ("m=1&n=1&k=1&dtype=int8", "float32"),
    ],
)
def test_wrong_uri_parameters_are_refused(query: str, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told) as caught:
        load_workload(f"tirgym://core-v0/matmul?{query}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["tirgym://[core-v0/add?m=1&n=1", "tirgym://", "tirgym:add", "tirgym:///add"]
)
def test_what_is_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(InvalidValueError, match="workload URI"):
        load_workload(uri)


@pytest.mark.parametrize("shape", [{"m": 0}, {"m": -3}, {"m": True}, {"m": 2.0}, {"q": 3}])
def test_wrong_overrides_are_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="positive integers for m, n, k"):
        load_workload("matmul", shape)


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'matmul'"):
        load_kernel("matmull")
    with pytest.raises(UnknownNameError, match="did you mean 'core-v0'"):
        load_kernel("core-v1/matmul")
    with pytest.raises(UnknownNameError, match="suite"):
        list_kernels("core")


def test_kernel_of_a_file_round_trips_and_the_file_runs_once(own_file: Path) -> None:
    workload = load_workload(f"{own_file}:square")
    assert load_workload(f"{own_file}:square") == workload
    assert load_workload(workload.uri) == workload
    assert own_file.with_suffix(".log").read_text() == "executed\n"
    assert workload.kernel.source == f"{own_file}:square"


SPELLINGS = (
    "{}/mine.py:square",
    "{}/mine.py",
    "tirgym://local/{}/mine.py:square?n=1",
    "tirgym://core-v0/{}/mine%2Epy:square",
    "tirgym://core-v0/{}/mine%2epy%3Asquare",
    "tirgym://core-v0/{}/mine.%70y:square",
    "tirgym://core-v0/{}/mine.p%79:square?n=1",
    "tirgym://loc\tal/{}/mine.p\ty:square",
    "tirgym://local/{}/min%65.py",
    "TIRGYM://local/{}/mine.py:square",
)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_a_file_is_opened_without_files(spelling: str, own_file: Path) -> None:
    name = spelling.format(own_file.parent)
    assert opens_file(name)
    with pytest.raises(InvalidValueError, match="no Python file is run"):
        load_workload(name, files=False)
    assert not own_file.with_suffix(".log").exists()


@pytest.mark.parametrize(
    "name",
    [
        "tirgym://core-v0/{}/mine%252Epy:square",
        "tirgym://core-v0/{}/mine.PY:square",
        "tirgym://mine.py:x/square",
        "tirgym://{}/mine.py:x/square",
        "mine.py/square",
        "tirgym://local/{}/mine.py/square",
    ],
)
def test_what_is_no_file_is_looked_up_in_the_tables(
    name: str, own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_file.parent)
    name = name.format(own_file.parent)
    for files in (True, False):
        with pytest.raises(UsageError):
            load_workload(name, files=files)
    assert not own_file.with_suffix(".log").exists()


@pytest.mark.parametrize(
    ("attribute", "told"),
    [(":cube", "one of: square, unjudged"), ("", "one of: square"), (":number", "a Kernel")],
)
def test_wrong_attribute_names_what_the_file_has(own_file: Path, attribute: str, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        load_kernel(f"{own_file}{attribute}")


def test_kernel_without_reference_is_told_how_to_give_one(own_file: Path) -> None:
    with pytest.raises(UsageError, match=r"unjudged has no reference.*NumPy.*reference=lambda"):
        load_kernel(f"{own_file}:unjudged")


def test_missing_and_broken_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="no such file"):
        load_kernel(f"{tmp_path}/nothing.py:kernel")
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(DamagedFileError, match="SyntaxError"):
        load_kernel(f"{broken}:kernel")


@pytest.mark.parametrize("line", ["raise SystemExit(3)", "raise Exception('no')", "1 / 0"])
def test_a_file_that_raises_leaves_no_module(line: str, tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text(f"\n{line}\n")
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(DamagedFileError, match=r"raises\.py, line 2\)"):
            load_kernel(f"{tmp_path}/raises.py:kernel")
    assert not [name for name in set(sys.modules) - before if "raises" in name]


def test_registered_kernels_are_found_by_name_and_uri() -> None:
    kernel = register_kernel(replace(load_kernel("add"), name="my_add"))
    assert load_kernel("my_add") == kernel
    assert load_workload(Workload.of(kernel).uri).kernel == kernel
    assert kernel_names()[-1] == "my_add"
    assert split_of(kernel) is None


def test_duplicate_names_are_refused() -> None:
    add = load_kernel("add")
    with pytest.raises(InvalidValueError, match="no kernel has yet"):
        register_kernel(add)
    register_kernel(replace(add, name="twice"))
    with pytest.raises(InvalidValueError, match="no kernel has yet"):
        register_kernel(replace(add, name="twice"))


@dataclass
class FakeEntryPoint:
    """As much of an entry point as the registry reads."""

    name: str
    kernel: object
    value: str = "package:kernel"

    def load(self) -> object:
        return self.kernel


def install(monkeypatch: pytest.MonkeyPatch, *points: FakeEntryPoint) -> None:
    registry._third_party.cache_clear()
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_other_packages_add_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeEntryPoint("theirs", replace(load_kernel("add"), name="theirs")))
    assert load_kernel("theirs").suite == "local"
    assert "theirs" in {kernel.name for kernel in list_kernels()}
    with pytest.raises(InvalidValueError, match="no kernel has yet"):
        register_kernel(replace(load_kernel("add"), name="theirs"))


@pytest.mark.parametrize("name", ["add", "other"])
def test_wrong_entry_points_are_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    install(monkeypatch, FakeEntryPoint(name, load_kernel("add")))
    with pytest.raises(InvalidValueError, match=f"entry point {name}"):
        list_kernels("local")


def test_kernels_with_unequal_dimensions_cannot_exist() -> None:
    add = load_kernel("add")
    with pytest.raises(InvalidValueError, match="the dimensions m, n"):
        replace(add, holdout=({"m": 1},))
    with pytest.raises(InvalidValueError, match="at least one"):
        replace(add, train=())
    with pytest.raises(InvalidValueError, match="letters"):
        replace(add, name="a/b")


def test_errors_pickle() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_kernel("matmull")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_listing_kernels_imports_no_compiler() -> None:
    code = (
        "import sys; from tirgym.kernels_suite.registry import list_kernels; list_kernels();"
        "print([m for m in ('tvm', 'torch', 'triton') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
