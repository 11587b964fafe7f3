"""The compiler is imported without torch, which stays importable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tirgym.harness.own_process import call_apart
from tirgym.harness.static_cost import StaticCostModel

pytest.importorskip("torch")

_OPTIMIZE = ["optimize", "add", "-s", "tiny", "--agent", "random", "--trials", "1"]


def run(code: str) -> None:
    paths = [path for path in sys.path if path]
    start = f"import sys; sys.path[:0] = {paths!r}; "
    subprocess.run([sys.executable, "-c", start + code], check=True, timeout=120)


@pytest.mark.parametrize(
    "first",
    [
        "import tirgym, tvm",
        "from tirgym.kernels_suite import problem as p, registry as r; p.tensors(r.load_workload('add'))",
        f"from tirgym.cli import main; assert main({_OPTIMIZE!r}) == 0",
    ],
    ids=["tvm", "kernel", "optimize"],
)
def test_whoever_imports_the_compiler_does_not_bring_torch_along(first: str) -> None:
    run(f"{first}; assert 'tvm' in sys.modules and 'torch' not in sys.modules")


def test_torch_can_be_imported_afterwards_and_its_tensors_reach_the_compiler() -> None:
    share = "tvm.runtime.from_dlpack(torch.ones(3)).numpy().sum() == 3"
    call = "tvm.get_global_func('ffi.Array')(torch.ones(2))[0].numpy().sum() == 2"
    run(f"import tirgym, tvm, torch; assert {share}; assert {call}")


def test_a_call_apart_does_not_bring_torch_along_and_can_import_it() -> None:
    here = {"an argument whose module imports the compiler": StaticCostModel}
    loaded = "[name in __import__('sys').modules for name in ('tvm', 'torch')]"
    assert call_apart(eval, loaded, here, num_threads=1) == [True, False]
    assert call_apart(eval, "__import__('torch').__name__", here, num_threads=1) == "torch"


def test_modules_that_import_both_keep_both(tmp_path: Path) -> None:
    """As a reward, an agent or a function of somebody else may, in either order."""
    (tmp_path / "of_both.py").write_text(
        "import torch, tvm\nassert tvm.te and torch.ones(1) == 1\n"
    )
    keeps = "assert sys.modules['torch'] is of_both.torch"
    run(f"sys.path.insert(0, {str(tmp_path)!r}); import tirgym, of_both; {keeps}")


def test_other_threads_do_not_miss_it() -> None:
    begin = "over = threading.Event(); thread = threading.Thread(target=over.wait); thread.start()"
    told = "import tvm; over.set(); assert sys.modules['torch'].ones(1) == 1"
    run(f"import threading, tirgym; {begin}; {told}")
