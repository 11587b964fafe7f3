"""How often do legal schedules compute something else? Random deep schedules against the unscheduled.

Run: python -m tirgym.benchmarks.soundness --schedules 400 --depth 12 --seed 0
     python -m tirgym.benchmarks.soundness --backend cuda --arch sm_90 --schedules 200

Each schedule is built and run in a forked child with a time limit, on two input sets one after the
other, so that values left over from the first show in the second. Wrong schedules are shrunk to the
shortest step list that is still wrong and printed as transform texts. Exit code 1 if there is one.

With a backend for GPUs what is run is what `semantic_check` runs, of the completed program: threads one after
the other on the CPU, tensor cores as loops, pipelines as pipelines. What static checks refuse counts as "refused".
There the last kernel is a tiled float16 product that is ready for tensor cores and pipelines.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.benchmarks.soundness_starts import TILED_PRODUCT, tiled_product
from tirgym.errors import IllegalTransformError, TirgymError
from tirgym.harness.backends.llvm import LLVMBackend, tvm_target
from tirgym.harness.evaluation_run import static_finding
from tirgym.harness.semantic import on_cpu
from tirgym.harness.target import Target
from tirgym.harness.tensorir.completion import completed
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.transforms.base import Transform
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import make_inputs, tensors
from tirgym.kernels_suite.registry import kernel_names, load_kernel

__all__ = ["Finding", "check", "main"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one schedule: "ok", "refused", "wrong", "build error", "crash" or "timeout"."""

    verdict: str
    detail: str = ""
    seconds: float = 0.0


_FINE = ("ok", "refused")
Inputs = list[tuple[tuple[Any, ...], tuple[Any, ...]]]


def _run(mod: Any, target: Target, workload: Workload, inputs: Sequence[Any]) -> tuple[Any, ...]:
    import tvm

    library = tvm.compile(mod, target=tvm_target(target))
    call = library["main"]
    found = []
    for case in inputs:
        outputs = []
        for tensor in tensors(workload)[1]:
            poison = np.full(tensor.shape, 85, tensor.dtype)
            if poison.dtype.kind == "f":
                poison[...] = np.nan
            outputs.append(tvm.runtime.tensor(poison))
        call(*(tvm.runtime.tensor(np.ascontiguousarray(x)) for x in case), *outputs)
        found.append(tuple(x.numpy() for x in outputs))
    return tuple(found)


def _difference(got: Any, expected: Any) -> str:
    """Empty when equal within rounding, else how far apart."""
    if got.dtype.kind != "f":
        wrong = int(np.count_nonzero(got != expected))
        return f"{wrong} of {got.size} elements differ" if wrong else ""
    scale = max(float(np.sqrt(np.mean(np.square(expected, dtype=np.float64)))), 1e-6)
    error = np.abs(got.astype(np.float64) - expected)
    bad = ~(error <= 2e-3 * np.maximum(np.abs(expected), scale))
    if not bad.any():
        return ""
    nans = int(np.isnan(got).sum())
    return (
        f"{int(bad.sum())} of {got.size} elements differ, {nans} NaN, worst {np.nanmax(error):.3g}"
    )


def _judge(program: TensorIRProgram, cases: Inputs) -> Finding:
    """In the child: build, run, compare."""
    started = time.perf_counter()
    try:
        if program.target.backend != "llvm":
            refusal = static_finding(program)
            if refusal:
                return Finding("refused", refusal)
            program = on_cpu(completed(program))
        results = _run(program.mod, program.target, program.workload, [x for x, _ in cases])
    except (RuntimeError, ValueError, TypeError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return Finding("build error", lines[-1][:200] if lines else type(error).__name__)
    seconds = time.perf_counter() - started
    for number, (got, (_, expected)) in enumerate(zip(results, cases, strict=True)):
        for one, other in zip(got, expected, strict=True):
            problem = _difference(one, other)
            if problem:
                return Finding("wrong", f"input set {number}: {problem}", seconds)
    return Finding("ok", "", seconds)


def check(program: TensorIRProgram, cases: Inputs, limit_s: int = 30) -> Finding:
    """Build and run `program` in a forked child; the child dies after `limit_s` seconds."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(limit_s)
        try:
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(pickle.dumps(_judge(program, cases)))
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(70)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer:
        return pickle.loads(answer)  # type: ignore[no-any-return]
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
    if number == signal.SIGALRM:
        return Finding("timeout", f"over {limit_s} s")
    return Finding("crash", f"signal {number}")


def replay(start: TensorIRProgram, steps: Sequence[Transform]) -> TensorIRProgram | None:
    """`start` after `steps`; None if one of them is illegal."""
    program = start
    try:
        for step in steps:
            program = program.apply(step)
    except IllegalTransformError:
        return None
    return program


def shrink(start: TensorIRProgram, steps: Sequence[Transform], cases: Inputs) -> list[Transform]:
    """The steps without those that are not needed for the same verdict."""
    kept = list(steps)
    wanted = _verdict(start, kept, cases)
    place = len(kept) - 1
    while place >= 0:
        shorter = kept[:place] + kept[place + 1 :]
        if _verdict(start, shorter, cases) == wanted:
            kept = shorter
        place -= 1
    return kept


def _verdict(start: TensorIRProgram, steps: Sequence[Transform], cases: Inputs) -> str:
    program = replay(start, steps)
    return "illegal" if program is None else check(program, cases).verdict


def _starts(name: str, target: Target, train: bool) -> list[TensorIRProgram]:
    """The kernel at its tiny shape, and at that shape rounded up so that more factors divide.

    With `train`: at its first two train shapes instead.
    """
    if name == TILED_PRODUCT:
        return [tiled_product(target)]
    kernel = load_kernel(name)
    tiny = dict(kernel.tiny_shape)
    rounded = {dim: size if size < 6 else -(-size // 8) * 8 for dim, size in tiny.items()}
    found = []
    for shape in kernel.train[:2] if train else (rounded, tiny):
        try:
            found.append(TensorIRProgram.start(Workload.of(kernel, shape), target))
        except (TirgymError, RuntimeError, ValueError):
            continue
    return found


def _cases(start: TensorIRProgram, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    inputs = [make_inputs(start.workload, rng, Regime.NORMAL) for _ in range(2)]
    plain = TensorIRProgram.start(start.workload, Target("llvm", LLVMBackend().target().arch, 1))
    outputs = _run(plain.mod, plain.target, plain.workload, inputs)
    return list(zip(inputs, outputs, strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study and print one line for each schedule that is not right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backend", default="llvm", help="llvm, cuda, opencl or rocm")
    parser.add_argument("--arch", default="", help="of a GPU; default: sm_90 on cuda")
    parser.add_argument("--kernels", default="", help="names, separated by commas; default: all")
    parser.add_argument("--train", action="store_true", help="train shapes instead of tiny ones")
    parser.add_argument("--only", default="", help="transforms to draw from, by name; default: all")
    args = parser.parse_args(argv)
    os.environ["TVM_NUM_THREADS"] = str(args.threads)
    vocabulary = default_vocabulary(args.backend)
    target = _target(args.backend, args.arch, args.threads)
    names = args.kernels.split(",") if args.kernels else list(kernel_names())
    if args.backend == "cuda" and not args.kernels:
        names.append(TILED_PRODUCT)
    prepared: dict[tuple[str, int], tuple[TensorIRProgram, Inputs]] = {}
    counts: Counter[str] = Counter()
    for number in range(args.schedules):
        rng = np.random.default_rng([args.seed, number])
        name = names[number % len(names)]
        if (name, 0) not in prepared:
            for i, start in enumerate(_starts(name, target, args.train)):
                prepared[name, i] = start, _cases(start, args.seed)
        variant = int(rng.random() < 0.3 and (name, 1) in prepared)
        start, cases = prepared[name, variant]
        program = start
        for _ in range(1 + int(rng.integers(args.depth))):
            mask = program.legal_mask(vocabulary)
            if args.only:
                chosen = args.only.split(",")
                mask = mask & [t.name in chosen for t in vocabulary]
            step = draw_transform(vocabulary, mask, rng)
            if step is None:
                break
            try:
                program = program.apply(step)
            except IllegalTransformError as error:
                counts["mask error"] += 1
                print(f"{number} {start.workload} mask error: {error}")
                print("    " + "; ".join(str(taken) for taken in program.steps), flush=True)
                break
        finding = check(program, cases)
        counts[finding.verdict] += 1
        if finding.verdict not in _FINE:
            _report(number, start, program, cases, finding)
    print(json.dumps({"schedules": args.schedules, **counts}))
    return 0 if set(counts) <= set(_FINE) else 1


def _target(backend: str, arch: str, threads: int) -> Target:
    if backend == "llvm":
        return Target(backend, LLVMBackend().target().arch, threads)
    return Target(backend, arch or {"cuda": "sm_90", "rocm": "gfx942"}.get(backend, ""), 1)


def _report(
    number: int, start: TensorIRProgram, program: TensorIRProgram, cases: Inputs, finding: Finding
) -> None:
    steps: Sequence[Transform] = program.steps
    if finding.verdict != "timeout":
        steps = shrink(start, steps, cases)
    print(f"{number} {start.workload} {finding.verdict}: {finding.detail}")
    print("    " + "; ".join(str(step) for step in steps), flush=True)


if __name__ == "__main__":
    sys.exit(main())
