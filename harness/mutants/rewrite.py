"""Read and rewrite TensorIR: where the stores are, and how to replace one node of a function.

TVM 0.27 has no statement mutator of its own; `tvm_ffi.structural_map` and `structural_mutate`
rewrite any IR tree and share what did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import Bind, BufferRegion, BufferStore, Cast, FloatImm, For, SeqStmt

from tirgym.harness.tensorir.rewriting import with_parts

__all__ = [
    "Site",
    "append",
    "computations",
    "data_nodes",
    "dtype_of",
    "is_float",
    "is_integer",
    "main",
    "map_data",
    "output_sites",
    "outputs",
    "replace_block",
    "rounded",
    "sites",
    "with_body",
    "with_main",
    "with_regions",
]


@dataclass(frozen=True)
class Site:
    """One statement that computes a value, with what is around it."""

    store: Any
    """BufferStore; Bind in `computations`"""
    realize: Any
    """the SBlockRealize right around it; the root's when it stands in no block of its own"""
    loops: tuple[Any, ...]
    """For statements around it, outermost first"""
    is_init: bool

    @property
    def block(self) -> Any:
        """The SBlock."""
        return self.realize.block

    def bound(self, iter_type: int) -> list[tuple[Any, Any]]:
        """(For, IterVar) of the iterators of one type that are bound to a plain loop variable.

        In the order of the iterators; loops that no iterator of this block uses alone are left out.
        """
        pairs = []
        for iter_var, value in zip(self.block.iter_vars, self.realize.iter_values, strict=True):
            loop = next((f for f in self.loops if f.loop_var.same_as(value)), None)
            if int(iter_var.iter_type) == iter_type and loop is not None:
                pairs.append((loop, iter_var))
        return pairs


def main(mod: Any) -> Any:
    """The function "main" of `mod`."""
    return mod["main"]


def with_main(func: Any) -> Any:
    """An IRModule with `func` as "main", the regions of its blocks made consistent."""
    return tvm.IRModule({"main": with_regions(func)})


def with_body(func: Any, statement: Any) -> Any:
    """`func` with the body of its root block replaced."""
    realize = func.body
    root = with_parts(realize.block, body=statement)
    return func.with_body(SBlockRealize(realize.iter_values, realize.predicate, root))


def with_regions(func: Any) -> Any:
    """`func` with the read and write regions of every block below the root derived anew."""
    root = func.body.block
    buffers = list(func.params)
    tvm_ffi.structural_walk(func, (SBlock, lambda block: buffers.extend(block.alloc_buffers)))
    by_data = {buffer: buffer for buffer in buffers}

    def derive(block: Any) -> Any:
        if block.name_hint == root.name_hint:
            return block
        reads, writes = tvm.s_tir.analysis.get_sblock_read_write_region(block, by_data)
        return with_parts(block, reads=reads, writes=writes)

    return tvm_ffi.structural_map(func, (SBlock, derive))


def computations(func: Any) -> list[Site]:
    """Every store and every let binding, in program order; an init before its update."""
    found: list[Site] = []

    def visit(node: Any, realize: Any, loops: tuple[Any, ...], is_init: bool) -> None:
        if isinstance(node, BufferStore | Bind):
            found.append(Site(node, realize, loops, is_init))
        elif isinstance(node, SBlockRealize):
            if node.block.init is not None:
                visit(node.block.init, node, loops, True)
            visit(node.block.body, node, loops, is_init)
        elif isinstance(node, For):
            visit(node.body, realize, (*loops, node), is_init)
        elif isinstance(node, SeqStmt):
            for child in node.seq:
                visit(child, realize, loops, is_init)
        else:
            for part in ("body", "then_case", "else_case"):
                child = getattr(node, part, None)
                if child is not None:
                    visit(child, realize, loops, is_init)

    visit(func.body, func.body, (), False)
    return found


def sites(func: Any) -> list[Site]:
    """Every store, in program order; the init of a reduction before its update."""
    return [site for site in computations(func) if isinstance(site.store, BufferStore)]


def outputs(func: Any) -> list[Any]:
    """Parameters that are stored to, in parameter order."""
    stored = [site.store.buffer for site in sites(func)]
    return [p for p in func.params if any(p.same_as(b) for b in stored)]


def output_sites(func: Any) -> list[Site]:
    """Stores to parameters that are not the init of a reduction, in program order."""
    params = outputs(func)
    return [
        s for s in sites(func) if not s.is_init and any(s.store.buffer.same_as(p) for p in params)
    ]


def replace_block(func: Any, site: Site, change: Callable[[Any], Any]) -> Any:
    """`func` with the SBlockRealize of `site` replaced by `change(realize)`."""
    target = site.block

    def swap(realize: Any) -> Any:
        return change(realize) if realize.block.same_as(target) else realize

    return tvm_ffi.structural_map(func, (SBlockRealize, swap))


def append(func: Any, store: Any) -> Any:
    """`func` with one more store, in a block of its own, after everything else."""
    cell = [tvm.ir.Range.from_min_extent(i, 1) for i in store.indices]
    region = [BufferRegion(store.buffer, cell)]
    block = SBlock([], region, region, "appended", store)
    body = func.body.block.body
    before = list(body.seq) if isinstance(body, SeqStmt) else [body]
    return with_body(func, SeqStmt([*before, SBlockRealize([], True, block)]))


def data_nodes(value: Any) -> Iterator[Any]:
    """Sub-expressions of a stored value that handle data, operands first; no index arithmetic.

    A node handles data when a buffer is read below it, the indices of that read not counted.
    Constants next to data are included.
    """
    found: list[Any] = []

    def visit(node: Any, visitor: Any) -> None:
        if isinstance(node, TensorLoad):
            found.append(node)
            return
        before = len(found)
        visitor.default_visit(node)
        if len(found) > before or isinstance(node, FloatImm):
            found.append(node)

    tvm_ffi.structural_visit(value, (tvm.ir.Expr, visit))
    return iter(found)


def map_data(func: Any, target: Any, new: Any, where: Site) -> Any:
    """`func` with the expression `target` in the value stored at `where` replaced by `new`."""

    def swap(node: Any, mutator: Any) -> Any:
        if node.same_as(target):
            return new
        return node if isinstance(node, TensorLoad) else mutator.default_mutate(node)

    old = where.store
    value = tvm_ffi.structural_mutate(old.value, (tvm.ir.Expr, swap))
    if isinstance(old, Bind):
        made: Any = Bind(old.var, value)
    else:
        made = BufferStore(old.buffer, value, old.indices)

    def put(statement: Any) -> Any:
        return made if statement.same_as(old) else statement

    return tvm_ffi.structural_map(func, (type(old), put))


def dtype_of(value: Any) -> str:
    """Element type of an expression or a buffer."""
    element = getattr(value.ty, "dtype", None)
    return str(value.dtype if element is None else element)


def is_float(expression: Any) -> bool:
    """Whether an expression or buffer holds floating-point numbers."""
    return "float" in dtype_of(expression)


def is_integer(expression: Any) -> bool:
    """Whether an expression or buffer holds integers."""
    return "int" in dtype_of(expression)


def rounded(value: Any, dtype: str) -> Any:
    """`value` rounded to a narrower float type and back."""
    return Cast(dtype_of(value), Cast(dtype, value))
