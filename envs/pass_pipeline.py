"""`PassPipelineEnv`: set the compiler's own options for one kernel, for verified speedup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tirgym.envs.schedule import ScheduleEnv
from tirgym.envs.strategies import KernelLike
from tirgym.errors import InvalidValueError
from tirgym.harness.backends.llvm import LLVMBackend
from tirgym.harness.backends.llvm_levels import PassRecord
from tirgym.harness.backends.llvm_options import OPTIONS, options_of
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.run_record import Recorder
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Shape
from tirgym.rewards.reward import Reward
from tirgym.spaces.options import options_vector, with_options

__all__ = ["PassPipelineEnv"]

_BLIND = ("static", "model")


class PassPipelineEnv(ScheduleEnv):
    """A kernel as TensorIR; actions set options of the compiler; the reward is measured speedup.

    ## Actions
    As in `ScheduleEnv`, with `vocabulary="options"` (default): `Configure(option, value)` for every
    value of every option of `tirgym.harness.backends.llvm_options.OPTIONS`, and STOP. TVM's passes
    are dropped, moved, repeated and limited; LLVM's level, vectorizers and vector width are set. An
    action is masked where the option has that value. `vocabulary="primitive+options"` also has the
    schedule transforms. Options are part of the program: of its keys, its trace and its replay.

    ## Observations
    Those of `ScheduleEnv` with the options beside them: the entry "options" of "dict", the last
    entries of "features", the IR of "text", and `info["options"]` always, float32 (len(OPTIONS),) in
    [0, 1]. `pass_log()` is what each pass of the compiler does to the current program.

    ## Rewards and episodes
    As in `ScheduleEnv`. The static cost and models see the schedule alone, so `reward` is "measured",
    "final", "replay", or an object.
    """

    def __init__(
        self,
        kernel: KernelLike | Sequence[KernelLike] = "matmul",
        shape: Shape | str | None = None,
        backend: str = "llvm",
        arch: str | None = None,
        num_threads: int = 1,
        observation: str = "dict",
        reward: str | Reward = "measured",
        max_steps: int = 16,
        time_limit_s: float | None = None,
        factors: Sequence[int] | None = None,
        vocabulary: str | Vocabulary = "options",
        evaluator: Evaluator | None = None,
        store: Any = None,
        render_mode: str | None = None,
        recorder: Recorder | None = None,
        missing: str | None = None,
    ) -> None:
        if isinstance(reward, str) and reward in _BLIND:
            accepted = "measured, final or replay: predictions do not see the compiler's options"
            raise InvalidValueError("reward", reward, accepted)
        super().__init__(
            kernel,
            shape,
            backend,
            arch,
            num_threads,
            observation,
            reward,
            max_steps,
            time_limit_s,
            factors,
            vocabulary,
            evaluator,
            store,
            None,
            render_mode,
            recorder,
            missing,
        )
        self.observation_form = with_options(self.observation_form)
        self.observation_space = self.observation_form.space

    @property
    def options(self) -> Mapping[str, int]:
        """Every option of the current program; raises ResetNeeded before the first reset."""
        program = self.program
        assert isinstance(program, TensorIRProgram)
        here = options_of(program.mod)
        return {name: here.get(name, option.default) for name, option in OPTIONS.items()}

    def pass_log(self) -> tuple[PassRecord, ...]:
        """The passes that the current program goes through: names, times, IR before and after.

        Compiles the program, in this process; raises what the compiler raises, and ResetNeeded.
        """
        assert isinstance(self._backend, LLVMBackend)
        return self._backend.passes(self.program)

    def _info(self) -> dict[str, Any]:
        return {**super()._info(), "options": options_vector(self.program)}
