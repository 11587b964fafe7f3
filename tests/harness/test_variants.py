"""Libraries of several shapes: the dispatcher takes what fits, and the program for any shape the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness import export
from tirgym.harness.backend import backend
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.transforms import parse_transform
from tirgym.harness.tuned_library import ANY_SHAPE, TunedLibrary
from tirgym.harness.variants import any_shape, carry_over, distance, export_variants, nearest
from tirgym.harness.variants_check import check_library, dispatch_ns
from tirgym.kernels_suite.kernel import Kernel, Regime, Shape, Workload
from tirgym.kernels_suite.problem import make_inputs, reference_of
from tirgym.kernels_suite.registry import list_kernels, load_kernel, load_workload

pytestmark = pytest.mark.skipif(export.c_compiler() is None, reason="no C compiler")

VECTORIZED = ("Split(loop=1, factor=8)", "Reorder(loop=2)", "Vectorize(loop=3)")
LLVM = backend("llvm")
TARGET = LLVM.target()


def program_of(name: str, shape: Shape, *transforms: str) -> Program:
    program = LLVM.start(load_workload(name, shape), TARGET)
    for text in transforms:
        program = program.apply(parse_transform(text))
    return program


def expected(workload: Workload) -> tuple[tuple[Any, ...], Any]:
    """Inputs and the first output."""
    inputs = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
    return inputs, reference_of(workload, inputs)[0]


@pytest.fixture(scope="module")
def matmul(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shapes of matmul."""
    path = tmp_path_factory.mktemp("variants") / "matmul.so"
    shapes = ({"m": 16, "n": 32, "k": 8}, {"m": 4, "n": 16, "k": 12})
    export_variants([program_of("matmul", shape, *VECTORIZED) for shape in shapes], path)
    return path


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        ({"m": 16, "n": 32, "k": 8}, "tirgym://core-v0/matmul?m=16&n=32&k=8&dtype=float32"),
        ({"m": 4, "n": 16, "k": 12}, "tirgym://core-v0/matmul?m=4&n=16&k=12&dtype=float32"),
        ({"m": 5, "n": 7, "k": 3}, ANY_SHAPE),
        ({"m": 16, "n": 32, "k": 9}, ANY_SHAPE),
    ],
)
def test_the_shape_picks_the_program(matmul: Path, shape: Shape, variant: str) -> None:
    library = TunedLibrary(matmul)
    inputs, wanted = expected(load_workload("matmul", shape))
    np.testing.assert_allclose(library(*inputs), wanted, rtol=1e-4, atol=1e-5)
    assert dict(library.used) == {variant: 1}
    assert library.variant_of([x.shape for x in inputs]) == variant


def test_outputs_can_be_given_and_strided_inputs_are_copied(matmul: Path) -> None:
    library = TunedLibrary(matmul)
    (a, b), wanted = expected(load_workload("matmul", {"m": 4, "n": 16, "k": 12}))
    out = np.full((4, 16), np.nan, np.float32)
    assert library(np.asfortranarray(a), b, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidValueError, match="dense"):
        library(a, b, out=np.asfortranarray(out))


def test_outputs_that_cannot_be_written_or_lie_in_other_arrays_are_refused(matmul: Path) -> None:
    library = TunedLibrary(matmul)
    raw = np.zeros(16 * 32 + 16 * 8, np.float32)
    b = np.ones((8, 32), np.float32)
    constant = bytes(16 * 32 * 4)
    with pytest.raises(InvalidValueError, match=r"output c.*read-only"):
        library(
            raw[:128].reshape(16, 8), b, out=np.frombuffer(constant, np.float32).reshape(16, 32)
        )
    assert constant == bytes(len(constant))
    out = raw[128:].reshape(16, 32)
    with pytest.raises(InvalidValueError, match=r"output c.*shares memory with a"):
        library(raw[127:255].reshape(16, 8), b, out=out)
    assert library(raw[:128].reshape(16, 8), b, out=out) is out  # beside it is not in it
    square = np.ones((16, 32), np.float32)
    library(square[:, :8], b, out=square)  # what is strided is copied first
    np.testing.assert_array_equal(square, 8.0)


def test_two_outputs_must_not_share_memory(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    kernel = load_kernel("argmax")
    program = LLVM.start(Workload.of(kernel, kernel.tiny_shape), TARGET)
    export_variants([program], tmp_path / "lib.so")
    library = TunedLibrary(tmp_path / "lib.so")
    x = torch.ones(library.variants[0]["shapes"][0])
    value, index = library(x)
    shared = torch.zeros(value.numel(), dtype=value.dtype)
    outs = [shared.view(value.shape), shared.view(index.dtype)[: index.numel()].view(index.shape)]
    with pytest.raises(InvalidValueError, match="shares memory"):
        library(x, out=outs)


def test_torch_tensors_give_torch_tensors(matmul: Path) -> None:
    torch = pytest.importorskip("torch")
    inputs, wanted = expected(load_workload("matmul", {"m": 4, "n": 16, "k": 12}))
    result = TunedLibrary(matmul)(*map(torch.from_numpy, inputs))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((np.ones((4, 12), np.float32),), "2: a, b"),
        ((np.ones((4, 12), np.float32), np.ones((11, 16), np.float32)), "shape of b"),
        ((np.ones((4, 12)), np.ones((12, 16), np.float32)), "dtype of a.*float32"),
        (([[1.0]], np.ones((12, 16), np.float32)), "NumPy array"),
        ((np.ones(4, np.float32), np.ones((12, 16), np.float32)), "2 of them"),
    ],
)
def test_bad_arrays_are_refused(matmul: Path, inputs: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        TunedLibrary(matmul)(*inputs)


def test_every_shape_passes_the_gate_through_the_dispatcher(matmul: Path) -> None:
    workloads = [
        load_workload("matmul", shape)
        for shape in ({"m": 16, "n": 32, "k": 8}, {"m": 5, "n": 7, "k": 3})
    ]
    checks = check_library(matmul, workloads, TARGET)
    assert [(c.status, c.variant == ANY_SHAPE) for c in checks] == [
        (Status.PASSED, False),
        (Status.PASSED, True),
    ]


def test_a_wrong_variant_is_found(tmp_path: Path, matmul: Path) -> None:
    workload = load_workload("matmul", {"m": 16, "n": 32, "k": 8})
    info = json.loads(matmul.with_name("matmul.so.json").read_text())
    wrong = tmp_path / "matmul.so"
    transposed = program_of("matmul_nt", {"m": 16, "n": 32, "k": 32})
    made = export_variants([transposed], wrong).info
    info |= {"function": made["function"], "variants": made["variants"]}
    info["variants"][0]["shapes"] = [[16, 32], [32, 32], [16, 32]]
    (tmp_path / "matmul.so.json").write_text(json.dumps(info))
    square = load_workload("matmul", {"m": 16, "n": 32, "k": 32})
    (check,) = check_library(wrong, [square], TARGET)
    assert check.status is Status.WRONG_RESULT
    assert workload.kernel.name in check.workload


def test_the_dispatcher_costs_little(matmul: Path) -> None:
    assert 0.0 < dispatch_ns(matmul) < 10_000.0  # not a limit: the unit is nanoseconds


@pytest.mark.parametrize("kernel", list_kernels("core-v0"), ids=lambda kernel: kernel.name)
@pytest.mark.slow
def test_every_suite_kernel_takes_every_shape(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    export_variants([LLVM.start(Workload.of(kernel, kernel.tiny_shape), TARGET)], path)
    workloads = [Workload.of(kernel, shape) for shape in kernel.holdout]
    checks = check_library(path, workloads, TARGET)
    assert [check.status for check in checks] == [Status.PASSED] * len(workloads)


@pytest.mark.parametrize("name", ["stencil2d", "conv2d_strided", "argmax"])
def test_extents_that_are_expressions_and_several_outputs(name: str, tmp_path: Path) -> None:
    kernel = load_kernel(name)
    path = tmp_path / "lib.so"
    export_variants([LLVM.start(Workload.of(kernel, kernel.tiny_shape), TARGET)], path)
    library = TunedLibrary(path)
    inputs, wanted = expected(Workload.of(kernel, kernel.holdout[0]))
    result = library(*inputs)
    first = result[0] if isinstance(result, tuple) else result
    np.testing.assert_allclose(first, wanted, rtol=1e-4, atol=1e-5)
    assert library.used[ANY_SHAPE] == 1


def test_the_nearest_shape_carries_over_where_it_is_legal() -> None:
    far = program_of("matmul", {"m": 64, "n": 64, "k": 64}, "Reorder(loop=1)")
    near = program_of("matmul", {"m": 16, "n": 32, "k": 8}, *VECTORIZED)
    assert nearest({"m": 16, "n": 32, "k": 9}, [far, near]) == [near, far]
    assert distance({"m": 2, "n": 1}, {"m": 1, "n": 2}) == pytest.approx(2 * np.log(2))
    program, source = carry_over(load_workload("matmul", {"m": 16, "n": 24, "k": 8}), [far, near])
    assert (program.steps, source) == (near.steps, near)
    # 7 columns cannot be split by 8: the next nearest is taken
    program, source = carry_over(load_workload("matmul", {"m": 16, "n": 7, "k": 8}), [far, near])
    assert (program.steps, source) == (far.steps, far)
    program, source = carry_over(load_workload("matmul", {"m": 1, "n": 7, "k": 8}), [near])
    assert (program.steps, source) == ((), None)


def test_kernels_that_compute_with_their_sizes_get_no_fallback(tmp_path: Path) -> None:
    def build(shape: Shape) -> Any:
        return load_kernel("add").build({name: int(size) for name, size in shape.items()})

    kernel = Kernel(
        name="plus",
        family="elementwise",
        build=build,
        reference=lambda a, b: a + b,
        train=({"m": 4, "n": 8},),
        tiny={"m": 4, "n": 8},
    )
    program = LLVM.start(Workload.of(kernel, {"m": 4, "n": 8}), TARGET)
    library = TunedLibrary(export_variants([program], tmp_path / "plus.so").library)
    a = np.ones((4, 8), np.float32)
    assert np.array_equal(library(a, a), a + a)
    with pytest.raises(InvalidValueError, match="'m': 4, 'n': 8"):
        library(a[:3], a[:3])


@pytest.mark.parametrize(
    "asks",
    [
        lambda m: m == 2,
        lambda m: m in (1, 2),
        lambda m: m != 2,
        lambda m: m % 2 == 0,
        lambda m: m in {1, 2},
        lambda m: m > 1,
    ],
)
def test_kernels_that_branch_on_their_sizes_get_no_fallback(asks: Callable[[Any], Any]) -> None:
    def build(shape: Shape) -> Any:
        return load_kernel("add" if asks(shape["m"]) else "relu").build(shape)

    add = load_kernel("add")
    assert any_shape(add, ["m", "n"]) is not None
    assert any_shape(replace(add, build=build), ["m", "n"]) is None
    m = tirx.Var("m", "int32")
    assert [m] == [m]  # what TVM's own code relies on is as before
    assert m in {m}
    assert m not in (1, 2)


def test_the_fallback_can_be_left_out(tmp_path: Path) -> None:
    program = program_of("add", {"m": 4, "n": 8})
    made = export_variants([program], tmp_path / "add.so", others=False)
    assert made.info["any_shape"] is False
    assert TunedLibrary(tmp_path / "add.so").variant_of([(4, 9), (4, 9)]) == ""


def test_programs_must_be_of_one_kernel_and_different_shapes(tmp_path: Path) -> None:
    one = program_of("add", {"m": 4, "n": 8})
    for programs in ([], [one, one], [one, program_of("relu", {"m": 4, "n": 8})]):
        with pytest.raises(InvalidValueError):
            export_variants(programs, tmp_path / "lib.so")
    assert not list(tmp_path.iterdir())


def test_damaged_descriptions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    for text in ("", "{}", '{"format": "tirgym-library-1"}'):
        path.with_name("lib.so.json").write_text(text)
        with pytest.raises(DamagedFileError, match=r"lib\.so\.json"):
            TunedLibrary(path)
