"""`TritonEnv`: meta-parameters and compiler passes of a Triton kernel, for predicted speedup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tirgym.envs.episode import Episode, View
from tirgym.envs.schedule import ScheduleEnv
from tirgym.envs.strategies import EvaluatorSource, KernelLike
from tirgym.errors import CompileFailedError, InvalidValueError
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.run_record import Recorder
from tirgym.harness.status import Status
from tirgym.harness.triton.compiling import lowered_before
from tirgym.harness.triton.evaluator import SemanticEvaluator
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Shape
from tirgym.rewards.reward import Reward
from tirgym.spaces.recipe import recipe_vector, with_recipe

__all__ = ["TritonEnv"]


class TritonEnv(ScheduleEnv):
    """A Triton kernel; actions set meta-parameters and edit the pass pipeline; nothing is run.

    ## Actions
    As in `ScheduleEnv`, with the transforms of `tirgym.harness.triton.transforms`: `SetMeta` (block
    sizes, num_warps, num_stages, group size), `DropPass`, `RepeatPass`, `MovePass`, `InsertPass` and
    `SetPassArgument`, and STOP. One table for all kernels and GPUs of the installed Triton. Masked is
    what would change nothing, what touches mandatory passes or the tail of the pipeline, and what
    exceeds limits that are known without compiling.

    ## Observations
    Those of `ScheduleEnv`, of the TTGIR as a graph (`tirgym.spaces.triton_tables`), with the recipe
    beside it: "dict" has "recipe" and "passes", "features" ends with the recipe, and `info["recipe"]`
    has it always.

    ## Rewards
    "static": log of the predicted speedup over the default configuration with the stock pipeline, for
    programs whose TTGIR the executor finds right ("semantic_only" at best). A wrong program ends the
    episode with a return of -penalty. What the executor does not cover ("incomplete") pays
    nothing. What does not compile ("compile_error", with the compiler's words in `info["message"]`), or
    compiles and fits no compute unit ("illegal"), changes nothing and costs `illegal_penalty`; so does
    a compiler that crashes, or takes longer than `compile_limit_s`. Or any object with the protocol
    `Reward`. Nothing is measured.

    ## Episodes and arguments
    As in `ScheduleEnv`. A bare `kernel` is one of the suite triton-v0; `arch` None is this machine's
    GPU.
    """

    _unmeasured = True

    def __init__(
        self,
        kernel: KernelLike | Sequence[KernelLike] = "softmax",
        shape: Shape | str | None = None,
        backend: str = "triton",
        arch: str | None = None,
        observation: str = "dict",
        reward: str | Reward = "static",
        max_steps: int = 32,
        time_limit_s: float | None = None,
        compile_limit_s: float = 120.0,
        vocabulary: str | Vocabulary = "primitive",
        evaluator: Evaluator | None = None,
        cost: CostModel | None = None,
        render_mode: str | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        if backend != "triton":
            raise InvalidValueError("backend", backend, "triton; tirgym/Schedule-v0 plays others")
        if isinstance(reward, str) and reward != "static":
            accepted = "static, or a Reward: programs are checked without a device, not measured"
            raise InvalidValueError("reward", reward, accepted)
        if not compile_limit_s > 0:
            raise InvalidValueError("compile_limit_s", compile_limit_s, "seconds above 0")
        super().__init__(
            kernel,
            shape,
            backend,
            arch,
            1,
            observation,
            reward,
            max_steps,
            time_limit_s,
            None,
            vocabulary,
            evaluator,
            None,
            cost,
            render_mode,
            recorder,
        )
        self._pool = CompilePool(1, compile_limit_s)
        self._evaluator = EvaluatorSource(evaluator, partial(SemanticEvaluator, self._pool))
        self.observation_form = with_recipe(self.observation_form)
        self.observation_space = self.observation_form.space

    def close(self) -> None:
        """End the compile server; the next `reset` or step starts another."""
        super().close()
        if self._owner:
            self._pool.close()

    def _judge(self, episode: Episode, program: Program, final: bool) -> Evaluation | None:
        """As in every environment; what no reward asks about is compiled all the same."""
        found = super()._judge(episode, program, final)
        if found is not None or program is episode.program:
            return found
        try:
            self._compile(program)
        except CompileFailedError as error:
            line = "; ".join(str(error).splitlines())
            return Evaluation(
                Status.COMPILE_ERROR, program.ir_key, message=line, level=Level.TRAINING
            )
        return None

    def _look(self, program: Program, uri: str) -> View:
        assert isinstance(program, TritonProgram)
        if not lowered_before(program.request, "ttgir"):
            self._compile(program)
        return super()._look(program, uri)

    def _compile(self, program: Program) -> None:
        """Have `program` in the cache of compiled kernels; raises CompileFailedError."""
        assert isinstance(program, TritonProgram)
        self._pool.compile(program.request)

    def _info(self) -> dict[str, Any]:
        return {**super()._info(), "recipe": recipe_vector(self.program)}
