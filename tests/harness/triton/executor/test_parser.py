"""Text of TTIR and TTGIR to typed IR, and what bad text is told."""

from __future__ import annotations

import re

import pytest
from triton_ir import FOLDER, fixture

from tirgym.errors import DamagedFileError, UnknownNameError
from tirgym.harness.triton.executor.ir import Module, Operation
from tirgym.harness.triton.executor.parser import parse_module
from tirgym.harness.triton.executor.types import MemDescType, TensorType, parse_type


def find(module: Module, name: str, number: int = 0) -> Operation:
    return [o for o in module.walk() if o.name == name][number]


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_every_operation_and_value_of_the_text_is_read(path) -> None:  # type: ignore[no-untyped-def]
    text = path.read_text()
    module = parse_module(text)
    operations = list(module.walk())
    named = re.findall(r"(?m)^\s*(?:%[^=]*= )?\"?((?:arith|math|scf|tt|ttg|ttng)\.[\w.]+)", text)
    assert [o.name for o in operations if o.name != "tt.func"] == [
        n for n in named if n != "tt.func"
    ]
    assert module.level == path.suffix.removeprefix(".")
    defined = {value.number for o in operations for value in o.results}
    assert len(defined) == sum(len(o.results) for o in operations)
    lines = text.splitlines()
    assert all(o.name in lines[o.line - 1] for o in operations)


def test_operands_roles_attributes_and_types_of_a_pipelined_loop() -> None:
    module = fixture("matmul", "sm_80", "ttgir").module
    copy = find(module, "ttg.async_copy_global_to_local")
    assert copy.roles == ("", "", "mask", "other")
    mask = copy.operand("mask")
    assert mask is not None
    assert mask.type == TensorType((64, 32), parse_type("i1"), mask.type.encoding)  # type: ignore[union-attr, arg-type]
    assert isinstance(copy.operands[1].type, MemDescType)
    loop = find(module, "scf.for")
    body = loop.regions[0].entry
    carried = len(loop.operands) - 3
    assert carried == len(loop.results) == len(body.arguments) - 1
    assert loop.roles[:3] == ("from", "to", "step")
    assert [str(a.type) for a in body.arguments[1:]] == [str(r.type) for r in loop.results]
    assert find(module, "ttg.async_wait").integer("num") >= 0
    assert find(module, "tt.dot").setting("inputPrecision", "ieee") == "tf32"
    assert module.attributes["ttg.num-warps"] == "4"
    assert module.layouts["#mma"].startswith("#ttg.nvidia_mma<")


def test_reductions_keep_their_bodies_and_branches_their_regions() -> None:
    module = fixture("attention", "sm_90", "ttgir").module
    reduction = find(module, "tt.reduce")
    assert reduction.integer("axis") == 1
    assert [o.name for o in reduction.regions[0].entry.operations][-1] == "tt.reduce.return"
    text = """module {
  tt.func public @f(%arg0: i1, %arg1: i32 {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32) -> i32 {
    %0:2 = scf.if %arg0 -> (i32, i32) {
      scf.yield %arg1, %n : i32, i32 loc(#loc3)
    } else {
      %c1_i32 = arith.constant 1 : i32 loc(#loc1)
      scf.yield %c1_i32, %c1_i32 : i32, i32
    } loc(#loc2)
    %1 = scf.while (%a = %0#1) : (i32) -> i32 {
      %c = arith.cmpi slt, %a, %0#0 : i32
      scf.condition(%c) %a : i32
    } do {
    ^bb0(%b: i32 loc(unknown)):
      %d = arith.addi %b, %b : i32
      scf.yield %d : i32
    } {tt.flag = "} : x"}
    %2 = tt.call @g(%1) : (i32) -> i32
    cf.cond_br %arg0, ^bb1(%2 : i32), ^bb2
  ^bb1(%x: i32):  // pred: ^bb0
    tt.return %x : i32
  ^bb2:  // pred: ^bb0
    tt.return %1 : i32
  }
  tt.func private @g(%arg0: i32) -> i32 {
    tt.return %arg0 : i32
  }
}
#loc = loc("file.py":1:2)
"""
    module = parse_module(text)
    branch = find(module, "scf.if")
    assert [len(region.entry.operations) for region in branch.regions] == [1, 2]
    assert branch.location == "#loc2"
    assert [str(value.type) for value in branch.results] == ["i32", "i32"]
    loop = find(module, "scf.while")
    assert [value.name for value in loop.regions[1].entry.arguments] == ["%b"]
    assert loop.attributes["tt.flag"] == "} : x"
    assert [block.label for block in module.function("f").body.blocks] == ["", "^bb1", "^bb2"]
    assert module.function().name == "f"
    with pytest.raises(UnknownNameError, match="function 'h'"):
        module.function("h")


def test_unknown_operations_are_read_like_all_others() -> None:
    text = """module {
  tt.func public @f(%p: !tt.ptr<f32>) {
    %0:2 = new.thing %p, mode = fast {a = [1, 2], b = {c = 1 : i32}} : !tt.ptr<f32> -> i32, tensor<4x8xf32>
    %1 = "new.other"(%0#0) <{x = 1 : i64}> : (i32) -> !new.handle<i32, [4]>
    tt.return
  }
}
"""
    module = parse_module(text)
    thing = find(module, "new.thing")
    assert [str(r.type) for r in thing.results] == ["i32", "tensor<4x8xf32>"]
    assert thing.attributes["b"] == "{c = 1 : i32}"
    assert str(find(module, "new.other").results[0].type) == "!new.handle<i32, [4]>"


@pytest.mark.parametrize(
    "spelled",
    [
        "i1", "bf16", "f8E5M2", "index", "!tt.ptr<f16>", "tensor<128x1x!tt.ptr<f16>>",
        "tensor<8xf32, #ttg.slice<{dim = 1, parent = #blocked}>>",
        "!ttg.memdesc<2x16x8xf16, #shared, #smem, mutable>", "!ttg.async.token",
    ],
)  # fmt: skip
def test_types_print_as_they_were_spelled(spelled: str) -> None:
    assert str(parse_type(spelled)) == spelled


HEAD = "module {\n  tt.func public @f(%arg0: i32) {\n"
TAIL = "    tt.return\n  }\n}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no tt.func"),
        ("int main() {}", "line 1, column 1: expected a module or a tt.func, found 'int main() {}'"),
        (HEAD + "    %0 = arith.addi %arg0, %x : i32\n" + TAIL, "line 3, column 28: use of undefined"),
        (HEAD + "    %0 = tt.splat %arg0 : i32 -> tensor<4xq32>\n" + TAIL,
         "line 3, column 43: expected a type, found 'q32'"),
        (HEAD + "    %0 = 3\n" + TAIL, "line 3, column 10: expected an operation, found '3'"),
        (HEAD + "    %arg0 = arith.constant 3 : i32\n" + TAIL, "%arg0 is defined twice"),
        (HEAD + "    %0:2 = arith.constant 3 : i32\n" + TAIL, "defines 2 values but has 1 result types"),
        (HEAD + "    tt.return\n", "line 2, column 3: the region that opens here does not close"),
        (HEAD + "    %0 = tt.make_range {end = 4 : i32 : tensor<4xi32>\n" + TAIL, "do not close"),
        ("module {\n  tt.func @f(%arg0) {\n" + TAIL, "expected an argument with its type"),
    ],
)  # fmt: skip
def test_bad_text_is_one_line_with_line_and_column(text: str, problem: str) -> None:
    with pytest.raises(DamagedFileError) as caught:
        parse_module(text, "x.ttir")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("x.ttir is not a readable Triton IR text: ")
    assert "\n" not in str(caught.value)


def test_cutting_the_text_anywhere_never_raises_anything_else() -> None:
    text = fixture("matmul", "sm_90", "ttgir").text
    for end in range(0, len(text), 301):
        cut = text[:end]
        try:
            parse_module(cut)
        except DamagedFileError:
            continue
        assert end > len(text) - 5
