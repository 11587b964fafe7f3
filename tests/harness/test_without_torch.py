"""The compiler is imported without torch, which stays importable."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tirgym.harness.own_process import call_apart
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.without_torch import without_torch

pytest.importorskip("torch")

_LOAD = "from tirgym.harness.backend import backend; backend('llvm'); import sys"


def run(code: str) -> None:
    paths = [path for path in sys.path if path]
    start = f"import sys; sys.path[:0] = {paths!r}; "
    subprocess.run([sys.executable, "-c", start + code], check=True, timeout=120)


def test_a_backend_does_not_bring_torch_along() -> None:
    run(f"{_LOAD}; assert 'torch' not in sys.modules")


def test_torch_can_be_imported_afterwards_and_its_tensors_reach_the_compiler() -> None:
    share = "tvm.runtime.from_dlpack(torch.ones(3)).numpy().sum() == 3"
    run(f"{_LOAD}; import torch, tvm; assert {share}")


def test_a_call_apart_does_not_bring_torch_along_and_can_import_it() -> None:
    here = {"an argument whose module imports the compiler": StaticCostModel}
    loaded = "[name in __import__('sys').modules for name in ('tvm', 'torch')]"
    assert call_apart(eval, loaded, here, num_threads=1) == [True, False]
    assert call_apart(eval, "__import__('torch').__name__", here, num_threads=1) == "torch"


def test_a_program_that_has_torch_keeps_it() -> None:
    run(f"import torch; {_LOAD}; assert sys.modules['torch'] is torch")


def test_other_threads_do_not_miss_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with without_torch():
            assert "torch" not in sys.modules
    finally:
        over.set()
        thread.join()
