"""`program_of`: the program of a recipe, made again from data alone; `recipe_of`: the way back.

Two languages can make a program: the transforms of the vocabulary, each parsed from a literal table and
legal by its rules; and, for the peer MetaSchedule alone, TVM's schedule instructions, of which a literal
list is accepted. Neither runs anything else that stands in a record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tirgym.benchmarks.leaderboard.record import Kind, Recipe, RecipeKind
from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Workload

__all__ = ["INSTRUCTIONS", "ProgramMaker", "program_of", "recipe_of", "schedule_text"]

INSTRUCTIONS = frozenset(
    {
        "Annotate", "CacheRead", "CacheWrite", "ComputeAt", "ComputeInline", "DecomposeReduction",
        "EnterPostproc", "Fuse", "GetChildBlocks", "GetConsumers", "GetLoops", "GetProducers",
        "GetSBlock", "Parallel", "RFactor", "Reorder", "ReverseComputeAt", "ReverseComputeInline",
        "SampleCategorical", "SampleComputeLocation", "SamplePerfectTile", "Split", "Unannotate",
        "Unroll", "Vectorize",
    }
)  # fmt: skip
"""What MetaSchedule's llvm space uses. Left out: what can change types or layouts, and `Tensorize`."""
ANNOTATIONS = frozenset(
    {
        "meta_schedule.parallel", "meta_schedule.tiling_structure", "meta_schedule.unroll_explicit",
        "meta_schedule.unroll_implicit", "meta_schedule.vectorize", "pragma_auto_unroll_max_step",
        "pragma_unroll_explicit", "meta_schedule.random_compute_producer",
    }
)  # fmt: skip
_KEPT = 512


class ProgramMaker:
    """Makes the programs of recipes for one workload and target; programs that share their first
    steps share the work."""

    def __init__(self, workload: Workload, target: Target) -> None:
        self.start = backend(target.backend).start(workload, target)
        self._made: dict[tuple[str, ...], Program] = {(): self.start}

    def make(self, recipe: Recipe, kind: Kind = Kind.AGENT) -> Program:
        """The program of `recipe`, in a row of `kind`.

        Raises UsageError for text that is in no vocabulary, IllegalTransformError for a step that is
        not legal here, and InvalidValueError for a recipe that a row of `kind` cannot have, or a
        schedule that TVM refuses.
        """
        if recipe.kind is RecipeKind.SCHEDULE and kind is Kind.PEER:
            return _scheduled(self.start, recipe.schedule)
        if recipe.kind is not RecipeKind.TRANSFORMS:
            raise InvalidValueError("recipe", recipe.kind.value, "transforms of the vocabulary")
        return self._transformed(recipe.steps)

    def _transformed(self, steps: tuple[str, ...]) -> Program:
        known = next(n for n in range(len(steps), -1, -1) if steps[:n] in self._made)
        program = self._made[steps[:known]]
        for number in range(known, len(steps)):
            program = program.apply(parse_transform(steps[number]))
            self._made[steps[: number + 1]] = program
        while len(self._made) > _KEPT:
            del self._made[next(key for key in self._made if key)]
        return program


def program_of(
    recipe: Recipe, workload: Workload, target: Target, kind: Kind = Kind.AGENT
) -> Program:
    """The program of one recipe; raises what `ProgramMaker.make` raises."""
    return ProgramMaker(workload, target).make(recipe, kind)


def recipe_of(program: Program, start: Program, schedules: Mapping[str, str]) -> Recipe:
    """How `program` is made; `schedules` are TVM's instructions by IR key, of a foreign search.

    Raises InvalidValueError for a program that was made in another way.
    """
    if program.steps or program.ir_key == start.ir_key:
        return Recipe(RecipeKind.TRANSFORMS, tuple(map(str, program.steps)))
    if program.ir_key not in schedules:
        accepted = "one that transforms of the vocabulary made"
        raise InvalidValueError("program", f"IR {program.ir_key}", accepted)
    return Recipe(RecipeKind.SCHEDULE, schedule=schedules[program.ir_key])


# -- TVM's own instructions -----------------------------------------------------------------


def schedule_text(trace: Any) -> str:
    """A TVM schedule trace as JSON text: [instructions, decisions]."""
    return json.dumps(_plain(trace.as_json()), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """TVM's containers as lists and dicts."""
    if isinstance(value, str | int | float) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.value if hasattr(value, "value") else [_plain(item) for item in value]


def _scheduled(start: Program, text: str) -> Program:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import Trace

    from tirgym.harness.tensorir.program import TensorIRProgram

    if not isinstance(start, TensorIRProgram):
        raise InvalidValueError("program", start.dialect, "a TensorIR program")
    schedule = start.schedule
    try:
        Trace.apply_json_to_schedule(_accepted(text), schedule)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [""])[-1][:200]
        raise InvalidValueError("schedule of TVM", reason, "one that applies here") from None
    made = Schedule(schedule.mod, debug_mask="none", error_render_level="none")
    return TensorIRProgram(start.workload, start.target, (), made)


def _accepted(text: str) -> list[Any]:
    """The parsed trace; raises ValueError for an instruction or annotation that is not listed."""
    data = json.loads(text)
    if not (isinstance(data, list) and len(data) == 2 and isinstance(data[0], list)):
        raise ValueError("expected [instructions, decisions]")
    for name, _inputs, attributes, *_ in data[0]:
        if name not in INSTRUCTIONS:
            raise ValueError(f"instruction {name} is not accepted")
        if name in ("Annotate", "Unannotate") and not _annotates(attributes):
            raise ValueError(f"annotation {attributes} is not accepted")
    return data


def _annotates(attributes: Sequence[Any]) -> bool:
    return len(attributes) == 1 and attributes[0] in ANNOTATIONS
