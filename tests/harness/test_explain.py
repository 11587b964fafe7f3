"""Explanations: every number in every sentence is computed again, from the two IRs, another way."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from brute_force import Tally, tally
from schedules import apply_all, begin, schedule_step

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.account import ACCOUNTANTS, account, amount
from tirgym.harness.account_cpu import CPU_QUANTITIES
from tirgym.harness.explain import describe, explain, explain_options
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.static_profile import static_profile
from tirgym.harness.target import Target
from tirgym.harness.tensorir.handles import Handles
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.problem import flops_of

Values = dict[str, float]
Parts = dict[str, Mapping[str, float]]
AMOUNT = r"[\d.,]+ ?(?:TB|GB|MB|kB|B|µs|ms|s|%)?"
SENTENCE = re.compile(
    rf"(?P<noun>.+?)(?P<mark> \(estimated\))? (?P<verb>rise|rises|fall|falls) "
    rf"from (?P<before>{AMOUNT}) to (?P<after>{AMOUNT})"
    r"(?:, (?P<factor>[\d.]+)x (?P<more>more|less))?"
    r"(?:; (?P<first>[\d.]+), then (?P<then>[\d.]+) (?P<per>operations for each byte from \w+))?"
    rf"(?:; mostly (?P<buffer>\S+), from (?P<part_before>{AMOUNT}) to (?P<part_after>{AMOUNT}))?"
)
SCALES = {
    "TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6,
    "%": 0.01, "": 1.0,
}  # fmt: skip
BY_NOUN = {quantity.noun: quantity for quantity in CPU_QUANTITIES if quantity.noun}


def _golden() -> Any:
    """The module with a case for every transform (`test_every_transform_has_a_case`)."""
    path = Path(__file__).parent / "transforms" / "test_golden.py"
    spec = importlib.util.spec_from_file_location("golden_cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["golden_cases"] = module
    spec.loader.exec_module(module)
    return module


CASES = {name: case for name, case in _golden().CASES.items() if case.backend == "llvm"}
"""Accounts are of programs for a CPU."""


def pair(name: str) -> tuple[TensorIRProgram, TensorIRProgram]:
    """The programs before and after the transform of a golden case."""
    case = CASES[name]
    before = apply_all(begin(case.kernel, case.num_threads, **case.shape), case.before)
    step = schedule_step(case.step)
    if name != "Bind":
        return before, before.apply(step)
    schedule = before.schedule  # no rule lets a CPU program bind
    step.apply_to(schedule, Handles(schedule, before.nest))
    return before, TensorIRProgram(before.workload, before.target, (step,), schedule)


def by_hand(program: TensorIRProgram) -> tuple[Values, Parts]:
    """The quantities of the account, and what they are made of by buffer, computed another way.

    Counted ones by running the loops; estimated ones from a static profile made afresh.
    """
    counted = tally(program.mod)
    profile = static_profile(program, assembly=False, model=StaticCostModel())
    totals: Values = dict(counted.totals)
    _arithmetic_of_intrinsics(program, totals)
    executions = totals["executions"]
    moved = counted.loads.total() + counted.stores.total()
    useful = flops_of(program.workload)
    levels = {"l2": profile.l2_bytes, "l3": profile.l3_bytes, "dram": profile.dram_bytes}
    kinds = [(loop.kind, loop.extent) for loop in program.nest.loops]
    parallel = max((extent for kind, extent in kinds if kind == 1), default=0)
    values: Values = {
        **dict.fromkeys((quantity.name for quantity in CPU_QUANTITIES), 0.0),
        **{name: count for name, count in totals.items() if name in _COUNTED},
        "load_bytes": counted.loads.total(),
        "store_bytes": counted.stores.total(),
        "intensity": useful / moved,
        "strided_share": counted.strided_share,
        "load_instructions": profile.load_instructions,
        "store_instructions": profile.store_instructions,
        "register_vectors": profile.register_vectors,
        **{f"{level}_bytes": nbytes for level, nbytes in levels.items()},
        **{f"{level}_back_bytes": profile.written_back[level] for level in levels},
        "l1_tile_bytes": profile.l1_tile_bytes,
        "l2_tile_bytes": profile.l2_tile_bytes,
        "temporary_bytes": counted.temporaries.total(),
        **_vectors(program),
        "vectorized_share": totals.get("vector_executions", 0) / executions,
        "parallel_iterations": parallel,
        "parallel_share": totals.get("parallel_executions", 0) / executions,
        "busy_threads": min(parallel or 1, program.target.num_threads),
        "conditions": sum(totals.get(name, 0) for name in _CONDITIONS),
        **{f"{level}_intensity": useful / n if n else 0.0 for level, n in levels.items()},
        "predicted_us": StaticCostModel().predict_us(program),
    }
    return values, _parts(counted, profile.traffic)


_CONDITIONS = ("predicates", "first_steps", "branches", "selects")
_COUNTED = (
    *_CONDITIONS, "flops", "calls", "executions", "iterations", "statements", "loops", "blocks",
    "local_bytes",
)  # fmt: skip


def _parts(counted: Tally, traffic: Mapping[str, Mapping[str, float]]) -> Parts:
    return {
        "load_bytes": counted.loads,
        "store_bytes": counted.stores,
        "temporary_bytes": counted.temporaries,
        **{f"{level}_bytes": parts for level, parts in traffic.items()},
    }


def _vectors(program: TensorIRProgram) -> Values:
    """Lanes and bits, read off the text of the IR."""
    text = program.text()
    lanes = [int(found) for found in re.findall(r"T\.vectorized\((\d+)\)", text)]
    lanes += [int(found) for found in re.findall(r'T\.call_llvm\w+\("int32x(\d+)"', text)]
    item = 4  # all kernels of these tests store four bytes where they vectorize
    return {"vector_lanes": max(lanes, default=0), "vector_bits": 8 * item * max(lanes, default=0)}


def _arithmetic_of_intrinsics(program: TensorIRProgram, totals: Values) -> None:
    """An intrinsic computes what the loops did that it replaced: those of the step before."""
    if "call_llvm" in program.text():
        plain = apply_all(begin("byte_dots"), "; ".join(map(str, program.steps[:-1])))
        totals["flops"] = tally(plain.mod).totals["flops"]


@cache
def hand_pair(name: str) -> tuple[tuple[Values, Parts], tuple[Values, Parts]]:
    before, after = pair(name)
    return by_hand(before), by_hand(after)


def as_printed(text: str) -> tuple[float, float]:
    """The value of an amount, and by how much rounding may have changed it."""
    matched = re.fullmatch(r"([\d.,]+) ?(\D*)", text)
    assert matched is not None, text
    digits, unit = matched[1].replace(",", ""), matched[2]
    decimals = len(digits.partition(".")[2])
    return float(digits) * SCALES[unit], 0.5000001 * 10**-decimals * SCALES[unit]


def assert_says(text: str, value: float) -> None:
    printed, slack = as_printed(text)
    assert printed == pytest.approx(value, abs=slack, rel=1e-9), (text, value)


def check(sentence: str, old: tuple[Values, Parts], new: tuple[Values, Parts]) -> str:
    """Compare every number of a sentence with `old` and `new`; returns the quantity's name."""
    said = SENTENCE.fullmatch(sentence)
    assert said is not None, sentence
    quantity = BY_NOUN[said["noun"]]
    before, after = old[0][quantity.name], new[0][quantity.name]
    assert_says(said["before"], before)
    assert_says(said["after"], after)
    assert bool(said["mark"]) != quantity.exact
    assert said["verb"].startswith("rise" if after > before else "fall")
    if said["factor"]:
        assert_says(said["factor"], max(before, after) / min(before, after))
        assert (said["more"] == "more") == (after > before)
    if said["per"]:
        per = BY_NOUN[said["per"]].name
        assert_says(said["first"], old[0][per])
        assert_says(said["then"], new[0][per])
    if said["buffer"]:
        parts = old[1][quantity.name], new[1][quantity.name]
        values = [side.get(said["buffer"], 0) for side in parts]
        assert_says(said["part_before"], values[0])
        assert_says(said["part_after"], values[1])
        names = {*parts[0], *parts[1]}
        moved = sum(abs(parts[1].get(name, 0) - parts[0].get(name, 0)) for name in names)
        assert abs(values[1] - values[0]) > moved / 2
    return quantity.name


@pytest.mark.parametrize("name", CASES)
def test_every_number_of_every_sentence(name: str) -> None:
    old, new = hand_pair(name)
    explanation = explain(*pair(name))
    said = {check(sentence.text, old, new) for sentence in explanation.sentences}
    assert said == {sentence.quantity for sentence in explanation.sentences}
    missing = [
        quantity.noun
        for quantity in CPU_QUANTITIES
        if quantity.noun
        and quantity.name not in said
        and not quantity.name.endswith("_intensity")
        and amount(quantity.unit, old[0][quantity.name])
        != amount(quantity.unit, new[0][quantity.name])
    ]
    assert missing == []


@pytest.mark.parametrize("name", CASES)
def test_every_quantity_of_the_account(name: str) -> None:
    """Those that no sentence mentions, because they stay, too."""
    for program, (values, parts) in zip(pair(name), hand_pair(name), strict=True):
        found = account(program)
        assert found.exact
        assert set(found.values) == {quantity.name for quantity in CPU_QUANTITIES}
        for quantity in CPU_QUANTITIES:
            expected = values[quantity.name]
            assert found.values[quantity.name] == pytest.approx(expected), quantity.name
        for quantity_name, by_buffer in found.buffers.items():
            expected_parts = {part: n for part, n in parts[quantity_name].items() if n}
            assert {part: n for part, n in by_buffer.items() if n} == expected_parts


SILENT = {"Bind", "UnrollPragma", "Configure"}
"""Golden cases whose step changes nothing on a CPU that is seen before the compiler runs: a GPU axis; a
limit below the loop's extent; an option of the compiler."""


def test_every_transform_has_something_to_say() -> None:
    silent = {name for name in CASES if not explain(*pair(name)).sentences}
    assert silent <= SILENT


SMALL = {"m": 250, "n": 264, "k": 240}
LARGE = {"m": 3000, "n": 3000, "k": 3000}
LARGER: dict[str, tuple[dict[str, int], str, str, set[str]]] = {
    "interchange": (SMALL, "", "Reorder(loop=0)", {"l2_bytes", "l2_back_bytes"}),
    "contiguous": (SMALL, "Split(loop=1, factor=8)", "Reorder(loop=2)", {"strided_share"}),
    "placed": (
        SMALL, "CacheWrite(block=0)", "ReverseComputeAt(block=1, loop=0)", {"temporary_bytes"},
    ),
    "row by row": (LARGE, "", "Reorder(loop=1)", {"l2_bytes", "l1_tile_bytes"}),
    "blocked": (
        LARGE, "Split(loop=0, factor=8)", "Reorder(loop=1)",
        {"l3_bytes", "dram_bytes", "l2_tile_bytes"},
    ),
}  # fmt: skip
"""Matmuls that outgrow the caches: shape, transforms before, transform, what must be mentioned."""


@pytest.mark.parametrize("case", LARGER)
def test_traffic_is_that_of_the_static_profiles(case: str) -> None:
    """From programs that are made again from the text of their transforms."""
    shape, prepare, step, expected = LARGER[case]
    before = apply_all(begin("matmul", **shape), prepare)
    after = apply_all(before, step)
    sides = []
    for steps in (prepare, f"{prepare}; {step}"):
        again = apply_all(begin("matmul", **shape), steps)
        profile = static_profile(again, assembly=False, model=StaticCostModel())
        sides.append((_from_profile(profile, again), _traffic_parts(profile)))
    sentences = explain(before, after).sentences
    said = {check(sentence.text, *sides) for sentence in sentences}
    assert expected <= said, [sentence.text for sentence in sentences]


def _from_profile(profile: Any, program: TensorIRProgram) -> Values:
    """The account's figures as the public profile has them."""
    counts, lowered = profile.counts, profile.lowered
    useful, runs = flops_of(program.workload), counts.executions
    found: Values = {
        quantity.name: float(getattr(owner, quantity.name))
        for quantity in CPU_QUANTITIES
        for owner in (profile, counts, lowered)
        if hasattr(owner, quantity.name)
    }
    return {
        **found,
        "intensity": useful / (counts.load_bytes + counts.store_bytes),
        "strided_share": counts.strided_bytes / counts.moving_bytes,
        "vectorized_share": counts.vector_executions / runs,
        "parallel_share": counts.parallel_executions / runs,
        "parallel_iterations": profile.parallel_iterations if counts.parallel_executions else 0,
        **{f"{level}_back_bytes": n for level, n in profile.written_back.items()},
        **{
            f"{level}_intensity": useful / sum(parts.values()) if sum(parts.values()) else 0.0
            for level, parts in profile.traffic.items()
        },
    }


def _traffic_parts(profile: Any) -> Parts:
    temporaries = {each.name: each.nbytes for each in profile.lowered.allocations}
    traffic = {f"{level}_bytes": parts for level, parts in profile.traffic.items()}
    made = {"load_bytes": profile.counts.loads, "store_bytes": profile.counts.stores}
    return {**made, **traffic, "temporary_bytes": temporaries}


def test_an_explanation_is_data() -> None:
    before, after = pair("CacheWrite")
    found = explain(before, after).to_dict()
    assert found["sentences"]
    temporaries = found["changes"]["temporary_bytes"]
    assert temporaries == {
        "before": 0,
        "after": 16 * 24 * 4,
        "unit": "bytes",
        "exact": True,
        "buffers": {"c_global": {"before": 0, "after": 1536}},
    }


def test_nothing_changes_between_a_program_and_itself() -> None:
    program = begin("chain")
    explanation = explain(program, program)
    assert (explanation.changes, explanation.sentences) == ((), ())


def test_programs_of_two_workloads_are_not_compared() -> None:
    with pytest.raises(InvalidValueError, match="two of one workload"):
        explain(begin("chain"), begin("add"))


def test_a_backend_without_an_accountant_is_named() -> None:
    program = begin("chain")
    program.target = Target("toaster", "x", 1)
    with pytest.raises(UnknownNameError, match=", ".join(sorted(ACCOUNTANTS))):
        account(program)


def test_unknown_quantities_are_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'l2_bytes'"):
        account(begin("chain")).quantity("l2_byte")


def test_upper_bounds_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition that cannot be enumerated makes counts upper bounds, and sentences say so."""
    monkeypatch.setattr("tirgym.harness.static_domain.LIMIT", 4)
    before = begin("matmul", m=16, n=24, k=32)
    explanation = explain(before, apply_all(before, "DecomposeReduction(loop=2)"))
    assert not explanation.before.exact
    texts = [sentence.text for sentence in explanation.sentences if "(at most)" in sentence.text]
    assert any(text.startswith("stores (at most) fall") for text in texts)


def test_descriptions_state_what_there_is() -> None:
    state = account(begin("matmul", m=16, n=24, k=32))
    texts = {sentence.quantity: sentence.text for sentence in describe(state)}
    assert texts["first_steps"] == "tests for the first step of a reduction: 12,288"
    assert texts["load_bytes"] == "loads: 147.5 kB"
    assert texts["store_bytes"] == "stores: 50.7 kB"
    assert "vector_lanes" not in texts


def test_options_of_a_decision_are_explained() -> None:
    from tirgym.harness.decisions import design_space

    walk = design_space(begin("softmax", m=32, n=64))
    found = explain_options(walk)
    assert walk.question is not None
    assert len(found) == len(walk.question.options)
    costs = walk.costs(StaticCostModel())
    assert [each.after.values["predicted_us"] for each in found] == list(costs)
    assert any(each.changes for each in found)
    assert explain_options(walk.finish()) == ()


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("bytes", 0, "0 B"),
        ("bytes", 999, "999 B"),
        ("bytes", 33_500_000, "33.5 MB"),
        ("bytes", 3.2e12, "3.2 TB"),
        ("count", 15_840_000, "15,840,000"),
        ("share", 2 / 3, "66.7%"),
        ("µs", 1234.56, "1,234.6 µs"),
        ("µs", 17_158.8, "17.2 ms"),
        ("µs", 87_492_107.9, "87.5 s"),
        ("operations/byte", 0.5, "0.50"),
    ],
)
def test_amounts_are_readable(unit: str, value: float, text: str) -> None:
    assert amount(unit, value) == text  # type: ignore[arg-type]


def test_an_account_is_the_same_in_any_order() -> None:
    """Nothing depends on what was accounted before."""
    programs = [begin("softmax"), begin("matmul"), begin("softmax")]
    first, _, again = [account(program) for program in programs]
    assert first == again
