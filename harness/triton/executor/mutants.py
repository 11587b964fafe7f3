"""Faults that passes could make, put into Triton IR on purpose: what the semantic gate must catch.

Each kind changes a parsed module and answers None when there is nothing of its kind to break.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from tirgym.errors import UnknownNameError
from tirgym.harness.triton.executor.ir import Block, Function, Module, Operation, Region, Value
from tirgym.harness.triton.executor.types import TensorType

__all__ = ["FAULTS", "mutate_module"]

Rewrite = Callable[[Operation], Operation | None]
"""The operation or another in its place; None drops it."""


def mutate_module(kind: str, module: Module) -> Module | None:
    """`module` with a fault of `kind`; None when it has nothing to break. Raises UnknownNameError."""
    if kind not in FAULTS:
        raise UnknownNameError("kind of fault", kind, FAULTS)
    return FAULTS[kind](module)


# --- rewriting ---------------------------------------------------------------------------------


def _rewritten(module: Module, rewrite: Rewrite) -> Module | None:
    """Every operation through `rewrite`, inner ones first; None if all stay as they are."""
    changed = False

    def of_region(region: Region) -> Region:
        return Region(tuple(of_block(block) for block in region.blocks))

    def of_block(block: Block) -> Block:
        kept = [made for operation in block.operations if (made := of_operation(operation))]
        return Block(block.label, block.arguments, tuple(kept))

    def of_operation(operation: Operation) -> Operation | None:
        nonlocal changed
        if operation.regions:
            regions = tuple(of_region(region) for region in operation.regions)
            operation = replace(operation, regions=regions)
        made = rewrite(operation)
        changed = changed or made is not operation
        return made

    functions = tuple(replace(f, body=of_region(f.body)) for f in module.functions)
    return replace(module, functions=functions) if changed else None


def _with_attribute(operation: Operation, name: str, value: str) -> Operation:
    text, count = re.subn(
        rf"(?<![\w.]){name} = [^,:]+?(?= :|,|$)", f"{name} = {value}", operation.attributes_text
    )
    return replace(operation, attributes_text=text) if count else operation


def _without_operands(operation: Operation, keep: Callable[[int, str], bool]) -> Operation:
    kept = [
        (value, role)
        for place, (value, role) in enumerate(zip(operation.operands, operation.roles, strict=True))
        if keep(place, role)
    ]
    if len(kept) == len(operation.operands):
        return operation
    return replace(operation, operands=tuple(v for v, _ in kept), roles=tuple(r for _, r in kept))


def _with_operand(operation: Operation, place: int, value: Value) -> Operation:
    operands = list(operation.operands)
    operands[place] = value
    return replace(operation, operands=tuple(operands))


def _makers(module: Module) -> dict[int, Operation]:
    """Number of a value → the operation that makes it."""
    return {value.number: o for o in module.walk() for value in o.results}


class _Constants:
    """New constants at the start of the public function."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._next = module.values
        self._made: list[Operation] = []

    def make(self, text: str, like: Value) -> Value:
        """A constant of the type of `like`; `text` as in `arith.constant`."""
        value = Value(self._next, f"%fault_{self._next}", like.type)
        self._next += 1
        self._made.append(Operation("arith.constant", (), (), (value,), text, "", (like.type,)))
        return value

    def put_into(self, module: Module | None) -> Module | None:
        """`module` with the constants."""
        if module is None or not self._made:
            return None
        public = module.function()

        def extended(function: Function) -> Function:
            if function.name != public.name:
                return function
            first, *rest = function.body.blocks
            first = replace(first, operations=(*self._made, *first.operations))
            return replace(function, body=Region((first, *rest)))

        functions = tuple(extended(function) for function in module.functions)
        return replace(module, functions=functions, values=self._next)


# --- kinds -------------------------------------------------------------------------------------


def _in_loops(module: Module) -> frozenset[int]:
    """Identities of the operations inside of loops."""
    loops = (o for o in module.walk() if o.name == "scf.for")
    return frozenset(id(inner) for loop in loops for inner in loop.walk() if inner is not loop)


def _wait_count(module: Module) -> Module | None:
    """Waits inside of loops leave two groups more under way."""
    inside = _in_loops(module)

    def rewrite(o: Operation) -> Operation:
        if o.name != "ttg.async_wait" or id(o) not in inside:
            return o
        return _with_attribute(o, "num", str(o.integer("num") + 2))

    return _rewritten(module, rewrite)


def _last_wait_dropped(module: Module) -> Module | None:
    """Waits outside of loops wait for nothing."""
    inside = _in_loops(module)

    def rewrite(o: Operation) -> Operation:
        if o.name != "ttg.async_wait" or id(o) in inside:
            return o
        return _with_attribute(o, "num", "1000")

    return _rewritten(module, rewrite)


def _product_wait_count(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        if o.name != "ttng.warp_group_dot_wait":
            return o
        return _with_attribute(o, "pendings", str(o.integer("pendings") + 1))

    return _rewritten(module, rewrite)


def _copy_mask_dropped(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        if o.name != "ttg.async_copy_global_to_local":
            return o
        return _without_operands(o, lambda _, role: role not in ("mask", "other"))

    return _rewritten(module, rewrite)


def _load_mask_dropped(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        return _without_operands(o, lambda place, _: place < 1) if o.name == "tt.load" else o

    return _rewritten(module, rewrite)


def _store_mask_dropped(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        return _without_operands(o, lambda place, _: place < 2) if o.name == "tt.store" else o

    return _rewritten(module, rewrite)


def _store_dropped(module: Module) -> Module | None:
    return _rewritten(module, lambda o: None if o.name == "tt.store" else o)


def _predicate_changed(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        if o.name != "arith.cmpi" or not isinstance(o.operands[0].type, TensorType):
            return o
        header = re.sub(r"^slt\b", "sle", o.header)
        return replace(o, header=header) if header != o.header else o

    return _rewritten(module, rewrite)


def _loop_step(module: Module) -> Module | None:
    makers, constants = _makers(module), _Constants(module)

    def rewrite(o: Operation) -> Operation:
        if o.name != "scf.for":
            return o
        maker = makers.get(o.operands[2].number)
        if maker is None or maker.name != "arith.constant":
            return o
        return _with_operand(o, 2, constants.make(str(2 * int(maker.header)), o.operands[2]))

    return constants.put_into(_rewritten(module, rewrite))


def _first_iteration_skipped(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        return _with_operand(o, 0, o.operands[2]) if o.name == "scf.for" else o

    return _rewritten(module, rewrite)


def _ring_wrap(module: Module) -> Module | None:
    """The index of a ring of buffers wraps one too late."""
    makers = _makers(module)
    wraps: set[int] = set()
    for o in module.walk():
        if o.name == "ttg.memdesc_index":
            chosen = makers.get(o.operands[1].number)
            if chosen is not None and chosen.name == "arith.select":
                wraps.add(chosen.operands[0].number)

    def rewrite(o: Operation) -> Operation:
        if o.name != "arith.cmpi" or o.results[0].number not in wraps:
            return o
        return replace(o, header=re.sub(r"^sge\b", "sgt", o.header))

    return _rewritten(module, rewrite) if wraps else None


def _wrong_buffer(module: Module) -> Module | None:
    """Every constant index of a ring of buffers is that of the first."""
    makers, constants = _makers(module), _Constants(module)

    def rewrite(o: Operation) -> Operation:
        if o.name != "ttg.memdesc_index":
            return o
        maker = makers.get(o.operands[1].number)
        if maker is None or maker.name != "arith.constant" or maker.header == "0":
            return o
        return _with_operand(o, 1, constants.make("0", o.operands[1]))

    return constants.put_into(_rewritten(module, rewrite))


def _subtraction_swapped(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        if o.name not in ("arith.subi", "arith.subf"):
            return o
        return replace(o, operands=o.operands[::-1])

    return _rewritten(module, rewrite)


def _wrong_accumulator(module: Module) -> Module | None:
    """Dots add to zero in place of what was summed so far."""
    makers, constants = _makers(module), _Constants(module)

    def rewrite(o: Operation) -> Operation:
        if o.name not in ("tt.dot", "ttng.warp_group_dot"):
            return o
        maker = makers.get(o.operands[2].number)
        if maker is not None and maker.name == "arith.constant":
            return o
        return _with_operand(o, 2, constants.make("dense<0.0>", o.operands[2]))

    return constants.put_into(_rewritten(module, rewrite))


def _sum_of_maxima(module: Module) -> Module | None:
    def rewrite(o: Operation) -> Operation:
        if o.name != "tt.reduce":
            return o
        block = o.regions[0].entry
        changed = tuple(
            replace(inner, name="arith.maxnumf") if inner.name == "arith.addf" else inner
            for inner in block.operations
        )
        if changed == block.operations:
            return o
        return replace(o, regions=(Region((replace(block, operations=changed),)),))

    return _rewritten(module, rewrite)


def _program_axis(module: Module) -> Module | None:
    swap = {"x": "y", "y": "x"}

    def rewrite(o: Operation) -> Operation:
        if o.name != "tt.get_program_id":
            return o
        return replace(o, header=swap.get(o.header.strip(), "x"))

    return _rewritten(module, rewrite)


def _pointer_advance(module: Module) -> Module | None:
    """Pointers that are carried around a loop do not move."""

    def rewrite(o: Operation) -> Operation:
        if o.name != "scf.for":
            return o
        block = o.regions[0].entry
        *inner, last = block.operations
        carried = block.arguments[1:]
        operands = tuple(
            argument if "!tt.ptr" in str(argument.type) else value
            for argument, value in zip(carried, last.operands, strict=True)
        )
        if operands == last.operands:
            return o
        block = replace(block, operations=(*inner, replace(last, operands=operands)))
        return replace(o, regions=(Region((block,)),))

    return _rewritten(module, rewrite)


def _integer_scale(module: Module) -> Module | None:
    """Integer products by constants are sums: strides and tile offsets are wrong."""
    makers = _makers(module)

    def rewrite(o: Operation) -> Operation:
        if o.name != "arith.muli":
            return o
        maker = makers.get(o.operands[1].number)
        if maker is None or maker.name != "arith.constant":
            return o
        return replace(o, name="arith.addi")

    return _rewritten(module, rewrite)


FAULTS: Mapping[str, Callable[[Module], Module | None]] = {
    "wait_count": _wait_count,
    "last_wait_dropped": _last_wait_dropped,
    "product_wait_count": _product_wait_count,
    "copy_mask_dropped": _copy_mask_dropped,
    "load_mask_dropped": _load_mask_dropped,
    "store_mask_dropped": _store_mask_dropped,
    "store_dropped": _store_dropped,
    "predicate_changed": _predicate_changed,
    "loop_step": _loop_step,
    "first_iteration_skipped": _first_iteration_skipped,
    "ring_wrap": _ring_wrap,
    "wrong_buffer": _wrong_buffer,
    "subtraction_swapped": _subtraction_swapped,
    "wrong_accumulator": _wrong_accumulator,
    "sum_of_maxima": _sum_of_maxima,
    "program_axis": _program_axis,
    "pointer_advance": _pointer_advance,
    "integer_scale": _integer_scale,
}
"""Kind → how it is put into a module."""
