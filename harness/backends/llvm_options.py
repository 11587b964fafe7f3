"""Options of the compiler as part of a program: TVM's passes and their order, and LLVM's switches.

A program carries its options as an annotation of its root block, `{"tirgym.options": "llvm.opt_level=2;
tir.unroll_max_step=64"}`, so that keys, traces and worker processes know them. Without options the
compiler runs as TVM has it, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import tvm
from tvm.tirx import compilation_pipeline as tir_pipeline

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.target import Target

__all__ = [
    "ANNOTATION",
    "OPTIONS",
    "STOCK",
    "Compiler",
    "Option",
    "compiler_for",
    "compiler_with",
    "options_of",
    "options_text",
    "parse_options",
    "pipeline_names",
    "register_pipeline",
    "stock_pass",
]

ANNOTATION = "tirgym.options"


@dataclass(frozen=True, slots=True)
class Option:
    """One thing about the compiler that may be set."""

    name: str
    default: int
    """what the compiler does of its own accord"""
    values: tuple[int, ...]
    """what it may be set to, the default among them"""
    meaning: str


_SWITCH = (0, 1)
_DROPPABLE = {
    "LoopPartition": "split loops where a condition in them is decided",
    "VectorizeLoop": "make vector instructions of vectorized loops; 0 runs them one by one",
    "StorageRewrite": "let buffers share memory",
    "HoistIfThenElse": "move conditions out of loops",
    "RenormalizeSplitPattern": "simplify indices of split loops",
    "RemoveNoOp": "remove statements without effect",
    "CommonSubexprElim": "compute equal index expressions once",
    "NarrowDataType": "32-bit indices; 0 leaves them as they are",
}
"""Passes that programs are right without → what they do."""

_MOVES: Mapping[str, tuple[str, ...]] = {
    "UnrollLoop": ("VectorizeLoop", "StorageRewrite"),
    "HoistIfThenElse": ("VectorizeLoop",),
    "CommonSubexprElim": ("UnrollLoop",),
    "RemoveNoOp": ("UnrollLoop",),
}
"""Pass → passes that it may run before, instead of at its own place."""

_REPEATS: Mapping[str, str] = {"StmtSimplify": "UnrollLoop", "CommonSubexprElim": "RemoveNoOp"}
"""Pass → pass after which it may run once more."""

_CONFIG: Mapping[str, tuple[str, str]] = {
    "tir.unroll_max_step": ("tirx.UnrollLoop", "auto_max_step"),
    "tir.unroll_max_extent": ("tirx.UnrollLoop", "auto_max_extent"),
    "tir.partition_const_loop": ("s_tir.LoopPartition", "partition_const_loop"),
    "tir.simplify_inequalities": ("tirx.StmtSimplify", "transitively_prove_inequalities"),
}
"""Option → field of a pass configuration of TVM."""

_SWITCHES = frozenset({"tir.partition_const_loop", "tir.simplify_inequalities"})
_COMMAND_LINE: Mapping[str, str] = {
    "llvm.vectorize_slp": "-vectorize-slp:bool={}",
    "llvm.vectorize_loops": "-vectorize-loops:bool={}",
    "llvm.slp_threshold": "-slp-threshold:int={}",
    "llvm.misched_postra": "-misched-postra:bool={}",
    "llvm.early_ifcvt": "-x86-early-ifcvt:bool={}",
}
"""Option → option of LLVM's command line."""
_BOOLEAN = ("false", "true")


def _table() -> Iterable[Option]:
    for name, what in _DROPPABLE.items():
        yield Option(f"tir.{name}", 1, _SWITCH, f"{what}; 0 drops the pass")
    for name, places in _MOVES.items():
        said = ", ".join(f"{i}: before {place}" for i, place in enumerate(places, 1))
        yield Option(f"order.{name}", 0, tuple(range(len(places) + 1)), f"0: at its place, {said}")
    for name, after in _REPEATS.items():
        yield Option(f"again.{name}", 0, _SWITCH, f"1: once more after {after}")
    yield Option(
        "tir.unroll_max_step", 0, (0, 16, 64, 256), "unroll nests of at most so many statements"
    )
    yield Option("tir.unroll_max_extent", 0, (0, 4, 8, 16), "unroll loops of at most so many turns")
    yield Option("tir.partition_const_loop", 0, _SWITCH, "partition loops of constant extent too")
    yield Option("tir.simplify_inequalities", 0, _SWITCH, "prove inequalities through others")
    yield Option("llvm.opt_level", 3, (0, 1, 2, 3), "LLVM's -O level")
    yield Option("llvm.vectorize_slp", 1, _SWITCH, "LLVM's vectorizer of straight-line code")
    yield Option("llvm.vectorize_loops", 1, _SWITCH, "LLVM's vectorizer of loops")
    yield Option("llvm.slp_threshold", 0, (0, 5, 20, 100), "gain that the first must promise")
    yield Option("llvm.misched_postra", 0, _SWITCH, "schedule again after register allocation")
    yield Option("llvm.early_ifcvt", 0, _SWITCH, "x86: conditional moves instead of branches")
    yield Option(
        "llvm.vector_bits", 0, (0, 128, 256), "vectors that LLVM prefers; 0: those of the CPU"
    )
    yield Option("llvm.contract", 0, _SWITCH, "fuse products and sums across statements")
    yield Option("llvm.reassociate", 0, _SWITCH, "sum in another order, as RFactor does")


OPTIONS: Mapping[str, Option] = {option.name: option for option in _table()}
"""Everything that may be set. What assumes things of values (no NaN, no infinity, no signed zero) is
not among them, nor what leaves out checks of arguments."""

STOCK: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("s_tir", "CanonicalizeLoop", ()),
    ("s_tir", "LowerCrossThreadReduction", ()),
    ("s_tir", "LowerInitBlock", ()),
    ("s_tir", "PlanAndUpdateBufferAllocationLocation", ()),
    ("s_tir", "ConvertBlocksToOpaque", ()),
    ("s_tir", "LiftThreadBinding", ()),
    ("s_tir", "ManifestSharedMemoryLocalStage", ()),
    ("s_tir", "CompactBufferAllocation", ()),
    ("s_tir", "LowerAutoCopy", ()),
    ("s_tir", "UnifyThreadBinding", ()),
    ("s_tir", "LowerMatchBuffer", ()),
    ("s_tir", "StmtSimplify", ()),
    ("s_tir", "InjectPermutedLayout", ()),
    ("s_tir", "AnnotateIrregularLoop", ()),
    ("s_tir", "InjectSoftwarePipeline", ()),
    ("s_tir", "TransformMmaBufferLayout", ()),
    ("s_tir", "LowerOpaqueBlock", ()),
    ("tirx", "FlattenBuffer", ()),
    ("tirx", "BF16ComputeLegalize", ()),
    ("tirx", "NarrowDataType", (32,)),
    ("s_tir", "LoopPartition", ()),
    ("tirx", "VectorizeLoop", (True,)),
    ("s_tir", "InjectVirtualThread", ()),
    ("s_tir", "InjectDoubleBuffer", ()),
    ("tirx", "StorageRewrite", ()),
    ("s_tir", "HoistIfThenElse", ()),
    ("tirx", "UnrollLoop", ()),
    ("s_tir", "RenormalizeSplitPattern", ()),
    ("tirx", "StmtSimplify", ()),
    ("tirx", "RemoveNoOp", ()),
    ("s_tir", "RewriteUnsafeSelect", ()),
    ("tirx", "CommonSubexprElim", ()),
    ("tirx", "FP8ComputeLegalize", ()),
    ("s_tir", "VerifyVTCMLimit", ()),
    ("s_tir", "LowerVtcmAlloc", ()),
    ("tirx", "VerifyMemory", ()),
    ("tirx", "AnnotateEntryFunc", ()),
    ("s_tir", "ThreadSync", ("shared",)),
    ("s_tir", "ThreadSync", ("shared.dyn",)),
    ("s_tir", "ThreadSync", ("warp",)),
    ("s_tir", "InferFragment", ()),
    ("s_tir", "LowerThreadAllreduce", ()),
    ("s_tir", "MergeSharedMemoryAllocations", ()),
    ("tirx", "SplitHostDevice", ()),
    ("tirx", "MakePackedAPI", ()),
    ("tirx", "FP8StorageLegalize", ()),
    ("tirx", "BF16StorageLegalize", ()),
)
"""TVM's own pipeline for TensorIR (`tvm.s_tir.pipeline.default_s_tir_pipeline`, 0.27) as data; a test
holds it to what TVM runs."""


def options_text(options: Mapping[str, int]) -> str:
    """Canonical text: what differs from the defaults, sorted."""
    set_here = {k: v for k, v in options.items() if v != OPTIONS[k].default}
    return ";".join(f"{name}={value}" for name, value in sorted(set_here.items()))


def parse_options(text: str) -> dict[str, int]:
    """The options whose `options_text` is `text`.

    Raises UnknownNameError for a name, InvalidValueError for a value that is not in the table.
    """
    found: dict[str, int] = {}
    for word in filter(None, text.split(";")):
        name, _, value = word.partition("=")
        if name not in OPTIONS:
            raise UnknownNameError("option of the compiler", name, OPTIONS)
        values = OPTIONS[name].values
        if value not in map(str, values):
            accepted = f"one of {', '.join(map(str, values))}"
            raise InvalidValueError(name, value, accepted)
        found[name] = int(value)
    return found


def options_of(mod: Any) -> dict[str, int]:
    """What a module's functions carry; raises InvalidValueError if they differ in it."""
    texts: set[str] = set()
    for func in mod.functions.values():
        block = getattr(getattr(func, "body", None), "block", None)
        texts.add(str(block.annotations.get(ANNOTATION, "")) if block is not None else "")
    if len(texts) > 1:
        accepted = "the same options for all functions of one module"
        raise InvalidValueError("options of the compiler", " and ".join(sorted(texts)), accepted)
    return parse_options(texts.pop()) if texts else {}


Step = tuple[str, str, tuple[Any, ...]]


def _place(steps: Sequence[Step], name: str) -> int:
    """Index of the last pass called `name`."""
    return max(i for i, step in enumerate(steps) if step[1] == name)


def _steps(options: Mapping[str, int]) -> list[Step]:
    """The pipeline with passes dropped, moved and repeated."""
    steps = list(STOCK)
    for name, places in _MOVES.items():
        chosen = options.get(f"order.{name}", 0)
        if chosen:
            moved = steps.pop(_place(steps, name))
            steps.insert(_place(steps, places[chosen - 1]), moved)
    for name, after in _REPEATS.items():
        if options.get(f"again.{name}", 0):
            steps.insert(_place(steps, after) + 1, ("tirx", name, ()))
    dropped = {name for name in _DROPPABLE if not options.get(f"tir.{name}", 1)} - {"VectorizeLoop"}
    vectorize = bool(options.get("tir.VectorizeLoop", 1))
    return [
        (group, name, (vectorize,) if name == "VectorizeLoop" else arguments)
        for group, name, arguments in steps
        if name not in dropped
    ]


def pipeline_names(options: Mapping[str, int]) -> tuple[str, ...]:
    """Names of the passes that `options` run, in order."""
    return tuple(name for _, name, _ in _steps(options))


def stock_pass(step: Step) -> Any:
    """The pass that a step names."""
    group, name, arguments = step
    return getattr(import_module(f"tvm.{group}.transform"), name)(*arguments)


@dataclass(frozen=True)
class Compiler:
    """How a module is compiled."""

    target: Any
    """TVM's"""
    pipeline: str
    """its name in TVM's table of pipelines"""
    config: Mapping[str, Mapping[str, Any]]
    """of the pass context"""

    def compile(self, mod: Any) -> Any:
        """`tvm.compile`; raises what the compiler raises."""
        with tvm.transform.PassContext(config=dict(self.config)):
            return tvm.compile(mod, target=self.target, tir_pipeline=self.pipeline)

    def passes(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """The pipeline and the host passes after it."""
        made, finalize_host, _ = tvm.tirx.get_tir_pipeline(self.pipeline)
        return made, finalize_host()


@lru_cache(maxsize=256)
def compiler_with(text: str, target: Target) -> Compiler:
    """The compiler with the options of which `text` is the `options_text`."""
    options = parse_options(text)
    attributes: dict[str, Any] = {
        "kind": "llvm",
        "mcpu": target.arch,
        "num-cores": target.num_threads,
    }
    if "llvm.opt_level" in options:
        attributes["opt-level"] = options["llvm.opt_level"]
    if options.get("llvm.vector_bits"):
        attributes["mattr"] = [f"+prefer-{options['llvm.vector_bits']}-bit"]
    for name, flag in (("contract", "contract"), ("reassociate", "reassoc")):
        if options.get(f"llvm.{name}"):
            attributes[f"fast-math-{flag}"] = True
    words = [
        form.format(_BOOLEAN[options[name]] if ":bool=" in form else options[name])
        for name, form in _COMMAND_LINE.items()
        if name in options
    ]
    if words:
        attributes["cl-opt"] = words
    config: dict[str, dict[str, Any]] = {}
    for name, (key, field) in _CONFIG.items():
        if name in options:
            value = bool(options[name]) if name in _SWITCHES else options[name]
            config.setdefault(key, {})[field] = value
    return Compiler(tvm.target.Target(attributes), _pipeline(_steps(options)), config)


def _pipeline(steps: Sequence[Step]) -> str:
    """The name under which TVM knows a pipeline of these passes."""
    if tuple(steps) == STOCK:
        return "default"
    name = f"tirgym:{' '.join(f'{name}{arguments}' for _, name, arguments in steps)}"
    register_pipeline(name, tvm.transform.Sequential([stock_pass(step) for step in steps]))
    return name


def register_pipeline(name: str, passes: Any) -> None:
    """Let TVM know a pipeline; what comes after it for host and device is as in its own."""
    _, finalize_host, finalize_device = tvm.tirx.get_tir_pipeline("default")
    tir_pipeline.PIPELINE_MAP[name] = lambda: (passes, finalize_host, finalize_device)


def compiler_for(mod: Any, target: Target) -> Compiler:
    """The compiler with the options that `mod` carries."""
    return compiler_with(options_text(options_of(mod)), target)
