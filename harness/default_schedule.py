"""The `default` baseline: what the compiler would choose by itself, without measuring anything.

For a CPU TVM has two answers: dlight's CPU rules, for matrix-vector products and chains of reductions, and
otherwise the first sketch of MetaSchedule's design space. For a GPU it has dlight's rules for GPUs. Neither is known to be right for every
kernel (RewriteReductionBlock has miscompiled attention), so the result passes the gate like any
other program before it is a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from tirgym.harness.backend import backend
from tirgym.harness.backends.llvm import tvm_target
from tirgym.harness.target import Target
from tirgym.harness.tensorir.nest import read_nest
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Workload

__all__ = ["default_module", "default_program", "tune_context"]

SEED = 1
"""MetaSchedule draws the tile sizes of a sketch; this makes the draw a fixed one."""
WORK_LIMIT = 2
"""dlight's Reduction rule also takes chains of matrix products, which it computes anew for every
row (2mm: 200 times slower); such a choice is passed over."""
_COMPUTE_ROOT = -1
"""Decision of SampleComputeLocation that leaves a block where it is."""


def default_module(mod: Any, target: Target) -> tuple[Any, str] | None:
    """The IRModule that the compiler chooses for `mod`, and the name of the rule that chose it.

    None when no rule applies. `mod` has one function "main" and is not changed.
    """
    makers = _MAKERS.get(target.backend, (_dlight_device,))
    for maker in makers:
        for module, rule in maker(mod, target):
            return module, rule
    return None


def default_program(workload: Workload, target: Target) -> tuple[TensorIRProgram, str] | None:
    """The compiler's own schedule of `workload`, and the name of the rule; None without one.

    The program has no steps: it is made by the compiler, not by transforms of the vocabulary.
    """
    chosen = default_module(TensorIRProgram.start(workload, target).mod, target)
    if chosen is None:
        return None
    mod, rule = chosen
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    return TensorIRProgram(workload, target, (), schedule), rule


def _dlight(mod: Any, target: Target) -> Iterator[tuple[Any, str]]:
    """What dlight's CPU rules make of `mod`; a rule that fails on it does not apply."""
    from tvm.s_tir.dlight.cpu import GEMV, Reduction

    made_for = tvm_target(target)
    for rule in (GEMV(), Reduction()):
        try:
            with made_for:
                schedule = rule.apply(mod["main"], made_for, False)
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue
        if schedule is not None:
            schedule = schedule[0] if isinstance(schedule, list) else schedule
            if _work(schedule.mod) > WORK_LIMIT * _work(mod):
                continue
            func = schedule.mod["main"].with_attr("global_symbol", "main")
            yield tvm.IRModule({"main": func}), f"dlight {type(rule).__name__}"
            return


def _dlight_device(mod: Any, target: Target) -> Iterator[tuple[Any, str]]:
    """What dlight's rules for GPUs make of `mod`, the first that applies; Fallback nearly always does."""
    from tvm.s_tir.dlight import gpu

    made_for = backend(target.backend).tvm_target(target)  # type: ignore[attr-defined]
    rules = (gpu.Matmul, gpu.GEMV, gpu.Reduction, gpu.GeneralReduction, gpu.Fallback)
    for kind in rules:
        try:
            with made_for:
                schedule = kind().apply(mod["main"], made_for, False)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
            continue
        if schedule is not None:
            schedule = schedule[0] if isinstance(schedule, list) else schedule
            func = schedule.mod["main"].with_attr("global_symbol", "main")
            yield tvm.IRModule({"main": func}), f"dlight {kind.__name__}"
            return


def _work(mod: Any) -> int:
    """Block executions of one call."""
    nest = read_nest(mod)
    return sum(math.prod(max(1, nest.loops[i].extent) for i in b.chain) for b in nest.blocks)


def _first_sketch(mod: Any, target: Target) -> Iterator[tuple[Any, str]]:
    """The first sketch of MetaSchedule's design space that its own postprocessors accept.

    The space with write caches comes first; on some kernels (two products that meet, as in swiglu)
    TVM fails to build it, and the space without them is taken.
    """
    for write_cache in (True, False):
        context = tune_context(mod, target, write_cache)
        try:
            sketches = context.generate_design_space()
        except (RuntimeError, ValueError, TypeError):
            continue
        for number, sketch in enumerate(sketches):
            scheduled = _sketched(mod, sketch, context.space_generator.postprocs)
            if scheduled is not None:
                suffix = "" if write_cache else " without write cache"
                yield scheduled, f"MetaSchedule sketch {number}{suffix}"
                return


def _sketched(mod: Any, sketch: Any, postprocessors: Any) -> Any | None:
    """The module that `sketch` makes of `mod`, or None if a postprocessor refuses it."""
    schedule = Schedule(mod, seed=SEED, debug_mask="none", error_render_level="none")
    try:
        _at_root(sketch.trace).apply_to_schedule(schedule, remove_postproc=False)
        schedule.enter_postproc()
        accepted = all(post.apply(schedule) for post in postprocessors)
    except (RuntimeError, ValueError, TypeError):
        return None
    return schedule.mod if accepted else None


_MAKERS: Mapping[str, tuple[Callable[[Any, Target], Iterator[tuple[Any, str]]], ...]] = {
    "llvm": (_dlight, _first_sketch),
}
"""Where default schedules come from, by backend; devices have dlight's rules for GPUs alone."""


def _at_root(trace: Any) -> Any:
    """`trace` with every sampled compute location at the root, where nothing is computed twice.

    A drawn location can repeat a reduction ten thousand times.
    """
    decisions = dict(trace.decisions.items())
    for instruction in trace.insts:
        if instruction.kind.name == "SampleComputeLocation":
            decisions[instruction] = _COMPUTE_ROOT
    return Trace(trace.insts, decisions)


def tune_context(
    mod: Any, target: Target, write_cache: bool = True, strategy: Any = None, seed: int = SEED
) -> Any:
    """A MetaSchedule context with the rules of its llvm space, made without its constructor.

    `TuneContext.__init__` imports every tensor intrinsic of every target first, which takes 13 to
    26 s; the FFI constructor below it takes 10 ms. With a search `strategy` it gets the mutators
    that MetaSchedule ships for llvm.
    """
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule import _ffi_api, mutator, postproc, schedule_rule
    from tvm.s_tir.meta_schedule.logging import get_logger, get_logging_func

    cache = schedule_rule.ReuseType(req="may", levels=[1, 2], scope="global")
    rules = [
        schedule_rule.ApplyCustomRule(),
        schedule_rule.InlineConstantScalars(),
        schedule_rule.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
            disallow_op=["tirx.exp"],
        ),
        schedule_rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64),
        schedule_rule.MultiLevelTiling(
            structure="SSRSRS",
            tile_binds=None,
            max_innermost_factor=64,
            vector_load_lens=None,
            reuse_read=None,
            reuse_write=cache if write_cache else None,
        ),
        schedule_rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=16,
            max_vectorize_extent=64,
            unroll_max_steps=[0, 16, 64, 512],
            unroll_explicit=True,
        ),
        schedule_rule.RandomComputeLocation(),
    ]
    posts = [
        postproc.DisallowDynamicLoop(),
        postproc.RewriteParallelVectorizeUnroll(),
        postproc.RewriteReductionBlock(),
    ]

    class Context(ms.TuneContext):  # type: ignore[misc]
        def __init__(self) -> None:
            space = ms.space_generator.PostOrderApply(
                sch_rules=rules,
                postprocs=posts,
                mutator_probs=mutator.Mutator.create("llvm") if strategy is not None else {},
            )
            logging = get_logging_func(get_logger(__name__))
            self.__init_handle_by_constructor__(
                _ffi_api.TuneContext,
                mod,
                tvm_target(target),
                space,
                strategy,
                "default",
                target.num_threads,
                seed,
                logging,
            )
            _ffi_api.TuneContextInitialize(self)

    return Context()
