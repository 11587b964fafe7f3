"""Keys of machine code from LLVM's IR: equal where the assembly is, whatever things are called."""

from __future__ import annotations

import re

import numpy as np
import pytest
from small import SMALL, make

from tirgym.harness.backend import backend
from tirgym.harness.backends.code_key import assembly_key, llvm_ir_key
from tirgym.harness.macros import named_vocabulary
from tirgym.harness.transforms.configure import Configure
from tirgym.kernels_suite.registry import load_workload

IR = r"""; ModuleID = 'TVMMod'
@.str = private constant [10 x i8] c"a %x; b\0A%y\00", align 1

; Function Attrs: nounwind
define i32 @main(ptr %args, i32 %"num args") #0 !dbg !5 {
entry:
    #dbg_declare(ptr %args, !20, !DIExpression(), !15)
  %old = load float, ptr %args, align 4, !dbg !15, !tbaa !43
  %more = icmp eq i32 %"num args", 3, !dbg !15
  br i1 %more, label %then, label %"go on", !dbg !15, !prof !16

then:                                             ; preds = %entry
  br label %"go on", !dbg !15, !llvm.loop !54

"go on":                                          ; preds = %then, %entry
  ret i32 0, !dbg !15
}

attributes #0 = { nounwind "target-cpu"="znver3" }

!llvm.dbg.cu = !{!0}
!0 = distinct !DICompileUnit(language: DW_LANG_C)
!5 = distinct !DISubprogram(name: "main", unit: !0)
!15 = !DILocation(line: 0, scope: !5)
!16 = !{!"branch_weights", i32 1048576, i32 1}
!20 = !DILocalVariable(name: "args", scope: !5)
!43 = !{!44, !44, i64 0}
!44 = !{!"0x55d23663ae70.w4.b0", !45, i64 0}
!45 = !{!"tvm-tbaa"}
!54 = distinct !{!54, !15, !55}
!55 = !{!"llvm.loop.peeled.count", i32 1}
"""
SAME = {
    "a value": (("%old", "%new"),),
    "a value without a name": (("%old", "%0"),),
    "a quoted value": (('%"num args"', "%n"),),
    "a block": (("then", "for_body.preheader"),),
    "a quoted block": (('"go on"', "exit"),),
    "a comment": (("; Function Attrs: nounwind", "; nothing"),),
    "lines": (("line: 0", "line: 7"),),
    "debug records": (("    #dbg_declare(ptr %args, !20, !DIExpression(), !15)\n", ""),),
    "addresses": (("0x55d23663ae70", "0x7f0000000000"),),
    "numbers of metadata": (("!16", "!98"), ("!55", "!99")),
    "names of variables": (('name: "args"', 'name: "arguments"'),),
}
OTHER = {
    "an instruction": ("icmp eq", "icmp ne"),
    "an operand": ("load float, ptr %args", "load float, ptr null"),
    "which value is used": ("br i1 %more", "br i1 %old"),
    "which block is next": ('label %then, label %"go on"', 'label %"go on", label %then'),
    "a string": ("a %x; b", "a %z; b"),
    "the end of a string": ("; b", "; c"),
    "branch weights": ("i32 1048576", "i32 7"),
    "a loop": ("peeled.count", "unroll.count"),
    "the class of an alias": (".w4.b0", ".w8.b0"),
    "whether it aliases": (", !tbaa !43", ""),
    "attributes": ("znver3", "znver4"),
    "alignment": ("align 4", "align 8"),
}


@pytest.mark.parametrize("what", SAME)
def test_what_no_instruction_depends_on_is_left_out(what: str) -> None:
    text = IR
    for old, new in SAME[what]:
        assert old in text
        text = text.replace(old, new)
    assert llvm_ir_key(text) == llvm_ir_key(IR)


@pytest.mark.parametrize("what", OTHER)
def test_everything_else_counts(what: str) -> None:
    old, new = OTHER[what]
    assert old in IR
    assert llvm_ir_key(IR.replace(old, new)) != llvm_ir_key(IR)


def test_alias_classes_are_told_apart() -> None:
    two = "  %b = load float, ptr %args, align 4, !tbaa !60\n  %more ="
    both = IR.replace("  %more =", two) + "!60 = !{!61, !61, i64 0}\n"
    same, other = ('!{!"0x55d23663ae70.w4.b0", !45, i64 0}', '!{!"0x1.w4.b0", !45, i64 0}')
    assert llvm_ir_key(both + f"!61 = {same}\n") != llvm_ir_key(both + f"!61 = {other}\n")


@pytest.mark.parametrize("kernel", ["matmul", "softmax", "transpose"])
def test_keys_are_equal_where_the_assembly_is(kernel: str) -> None:
    llvm, rng = backend("llvm"), np.random.default_rng(0)
    vocabulary = named_vocabulary("primitive+options")
    workload = load_workload(kernel)
    start = llvm.start(workload.of(workload.kernel, workload.kernel.tiny_shape), llvm.target())
    seen: dict[str, str] = {}
    for _ in range(8):
        program = start
        for _ in range(int(rng.integers(4))):
            program = program.apply(
                vocabulary[int(rng.choice(np.flatnonzero(program.legal_mask(vocabulary))))]
            )
        key = llvm.build(llvm.module_json(program), program.target).code_key
        assembly = assembly_key(llvm.ir_level(program, "asm"))
        assert seen.setdefault(key, assembly) == assembly
        assert list(seen.values()).count(assembly) == 1


def test_an_option_counts_where_it_changes_something() -> None:
    llvm, found = backend("llvm"), set()
    for kernel in ("add", "matmul", "softmax"):
        plain = make(SMALL[kernel])
        for name in ("llvm.early_ifcvt", "llvm.misched_postra"):
            both = (plain, plain.apply(Configure(name, 1)))
            keys = {llvm.build(llvm.module_json(p), p.target).code_key for p in both}
            texts = {assembly_key(llvm.ir_level(p, "asm")) for p in both}
            assert len(keys) == len(texts)
            found.add(len(keys))
    assert found == {1, 2}


def test_the_debug_lines_of_assembly_are_left_out() -> None:
    text = "\t.text\nmain:\n\tret\n"
    noisy = "\t.text\nmain:\n\t.loc 1 2\n\tret\n# end\n\t.section\t.debug_info\n\t.byte 1\n"
    assert assembly_key(noisy) == assembly_key(text) != assembly_key(text.replace("ret", "nop"))
    assert re.fullmatch("[0-9a-f]{16}", assembly_key(text))
