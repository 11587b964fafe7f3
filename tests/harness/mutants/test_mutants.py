"""Each kind of mutation changes exactly the lines it says, and never its argument."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from tirgym.errors import UnknownNameError
from tirgym.harness.mutants import KINDS, mutate
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.problem import build_of
from tirgym.kernels_suite.registry import load_kernel

LOADED = "c[v_i, v_j] + a[v_i, v_k] * b[v_k, v_j]"
STORED = "d[v_i, v_j] = T.max(c[v_i, v_j] - bias[v_j], T.float32(0.25))"

ADDED = {
    "store_deleted": ["T.evaluate(0)"],
    "stale_output": ["T.evaluate(0)"],
    "constant_output": ["d[v_i, v_j] = T.float32(0.0)"],
    "reduction_halved": ["for i, j, k in T.grid(8, 8, 6):"],
    "loop_short": ["for i, j in T.grid(7, 8):"],
    "loop_long": ["for i, j in T.grid(8, 9):"],
    "init_dropped": [],
    "row_skipped": ["T.where(T.And(T.bool(True), i > 0))"],
    "last_element_unwritten": ["T.where(T.And(T.bool(True), (i < 7) | (j < 7)))"],
    "transposed_write": [
        STORED.replace("[v_i, v_j] =", "[(v_j * 8 + v_i) // 8, (v_j * 8 + v_i) % 8] =")
    ],
    "one_element_wrong": [
        "d[4, 4] = d[4, 4] + T.max(T.fabs(d[4, 4]), T.float32(1.0)) * T.float32(0.01)"
    ],
    "input_modified": ["a[0, 0] = a[0, 0] + T.float32(1.0)"],
    "operator_changed": [STORED.replace("max", "min")],
    "operands_swapped": [STORED.replace("c[v_i, v_j] - bias[v_j]", "bias[v_j] - c[v_i, v_j]")],
    "constant_changed": [STORED.replace("0.25", "0.375")],
    "epilogue_skipped": ["d[v_i, v_j] = c[v_i, v_j]"],
    "accumulate_float16": [f'c[v_i, v_j] = T.Cast("float32", T.Cast("float16", {LOADED}))'],
    "inputs_float16": [
        STORED.replace("bias[v_j]", 'T.Cast("float32", T.Cast("float16", bias[v_j]))')
    ],
    "read_offset": [STORED.replace("bias[v_j]", "bias[(v_j + 1) % 8]")],
    "edge_read": [STORED.replace("bias[v_j]", "bias[T.Select(v_j < 7, v_j, v_j + 1)]")],
    "unsafe_dtype": ['c = T.sblock_alloc_buffer((8, 8), "float16")'],
    "layout_not_injective": ["c = T.sblock_alloc_buffer((4, 8))"],
    "wrong_regions": ["v_j = T.axis.spatial(8, 0)", "T.reads(c[v_i, 0], bias[v_j])"],
}
"""Kind → lines that it adds to the IR of `dense`."""

REMOVED = {
    "init_dropped": ["with T.init():", "c[v_i, v_j] = T.float32(0.0)"],
    "store_deleted": [f"c[v_i, v_j] = {LOADED}"],
}


def module(*parameters: Any) -> Any:
    func = te.create_prim_func(list(parameters)).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": func})


@pytest.fixture(scope="module")
def dense() -> Any:
    """max(a @ b - bias, 0.25): a reduction, and an epilogue that is not commutative."""
    a = te.placeholder((8, 12), "float32", "a")
    b = te.placeholder((12, 8), "float32", "b")
    bias = te.placeholder((8,), "float32", "bias")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    low = tirx.const(0.25, "float32")
    d = te.compute((8, 8), lambda i, j: tirx.max(c[i, j] - bias[j], low), "d")
    return module(a, b, bias, d)


@pytest.fixture(scope="module")
def gather() -> Any:
    """out[r, c] = table[index[r], c]."""
    table = te.placeholder((9, 4), "float32", "table")
    index = te.placeholder((5,), "int32", "index")
    return module(table, index, te.compute((5, 4), lambda r, c: table[index[r], c], "out"))


def changed_lines(before: Any, after: Any) -> tuple[list[str], list[str]]:
    """Lines that `after` adds and lines that it removes."""
    diff = list(difflib.ndiff(before.script().splitlines(), after.script().splitlines()))
    added = [line[2:].strip() for line in diff if line.startswith("+ ")]
    return added, [line[2:].strip() for line in diff if line.startswith("- ")]


@pytest.mark.parametrize("kind", sorted(ADDED))
def test_kind_changes_the_lines_it_says(kind: str, dense: Any) -> None:
    mutant = mutate(kind, dense)
    assert mutant is not None
    added, removed = changed_lines(dense, mutant)
    assert [line for line in ADDED[kind] if line not in added] == []
    assert [line for line in REMOVED.get(kind, []) if line not in removed] == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_argument_is_not_changed(kind: str, dense: Any) -> None:
    before = tvm_ffi.structural_hash(dense)
    mutant = mutate(kind, dense)
    assert tvm_ffi.structural_hash(dense) == before
    assert mutant is None or not tvm_ffi.structural_equal(mutant, dense)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_same_mutant_every_time(kind: str, dense: Any) -> None:
    first, second = mutate(kind, dense), mutate(kind, dense)
    assert tvm_ffi.structural_equal(first, second)


def test_every_kind_has_an_expectation() -> None:
    assert set(KINDS) - set(ADDED) == {"index_off_by_one"}


def test_gathered_index_is_shifted(gather: Any, dense: Any) -> None:
    added, _ = changed_lines(gather, mutate("index_off_by_one", gather))
    assert "out[v_r, v_c] = table[(index[v_r] + 1) % 9, v_c]" in added
    assert mutate("index_off_by_one", dense) is None


@pytest.mark.parametrize(
    "kind",
    [
        "reduction_halved",
        "init_dropped",
        "accumulate_float16",
        "operator_changed",
        "operands_swapped",
        "constant_changed",
        "epilogue_skipped",
        "unsafe_dtype",
        "layout_not_injective",
        "wrong_regions",
    ],
)
def test_none_where_there_is_nothing_to_break(kind: str, gather: Any) -> None:
    assert mutate(kind, gather) is None


def test_commutative_operands_are_never_swapped() -> None:
    a = te.placeholder((8,), "float32", "a")
    b = te.placeholder((8,), "float32", "b")
    product = module(a, b, te.compute((8,), lambda i: a[i] * b[i] + a[i], "out"))
    assert mutate("operands_swapped", product) is None


def test_unknown_kind_names_the_accepted_ones(dense: Any) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'loop_long'"):
        mutate("loop_lomg", dense)


def test_remembered_index_of_an_argmax_is_shifted() -> None:
    kernel = load_kernel("argmax")
    func = build_of(Workload.of(kernel, kernel.tiny_shape)).with_attr("global_symbol", "main")
    before = tvm.IRModule({"main": func})
    added, _ = changed_lines(before, mutate("index_off_by_one", before))
    assert added == [
        (
            "v_index_v0: T.let[T.int32] = "
            "T.Select(index_v1[v_i] >= x[v_i, v_k], index_v0[v_i], v_k + 1)"
        )
    ]
