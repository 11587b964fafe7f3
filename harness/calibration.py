"""Peak arithmetic and bandwidth of this machine, measured once and kept in the data folder.

The peaks place a program on the roofline (Williams, Waterman and Patterson, Roofline, CACM 2009).
They describe and never judge: what is too fast to be true is decided by
`tirgym.harness.hardware.roofline_floor_us`, which no busy machine can lower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tirgym import settings
from tirgym.errors import EvaluationError
from tirgym.harness.hardware import cpu_facts, fingerprint, host_cpu
from tirgym.harness.target import Target
from tirgym.harness.whole_file import write_whole

__all__ = ["Peaks", "estimated_peaks", "measure_peaks", "peaks"]

FORMAT = 1
TIMEOUT_S = 120.0
_FMA = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((LANES,), "float32"), Y: T.Buffer((THREADS, 12, LANES), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for p in T.parallel(THREADS):
            for r in range(REPEATS):
                for u in T.unroll(12):
                    for v in T.vectorized(LANES):
                        with T.sblock("fma"):
                            v_p, v_r, v_u, v_v = T.axis.remap("SRSS", [p, r, u, v])
                            Y[v_p, v_u, v_v] = Y[v_p, v_u, v_v] * X[v_v] + X[v_v]
"""
"""Twelve independent chains of multiply-adds in registers: enough for two units and six cycles."""
_READ = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((THREADS, STEPS, 8, LANES), "float32"),
             Y: T.Buffer((THREADS, 8, LANES), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for p in T.parallel(THREADS):
            for r, i in T.grid(REPEATS, STEPS):
                for u in T.unroll(8):
                    for v in T.vectorized(LANES):
                        with T.sblock("read"):
                            v_p, v_r, v_i, v_u, v_v = T.axis.remap("SRRSS", [p, r, i, u, v])
                            Y[v_p, v_u, v_v] = Y[v_p, v_u, v_v] + X[v_p, v_i, v_u, v_v]
"""
"""Sums of a buffer that is read again and again; floating sums cannot be reordered or skipped."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the cores of one target can do at most, for float32."""

    gflops: float
    """10⁹ arithmetic operations a second; a multiply-add counts two"""
    l1_gbs: float
    """10⁹ bytes a second read from the first-level caches"""
    l2_gbs: float
    l3_gbs: float
    dram_gbs: float
    source: str
    """"measured" or "estimated" """


def estimated_peaks(target: Target) -> Peaks:
    """Rough peaks from the vector width at 3 GHz, for machines that must not be measured."""
    facts = cpu_facts(target)
    cores = min(target.num_threads, facts.cores)
    clock = 3.0 * cores
    lanes = facts.vector_bits / 32
    return Peaks(
        gflops=clock * lanes * 2 * 2,
        l1_gbs=clock * 2 * facts.vector_bytes,
        l2_gbs=clock * 32,
        l3_gbs=cores * 20.0,
        dram_gbs=min(20.0 * cores, 80.0),
        source="estimated",
    )


def measure_peaks(target: Target, scale: float = 1.0) -> Peaks:
    """Run the kernels in this process, about two seconds, and keep the best of several runs.

    TVM_NUM_THREADS must have been set to `target.num_threads` before. `scale` shrinks the work.
    """
    facts = cpu_facts(target)
    threads = target.num_threads
    lanes = facts.vector_bits // 32
    repeats = max(10, int(200_000 * scale))
    seconds = _best(_FMA, target, ((lanes,), (threads, 12, lanes)), REPEATS=repeats)
    gflops = 2.0 * repeats * 12 * lanes * threads / seconds / 1e9

    def bandwidth(nbytes: int) -> float:
        steps = max(1, nbytes // (8 * lanes * 4))
        again = max(1, int((64 << 20) * scale) // nbytes)
        shapes = ((threads, steps, 8, lanes), (threads, 8, lanes))
        best = _best(_READ, target, shapes, REPEATS=again, STEPS=steps)
        return again * steps * 8 * lanes * 4 * threads / best / 1e9

    far = min(2 * facts.l3_bytes, 256 << 20) // threads
    return Peaks(
        gflops=gflops,
        l1_gbs=bandwidth(facts.l1_bytes // 2),
        l2_gbs=bandwidth(facts.l2_bytes // 2),
        l3_gbs=bandwidth(min(facts.l3_bytes // 4, 8 * facts.l2_bytes) // threads),
        dram_gbs=bandwidth(max(1 << 16, int(far * scale))),
        source="measured",
    )


def _best(
    source: str, target: Target, shapes: tuple[tuple[int, ...], tuple[int, ...]], **sizes: int
) -> float:
    """Seconds of the fastest of several calls of a kernel on arrays of ones."""
    import numpy as np
    import tvm
    from tvm.script import ir, tirx

    from tirgym.harness.backends.llvm import tvm_target

    sizes.update(THREADS=target.num_threads, LANES=shapes[1][-1])
    for name, size in sizes.items():
        source = source.replace(name, str(size))
    if target.num_threads == 1:
        source = source.replace("T.parallel(1)", "range(1)")
    mod = tvm.script.from_source(source, extra_vars={"I": ir, "T": tirx})
    function = tvm.compile(mod, target=tvm_target(target))["main"]
    arrays = [tvm.runtime.tensor(np.full(shape, 0.5, np.float32)) for shape in shapes]
    return _fastest(lambda: function(*arrays))


def _fastest(call: Callable[[], Any], seconds: float = 0.15, least: int = 3) -> float:
    call()
    best, runs, end = float("inf"), 0, time.perf_counter() + seconds
    while runs < least or time.perf_counter() < end:
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
        runs += 1
    return best


def _path(target: Target) -> Path:
    name = f"peaks-{FORMAT}-{fingerprint()}-{target.arch}-{target.num_threads}.json"
    return settings.data_dir() / name


def _read(path: Path) -> Peaks | None:
    """The peaks in `path`; None if it is missing, damaged or of another format."""
    try:
        return Peaks(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def peaks(target: Target) -> Peaks:
    """The measured peaks of `target`, from the data folder or measured now in another process.

    Those of a CPU are its own, whichever backend uses it. Raises EvaluationError when the measurement fails.
    """
    if target.backend != "llvm":
        target = Target("llvm", host_cpu(), target.num_threads)
    path = _path(target)
    known = _read(path)
    if known is not None:
        return known
    made = _measure_elsewhere(target)
    write_whole(path, json.dumps(asdict(made), indent=2, sort_keys=True) + "\n")
    return made


def _measure_elsewhere(target: Target) -> Peaks:
    """Measure in a process of its own: a parallel kernel would make later forks of this one hang."""
    command = [sys.executable, "-m", __name__, target.backend, target.arch, str(target.num_threads)]
    environment = {**os.environ, "TVM_NUM_THREADS": str(target.num_threads)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        return Peaks(**json.loads(done.stdout.strip().splitlines()[-1]))
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise EvaluationError(f"peaks of {target} could not be measured: {last}") from None
    except (subprocess.TimeoutExpired, ValueError, IndexError, TypeError) as error:
        raise EvaluationError(f"peaks of {target} could not be measured: {error}") from None


def main(arguments: list[str]) -> None:
    """Print the peaks of BACKEND ARCH THREADS as JSON."""
    backend, arch, threads = arguments
    print(json.dumps(asdict(measure_peaks(Target(backend, arch, int(threads))))))


if __name__ == "__main__":
    main(sys.argv[1:])
