"""`DecisionEnv`: answer the compiler's own open questions, one at a time, for verified speedup."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tirgym.envs.compiler_env import Act, CompilerEnv
from tirgym.envs.episode import View, make_info
from tirgym.envs.strategies import KernelLike
from tirgym.errors import InvalidValueError
from tirgym.harness.cost import CostModel, static_cost_model
from tirgym.harness.decisions import (
    DecisionAgent,
    DecisionPoint,
    Recommendation,
    Walk,
    design_space,
)
from tirgym.harness.decisions.answer_tree import AnswerTree, Fork, Place
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.replay_evaluator import ReplayEvaluator
from tirgym.harness.run_record import Recorder, chosen
from tirgym.kernels_suite.kernel import Shape
from tirgym.rewards.reward import Reward
from tirgym.spaces.decision_space import OptionSpace, make_decision_observation
from tirgym.spaces.graph import encoder_for

__all__ = ["DecisionEnv", "DecisionView"]

_VIEWS_KEPT = 2048
"""Views that a strict replay keeps, those used last; about 50 kB each."""


@dataclass(frozen=True, slots=True)
class DecisionView(View):
    """A program with its open question."""

    walk: Walk
    costs: tuple[float, ...] | None
    """static cost in µs of the program right after each option, None unless asked for"""
    place: Place | None = None
    """where it stands among the stored walks, None unless a strict replay is played"""


class DecisionEnv(CompilerEnv):
    """A kernel as TensorIR; actions answer the decision points of the compiler's design space.

    ## Actions
    `OptionSpace`, a `Discrete(MAX_OPTIONS)`: action i takes option i of the open question
    (`question`, or `point()` for the whole record). Masks are exact: `action_masks()` (bool) and
    `info["action_mask"]` (int8). A masked action changes nothing and costs `illegal_penalty`; an
    action outside the space raises InvalidAction. Every sequence of answers is a legal program.

    ## Observations
    "dict" (default, `PaddedDecision`), "graph" (`GraphDecision`), "features" (flat vector) or
    "text". A pure function of kernel, target and answers: no measurement enters it. With
    `candidate_costs` the static cost of the program right after each option is shown, which takes
    as long as trying each.

    ## Rewards
    "final": the log of the gated, measured speedup at the end; "measured": log(t_prev / t_new)
    after each answer; "static": predicted by the static cost model; "model": by a trained one, whose
    path is given as `cost`; "replay": "final" with measurements that `store` holds. Or any object with the protocol
    `Reward`. As in `ScheduleEnv`.

    A strict replay (`missing="refuse"`, the default for the store that ships, "core-v0") is a tabular
    environment: masks allow exactly the answers behind which a stored program lies, so that every episode
    ends at one, and nothing is compiled. Questions that are not those of the recording raise
    TargetMismatchError, a workload without recorded answers InvalidValueError.

    ## Episodes
    `terminated` with the last answer or on a fatal verdict, which makes the return
    -penalty (lower by what was lost before); `truncated` after `max_steps` steps or `time_limit_s` seconds. A kernel without an
    open choice still gets one step, which evaluates it as it is. The final program of a measured
    episode is evaluated in full; `trace()` then carries its verified speedup and consists of
    ordinary transforms.

    ## Arguments
    `kernel`, `shape`, `evaluator`, `store`, `recorder` and `reset(options=…)` are those of
    `ScheduleEnv`. What `decide` is answered is recorded with its confidence.
    """

    _replayed_reward = "final"

    def __init__(
        self,
        kernel: KernelLike | Sequence[KernelLike] = "matmul",
        shape: Shape | str | None = None,
        backend: str = "llvm",
        arch: str | None = None,
        num_threads: int = 1,
        observation: str = "dict",
        reward: str | Reward = "final",
        max_steps: int = 128,
        time_limit_s: float | None = None,
        candidate_costs: bool = False,
        evaluator: Evaluator | None = None,
        store: Any = None,
        cost: CostModel | str | os.PathLike[str] | None = None,
        render_mode: str | None = None,
        recorder: Recorder | None = None,
        missing: str | None = None,
    ) -> None:
        super().__init__(
            kernel,
            shape,
            backend,
            arch,
            num_threads,
            reward,
            max_steps,
            time_limit_s,
            evaluator,
            store,
            cost,
            render_mode,
            recorder,
            missing,
        )
        self.candidate_costs = candidate_costs
        self._advice: Recommendation | None = None
        self._stored_views: dict[tuple[Fork | str, int], DecisionView] = {}
        given = self._given_cost
        self._cost = static_cost_model(backend) if given is None else given
        self.action_space: OptionSpace = OptionSpace()
        self.observation_form = make_decision_observation(observation, self.action_space)
        self.observation_space = self.observation_form.space

    # -- decisions --------------------------------------------------------------------------

    @property
    def walk(self) -> Walk:
        """The program with its open question; raises ResetNeeded before the first reset."""
        return self._view().walk

    def point(self) -> DecisionPoint:
        """The open question as a record; raises InvalidValueError if everything is decided."""
        return self.walk.point(self._cost if self.candidate_costs else None)

    def decide(self, agent: DecisionAgent) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """`step` with the answer of `agent`; wrap agents that may fail in a `Guard`."""
        if self.walk.done:
            return self.step(0)
        self._advice = agent.decide(self.point())
        try:
            return self.step(self._advice.option)
        finally:
            self._advice = None

    # -- what CompilerEnv asks --------------------------------------------------------------

    def _view(self) -> DecisionView:
        view = self._running(over=True).view
        assert isinstance(view, DecisionView)  # the only views that this class makes
        return view

    def _begin(self, program: Program, uri: str) -> View:
        """The first question about an unscheduled program."""
        walk, tree = design_space(program), self._tree(program)
        return self._look(walk, uri, None if tree is None else tree.begin(walk))

    def _act(self, view: View, index: int) -> Act:
        """Take option `index` of the open question."""
        assert isinstance(view, DecisionView)
        walk, program = view.walk, view.program
        question = walk.question
        if question is None:
            if index == 0:
                return Act("nothing to decide", program, lambda: view, last=True)
            return Act(f"option {index}", program, lambda: view, refusal="everything is decided")
        if index >= len(question.options):
            accepted = f"0 to {len(question.options) - 1}"
            refusal = str(InvalidValueError(f"option of {question.key}", index, accepted))
            return Act(f"{question.key}: option {index}", program, lambda: view, refusal=refusal)
        place = view.place
        if place is not None and index not in place.options:
            refusal = f"option {index} of {question.key}: no stored program lies behind it"
            return Act(f"{question.key}: option {index}", program, lambda: view, refusal=refusal)
        value = question.options[index].value
        if place is not None:
            known = self._stored_view(view, place, index, value)
            after, look = known.walk, lambda: known
        else:
            after = walk.answer(index)
            look = partial(self._look, after, view.workload, None, view)
        return Act(
            f"{question.key} = {value}",
            after.program,
            look,
            last=after.done,
            choice=chosen(walk, index, after, self._advice, view.costs or ()),
        )

    def _stored_view(
        self, view: DecisionView, place: Place, index: int, value: int
    ) -> DecisionView:
        """What follows from a stored answer; kept, since there is only so much that can be reached."""
        key = (place.node, value)
        known = self._stored_views.pop(key, None)
        if known is None:
            after = view.walk.answer(index)
            known = self._look(after, view.workload, place.follow(value, after))
        self._stored_views[key] = known
        if len(self._stored_views) > _VIEWS_KEPT:
            del self._stored_views[next(iter(self._stored_views))]
        return known

    def _tree(self, program: Program) -> AnswerTree | None:
        """The stored walks that a strict replay keeps to; None if this is none."""
        evaluator = self._evaluator.get() if self._replays else None
        if not isinstance(evaluator, ReplayEvaluator) or evaluator.otherwise is not None:
            return None
        return evaluator.answers(program.workload, program.target)

    def _look(
        self, walk: Walk, uri: str, place: Place | None, before: DecisionView | None = None
    ) -> DecisionView:
        """`walk` with its graph, mask and costs, made once for each step.

        The graph is that of the view `before` if the last answer left the program as it was.
        """
        program = walk.program
        mask = self.action_space.mask(walk.question)
        if place is not None and walk.question is not None:
            mask[:] = 0
            mask[list(place.options)] = 1
        mask.flags.writeable = False
        costs = walk.costs(self._cost) if self.candidate_costs and not walk.done else None
        if before is not None and before.program is program:
            graph = before.graph
        else:
            graph = encoder_for(program.dialect).encode(program)
        return DecisionView(program, graph, mask, uri, walk, costs, place)

    def _observe(self) -> Any:
        view = self._view()
        return self.observation_form.observe(
            view.program, view.graph, view.walk.question, view.costs, view.mask
        )

    def _info(self) -> dict[str, Any]:
        episode, view, form = self._running(over=True), self._view(), self.observation_form
        question = view.walk.question
        return {
            **make_info(episode, form.overflow(view.graph)),
            "question": question.text if question is not None else "",
            **form.info(view.graph, question, view.costs),
        }
