"""Ahead-of-time compilation: levels, specialisation, edited IR, cache, processes of their own."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from tirgym.errors import (
    CompileFailedError,
    InvalidValueError,
    UnknownNameError,
    WorkerDiedError,
)
from tirgym.harness.channel import Channel
from tirgym.harness.triton import compiling
from tirgym.harness.triton.compiling import cache_key, compile_here, compiled_before
from tirgym.harness.triton.gpus import GPUS, gpu
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.request import CompileRequest
from tirgym.harness.triton.resources import resources_of
from tirgym.harness.triton.sass import hot_loop, instructions_of, sass_of
from tirgym.kernels_suite.kernel import Kernel, Workload
from tirgym.kernels_suite.registry import list_kernels, load_workload

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

ADD = load_workload("triton-v0/add", {"m": 16, "n": 256})


def test_every_level_of_an_nvidia_kernel_and_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIRGYM_HOME", str(tmp_path))  # nobody else has compiled here
    request = CompileRequest.of(ADD, "sm_90")
    assert compiled_before(request) is None
    made = compile_here(request)
    assert list(made.texts) == ["ttir", "ttgir", "llir", "ptx"]
    assert "tt.load" in made.texts["ttir"]
    assert "#ttg.blocked" in made.texts["ttgir"]
    assert ".visible .entry add" in made.texts["ptx"]
    assert "loc(" not in made.texts["ttir"]
    assert made.name == "add"
    assert made.binary[:4] == b"\x7fELF"
    again = compiled_before(request)
    assert again is not None
    assert (again.texts, again.binary, again.stage_ms) == (made.texts, made.binary, {})
    instructions, _ = instructions_of(sass_of(made.binary))
    assert {"LDG", "STG", "EXIT"} <= {i.base for i in instructions}
    assert all(0 <= i.stall < 16 for i in instructions)


def test_a_damaged_cache_file_is_made_again() -> None:
    request = CompileRequest.of(ADD, "sm_90", until="ttir")
    made = compile_here(request)
    path = compiling.triton_cache() / f"{cache_key(request)}.json"
    path.write_text(path.read_text()[:50])
    assert compiled_before(request) is None
    assert compile_here(request).texts == made.texts


_OTHER_PTXAS = """#!/bin/sh
echo 'Cuda compilation tools, release 99.9, V99.9.1'
"""
_KEYS = """
from tirgym.harness.triton.compiling import request_key, cache_key
from tirgym.harness.triton.request import CompileRequest
from tirgym.kernels_suite.registry import load_workload
request = CompileRequest.of(load_workload("triton-v0/add", {"m": 16, "n": 256}), "sm_80")
print(request_key(request), cache_key(request))
"""


def test_what_another_assembler_or_other_switches_made_is_not_taken(tmp_path: Path) -> None:
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(_OTHER_PTXAS)
    ptxas.chmod(0o755)
    others: tuple[dict[str, str], ...] = (
        {},
        {"TRITON_PTXAS_PATH": str(ptxas)},
        {"DISABLE_PTXAS_OPT": "1"},
    )
    keys = [
        subprocess.run(
            [sys.executable, "-c", _KEYS],
            env={**os.environ, **other, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for other in others
    ]
    assert len({program for program, _ in keys}) == 1
    assert len({code for _, code in keys}) == len(others)


def test_multiples_of_16_make_wide_accesses() -> None:
    odd = load_workload("triton-v0/add", {"m": 3, "n": 331})
    wide, narrow = (
        compile_here(CompileRequest.of(w, "sm_90", until="ptx")).texts["ptx"] for w in (ADD, odd)
    )
    assert "ld.global.v4" in wide
    assert "ld.global.v4" not in narrow


def test_an_edited_text_is_a_start() -> None:
    text = compile_here(CompileRequest.of(ADD, "sm_90", until="ttgir")).texts["ttgir"]
    edited = text.replace("sizePerThread = [4]", "sizePerThread = [2]")
    assert edited != text
    ptx = compile_here(CompileRequest.of(ADD, "sm_90", ir=("ttgir", edited), until="ptx")).texts
    assert "ttir" not in ptx
    assert "ld.global.v2" in ptx["ptx"]
    with pytest.raises(CompileFailedError, match=r"ttgir:\d+:\d+: error"):
        compile_here(CompileRequest.of(ADD, "sm_90", ir=("ttgir", text.replace("addf", "addi"))))


def test_requests_pickle_and_are_checked() -> None:
    request = CompileRequest.of(ADD, "sm_90", {"BLOCK": 512})
    assert request.launch.grid == (8, 1, 1)
    assert pickle.loads(pickle.dumps(request)) == request
    with pytest.raises(UnknownNameError, match="sm_90"):
        CompileRequest.of(ADD, "sm_91")
    with pytest.raises(InvalidValueError, match="amdgcn"):
        CompileRequest.of(ADD, "gfx942", until="ptx")


def test_a_pool_answers_in_order_and_outlives_crashes_and_hangs() -> None:
    narrow, wide = (
        CompileRequest.of(ADD, "sm_90", {"BLOCK": b}, until="ttir") for b in (256, 2048)
    )
    with CompilePool(2, timeout_s=60) as pool:
        first, second = pool.compile_many([narrow, wide])
        assert not isinstance(first, Exception)
        assert not isinstance(second, Exception)
        assert "tensor<256xf32>" in first.texts["ttir"]
        assert "tensor<2048xf32>" in second.texts["ttir"]
        (crashed,) = pool.call_many("os:_exit", [3])
        assert isinstance(crashed, CompileFailedError)
        assert str(crashed).endswith("ended with status 3")
        (raised,) = pool.call_many("builtins:int", ["none"])
        assert isinstance(raised, CompileFailedError)
        assert "ended with status 1\nValueError: invalid literal for int()" in str(raised)
        pool.timeout_s = 0.5
        (late,) = pool.call_many("time:sleep", [60])
        assert "over 0.5 s" in str(late)
        (slept,) = pool.call_many("time:sleep", [0])
        assert slept is None
        pool._channel.close()  # type: ignore[union-attr]
        with pytest.raises(WorkerDiedError):
            pool.call_many("time:sleep", [0])
        assert pool.call_many("time:sleep", [0]) == [None]


class _Interrupted:
    """Ctrl-C while it is on its way to another process."""

    def __reduce__(self) -> str:
        raise KeyboardInterrupt


def test_answers_of_an_interrupted_call_are_not_those_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with CompilePool(1, timeout_s=60) as pool:
        assert pool.call_many("builtins:abs", [-7]) == [7]
        with pytest.raises(KeyboardInterrupt):
            pool.call_many("builtins:abs", [-1, _Interrupted()])
        assert pool.call_many("builtins:abs", [-2]) == [2]
        with monkeypatch.context() as patched:
            patched.setattr(Channel, "receive", lambda _: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                pool.call_many("builtins:abs", [-3, -4])
        assert pool.call_many("builtins:abs", [-5]) == [5]


def test_many_large_jobs_do_not_block_a_server_that_answers() -> None:
    """A guard against hanging, far above what it takes: each end waited for the other to read."""
    given, found = [bytes([n]) * (1 << 20) for n in range(40)], list[bytes]()
    with CompilePool(2, timeout_s=60) as pool:
        assert pool.call_many("builtins:abs", [-7]) == [7]
        call = Thread(target=lambda: found.extend(pool.call_many("copy:copy", given)), daemon=True)
        call.start()
        call.join(300)
        assert not call.is_alive()
    assert found == given


def test_the_hot_loop_is_the_one_with_matrix_instructions() -> None:
    sass = (
        "Function:f\nLBB0:\n--:-:-:Y:4\tLDG.E R1, desc[UR4][R2.64];\n"
        "--:-:-:-:5\t@P0 BRA LBB0;\nLBB1:\n01:-:-:Y:2\tHMMA.16816.F32 R4, R8, R10, R4;\n"
        "--:-:-:-:6\t@P0 BRA LBB1;\n--:-:-:Y:5\tEXIT;\nLBB2:\n--:-:-:-:0\tBRA LBB2;\n"
    )
    instructions, labels = instructions_of(sass)
    assert [i.base for i in instructions] == ["LDG", "BRA", "HMMA", "BRA", "EXIT", "BRA"]
    assert instructions[2].waits == 1
    loop = hot_loop(instructions, labels)
    assert loop is not None
    assert (loop.instructions, loop.stall_cycles, loop.mix) == (2, 8, {"HMMA": 1, "BRA": 1})
    assert hot_loop(instructions[4:], {"LBB2": 1}) is None


@pytest.mark.slow
@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("kernel", list_kernels("triton-v0"), ids=lambda kernel: kernel.name)
def test_every_kernel_compiles_for_every_gpu_and_fits_it(kernel: Kernel, arch: str) -> None:
    request = CompileRequest.of(Workload.of(kernel), arch)
    made = compile_here(request)
    assert made.binary[:4] == b"\x7fELF"
    assert [*made.texts] == [level for level in gpu(arch).levels[1:] if level != "sass"]
    assert resources_of(made, gpu(arch)).occupancy.blocks > 0
