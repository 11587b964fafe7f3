"""`ScheduleEnv`: schedule one kernel, one transform at a time, for verified speedup."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tirgym.envs.compiler_env import Act, CompilerEnv
from tirgym.envs.episode import View, make_info
from tirgym.envs.strategies import KernelLike, make_vocabulary
from tirgym.errors import IllegalTransformError, InvalidValueError
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluator import UNMEASURED, Evaluator
from tirgym.harness.program import Program
from tirgym.harness.run_record import Recorder
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Shape
from tirgym.rewards.reward import Reward
from tirgym.spaces.graph import encoder_for
from tirgym.spaces.observation import make_observation
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["ScheduleEnv"]


class ScheduleEnv(CompilerEnv):
    """A kernel as TensorIR; actions are schedule transforms; the reward is measured speedup.

    ## Actions
    `TransformSpace`, a `Discrete(n)`: action i < n - 1 is `vocabulary[i]`, action n - 1 is STOP.
    `vocabulary` is "primitive" (single transforms), "macro" (several transforms in one action, see
    `tirgym.harness.macros`), "both", or a `Vocabulary`; programs and traces hold transforms alone.
    Masks are exact: `action_masks()` (bool) and `info["action_mask"]` (int8). An illegal action
    changes nothing and costs `illegal_penalty`; an action outside the space raises InvalidAction.

    ## Observations
    "dict" (default, `PaddedObservation`), "graph" (`GraphSpace`), "features" (flat vector) or
    "text". A pure function of kernel, target and applied transforms: no measurement enters it.

    ## Rewards
    "measured": log(t_prev / t_new) of gated measurements; "final": the log speedup at the end;
    "static": predicted by the static cost model; "model": predicted by a trained one, whose path is
    given as `cost` (`tirgym model train`); "replay": measurements that `store` holds, a path
    or "core-v0" (which ships), with the store's target unless `arch` is given. What is missing there is measured
    and stored with `missing="measure"`; with "refuse" nothing is run, and it pays 0 ("incomplete").
    None measures where the store is all of this machine, and refuses otherwise and for what ships.
    `info["replayed_from"]` labels replayed numbers, traces call them "replayed". "measured" also takes stored measurements, and makes the missing ones. Or any object with the protocol `Reward`.

    ## Episodes
    `terminated` on STOP or on a fatal verdict, which makes the return -penalty (lower
    by what was lost before);
    `truncated` after `max_steps` steps or `time_limit_s` seconds. The final program of a measured
    episode is evaluated in full (every input regime); `trace()` then carries its verified speedup.

    ## Arguments
    `kernel` is a name, URI, "file.py:NAME", Kernel or Workload, or a list of these, one of which is
    drawn at each reset. `shape` replaces dimensions, or names a set ("train", "holdout", "tiny") to
    draw from. `reset(options={"kernel": …, "shape": …})` overrides both for one episode. `factors`
    are the tile sizes of single transforms in a vocabulary that is named. `evaluator` is shared and never closed here;
    `store` is passed on to the evaluator that is made otherwise. `recorder` is told every state that
    is visited (`RunRecord` keeps them for `tirgym graph`).
    """

    _last_word = " (STOP)"

    _unmeasured = False
    """Whether it plays backends that measure nothing."""

    def __init__(
        self,
        kernel: KernelLike | Sequence[KernelLike] = "matmul",
        shape: Shape | str | None = None,
        backend: str = "llvm",
        arch: str | None = None,
        num_threads: int = 1,
        observation: str = "dict",
        reward: str | Reward = "measured",
        max_steps: int = 32,
        time_limit_s: float | None = None,
        factors: Sequence[int] | None = None,
        vocabulary: str | Vocabulary = "primitive",
        evaluator: Evaluator | None = None,
        store: Any = None,
        cost: CostModel | str | os.PathLike[str] | None = None,
        render_mode: str | None = None,
        recorder: Recorder | None = None,
        missing: str | None = None,
    ) -> None:
        if backend in UNMEASURED and not self._unmeasured:
            accepted = "a backend that measures, such as llvm; tirgym/Triton-v0 plays triton"
            raise InvalidValueError("backend", backend, accepted)
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
        self.vocabulary = make_vocabulary(vocabulary, backend, factors)
        self.vocabulary_digest = self.vocabulary.digest
        self.action_space: TransformSpace = TransformSpace(self.vocabulary)
        self.observation_form = make_observation(observation, self.action_space)
        self.observation_space = self.observation_form.space

    def apply(self, transform: Transform | str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """`step` with a transform or its text; raises InvalidValueError if it is no action."""
        if isinstance(transform, str):
            return self.step(self.action_space.from_text(transform))
        return self.step(self.action_space.action(transform))

    # -- what CompilerEnv asks --------------------------------------------------------------

    def _begin(self, program: Program, uri: str) -> View:
        """The view of an unscheduled program."""
        return self._look(program, uri)

    def _act(self, view: View, index: int) -> Act:
        """Apply the transform of action `index`, or stop."""
        program, text = view.program, self.action_space.table[index]
        transform = self.action_space.transform(index)
        if transform is None:
            return Act(text, program, lambda: view, last=True)
        try:
            after = program.apply(transform)
        except IllegalTransformError as error:
            return Act(text, program, lambda: view, transform, str(error))
        return Act(text, after, lambda: self._look(after, view.workload), transform)

    def _look(self, program: Program, uri: str) -> View:
        """`program` with its graph and mask, made once for each step."""
        mask = self.action_space.mask(program.legal_mask(self.vocabulary))
        mask.flags.writeable = False
        return View(program, encoder_for(program.dialect).encode(program), mask, uri)

    def _observe(self) -> Any:
        view = self._running(over=True).view
        return self.observation_form.observe(view.program, view.graph, view.mask)

    def _info(self) -> dict[str, Any]:
        episode = self._running(over=True)
        form, graph = self.observation_form, episode.view.graph
        return {**make_info(episode, form.overflow(graph)), **form.info(graph)}
