"""Occupancy against NVIDIA's own calculator, which Triton's wheel brings as a C header."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tirgym.harness.triton.gpus import GPUS, gpu
from tirgym.harness.triton.occupancy import amd_occupancy, nvidia_occupancy

_PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include "cuda_occupancy.h"
extern "C" int blocks(int major, int warps, size_t shared, size_t optin, int threads, int registers,
                      size_t dynamic) {
  cudaOccDeviceProp p; memset(&p, 0, sizeof p);
  p.computeMajor = major; p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = warps * 32;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32; p.numSms = 132;
  p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = shared;
  p.sharedMemPerBlockOptin = optin; p.reservedSharedMemPerBlock = 1024;
  cudaOccFuncAttributes a; memset(&a, 0, sizeof a);
  a.maxThreadsPerBlock = 1024; a.numRegs = registers; a.partitionedGCConfig = PARTITIONED_GC_OFF;
  a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = optin;
  a.numBlockBarriers = 1;
  cudaOccDeviceState s; memset(&s, 0, sizeof s); s.carveoutConfig = 100;
  cudaOccResult r; memset(&r, 0, sizeof r);
  int e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, dynamic);
  return e ? -1 : r.activeBlocksPerMultiprocessor;
}
"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        pytest.skip("needs triton, which brings cuda_occupancy.h: pip install 'tirgym[triton]'")
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler to build NVIDIA's calculator")
    include = Path(spec.origin).parent / "backends/nvidia/include"
    if not (include / "cuda_occupancy.h").is_file():
        pytest.skip("this triton brings no cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "blocks.cpp").write_text(_PROGRAM)
    made = folder / "libblocks.so"
    command = [compiler, "-shared", "-fPIC", "-w", f"-I{include}", "-o", str(made)]
    subprocess.run([*command, str(folder / "blocks.cpp")], check=True)
    return ctypes.CDLL(str(made))


def test_blocks_are_those_of_the_vendors_calculator(calculator: ctypes.CDLL) -> None:
    blocks = calculator.blocks
    blocks.argtypes = [
        ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
        ctypes.c_size_t,
    ]  # fmt: skip
    rng, checked = random.Random(0), 0
    while checked < 3000:
        one = gpu(rng.choice([arch for arch in GPUS if arch.startswith("sm_")]))
        num_warps, registers = rng.choice([1, 2, 4, 8, 16, 32]), rng.randint(16, 255)
        shared = rng.randrange(0, one.shared_block_bytes, 16)
        if registers * 32 * num_warps > one.registers:
            continue
        wanted = blocks(
            one.capability // 10, one.max_warps, one.shared_bytes, one.shared_block_bytes,
            num_warps * 32, registers, shared,
        )  # fmt: skip
        found = nvidia_occupancy(one, registers, shared, num_warps)
        assert found.blocks == wanted, (one.arch, num_warps, registers, shared)
        assert found.fraction == found.warps / one.max_warps
        checked += 1


def test_what_cannot_be_launched_has_no_blocks() -> None:
    h100 = gpu("sm_90")
    assert nvidia_occupancy(h100, 32, h100.shared_block_bytes + 1, 4).blocks == 0
    assert nvidia_occupancy(h100, 256, 0, 4).limited_by == "registers"
    assert nvidia_occupancy(h100, 255, 0, 16).blocks == 0


def test_blocks_share_the_columns_of_tensor_memory() -> None:
    b200 = gpu("sm_100")
    for columns, blocks in ((0, 6), (32, 6), (128, 4), (256, 2), (512, 1), (1024, 0)):
        found = nvidia_occupancy(b200, 80, 16 << 10, 4, columns)
        assert found.blocks == blocks, columns
        assert (found.limited_by == "tensor memory") is (columns >= 128)
    assert not any(gpu(arch).tmem_columns for arch in GPUS if arch != "sm_100")


def test_an_amd_unit_holds_what_registers_and_shared_memory_allow() -> None:
    mi300x = gpu("gfx942")
    assert amd_occupancy(mi300x, 4, 0, 4).blocks == 4
    assert amd_occupancy(mi300x, 8, 32 * 1024, 4).limited_by == "shared memory"
    assert amd_occupancy(mi300x, 8, 65 * 1024, 4).blocks == 0
