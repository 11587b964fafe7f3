"""WMMA: instructions of a whole warp on tiles of 16 × 16 elements, for NVIDIA's tensor cores.

A tile lies in a fragment, spread over the registers of the 32 threads of a warp in a way that only the
instructions know (CUDA C++ Programming Guide, "Warp matrix functions"). TVM holds fragments as buffers in
scopes of their own. Here are the instructions as TVM's intrinsics, registered on first use: TVM 0.27 has
them in `tvm.s_tir.tensor_intrin.cuda`, whose import parses every GPU intrinsic (13 s and more).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir import Call, Range
from tvm.s_tir import SBlock, SBlockRealize, TensorIntrin
from tvm.tirx import (
    BufferLoad,
    BufferRegion,
    BufferStore,
    Cast,
    Evaluate,
    For,
    IterVar,
    Var,
    decl_buffer,
)

__all__ = [
    "ACCUMULATOR",
    "CALLS",
    "MATRIX_A",
    "MATRIX_B",
    "MMA_CALL",
    "OPERANDS",
    "SIDE",
    "SUMS",
    "WARP",
    "WMMA",
    "Instruction",
    "call_of",
    "is_fragment",
    "layout_of",
    "register_wmma",
    "variant_of",
]

WARP = 32
"""Threads that run an instruction together."""
SIDE = 16
"""Rows and columns of a tile."""
MATRIX_A, MATRIX_B, ACCUMULATOR = "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"
OPERANDS = ("float16", "int8")
SUMS: Mapping[str, tuple[str, ...]] = {"float16": ("float32", "float16"), "int8": ("int32",)}
"""By type of the operands: types in which the products may be added up."""
MMA_CALL = "tirx.tvm_mma_sync"
CALLS = frozenset(
    {
        "tirx.tvm_load_matrix_sync",
        "tirx.tvm_fill_fragment",
        MMA_CALL,
        "tirx.tvm_store_matrix_sync",
    }
)
"""TVM's operators."""
_LAYOUTS = ("row_major", "col_major")


class Instruction(NamedTuple):
    """What one of the names of `WMMA` means."""

    kind: str
    """"load", "fill", "mma" or "store" """
    fragment: str
    """scope of the fragment that it makes, or stores"""
    transposed: bool = False
    """B lies in memory as rows of its columns"""


WMMA: Mapping[str, Instruction] = {
    "wmma_load_a": Instruction("load", MATRIX_A),
    "wmma_load_b": Instruction("load", MATRIX_B),
    "wmma_load_b_transposed": Instruction("load", MATRIX_B, True),
    "wmma_fill": Instruction("fill", ACCUMULATOR),
    "wmma_mma": Instruction("mma", ACCUMULATOR),
    "wmma_mma_transposed": Instruction("mma", ACCUMULATOR, True),
    "wmma_store": Instruction("store", ACCUMULATOR),
}


def is_fragment(scope: str) -> bool:
    """Whether `scope` is that of fragments."""
    return scope.startswith("wmma.")


def call_of(node: Any) -> Any:
    """The call on fragments that the SBlock `node` consists of; None for others."""
    body = node.body
    if type(body) is not Evaluate or type(body.value) is not Call:
        return None
    return body.value if str(getattr(body.value.op, "name", "")) in CALLS else None


def layout_of(node: Any) -> str:
    """Layout of the load or store that the SBlock `node` consists of; "" for others."""
    call = call_of(node)
    moves = call is not None and str(call.op.name).endswith("_matrix_sync")
    return str(call.args[7].value) if moves else ""


def variant_of(what: Instruction, facts: Any) -> tuple[tuple[str, ...], str]:
    """Types and memory that `register_wmma` asks for, from the facts of the block that `what` replaces."""
    read = [access.buffer for access in facts.reads]
    written = facts.writes[0].buffer
    if what.kind == "mma":
        operands = [buffer.dtype for buffer in read if buffer.handle != written.handle]
        return (operands[0], written.dtype), ""
    memory = {"load": read, "store": [written]}.get(what.kind)
    return (written.dtype,), memory[0].scope if memory else ""


@cache
def register_wmma(name: str, dtypes: tuple[str, ...], memory: str = "") -> str:
    """Register an instruction and return the name that TVM knows it by.

    `dtypes`: of the fragment, for "mma" of operands and sums. `memory`: scope of what is loaded or stored.
    """
    instruction = WMMA[name]
    known = ".".join(("tirgym", name, *dtypes, memory)).rstrip(".")
    description, implementation = _FORMS[instruction.kind](instruction, dtypes, memory)
    TensorIntrin.register(known, description, implementation, override=True)
    return known


def _tile(name: str, dtype: str, scope: str) -> Any:
    strides = [Var(f"{name}_row", "int32"), Var(f"{name}_column", "int32")]
    return decl_buffer(
        (SIDE, SIDE),
        dtype,
        name,
        strides=strides,
        offset_factor=SIDE,
        scope=scope,
        data_alignment=64,
    )


def _function(tiles: Sequence[Any], reads: Sequence[Any], body: Any) -> Any:
    """A function of `tiles` that reads some of them and writes the last."""
    whole = [Range.from_min_extent(0, SIDE)] * 2
    regions = [[BufferRegion(t, whole) for t in some] for some in (reads, tiles[-1:])]
    root = SBlock([], *regions, "root", body)
    return tirx.PrimFunc(list(tiles), SBlockRealize([], True, root))


def _loops(kinds: str, reads: Any, written: Any, value: Callable[..., Any]) -> Any:
    """Loops over the tile around a block with one iterator for each letter of `kinds` (S or R).

    `reads(*iterators)` lists tile and indices of what it reads, `value(*iterators)` is what it stores at
    the first two.
    """
    names = "ijk"[: len(kinds)]
    loops = [Var(name, "int32") for name in names]
    iterators = [
        IterVar(Range(0, SIDE), Var(f"v{name}", "int32"), 2 if kind == "R" else 0)
        for name, kind in zip(names, kinds, strict=True)
    ]
    at = [iterator.var for iterator in iterators]

    def region(tile: Any, indices: Sequence[Any]) -> Any:
        return BufferRegion(tile, [Range.from_min_extent(index, 1) for index in indices])

    block = SBlock(
        iterators,
        [region(tile, indices) for tile, indices in reads(*at)],
        [region(written, at[:2])],
        "tile",
        BufferStore(written, value(*at), at[:2]),
    )
    made: Any = SBlockRealize(loops, True, block)
    for loop in reversed(loops):
        made = For(loop, 0, SIDE, 0, made)
    return made


def _index(tile: Any) -> Any:
    """Number of a fragment in its buffer, which TVM makes an array of fragments."""
    row, at = tile.strides[0], tile.elem_offset
    return at // row // SIDE * (row // SIDE) + at % row // SIDE


def _copied(source: Any, target: Any) -> Any:
    return _loops(
        "SS",
        lambda i, j: [(source, (i, j))],
        target,
        lambda i, j: BufferLoad(source, [i, j]),
    )


def _moving(fragment: Any, pointer: Any, memory: Any, layout: str) -> tuple[Any, ...]:
    """Arguments of loads and stores."""
    side = (SIDE, SIDE, SIDE)
    return (fragment.data, *side, _index(fragment), pointer, memory.strides[0], layout)


def _load(what: Instruction, dtypes: tuple[str, ...], memory: str) -> tuple[Any, Any]:
    (dtype,) = dtypes

    def made(body: Callable[[Any, Any], Any]) -> Any:
        tiles = _tile("source", dtype, memory), _tile("fragment", dtype, what.fragment)
        return _function(tiles, tiles[:1], body(*tiles))

    def call(source: Any, fragment: Any) -> Any:
        pointer = source.access_ptr("r", ptr_type=dtype)
        layout = _LAYOUTS[what.transposed]
        return Evaluate(tirx.tvm_load_matrix_sync(*_moving(fragment, pointer, source, layout)))

    return made(_copied), made(call)


def _store(what: Instruction, dtypes: tuple[str, ...], memory: str) -> tuple[Any, Any]:
    (dtype,) = dtypes

    def made(body: Callable[[Any, Any], Any]) -> Any:
        tiles = _tile("fragment", dtype, what.fragment), _tile("target", dtype, memory)
        return _function(tiles, tiles[:1], body(*tiles))

    def call(fragment: Any, target: Any) -> Any:
        pointer = target.access_ptr("w", ptr_type=dtype)
        return Evaluate(
            tirx.tvm_store_matrix_sync(*_moving(fragment, pointer, target, _LAYOUTS[0]))
        )

    return made(_copied), made(call)


def _fill(what: Instruction, dtypes: tuple[str, ...], memory: str) -> tuple[Any, Any]:
    (dtype,) = dtypes
    zero = tirx.const(0, dtype)

    def made(body: Callable[[Any], Any]) -> Any:
        fragment = _tile("fragment", dtype, what.fragment)
        return _function((fragment,), (), body(fragment))

    def call(fragment: Any) -> Any:
        side = (SIDE, SIDE, SIDE)
        nought = tirx.const(0, "float32")
        return Evaluate(tirx.tvm_fill_fragment(fragment.data, *side, _index(fragment), nought))

    return made(lambda t: _loops("SS", lambda i, j: [], t, lambda i, j: zero)), made(call)


def _mma(what: Instruction, dtypes: tuple[str, ...], memory: str) -> tuple[Any, Any]:
    operand, total = dtypes

    def made(body: Callable[[Any, Any, Any], Any]) -> Any:
        tiles = (
            _tile("a", operand, MATRIX_A),
            _tile("b", operand, MATRIX_B),
            _tile("c", total, ACCUMULATOR),
        )
        a, b, c = tiles
        return _function(tiles, (c, a, b), body(a, b, c))

    def in_b(j: Any, k: Any) -> tuple[Any, Any]:
        return (j, k) if what.transposed else (k, j)

    def factor(tile: Any, indices: Sequence[Any]) -> Any:
        loaded = BufferLoad(tile, list(indices))
        return loaded if operand == total else Cast(total, loaded)

    def product(a: Any, b: Any, c: Any) -> Any:
        return _loops(
            "SSR",
            lambda i, j, k: [(c, (i, j)), (a, (i, k)), (b, in_b(j, k))],
            c,
            lambda i, j, k: BufferLoad(c, [i, j]) + factor(a, (i, k)) * factor(b, in_b(j, k)),
        )

    def call(a: Any, b: Any, c: Any) -> Any:
        places = [part for tile in (c, a, b, c) for part in (tile.data, _index(tile))]
        return Evaluate(tirx.tvm_mma_sync(*places))

    return made(product), made(call)


_FORMS: Mapping[str, Callable[..., tuple[Any, Any]]] = {
    "load": _load,
    "fill": _fill,
    "mma": _mma,
    "store": _store,
}
"""By kind: description and implementation."""
