"""`Workbench`: everything that a worker keeps warm for one workload, and the gate on it."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tirgym.errors import EvaluationError
from tirgym.harness.backend import Build, backend
from tirgym.harness.buffers import Poison
from tirgym.harness.evaluation import Level
from tirgym.harness.gate import Bench, GateOutcome, InputSet, run_gate
from tirgym.harness.judge import Expected, Verdict, judge, judge_with
from tirgym.harness.outcome import Anchor, Outcome
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.timing import Call, Timer, TimingPlan
from tirgym.harness.worker_device import worker_device
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import (
    accumulator_of,
    make_inputs,
    reference_of,
    scale_of,
    tensors,
    terms_of,
)

__all__ = ["Rules", "Workbench"]

POOL_ROUNDS = 48
"""Training evaluations that one pool of secret inputs serves before it is drawn again."""
POOL_BYTES = 512 << 20
ROTATING = (Regime.TIES, Regime.TINY, Regime.MIXED, Regime.HUGE, Regime.SPARSE, Regime.EXTREME)
"""Training: two of these at a time, in turn, besides RAMP and NORMAL (the timed inputs)."""
TRAINING_RERUNS = 2
"""Training: sets that are run a second time, one with each poison besides NaN; the timed calls and
what they leave repeat the NORMAL set too."""


@dataclass(frozen=True)
class Rules:
    """What holds for every evaluation of one workbench."""

    secret: bytes
    seed: int
    plans: dict[Level, TimingPlan]
    timer: Timer | None
    """None: the default for the target's number of threads"""
    lock_path: str
    """timings on one machine hold this file lock, so that they never overlap"""
    slowdown_limit: float
    """TOO_SLOW beyond this multiple of the naive time …"""
    slow_floor_s: float
    """… and this time"""
    bitwise: bool = False


def smoke_test(function: Callable[..., Any]) -> None:
    """Call a kernel of 64 float32 in, 64 out, each plus 1; raises EvaluationError if it is wrong."""
    import tvm

    given, got = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tensor = tvm.runtime.tensor(got)
    function(tvm.runtime.tensor(given), tensor)
    if not np.array_equal(tensor.numpy(), given + 1):
        raise EvaluationError("the compiler of this machine adds 1 wrongly")


class Workbench:
    """One workload on one target: buffers, unscheduled binary, input sets, anchors."""

    def __init__(self, workload: Workload, naive_json: str, target: Target, rules: Rules) -> None:
        self.workload, self.target, self.rules = workload, target, rules
        self.device = device = worker_device(target)
        self.timer = rules.timer or device.timer()
        ins, outs = tensors(workload)
        count = len(ins)
        inputs = [device.buffer(t, i) for i, t in enumerate(ins)]
        kernel = workload.kernel
        self.bench, self.baseline = (
            Bench(
                inputs,
                [device.buffer(t, count + i) for i, t in enumerate(outs)],
                kernel.compare,
                rules.bitwise,
            )
            for _ in range(2)
        )
        build = self.build(naive_json)
        self.naive_key = build.code_key
        self.naive = Call(build.load(), self.baseline.arguments())
        self.naive_s = math.inf
        self.terms, self.accumulator = terms_of(workload), accumulator_of(workload)
        self.pool: OrderedDict[tuple[Regime, int], InputSet] = OrderedDict()
        self.builds: OrderedDict[str, Build] = OrderedDict()
        self.loaded: dict[str, Call] = {}
        self.anchors: list[Anchor] = []
        self.failing: InputSet | None = None
        """inputs that the last program failed on"""

    def build(self, module_json: str) -> Build:
        """Compile for this bench's target."""
        return backend(self.target.backend).build(module_json, self.target)

    # --- input sets -------------------------------------------------------------------------

    def rng(self, regime: Regime, purpose: str) -> np.random.Generator:
        """Fresh generator from the secret, the public seed, the workload, and what it is for."""
        parts = (self.rules.seed, self.workload.uri, str(regime), purpose)
        digest = hashlib.sha256(self.rules.secret + repr(parts).encode()).digest()
        return np.random.default_rng(np.frombuffer(digest, np.uint32))

    def draw(self, regime: Regime, purpose: str) -> InputSet:
        """Inputs, references, scales and the unscheduled program's outputs.

        Raises EvaluationError if the unscheduled program fails its own gate.
        """
        inputs = make_inputs(self.workload, self.rng(regime, purpose), regime)
        references = reference_of(self.workload, inputs)
        scales = scale_of(self.workload, inputs) or (None,) * len(references)
        raw = InputSet(regime, inputs, ())
        seconds = self.baseline.run(self.naive.function, raw, Poison.NAN)
        if regime is Regime.NORMAL:
            self.naive_s = min(self.naive_s, seconds)
        expected = []
        for buffer, reference, scale in zip(self.baseline.outputs, references, scales, strict=True):
            name, own = buffer.tensor.name, buffer.array.copy()
            made = Expected.of(name, reference, own, self.terms, scale, self.accumulator)
            expected.append(made)
        return self.require_sound(InputSet(regime, inputs, tuple(expected)))

    def require_sound(self, made: InputSet) -> InputSet:
        """The unscheduled program must be right before anything is judged against it; answers the
        set with its verdicts."""
        verdicts: list[Verdict] = []
        failure = self.baseline.damage(made)
        if not failure:
            own = tuple(e.unscheduled for e in made.expected)
            compare = self.workload.kernel.compare
            if compare is not None:
                verdicts = judge_with(compare, made.inputs, own, made.expected)
            else:
                verdicts = [judge(y, e) for y, e in zip(own, made.expected, strict=True)]
            failure = next((v.failure for v in verdicts if v.failure), "")
        if failure:
            raise EvaluationError(
                f"the unscheduled program of {self.workload} fails its own gate: "
                f"{made.regime}: {failure}; its build and its reference disagree"
            )
        known = zip(made.expected, verdicts, strict=True)
        return replace(made, expected=tuple(replace(e, own=v) for e, v in known))

    def pooled(self, regime: Regime, epoch: int) -> InputSet:
        """A set of the current pool; older pools and the least used sets are dropped."""
        key = (regime, epoch)
        if key not in self.pool:
            for old in [k for k in self.pool if k[1] != epoch]:
                del self.pool[old]
            made = self.draw(regime, f"pool {epoch}")
            held = sum(s.nbytes for s in self.pool.values())
            while self.pool and held + made.nbytes > POOL_BYTES:
                held -= self.pool.popitem(last=False)[1].nbytes
            self.pool[key] = made
        self.pool.move_to_end(key)
        return self.pool[key]

    def sets(self, level: Level, number: int) -> tuple[list[InputSet], InputSet]:
        """Sets for the gate, and the NORMAL set for timing."""
        if level is Level.FULL:
            fresh = [self.draw(regime, f"full {number}") for regime in Regime]
            return fresh, next(s for s in fresh if s.regime is Regime.NORMAL)
        epoch = number // POOL_ROUNDS
        pair = [ROTATING[(2 * number + i) % len(ROTATING)] for i in range(2)]
        timed = self.pooled(Regime.NORMAL, epoch)
        return [self.pooled(r, epoch) for r in (Regime.RAMP, *pair)], timed

    def normal_set(self) -> InputSet:
        """The NORMAL set of the current pool."""
        epoch = max((epoch for _, epoch in self.pool), default=0)
        return self.pooled(Regime.NORMAL, epoch)

    def time_naive(self) -> None:
        """First rough seconds of the unscheduled program, on inputs that are needed anyway."""
        given = self.normal_set()
        self.naive_s = min(self.naive_s, self.baseline.run(self.naive.function, given, Poison.NAN))

    # --- binaries ---------------------------------------------------------------------------

    def function(self, code_key: str) -> Callable[..., Any]:
        """The loaded binary of an earlier `build`."""
        return self.builds[code_key].load()

    def remember(self, build: Build) -> None:
        """Keep a build for the next request; only the newest few."""
        self.builds[build.code_key] = build
        while len(self.builds) > 4:
            self.builds.popitem(last=False)

    def gate(
        self,
        function: Callable[..., Any],
        sets: Sequence[InputSet],
        level: Level = Level.FULL,
    ) -> tuple[Outcome, GateOutcome]:
        """The gate's verdict, as it is answered and with its details."""
        slow_s = max(self.rules.slow_floor_s, self.rules.slowdown_limit * self.naive_s)
        reruns = TRAINING_RERUNS if level is Level.TRAINING else None
        gate = run_gate(self.bench, function, sets, slow_s, reruns)
        self.failing = gate.failing
        outcome = Outcome(
            gate.status, gate.report, message=gate.report.failure, gate_runs_s=gate.runs_s
        )
        if gate.status is Status.TOO_SLOW:
            slowdown = slow_s / self.naive_s
            text = f"one call took {gate.seconds * 1e3:.3g} ms, over {slowdown:.3g}x the naive time"
            outcome = replace(outcome, message=text, slowdown=slowdown)
        return outcome, gate

    def call_of(self, anchor: Anchor) -> Call:
        """The anchor's binary on the baseline's memory, built when first used."""
        if anchor.module_json not in self.loaded:
            function = self.build(anchor.module_json).load()
            self.loaded[anchor.module_json] = Call(function, self.baseline.arguments())
        return self.loaded[anchor.module_json]
