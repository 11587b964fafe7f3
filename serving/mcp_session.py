"""`KernelSession`: what one client does with one kernel, as plain calls without a protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, fields, replace

from tirgym.errors import InvalidValueError, UnknownNameError, UsageError
from tirgym.harness.agent import Candidate
from tirgym.harness.baselines_report import measure_baselines
from tirgym.harness.calibration import peaks
from tirgym.harness.counted_run import count_program
from tirgym.harness.counters import Counters
from tirgym.harness.evaluation import Level
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.macros import MACROS, named_vocabulary
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun
from tirgym.harness.session import CompileHarness
from tirgym.harness.static_profile import roofline, static_profile
from tirgym.harness.trace import TraceResult
from tirgym.harness.transforms import parse_transform
from tirgym.harness.transforms.base import Transform, parse_call
from tirgym.harness.verification import evaluate_in_sessions, verify_best
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload, opens_file
from tirgym.serving.mcp_budget import Counted
from tirgym.serving.mcp_compiler import compiled_text, instructions_of
from tirgym.serving.mcp_reports import (
    baseline_entry,
    changed,
    claimed,
    evaluated,
    exported,
    figures,
    history_entry,
)
from tirgym.serving.mcp_results import (
    Actions,
    Applied,
    Baselines,
    Evaluated,
    Exported,
    History,
    IRText,
    Loaded,
    Profile,
    RooflinePlace,
    Snapshot,
    State,
)
from tirgym.serving.mcp_wire import START, TINY, UNVERIFIED, Opening
from tirgym.spaces.action_text import grouped
from tirgym.spaces.graph import encoder_for
from tirgym.spaces.text_budget import clip_lines, elide
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["KernelSession"]

_NEST, _SHORT = 6_000, 8_000
"""Characters of a loop nest, and of all actions in short form."""
_NESTED = ("tir", "lowered")
"""IR levels whose outer lines say more than their first ones."""


class KernelSession:
    """One kernel, its current program, a budget of trials, and the reasons that the client gave.

    `note` hears what a long call is at. `close` ends the evaluator.
    """

    def __init__(
        self,
        opening: Opening,
        note: Callable[[str], None] = lambda text: None,
        evaluator: Evaluator | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.opening, self._note, self._clock = opening, note, clock
        self._began = clock()
        workload = _workload(opening)
        vocabulary = named_vocabulary(opening.space, opening.backend)
        self._inner = evaluator or LocalEvaluator(store=opening.store)
        self._counted = Counted(self._inner)
        self._harness = CompileHarness(
            opening.backend,
            opening.arch,
            opening.threads,
            evaluator=self._counted,
            vocabulary=vocabulary,
        )
        start = self._harness.load_ir(workload)
        self._counted.begin(start, vocabulary, self._harness.cost, opening.trials)
        self._whys: dict[int, str] = {}
        self._baselines: Baselines | None = None
        self._space = TransformSpace(vocabulary)

    def close(self) -> None:
        """End the evaluator."""
        self._inner.close()

    @property
    def _run(self) -> SearchRun:
        return self._counted.run

    # -- look -------------------------------------------------------------------------------

    def loaded(self) -> Loaded:
        """The state, and what may be asked for."""
        kinds = [kind.name for kind in self._harness.vocabulary.kinds]
        return Loaded(state=self.state(), levels=list(self._harness.backend.levels), kinds=kinds)

    def state(self) -> State:
        """Where the session stands."""
        program, opening = self._harness.program, self.opening
        tree = encoder_for(program.dialect).tree(program)
        return State(
            session=opening.session,
            workload=program.workload.uri,
            target=str(program.target),
            transforms=list(map(str, program.steps)),
            nest=list(elide(tree, _NEST, "loops and blocks")),
            predicted_us=self._harness.cost.predict_us(program),
            trials_used=self._run.used,
            trials_left=opening.trials - self._run.used,
            seconds_left=max(0.0, opening.seconds - (self._clock() - self._began)),
        )

    def ir(self, level: str, max_characters: int) -> IRText:
        """The current program at an IR level; levels below tir are made in a process of their own."""
        levels = self._harness.backend.levels
        if level not in levels:
            raise UnknownNameError(f"IR level of backend {self.opening.backend}", level, levels)
        program = self._harness.program
        text = program.text() if level == "tir" else self._compiled(level)
        lines = text.splitlines()
        shorten = elide if level in _NESTED else clip_lines
        shown = shorten(lines, max_characters, "lines")
        return IRText(
            level=level, ir="\n".join(shown), lines=len(lines), clipped=shown is not lines
        )

    def legal_actions(
        self, kind: str | None, loop: int | None, block: int | None, offset: int, limit: int
    ) -> Actions:
        """A page of the legal actions, of one kind or node or of all, in the order of the table; and
        all of them in short form."""
        kinds = [each.name for each in self._harness.vocabulary.kinds]
        if kind is not None and kind not in kinds:
            raise UnknownNameError("kind of action", kind, kinds)
        legal = self._harness.legal_transforms()
        counts = dict.fromkeys(kinds, 0)
        for each in legal:
            counts[each.name] += 1
        found = [
            each
            for each in legal
            if (kind is None or each.name == kind)
            and (loop is None or getattr(each, "loop", None) == loop)
            and (block is None or getattr(each, "block", None) == block)
        ]
        page = found[offset : offset + limit]
        end = offset + len(page)
        return Actions(
            actions=list(map(str, page)),
            short=list(clip_lines(grouped(list(map(str, found))), _SHORT, "lines")),
            offset=offset,
            total=len(found),
            next_offset=end if end < len(found) else None,
            kinds={name: count for name, count in counts.items() if count},
        )

    def history(self, offset: int, limit: int) -> History:
        """A page of the decision log, with the reasons that were given."""
        events = self._harness.history
        page = events[offset : offset + limit]
        end = offset + len(page)
        return History(
            entries=[history_entry(event, self._whys.get(event.number, "")) for event in page],
            offset=offset,
            total=len(events),
            next_offset=end if end < len(events) else None,
        )

    # -- change -----------------------------------------------------------------------------

    def apply(self, action: str, why: str) -> Applied:
        """Apply an action, given as text; raises IllegalTransformError and stays put."""
        transform = self._parse(action)
        before, number = self._harness.program, len(self._harness.history)
        try:
            after = self._harness.apply_transform(transform)
        finally:
            if why and len(self._harness.history) > number:
                self._whys[number] = why
        changes, sentences = changed(before, after)
        return Applied(
            action=str(transform),
            changes=changes,
            sentences=sentences,
            predicted_us_before=self._harness.cost.predict_us(before),
            state=self.state(),
        )

    def snapshot(self) -> Snapshot:
        """Remember the current program."""
        return Snapshot(snapshot=self._harness.snapshot(), state=self.state())

    def rollback(self, snapshot: str) -> Snapshot:
        """Make a snapshot the current program again."""
        self._harness.rollback(None if snapshot == START else snapshot)
        return Snapshot(snapshot=snapshot, state=self.state())

    # -- measure ----------------------------------------------------------------------------

    def evaluate(self, level: str) -> Evaluated:
        """Judge and time the current program; raises UsageError once the trials are spent.

        The first evaluation of a session measures the unscheduled program too, which is free.
        """
        if not self._counted.measured_start:
            self._note("measuring the unscheduled program")
            self._counted.measure_start()
        program, used = self._harness.program, self._run.used
        self._note("checking and measuring")
        evaluation = self._harness.compile_and_benchmark(Level(level))
        return evaluated(
            evaluation,
            program,
            self.state(),
            best_speedup=self._run.trials[-1].best_speedup,
            charged=self._run.used > used,
            rolled_back=self._harness.program is not program,
        )

    def profile(self, measure: bool) -> Profile:
        """The static profile; with `measure` also a verdict, roofline and counters."""
        program, trace = self._harness.program, self._harness.trace()
        verdict = self.evaluate(Level.TRAINING) if measure else None
        place, counted = self._measured(program, verdict)
        quantities, sentences = figures(program)
        return Profile(
            quantities=quantities,
            sentences=sentences,
            instructions=instructions_of(program, trace),
            evaluation=verdict,
            roofline=place,
            counters={} if isinstance(counted, str) else dict(counted.per_call),
            counters_unavailable=counted if isinstance(counted, str) else "",
        )

    def baseline(self) -> Baselines:
        """What the kernel takes without tirgym, measured once for each session."""
        if self._baselines is None:
            workload, target = self._harness.start.workload, self._harness.target
            with LocalEvaluator(store=self.opening.store) as evaluator:
                rows = measure_baselines(
                    workload, target, evaluator, lambda name: self._note(f"measuring {name}")
                )
            self._baselines = Baselines(
                workload=workload.uri, baselines=[baseline_entry(row) for row in rows]
            )
        return self._baselines

    # -- keep -------------------------------------------------------------------------------

    def best(self) -> Exported | None:
        """The best program so far with the number of the search; None before a pass."""
        ranked = self._run.ranked()
        return self._export(ranked[0], UNVERIFIED) if ranked else None

    def export(self, program: str, measure: bool) -> Exported:
        """A trace of the best program ("best") or of the current one ("current").

        With `measure` its number is a new one: the best candidates are compared in full, and the
        winner is measured once more, as at the end of every search.
        """
        if program == "current":
            return self._export_current(measure)
        best = self.best()
        if best is None:
            raise UsageError(
                "nothing has passed yet: evaluate a program first, or export the current one"
            )
        if not measure:
            return best
        self._note("comparing the best programs in full")
        verdict = verify_best(
            self._run.ranked(),
            self._harness.start,
            self._inner,
            on_check=lambda candidate: self._note(f"checked: {candidate.evaluation.status.value}"),
        )
        return self._export(verdict.candidate)

    def _export_current(self, measure: bool) -> Exported:
        if not measure:
            trace = replace(self._harness.trace(), agent=self.opening.agent)
            return exported(replace(trace, result=TraceResult(UNVERIFIED)))
        verdict = self.evaluate(Level.TRAINING)
        if verdict.rolled_back:
            raise UsageError(
                f"the current program does not hold ({verdict.status}: {verdict.message}); the "
                "session went back to the newest one that does"
            )
        program = self._harness.program
        self._note("measuring in full")
        return self._export(Candidate(program, evaluate_in_sessions(self._inner, program)))

    def _export(self, candidate: Candidate, status: str | None = None) -> Exported:
        claim = claimed(candidate.evaluation, status or candidate.evaluation.status.value)
        trace = self._harness.trace_of(candidate, self.opening.agent, 0, claim)
        return exported(replace(trace, seed=None))

    def _compiled(self, level: str) -> str:
        return compiled_text(self._harness.program, self._harness.trace(), level)

    def _measured(
        self, program: Program, verdict: Evaluated | None
    ) -> tuple[RooflinePlace | None, Counters | str]:
        """Roofline and counters of a program that passed, or why there are none."""
        if verdict is None:
            return None, "not measured"
        if verdict.latency_us is None:
            return None, f"the program did not pass: {verdict.status}"
        self._note("measuring the peaks of this machine")
        static = static_profile(program, assembly=False)
        place = roofline(program, static, verdict.latency_us, peaks(program.target))
        self._note("counting")
        return RooflinePlace(**asdict(place)), count_program(program)

    def _parse(self, action: str) -> Transform:
        """The transform that `action` names; its kind must be one of the session's.

        Parameters of a primitive are free; a macro must be in the action table.
        """
        kinds = {kind.name: kind for kind in self._harness.vocabulary.kinds}
        head, _ = parse_call(action)
        if head not in kinds:
            raise UnknownNameError("kind of action", head, kinds)
        if head not in MACROS:
            return parse_transform(action)
        try:
            number = self._space.from_text(action)
        except InvalidValueError:
            kind = kinds[head]
            names = ", ".join(f"{field.name}=…" for field in fields(kind))  # type: ignore[arg-type]
            accepted = f"{head}({names}) as legal_actions lists it"
            raise InvalidValueError("action", action, accepted) from None
        return self._harness.vocabulary[number]  # type: ignore[no-any-return]


def _workload(opening: Opening) -> Workload:
    """The workload that was asked for; raises UsageError."""
    if not opening.files and opens_file(opening.kernel):
        accepted = (
            "a kernel of list_kernels or its URI; this server runs no Python files "
            "(tirgym mcp --files lets it)"
        )
        raise InvalidValueError("kernel", opening.kernel, accepted)
    if opening.kernel.endswith(".json"):
        accepted = "a kernel of list_kernels, a URI or file.py:NAME; no trace"
        raise InvalidValueError("kernel", opening.kernel, accepted)
    workload = load_workload(opening.kernel, files=opening.files)
    if opening.shape is None:
        return workload
    if isinstance(opening.shape, str):
        if opening.shape != TINY:
            accepted = f"sizes by dimension, or {TINY!r}"
            raise InvalidValueError("shape", opening.shape, accepted)
        return Workload.of(workload.kernel, workload.kernel.tiny_shape)
    return Workload.of(workload.kernel, {**workload.shape, **opening.shape})
