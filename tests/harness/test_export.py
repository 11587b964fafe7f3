"""Exported libraries: called through ctypes with NumPy alone, they compute what the kernel means."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tirgym.errors import BackendUnavailableError, EvaluationError, InvalidValueError
from tirgym.harness import export
from tirgym.harness.backend import backend
from tirgym.harness.export import ExportedLibrary, export_library, link_library
from tirgym.harness.export_shim import c_runtime
from tirgym.harness.program import Program
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Kernel, Regime, Shape, Tensor, Workload
from tirgym.kernels_suite.problem import make_inputs, reference_of
from tirgym.kernels_suite.registry import load_workload

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(export.c_compiler() is None, reason="no C compiler")


def program_of(name: str, shape: Shape, *transforms: str, threads: int = 1) -> Program:
    """A small program on this machine."""
    llvm = backend("llvm")
    program = llvm.start(load_workload(name, shape), llvm.target(None, threads))
    for text in transforms:
        program = program.apply(parse_transform(text))
    return program


def call(exported: ExportedLibrary, arrays: list[Any]) -> int:
    """Call the library on `arrays`."""
    function = getattr(ctypes.CDLL(str(exported.library)), exported.function)
    return int(function(*(array.ctypes.data_as(ctypes.c_void_p) for array in arrays)))


def shifted(array: Any, offset: int) -> Any:
    """A copy of `array` that starts `offset` bytes after a multiple of 64."""
    raw = np.zeros(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("offset", [0, 4])
def test_library_computes_the_kernel(tmp_path: Path, offset: int) -> None:
    vectorized = ("Split(loop=1, factor=8)", "Vectorize(loop=2)")
    program = program_of("add", {"m": 5, "n": 24}, *vectorized)
    exported = export_library(program, tmp_path / "add.so")
    inputs = make_inputs(program.workload, np.random.default_rng(0), Regime.NORMAL)
    (expected,) = reference_of(program.workload, inputs)
    out = shifted(np.full(expected.shape, np.nan, np.float32), offset)
    assert call(exported, [*(shifted(x, offset) for x in inputs), out]) == 0
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
def test_parallel_library_runs_every_thread(tmp_path: Path) -> None:
    program = program_of("matmul", {"m": 7, "n": 6, "k": 5}, "Parallel(loop=0)", threads=2)
    exported = export_library(program, tmp_path / "matmul.so")
    inputs = make_inputs(program.workload, np.random.default_rng(1), Regime.NORMAL)
    (expected,) = reference_of(program.workload, inputs)
    out = np.full(expected.shape, np.nan, np.float32)
    assert call(exported, [*inputs, out]) == 0
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


_FAILING_THREAD = """
static int body(int id, Group *group, void *data) {
  (void)group;
  if (id != *(int *)data) return 0;
  TVMFFIErrorSetRaisedFromCStr("ValueError", "thread failed");
  return -1;
}
int fail_in(int id) { return launch(body, &id, THREADS); }
"""


@pytest.mark.parametrize("thread", range(3))
def test_words_of_an_error_in_a_thread_reach_the_caller(tmp_path: Path, thread: int) -> None:
    compiler = export.c_compiler()
    assert compiler is not None
    given = [Tensor("x", (1,), "float32")]
    (tmp_path / "call.c").write_text(c_runtime("call", given, given, 3) + _FAILING_THREAD)
    (tmp_path / "kernel.c").write_text("int nothing;\n")
    command = [*compiler, "-c", "-fPIC", "kernel.c", "-o", "kernel.o"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    link_library(compiler, tmp_path, ("fail_in", "call_error"))
    loaded = ctypes.CDLL(str(tmp_path / "out.so"))
    loaded.call_error.restype = ctypes.c_char_p
    assert loaded.fail_in(99) == 0
    assert loaded.fail_in(thread) == -1
    assert loaded.call_error() == b"ValueError: thread failed"


@pytest.mark.parametrize("threads", [1, 2])
def test_metadata_tell_how_threads_are_made(tmp_path: Path, threads: int) -> None:
    if threads > (os.cpu_count() or 1):
        pytest.skip("one core")
    made = export_library(program_of("add", {"m": 2, "n": 8}, threads=threads), tmp_path / "l.so")
    assert ("threads_note" in made.info) is (threads > 1)


def test_library_needs_nothing_but_the_c_library(tmp_path: Path) -> None:
    export_library(program_of("softmax", {"m": 3, "n": 9}), tmp_path / "softmax.so")
    example = ROOT / "examples" / "call_exported.py"
    code = (
        "import runpy, sys; sys.argv = ['x', 'softmax.so']\n"
        f"try: runpy.run_path({str(example)!r}, run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'tvm', 'tvm_ffi', 'tirgym'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mean = float(done.stdout.splitlines()[-1].split()[-1])
    assert mean == pytest.approx(1 / 9)


def test_metadata_and_header_say_how_to_call(tmp_path: Path) -> None:
    exported = export_library(program_of("add", {"m": 2, "n": 3}), tmp_path / "add.so")
    info = json.loads(exported.metadata.read_text())
    assert info == exported.info
    assert [(a["role"], a["shape"], a["dtype"]) for a in info["arguments"]] == [
        ("input", [2, 3], "float32"),
        ("input", [2, 3], "float32"),
        ("output", [2, 3], "float32"),
    ]
    assert info["code_key"]
    assert f"int {info['function']}(const float *" in exported.header.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["add.h", "add.so", "add.so.json"]


def int_kernel() -> Kernel:
    """int8 in, int32 out, under a name of the C library."""

    def build(shape: Shape) -> Any:
        from tvm import te

        x = te.placeholder((shape["n"],), "int8", "int")
        y = te.compute((shape["n"],), lambda i: x[i].astype("int32") * 3, "double")
        return te.create_prim_func([x, y])

    return Kernel("exp", "local", build, lambda x: x.astype(np.int32) * 3, ({"n": 5},), exact=True)


def test_integers_and_names_of_c(tmp_path: Path) -> None:
    llvm = backend("llvm")
    program = llvm.start(Workload.of(int_kernel()), llvm.target())
    exported = export_library(program, tmp_path / "exp.so")
    x, y = np.array([-128, -1, 0, 1, 127], np.int8), np.zeros(5, np.int32)
    assert call(exported, [x, y]) == 0
    assert y.tolist() == [-384, -3, 0, 3, 381]


def test_a_null_pointer_is_an_error_with_words(tmp_path: Path) -> None:
    exported = export_library(program_of("add", {"m": 2, "n": 3}), tmp_path / "add.so")
    library = ctypes.CDLL(str(exported.library))
    words = getattr(library, f"{exported.function}_error")
    words.restype = ctypes.c_char_p
    x = np.zeros((2, 3), np.float32)
    pointer = x.ctypes.data_as(ctypes.c_void_p)
    assert getattr(library, exported.function)(pointer, None, pointer) != 0
    assert b"NULL" in words()


@pytest.mark.parametrize("name", ["lib.json", "lib.h", "lib"])
def test_refuses_names_that_are_no_library(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"\.so"):
        export_library(program_of("add", {"m": 2, "n": 3}), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_without_a_c_compiler_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "c_compiler", lambda: None)
    with pytest.raises(BackendUnavailableError, match="gcc"):
        export_library(program_of("add", {"m": 2, "n": 3}), tmp_path / "lib.so")
    assert list(tmp_path.iterdir()) == []


def test_a_failing_compiler_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "c_compiler", lambda: [sys.executable, "-c", "exit('no space')"])
    with pytest.raises(EvaluationError, match="no space"):
        export_library(program_of("add", {"m": 2, "n": 3}), tmp_path / "lib.so")
    assert list(tmp_path.iterdir()) == []
