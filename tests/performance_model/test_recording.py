"""Recording: varied programs, the same ones again, and going on where it stopped."""

from __future__ import annotations

from itertools import islice

import pytest
from fakes import FakeEvaluator
from learned import KERNELS, TARGET, start
from recorded import Storing

from tirgym.baselines.recorded_search import record_search
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.decisions import RandomAgent, design_space
from tirgym.harness.desk import context_of
from tirgym.harness.store import Store
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.draws import draws, proposals
from tirgym.performance_model.recording import Recorded, record

MATMUL = KERNELS["matmul"]
MATMUL_SMALL = load_workload(MATMUL)
ADD = load_workload("tirgym://core-v0/add?m=8&n=16&dtype=float32")


def keys(seed: int, number: int = 12) -> list[str]:
    return [program.ir_key for program in islice(proposals(start(MATMUL), seed), number)]


def test_proposals_are_varied_and_a_function_of_the_seed() -> None:
    first = keys(0)
    assert first == keys(0)
    assert first != keys(1)
    assert len(set(first)) > 8
    unscheduled = start(MATMUL)
    assert first[:2] == [unscheduled.ir_key, design_space(unscheduled).finish().program.ir_key]


def test_each_program_is_asked_about_once() -> None:
    evaluator, told = FakeEvaluator(), list[Recorded]()
    found = record([ADD], TARGET, evaluator, 6, on_verdict=told.append)
    asked = [key for key, _ in evaluator.calls]
    assert len(asked) == len(set(asked)) == found.programs == 6
    assert found.verdicts == {"passed": 6}
    assert [at.number for at in told] == [1, 2, 3, 4, 5, 6]


def test_more_programs_begin_with_those_of_before() -> None:
    few, many = FakeEvaluator(), FakeEvaluator()
    record([ADD], TARGET, few, 4)
    record([ADD], TARGET, many, 8)
    assert many.calls[:4] == few.calls


@pytest.mark.parametrize("programs", [0, -1, True, 2.5, float("nan")])
def test_a_number_of_programs_that_is_none_is_refused(programs: int) -> None:
    with pytest.raises(InvalidValueError, match="programs"):
        record([ADD], TARGET, FakeEvaluator(), programs)
    with pytest.raises(InvalidValueError, match="trials"):
        record_search([ADD], TARGET, FakeEvaluator(), Store(), programs)


@pytest.mark.parametrize("seed", [-1, True, 0.5])
def test_a_seed_that_is_none_is_refused(seed: int) -> None:
    with pytest.raises(InvalidValueError, match="seed"):
        record([ADD], TARGET, FakeEvaluator(), 2, seed)
    with pytest.raises(InvalidValueError, match="seed"):
        record_search([ADD], TARGET, FakeEvaluator(), Store(), 2, seed)


def test_what_a_random_search_found_is_not_taken_for_what_recording_draws() -> None:
    plain, searched = Store(), Store()
    record([MATMUL_SMALL], TARGET, Storing(plain), 8, store=plain, space="decision")
    record_search([MATMUL_SMALL], TARGET, Storing(searched), searched, 8, agent="random")
    record([MATMUL_SMALL], TARGET, Storing(searched), 8, store=searched, space="decision")
    context = context_of(MATMUL_SMALL, TARGET)
    recorded = {walk.ir_key for walk in plain.walks(context)}
    assert recorded <= {walk.ir_key for walk in searched.walks(context)}


def test_an_unknown_space_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="both, decision"):
        record([ADD], TARGET, FakeEvaluator(), 2, space="transforms")


def test_the_answers_that_led_to_each_program_are_stored_and_lead_there_again() -> None:
    store = Store()
    record([MATMUL_SMALL], TARGET, Storing(store), 10, store=store, space="decision")
    walks = store.walks(context_of(MATMUL_SMALL, TARGET))
    assert len({walk.ir_key for walk in walks}) == 10
    assert all(walk.settled for walk in walks)
    assert {walk.source.split()[0] for walk in walks} == {"static", "random", "near"}
    for walk in walks:
        made = design_space(start(KERNELS["matmul"])).finish(dict(walk.path))
        assert (made.program.ir_key, len(made.answers)) == (walk.ir_key, len(walk.path))


def test_a_killed_recording_goes_on_and_loses_nothing() -> None:
    whole, halves = Store(), Store()
    record([MATMUL_SMALL], TARGET, Storing(whole), 12, store=whole, space="decision")
    with pytest.raises(KeyboardInterrupt):
        record([MATMUL_SMALL], TARGET, Storing(halves, 5), 12, store=halves, space="decision")
    again = Storing(halves)
    found = record([MATMUL_SMALL], TARGET, again, 12, store=halves, space="decision")
    assert len(again.calls) == 12 - 5
    assert (found.programs, found.reused) == (12, 5)
    context = context_of(MATMUL_SMALL, TARGET)
    assert halves.walks(context) == whole.walks(context)


def test_agents_add_walks_of_their_own() -> None:
    names = [
        d.source for d in islice(draws(start(MATMUL), 7, "decision", {"mine": RandomAgent()}), 7)
    ]
    assert names == [
        "static", "random 7.0", "near 7.1", "mine 7.2", "random 7.3", "near 7.4", "mine 7.5",
    ]  # fmt: skip
