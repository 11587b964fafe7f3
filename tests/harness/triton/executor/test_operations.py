"""What single operations compute, by small TTIR texts against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tirgym.errors import InvalidValueError
from tirgym.harness.status import Status
from tirgym.harness.triton.executor.executable import COVERED, Executable, uncovered_operations
from tirgym.harness.triton.executor.faults import Fault
from tirgym.harness.triton.executor.numbers import round_bfloat16
from tirgym.harness.triton.executor.parser import parse_module

N = 8
LOADED = """module {{
  tt.func public @f({parameters}) {{
    %range = tt.make_range {{end = 8 : i32, start = 0 : i32}} : tensor<8xi32>
{body}
    tt.return
  }}
}}
"""


def compute(body: str, inputs: dict[str, np.ndarray], output: np.ndarray, types: str = "") -> Any:
    """Run `body` once: `%a` is the loaded array a, `%out` what is stored into a copy of `output`.

    `types`: "bf16 …" for arrays of uint16 that hold bfloat16.
    """
    spelled = dict(pair.split("=") for pair in types.split())
    names = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "i1"}

    def element(name: str, array: np.ndarray) -> str:
        kind = str(array.dtype)
        return spelled.get(name, names.get(kind, kind.replace("int", "i").replace("u", "")))

    arrays = {**inputs, "out": output.copy()}
    parameters = ", ".join(f"%p_{n}: !tt.ptr<{element(n, a)}>" for n, a in arrays.items())
    lines = []
    for name, array in arrays.items():
        of = element(name, array)
        pointers = f"tensor<8x!tt.ptr<{of}>>"
        lines += [
            f"    %s_{name} = tt.splat %p_{name} : !tt.ptr<{of}> -> {pointers}",
            f"    %q_{name} = tt.addptr %s_{name}, %range : {pointers}, tensor<8xi32>",
        ]
        if name != "out":
            lines.append(f"    %{name} = tt.load %q_{name} : {pointers}")
    lines += [f"    {line.strip()}" for line in body.strip().splitlines()]
    lines.append(f"    tt.store %q_out, %out : tensor<8x!tt.ptr<{element('out', output)}>>")
    text = LOADED.format(parameters=parameters, body="\n".join(lines))
    Executable.of(text).run((1,), list(arrays.values()))
    return arrays["out"]


I32 = np.array([-7, 7, -1, 0, 5, 2**31 - 1, -(2**31), 100], np.int32)
J32 = np.array([2, -2, 3, 4, -5, 1, 7, -100], np.int32)
F32 = np.array([-1.5, 0.25, 3.0, -0.0, np.inf, 7.5, -100.0, 2.5], np.float32)
G32 = np.array([2.0, -0.5, np.nan, 0.0, 1.0, 3.0, 8.0, 2.5], np.float32)


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array(
        [math.trunc(x / y) if y else 0 for x, y in zip(a.tolist(), b.tolist(), strict=True)],
        np.int32,
    )


INTEGER: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": truncated,
    "arith.remsi": lambda a, b: a - truncated(a, b) * b,
    "arith.divui": lambda a, b: (a.view("u4") // b.view("u4")).view("i4"),
    "arith.remui": lambda a, b: (a.view("u4") % b.view("u4")).view("i4"),
    "arith.maxsi": np.maximum,
    "arith.minui": lambda a, b: np.minimum(a.view("u4"), b.view("u4")).view("i4"),
    "arith.xori": np.bitwise_xor,
    "tt.mulhiui": lambda a, b: (
        (a.view("u4").astype(object) * b.view("u4").astype(object)) >> 32
    ).astype("u4").view("i4"),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER)
def test_integer_arithmetic_is_exact(name: str) -> None:
    with np.errstate(over="ignore"):
        wanted = INTEGER[name](I32, J32)
    body = f"%out = {name} %a, %b : tensor<8xi32>"
    np.testing.assert_array_equal(compute(body, {"a": I32, "b": J32}, I32), wanted)


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        ("slt", I32 < J32), ("sge", I32 >= J32), ("ult", I32.view("u4") < J32.view("u4")),
        ("uge", I32.view("u4") >= J32.view("u4")), ("eq", I32 == J32),
    ],
)  # fmt: skip
def test_integer_comparisons(predicate: str, wanted: np.ndarray) -> None:
    body = f"%c = arith.cmpi {predicate}, %a, %b : tensor<8xi32>\n"
    body += "%out = arith.extui %c : tensor<8xi1> to tensor<8xi32>"
    np.testing.assert_array_equal(compute(body, {"a": I32, "b": J32}, I32), wanted)


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        ("oeq", F32 == G32), ("one", (F32 < G32) | (F32 > G32)), ("une", F32 != G32),
        ("ogt", F32 > G32), ("ult", ~(F32 >= G32)), ("uno", np.isnan(F32) | np.isnan(G32)),
        ("ord", ~(np.isnan(F32) | np.isnan(G32))),
    ],
)  # fmt: skip
def test_float_comparisons_know_nan(predicate: str, wanted: np.ndarray) -> None:
    body = f"%c = arith.cmpf {predicate}, %a, %b : tensor<8xf32>\n"
    body += "%out = arith.extsi %c : tensor<8xi1> to tensor<8xi32>"
    np.testing.assert_array_equal(compute(body, {"a": F32, "b": G32}, I32), -wanted.astype("i4"))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("arith.maxnumf", np.fmax(F32, G32)), ("arith.maximumf", np.maximum(F32, G32)),
        ("arith.divf", np.divide(F32, np.where(G32 == 0, 1, G32))),
    ],
)  # fmt: skip
def test_float_arithmetic(name: str, wanted: np.ndarray) -> None:
    given = {"a": F32, "b": np.where(G32 == 0, 1, G32) if "div" in name else G32}
    body = f"%out = {name} %a, %b : tensor<8xf32>"
    np.testing.assert_array_equal(compute(body, given, F32), wanted)


def test_erf_and_exp2_are_those_of_the_standard_library() -> None:
    x = np.linspace(-2, 2, N).astype(np.float32)
    body = "%e = math.erf %a : tensor<8xf32>\n%f = math.exp2 %a : tensor<8xf32>\n"
    body += "%out = arith.addf %e, %f : tensor<8xf32>"
    wanted = [math.erf(v) + 2.0**v for v in x.tolist()]
    np.testing.assert_allclose(compute(body, {"a": x}, x), wanted, rtol=1e-6)


def test_half_precision_rounds_after_every_operation() -> None:
    a = np.array([1.0, 2049.0, 0.1, 3.0, 1e-7, 65504.0, 1.0009765625, 7.0], np.float16)
    body = "%m = arith.mulf %a, %a : tensor<8xf16>\n%out = arith.addf %m, %a : tensor<8xf16>"
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(compute(body, {"a": a}, a), a * a + a)


def test_bfloat16_is_rounded_to_even_and_stored_in_16_bits() -> None:
    x = np.array([1.0, 1.00390625, 1.01171875, -3.14159, 1e38, np.nan, 0.0, 257.0], np.float32)
    stored = (round_bfloat16(x).view(np.uint32) >> 16).astype(np.uint16)
    tie = round_bfloat16(np.array([1.00390625, 1.01171875], np.float32))
    np.testing.assert_array_equal(tie, np.array([1.0, 1.015625], np.float32))
    body = "%out = arith.addf %a, %a : tensor<8xbf16>"
    got = compute(body, {"a": stored}, stored, "a=bf16 out=bf16")
    doubled = (got.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(doubled, round_bfloat16(2 * round_bfloat16(x)))


def test_casts_truncate_saturate_and_keep_signs() -> None:
    x = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 3e9, -3e9, 0.0], np.float32)
    body = "%out = arith.fptosi %a : tensor<8xf32> to tensor<8xi32>"
    low, high = -(2**31), 2**31 - 1
    np.testing.assert_array_equal(compute(body, {"a": x}, I32), [1, -1, 0, high, low, high, low, 0])
    body = "%b = tt.bitcast %a : tensor<8xf32> -> tensor<8xi32>\n"
    body += "%out = tt.bitcast %b : tensor<8xi32> -> tensor<8xf32>"
    np.testing.assert_array_equal(compute(body, {"a": F32}, F32), F32)
    body = "%b = arith.trunci %a : tensor<8xi32> to tensor<8xi8>\n"
    body += "%out = arith.sitofp %b : tensor<8xi8> to tensor<8xf32>"
    np.testing.assert_array_equal(compute(body, {"a": I32}, F32), I32.astype("i1"))


REDUCE = """
%r{many} = "tt.reduce"({operands}) <{{axis = 0 : i32}}> ({{
^bb0({arguments}):
{body}
}}) : ({types}) -> {results}
"""


def test_a_reduction_with_a_body_of_any_length() -> None:
    """argmax with ties to the left, as Triton writes it."""
    body = """
    %r:2 = "tt.reduce"(%a, %range) <{axis = 0 : i32}> ({
    ^bb0(%x: f32, %i: i32, %y: f32, %j: i32):
      %eq = arith.cmpf oeq, %x, %y : f32
      %lt = arith.cmpi slt, %i, %j : i32
      %tie = arith.andi %eq, %lt : i1
      %gt = arith.cmpf ogt, %x, %y : f32
      %c = arith.ori %gt, %tie : i1
      %v = arith.select %c, %x, %y : f32
      %k = arith.select %c, %i, %j : i32
      tt.reduce.return %v, %k : f32, i32
    }) : (tensor<8xf32>, tensor<8xi32>) -> (f32, i32)
    %out = tt.splat %r#1 : i32 -> tensor<8xi32>
    """
    a = np.array([1, 5, 2, 5, 0, 5, 3, 4], np.float32)
    np.testing.assert_array_equal(compute(body, {"a": a}, I32), np.ones(8))


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_scans_in_both_directions(reverse: str) -> None:
    body = """
    %out = "tt.scan"(%a) <{axis = 0 : i32, reverse = REVERSE}> ({
    ^bb0(%x: f32, %y: f32):
      %s = arith.addf %x, %y : f32
      tt.scan.return %s : f32
    }) : (tensor<8xf32>) -> tensor<8xf32>
    """.replace("REVERSE", reverse)
    a = np.arange(1, 9, dtype=np.float32)
    wanted = np.cumsum(a[::-1])[::-1] if reverse == "true" else np.cumsum(a)
    np.testing.assert_array_equal(compute(body, {"a": a}, a), wanted)


def test_shapes_move_elements_where_they_belong() -> None:
    body = """
    %m = tt.reshape %a : tensor<8xf32> -> tensor<2x4xf32>
    %t = tt.trans %m {order = array<i32: 1, 0>} : tensor<2x4xf32> -> tensor<4x2xf32>
    %x, %y = tt.split %t : tensor<4x2xf32> -> tensor<4xf32>
    %j = tt.join %y, %x : tensor<4xf32> -> tensor<4x2xf32>
    %out = tt.reshape %j : tensor<4x2xf32> -> tensor<8xf32>
    """
    a = np.arange(8, dtype=np.float32)
    wanted = np.stack([a[4:], a[:4]], -1).reshape(-1)
    np.testing.assert_array_equal(compute(body, {"a": a}, a), wanted)


def test_a_masked_load_gives_other_and_poison_without_one() -> None:
    masked = """
    %four = arith.constant dense<4> : tensor<8xi32>
    %m = arith.cmpi slt, %range, %four : tensor<8xi32>
    %fill = arith.constant dense<-2.500000e+00> : tensor<8xf32>
    %out = tt.load %q_a, %m{other} : tensor<8x!tt.ptr<f32>>
    """
    a = np.arange(8, dtype=np.float32)
    got = compute(masked.replace("{other}", ", %fill"), {"a": a}, a)
    np.testing.assert_array_equal(got, [0, 1, 2, 3, -2.5, -2.5, -2.5, -2.5])
    got = compute(masked.replace("{other}", ""), {"a": a}, a)
    np.testing.assert_array_equal(got, [0, 1, 2, 3, np.nan, np.nan, np.nan, np.nan])


def test_atomics_add_every_lane_and_give_what_was_there() -> None:
    body = """
    %one = arith.constant dense<1> : tensor<8xi32>
    %zero = arith.constant dense<0> : tensor<8xi32>
    %m = arith.cmpi sge, %a, %zero : tensor<8xi32>
    %p = tt.splat %p_c : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
    %out = tt.atomic_rmw add, acq_rel, gpu, %p, %one, %m : (tensor<8x!tt.ptr<i32>>, tensor<8xi32>, tensor<8xi1>) -> tensor<8xi32>
    """
    counter = np.full(8, 10, np.int32)
    a = np.array([1, -1, 1, 1, -1, 1, 1, 1], np.int32)
    got = compute(body, {"a": a, "c": counter}, I32)
    assert counter[0] == 16
    np.testing.assert_array_equal(got[a > 0], [10, 11, 12, 13, 14, 15])


@pytest.mark.parametrize(
    ("shift", "where"),
    [("-1", "access 4 bytes before the start of argument 0"), ("1", "up to 4 bytes past the end")],
)
def test_an_access_out_of_bounds_is_a_fault_that_names_the_line(shift: str, where: str) -> None:
    body = f"""
    %one = arith.constant dense<{shift}> : tensor<8xi32>
    %w = tt.addptr %q_a, %one : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %out = tt.load %w : tensor<8x!tt.ptr<f32>>
    """
    with pytest.raises(Fault, match=where) as caught:
        compute(body, {"a": F32}, F32)
    assert caught.value.status is Status.WRONG_RESULT
    assert str(caught.value).startswith(f"line {caught.value.line}: tt.load: ")


def test_an_offset_into_a_neighbouring_buffer_is_no_way_around_the_bounds() -> None:
    body = """
    %far = arith.constant dense<1024> : tensor<8xi32>
    %w = tt.addptr %q_a, %far : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %out = tt.load %w : tensor<8x!tt.ptr<f32>>
    """
    with pytest.raises(Fault, match="past the end of argument 0"):
        compute(body, {"a": F32, "b": np.zeros(4096, np.float32)}, F32)


def test_what_is_not_covered_is_incomplete_and_named() -> None:
    assert "ttng.tc_gen5_mma" not in COVERED
    text = LOADED.format(parameters="%p: i32", body="    %0 = new.thing %p : i32")
    assert [o.name for o in uncovered_operations(parse_module(text))] == ["new.thing"]
    with pytest.raises(Fault, match=r"line 4: new\.thing: this operation is not covered") as caught:
        Executable.of(text)
    assert caught.value.status is Status.INCOMPLETE
    with pytest.raises(Fault, match="the type") as caught:
        compute(
            "%b = tt.fp_to_fp %a : tensor<8xf32> -> tensor<8xf8E5M2>\n%out = arith.addf %a, %a : tensor<8xf32>",
            {"a": F32},
            F32,
        )
    assert caught.value.status is Status.INCOMPLETE


LOOPS = """module {
  tt.func public @f(%out: !tt.ptr<i32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %pid = tt.get_program_id x : i32
    %lim = arith.addi %pid, %n : i32
    %odd = arith.remsi %pid, %c3 : i32
    %first = arith.cmpi eq, %odd, %c0 : i32
    %sum = scf.for %i = %c0 to %lim step %c1 iter_args(%s = %c0) -> (i32)  : i32 {
      %t = arith.addi %s, %i : i32
      scf.yield %t : i32
    }
    %v = scf.if %first -> (i32) {
      %w = scf.while (%x = %sum) : (i32) -> i32 {
        %big = arith.cmpi sgt, %x, %c3 : i32
        scf.condition(%big) %x : i32
      } do {
      ^bb0(%y: i32):
        %z = arith.subi %y, %c3 : i32
        scf.yield %z : i32
      }
      scf.yield %w : i32
    } else {
      %m = arith.muli %sum, %c3 : i32
      %p1 = tt.addptr %out, %pid : !tt.ptr<i32>, i32
      tt.store %p1, %m : !tt.ptr<i32>
      scf.yield %m : i32
    }
    cf.cond_br %first, ^bb1, ^bb2(%v : i32)
  ^bb1:
    tt.return
  ^bb2(%r: i32):
    %q = tt.call @twice(%r) : (i32) -> i32
    %p = tt.addptr %out, %pid : !tt.ptr<i32>, i32
    tt.store %p, %q : !tt.ptr<i32>
    tt.return
  }
  tt.func private @twice(%x: i32) -> i32 {
    %y = arith.addi %x, %x : i32
    tt.return %y : i32
  }
}
"""


def test_programs_that_go_different_ways_give_what_each_gives_alone() -> None:
    executable = Executable.of(LOOPS)
    together, alone = np.full(12, -1, np.int32), np.full(12, -1, np.int32)
    executable.run((12, 1, 1), [together, 4])
    wanted = [-1 if p % 3 == 0 else 6 * sum(range(p + 4)) for p in range(12)]
    np.testing.assert_array_equal(together, wanted)
    text = LOOPS.replace("%pid = tt.get_program_id x : i32", "%pid = arith.addi %n, %c0 : i32")
    for program in range(12):
        Executable.of(text.replace("%lim = arith.addi %pid, %n", "%lim = arith.addi %pid, %four")
                      .replace("    %lim", "    %four = arith.constant 4 : i32\n    %lim")
                      ).run((1,), [alone, program])  # fmt: skip
    np.testing.assert_array_equal(alone, wanted)


def test_endless_loops_end_with_a_timeout() -> None:
    text = LOOPS.replace("arith.subi %y, %c3", "arith.addi %y, %c0")
    executable = Executable(parse_module(text), step_limit=10_000)
    with pytest.raises(Fault) as caught:
        executable.run((4,), [np.zeros(4, np.int32), 9])
    assert caught.value.status is Status.TIMEOUT


def test_arguments_that_do_not_fit_are_refused() -> None:
    executable = Executable.of(LOOPS)
    with pytest.raises(InvalidValueError, match="number of arguments: 1"):
        executable.run((1,), [np.zeros(4, np.int32)])
    with pytest.raises(InvalidValueError, match="C-contiguous array"):
        executable.run((1,), [3, 4])
    with pytest.raises(InvalidValueError, match="a number for"):
        executable.run((1,), [np.zeros(4, np.int32), np.zeros(4)])


def test_a_true_flag_is_the_smallest_where_flags_are_signed() -> None:
    a, b = I32 < J32, I32 < 6
    out = np.zeros(8, np.bool_)
    for name, wanted in (("maxsi", a & b), ("minsi", a | b), ("maxui", a | b), ("minui", a & b)):
        body = f"%out = arith.{name} %a, %b : tensor<8xi1>"
        np.testing.assert_array_equal(compute(body, {"a": a, "b": b}, out), wanted)


def test_a_clamp_keeps_nan_where_it_is_told_to() -> None:
    low, high = np.full(8, -1.0, np.float32), np.full(8, 2.0, np.float32)
    for kind, nan in (("none", np.float32(-1.0)), ("all", np.float32(np.nan))):
        body = f"%out = tt.clampf %a, %b, %c, propagateNan = {kind} : tensor<8xf32>"
        wanted = np.where(np.isnan(G32), nan, np.clip(G32, -1.0, 2.0))
        got = compute(body, {"a": G32, "b": low, "c": high}, F32)
        np.testing.assert_array_equal(got, wanted)
