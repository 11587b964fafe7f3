"""Backends `cuda` and `rocm`: every level without a device, and no number."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from device_programs import matmul, mirrored_rows, shared_matmul

from tirgym.errors import BackendUnavailableError, CompileFailedError, UnknownNameError
from tirgym.harness.backend import backend

Cli = Callable[..., Any]
needs_ptxas = pytest.mark.skipif(
    find_spec("triton") is None, reason="needs ptxas of triton: pip install 'tirgym[triton]'"
)


@pytest.mark.parametrize(
    ("name", "arch", "level", "marks"),
    [
        ("cuda", "sm_90", "lowered", ("T.launch_thread", "tvm_storage_sync")),
        (
            "cuda",
            "sm_90",
            "cuda",
            ("__global__", "__syncthreads()", "__shared__", "grid (4, 4, 1)"),
        ),
        (
            "cuda",
            "sm_80",
            "ptx",
            (".target sm_80", ".visible .entry main_kernel", "bar.sync", "ld.shared"),
        ),
        ("rocm", "gfx942", "llvm", ("amdgpu_kernel", "addrspace(3)")),
        ("rocm", "gfx1100", "amdgcn", ("s_barrier", "ds_", "gfx1100")),
    ],
)
def test_levels(name: str, arch: str, level: str, marks: tuple[str, ...]) -> None:
    compiler = backend(name)
    text = compiler.ir_level(shared_matmul(compiler.target(arch)), level)
    for mark in marks:
        assert mark in text, text[:2000]


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_sass(arch: str) -> None:
    compiler = backend("cuda")
    text = compiler.ir_level(shared_matmul(compiler.target(arch)), "sass")
    assert "FFMA" in text
    assert "BAR.SYNC" in text


def test_build_has_a_key_and_no_launcher() -> None:
    compiler = backend("cuda")
    target = compiler.target("sm_90")
    one, two = (
        compiler.build(compiler.module_json(program), target)
        for program in (matmul(target), shared_matmul(target))
    )
    assert one.code_key != two.code_key
    with pytest.raises(BackendUnavailableError, match="needs a device"):
        one.load()


def test_limits_of_the_device_are_checked_on_the_lowered_kernels() -> None:
    """64 KiB of shared memory are more than a CUDA kernel may declare."""
    compiler = backend("cuda")
    target = compiler.target("sm_90")
    program = shared_matmul(target, 256, 128)
    with pytest.raises(CompileFailedError, match=r"VerifyGPUCode: main_kernel has more than"):
        compiler.build(compiler.module_json(program), target)


def test_targets_are_named_by_the_user() -> None:
    with pytest.raises(BackendUnavailableError, match="--arch: sm_80, sm_90, sm_100"):
        backend("cuda").target()
    with pytest.raises(UnknownNameError, match="gfx942"):
        backend("rocm").target("sm_90")


def test_measuring_says_in_one_line_what_it_needs(cli: Cli) -> None:
    refused = cli("optimize", "matmul", "--backend", "cuda", "--arch", "sm_90", "--trials", "1")
    assert refused.code == 2
    assert "measuring needs a device" in refused.err
    assert "Traceback" not in refused.err


def test_barriers_stand_where_threads_exchange_and_nowhere_else() -> None:
    compiler = backend("cuda")
    target = compiler.target("sm_90")
    assert "__syncthreads" not in compiler.ir_level(matmul(target), "cuda")
    assert "__syncthreads" in compiler.ir_level(mirrored_rows(target, "shared"), "cuda")


def test_what_one_kernel_alone_uses_is_kept_by_its_threads() -> None:
    """CUDA C has no global memory within a kernel; completion makes the row a local one."""
    compiler = backend("cuda")
    program = mirrored_rows(compiler.target("sm_90"), "global")
    assert "float B" in compiler.ir_level(program, "cuda")
