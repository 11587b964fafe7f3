"""`CompilerEnv`: what all environments share: episodes, verdicts, rewards, snapshots, traces."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Self

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from tirgym.envs.episode import Episode, LastStep, View
from tirgym.envs.render import RENDER_MODES, render
from tirgym.envs.replay import make_replay, replay_target
from tirgym.envs.strategies import (
    EvaluatorSource,
    KernelLike,
    WorkloadSampler,
    load_cost,
)
from tirgym.envs.strategies import make_reward as _make_reward
from tirgym.errors import EvaluationError, InvalidValueError, UnknownNameError
from tirgym.harness.backend import backend as load_backend
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator, make_evaluator
from tirgym.harness.hardware import compiler_versions
from tirgym.harness.program import Program
from tirgym.harness.run_record import Choice, Recorder
from tirgym.harness.status import FATAL, Status
from tirgym.harness.trace import REPLAYED, Trace, TraceResult
from tirgym.harness.transforms.base import Transform
from tirgym.kernels_suite.kernel import Shape
from tirgym.rewards.reward import Needs, Reward, Transition
from tirgym.whole_number import require_whole

if TYPE_CHECKING:
    from tirgym.harness.explain import Explanation

__all__ = ["Act", "CompilerEnv"]

_REJECTS = frozenset({Status.ILLEGAL, Status.COMPILE_ERROR})
_AGAIN = frozenset({Status.NOISY, Status.SUSPECT})
_OPTIONS = ("kernel", "shape")
_STARTS_KEPT = 256
"""Unscheduled programs with what is shown of them; core-v0 has under 200 workloads."""


@dataclass(frozen=True, slots=True)
class Act:
    """What an action does to a program, before anything judged it."""

    text: str
    after: Program
    look: Callable[[], View]
    """the view of `after`; called once, if the action is not refused"""
    transform: Transform | None = None
    refusal: str = ""
    """why the action changes nothing, "" if it is legal"""
    last: bool = False
    """the episode ends with it"""
    choice: Choice | None = None
    """the answer that the action gave to an open question, for records"""


class CompilerEnv(gymnasium.Env[Any, Any]):
    """One kernel in one backend; subclasses say what actions and observations are."""

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 1}  # noqa: RUF012

    action_space: Discrete

    vocabulary_digest = ""
    """hash of the action table, for traces; "" where actions have no table"""

    _replayed_reward = "measured"
    """name of the reward that pays stored verdicts"""

    _last_word = ""
    """what the last action is, for error messages"""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raises UnknownNameError for a keyword that the constructor has not."""
        parameters = list(signature(cls.__init__).parameters.values())[1:]
        if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
            accepted = [parameter.name for parameter in parameters]
            for name in kwargs:
                if name not in accepted:
                    raise UnknownNameError(f"argument of {cls.__name__}", name, accepted)
        return super().__new__(cls)

    def __init__(
        self,
        kernel: KernelLike | Sequence[KernelLike],
        shape: Shape | str | None,
        backend: str,
        arch: str | None,
        num_threads: int,
        reward: str | Reward,
        max_steps: int,
        time_limit_s: float | None,
        evaluator: Evaluator | None,
        store: Any,
        cost: CostModel | str | os.PathLike[str] | None,
        render_mode: str | None,
        recorder: Recorder | None,
        missing: str | None = None,
    ) -> None:
        require_whole("max_steps", max_steps, 1)
        if time_limit_s is not None and not time_limit_s > 0:
            raise InvalidValueError("time_limit_s", time_limit_s, "seconds above 0, or None")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise InvalidValueError("render_mode", render_mode, f"one of {', '.join(RENDER_MODES)}")
        self.max_steps, self.time_limit_s, self.render_mode = max_steps, time_limit_s, render_mode
        self._backend = load_backend(backend)
        self.target = self._backend.target(arch, num_threads)
        self._sampler = WorkloadSampler(kernel, shape, backend)
        self._kernel, self._shape = kernel, shape

        self._replays = isinstance(reward, str) and reward == "replay"
        if missing is not None and not self._replays:
            raise InvalidValueError("missing", missing, 'None, unless reward is "replay"')
        if missing is not None and evaluator is not None:
            raise InvalidValueError("missing", missing, "None: the evaluator is given")
        make: Callable[[], Evaluator] = partial(make_evaluator, backend, store)
        if self._replays and evaluator is None:
            if arch is None:
                self.target = replay_target(store, self.target)
            make = partial(make_replay, store, self.target, missing)
        self._given_cost = load_cost(cost, self.target)
        paid = self._replayed_reward if self._replays else reward
        self._reward = _make_reward(paid, self._given_cost, backend)
        self._evaluator = EvaluatorSource(evaluator, make)
        self._owner = True
        self._recorder = recorder
        self._episode: Episode | None = None
        self._starts: dict[str, View] = {}

    # -- what subclasses define -------------------------------------------------------------

    def _begin(self, program: Program, uri: str) -> View:
        """The view of an unscheduled program."""
        raise NotImplementedError

    def _act(self, view: View, index: int) -> Act:
        """What action `index` does; refused actions change nothing."""
        raise NotImplementedError

    def _observe(self) -> Any:
        """The observation of the current view."""
        raise NotImplementedError

    def _info(self) -> dict[str, Any]:
        """The info of the current view."""
        raise NotImplementedError

    # -- Gymnasium --------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; `options` may name another "kernel" and "shape" for it."""
        super().reset(seed=seed)
        start = self._start(options or {})
        reward = copy.copy(self._reward)
        reward.reset(start.program)
        self._episode = Episode(start, reward, seed, began_s=time.monotonic())
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply one action; see the class for what is paid and when the episode ends."""
        episode = self._running()
        act = self._act(episode.view, self._index(action))
        late = not act.last and self._out_of_budget(episode)
        before, after, refusal = episode.program, act.after, act.refusal

        evaluation = self._judge(episode, after, final=act.last or late)
        if not refusal:
            self._record(act.after, evaluation, before, act.choice)
        elif evaluation is not None:
            self._record(before, evaluation, before)
        if evaluation is not None and evaluation.status in _REJECTS and not refusal:
            refusal = evaluation.message or f"the program was refused ({evaluation.status})"
            status: Status | None = evaluation.status
            after = before
            evaluation = self._judge(episode, after, final=late) if late else None
        else:
            status = Status.ILLEGAL if refusal else None

        final = act.last or late
        transition = Transition(before, after, act.transform, bool(refusal), final, evaluation)
        reward = episode.reward.step(transition)
        terminated = act.last or (evaluation is not None and evaluation.status in FATAL)
        truncated = late and not terminated

        if not refusal:
            episode.view = act.look()
        episode.steps += 1
        episode.over = terminated or truncated
        episode.keep_best(evaluation)
        episode.last = _last_step(act.text, transition, status, refusal, evaluation, reward)
        return self._observe(), reward, terminated, truncated, self._info()

    def action_masks(self) -> NDArray[np.bool_]:
        """Shape (n,), bool: the legal actions of the current program, STOP among them."""
        return self._running(over=True).view.mask.astype(np.bool_)

    def render(self) -> Any:
        """Loop tree before and after the last action; text, HTML or an image by `render_mode`."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                f"render() needs a render_mode; gym.make accepts {', '.join(RENDER_MODES)}"
            )
            return None
        return render(self.render_mode, self._running(over=True))

    def close(self) -> None:
        """End the evaluator that this environment made; `reset` makes a new one."""
        if self._owner:
            self._evaluator.close()
        super().close()

    # -- search -----------------------------------------------------------------------------

    def explain(self) -> Explanation | None:
        """What the last step changed, by static analysis; None after a reset, and after an action
        that changed nothing.

        Made when asked for, about 2 ms on `llvm`. Raises UnknownNameError for a backend that has no
        accountant.
        """
        from tirgym.harness.explain import explain

        episode = self._running(over=True)
        before, after = episode.last.before, episode.program
        return None if before is None or before is after else explain(before, after)

    @property
    def pays_at_end(self) -> bool:
        """Whether the reward pays with the last step alone (see `EpisodeReward.pays_at_end`), as one
        does that asks for no verdict before."""
        late = self._reward.needs is Needs.FINAL
        return late or bool(getattr(self._reward, "pays_at_end", False))

    @property
    def program(self) -> Program:
        """The current program; raises ResetNeeded before the first reset."""
        return self._running(over=True).program

    @property
    def state(self) -> Episode:
        """A snapshot of the episode for `set_state`; costs microseconds."""
        return self._running(over=True).snapshot()

    def set_state(self, state: Episode) -> tuple[Any, dict[str, Any]]:
        """Go on from a snapshot; returns its observation and info."""
        self._episode = state.snapshot()
        return self._observe(), self._info()

    def finish(self) -> tuple[float, bool, dict[str, Any]]:
        """End the episode here, as a truncation that a wrapper decides on.

        The final program is evaluated in full, as after STOP. Returns what that pays on top of the
        last reward, whether the verdict was fatal (then the episode terminated), and the info.
        """
        episode = self._running()
        program = episode.program
        evaluation = self._judge(episode, program, final=True)
        self._record(program, evaluation, program)
        transition = Transition(program, program, None, final=True, evaluation=evaluation)
        reward = episode.reward.step(transition)
        episode.over = True
        episode.keep_best(evaluation)
        if evaluation is not None:
            status, message = evaluation.status.value, evaluation.message
            episode.last = replace(
                episode.last, status=status, message=message, code_key=evaluation.code_key
            )
        fatal = evaluation is not None and evaluation.status in FATAL
        return reward, fatal, self._info()

    def fork(self) -> Self:
        """An independent environment in the same state, random generator included.

        It shares the evaluator and what is kept between episodes, and closing it leaves the
        evaluator open.
        """
        made = copy.copy(self)
        made._owner = False
        made._np_random = copy.deepcopy(self._np_random)
        if self._episode is not None:
            made._episode = self._episode.snapshot()
        return made

    def trace(self, agent: str = "") -> Trace:
        """The current program as a trace; with its verified speedup after a measured episode."""
        episode = self._running(over=True)
        program, final = episode.program, episode.final
        return Trace(
            workload=program.workload.uri,
            target=program.target,
            transforms=tuple(map(str, program.steps)),
            ir_key=program.ir_key,
            code_key=final.code_key if final else "",
            vocabulary=self.vocabulary_digest,
            versions=compiler_versions(program.target.backend),
            agent=agent,
            seed=episode.seed,
            result=_claim(final) if final else None,
        )

    # -- one step, in pieces ----------------------------------------------------------------

    def _running(self, over: bool = False) -> Episode:
        if self._episode is None:
            raise ResetNeeded("no episode is running: call env.reset() first")
        if self._episode.over and not over:
            raise ResetNeeded("the episode is over: call env.reset() before the next step")
        return self._episode

    def _index(self, action: Any) -> int:
        if isinstance(action, np.ndarray) and action.size == 1:
            action = action.item()
        whole = isinstance(action, int | np.integer) and not isinstance(action, bool)
        if not whole or not 0 <= action < self.action_space.n:
            last = self.action_space.n - 1
            raise InvalidAction(
                f"action {action!r}: expected an integer from 0 to {last}{self._last_word}"
            )
        return int(action)

    def _record(
        self,
        program: Program,
        evaluation: Evaluation | None,
        before: Program,
        choice: Choice | None = None,
    ) -> None:
        nothing = program is before and choice is None and evaluation is None
        if self._recorder is not None and not nothing:
            seed = self._running(over=True).seed
            self._recorder.record(program, evaluation, before=before, choice=choice, seed=seed)

    def _out_of_budget(self, episode: Episode) -> bool:
        if episode.steps + 1 >= self.max_steps:
            return True
        limit = self.time_limit_s
        return limit is not None and time.monotonic() - episode.began_s >= limit

    def _judge(self, episode: Episode, program: Program, final: bool) -> Evaluation | None:
        """The verdict on `program`, where the reward needs one; noisy ones are measured again."""
        needs = episode.reward.needs
        if needs is Needs.NOTHING or (needs is Needs.FINAL and not final):
            return None
        if not final and program.ir_key == episode.program.ir_key:
            return None
        level = Level.FULL if final else Level.TRAINING
        try:
            evaluation = self._evaluator.get().evaluate(program, level)
            if evaluation.status in _AGAIN:
                evaluation = self._evaluator.get().evaluate(program, level)
        except EvaluationError:
            episode.over = True
            self._evaluator.close()
            raise
        episode.saw(evaluation)
        episode.final = evaluation if final else None
        return evaluation

    def _start(self, options: Mapping[str, Any]) -> View:
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise InvalidValueError("reset options", unknown, f"only {' and '.join(_OPTIONS)}")
        sampler = self._sampler
        if options:
            shape = options.get("shape", None if "kernel" in options else self._shape)
            kernel = options.get("kernel", self._kernel)
            sampler = WorkloadSampler(kernel, shape, self.target.backend)
        workload = sampler.sample(self.np_random)
        uri = workload.uri
        start = self._starts.get(uri)
        if start is None or start.program.workload.kernel is not workload.kernel:
            if len(self._starts) >= _STARTS_KEPT:
                self._starts.clear()
            start = self._begin(self._backend.start(workload, self.target), uri)
            self._starts[uri] = start
        return start


def _last_step(
    action: str,
    transition: Transition,
    status: Status | None,
    refusal: str,
    evaluation: Evaluation | None,
    reward: float,
) -> LastStep:
    if status is None and evaluation is not None:
        status, refusal = evaluation.status, evaluation.message
    return LastStep(
        before=transition.before,
        action=action,
        legal=not transition.rejected,
        status=status.value if status else "",
        message=refusal,
        reward=reward,
        code_key=evaluation.code_key if evaluation else "",
    )


def _claim(evaluation: Evaluation) -> TraceResult:
    measured, origin = evaluation.measurement, evaluation.replayed_from
    if measured is None:
        return TraceResult(evaluation.status.value, replayed_from=origin)
    return TraceResult(
        REPLAYED if origin else evaluation.status.value,
        replayed_from=origin,
        speedup=measured.speedup,
        speedup_ci=measured.speedup_ci,
        baseline_us=measured.baseline.lower_quartile_us * measured.anchor_ratio,
        best_us=measured.latency_us,
    )
