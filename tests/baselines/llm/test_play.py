"""Runs: what prompts hold, budgets that hold, corrections, returns to the best, branches."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llm_runs import climber, played, propose, said_to
from toy import ToyEvaluator

from tirgym.baselines.llm.agent import LLMAgent
from tirgym.errors import EndpointError, InvalidValueError, MissingExtraError, UnknownNameError
from tirgym.harness.search_run import Stopped
from tirgym.harness.status import Status
from tirgym.spaces.text_budget import count_tokens

pytest.importorskip("openai")
pytestmark = pytest.mark.usefixtures("toy_compiler")


def turns(number: int) -> Any:
    """A player that turns the first dial up by one in each round."""
    rounds = iter(range(1, number + 1))
    return lambda messages: propose(f"dial0.tile = {next(rounds, 8)}")


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("space", ["decision", "primitive"])
def test_the_script_plays_both_spaces_with_tools_and_without(
    tmp_path: Path, space: str, tools: bool
) -> None:
    found = played(tmp_path, space=space, tools=tools, trials=20, patience=20)
    assert found.best > 1.5
    assert found.run.used <= 20
    decided = found.run.search.decided
    assert bool(decided) == (space == "decision")
    for candidate in found.run.history[1:] if decided else ():
        assert candidate.program.ir_key in decided


def test_a_prompt_holds_program_choices_history_hardware_and_budget(tmp_path: Path) -> None:
    found = played(tmp_path, climber, trials=6, prompt_tokens=2000)
    first, later = found.prompts[0], found.prompts[-1]
    assert "Kernel: toy(n=1)" in first
    assert "Hardware: " in first
    assert "Trials left: 6. Propose up to 4 programs now." in first
    assert re.search(r"dial0\.tile: where dial 0 stands -> \*0\* \[[\d.]+ us\] \| 1 \[", first)
    assert "static cost: " in first
    assert "#0 unscheduled | measured 1x" in first
    assert "#1 the compiler's static choices" in first
    assert re.search(r"#2 from #1: dial0\.tile = 1 \| predicted 3x, measured 1\.\d+x, [\d.]+ us "
                     r"\(static cost [\d.]+ us\) \| why: tried", later)  # fmt: skip
    system = found.requests[0][0]["messages"][0]["content"]
    assert "KEY = ANSWER" in system
    assert '{"proposals": [' in system
    for body, _ in found.requests:
        assert sum(count_tokens(m["content"]) for m in body["messages"][:2]) <= 2000


def test_legal_actions_stand_in_the_prompt_of_the_transform_space(tmp_path: Path) -> None:
    found = played(tmp_path, space="primitive", trials=3)
    assert "Legal actions on the current program (9):" in found.prompts[0]
    assert "  Turn(dial=0|1|2, by=1|2|4)" in found.prompts[0]


def test_a_climber_reaches_the_top_and_stops(tmp_path: Path) -> None:
    found = played(tmp_path, climber, trials=60, patience=30)
    assert found.best == pytest.approx(11.0)
    assert found.agent.report()["stopped"] == "the model stopped: at the top"
    assert found.agent.tokens == found.agent.report()["tokens"] > 0
    claims = found.agent.report()["claims"]
    assert claims["made"] == claims["checked"] == len(found.run.history) - 1


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"calls": 3}, "the 3 calls are spent"),
        ({"tokens": 9_000}, "the 9,000 tokens leave no room"),
        ({"money": 0.01, "price_in": 1.0, "price_out": 2.0}, r"the money (0.01) leave no room"),
    ],
)
def test_budgets_end_the_run_and_keep_what_was_found(
    tmp_path: Path, limits: dict[str, Any], said: str
) -> None:
    found = played(tmp_path, climber, trials=60, answer_tokens=500, **limits)
    report = found.agent.report()
    assert said in report["stopped"]
    assert report["calls"] <= limits.get("calls", 99)
    assert report["tokens"] <= limits.get("tokens", 10**9)
    assert report["money"] <= limits.get("money", 0.0)
    assert found.run.used > 0
    assert found.stopped is Stopped.FINISHED


def test_trials_end_the_run(tmp_path: Path) -> None:
    found = played(tmp_path, climber, trials=5)
    assert found.run.used == 5
    assert found.agent.report()["stopped"] == "the trials are spent"
    assert "Propose up to 1 programs" in found.prompts[-1]


@pytest.mark.parametrize(
    "fault", ["garbage", "no-choices", "not-json", "huge", "illegal", "out-of-range"]
)
def test_a_bad_answer_gets_one_correction_then_counts_as_nothing(
    tmp_path: Path, fault: str
) -> None:
    faults = [fault, "ok", f"{fault}:2"]
    found = played(tmp_path, climber, trials=4, tokens=0, faults=faults)
    bodies = [body["messages"] for body, _ in found.requests]
    correction = str(bodies[1][-1]["content"])
    assert "expected" in correction
    refused = found.saved.of("refused")
    assert [line["round"] for line in refused] == [2]
    assert "expected" in refused[0]["message"]
    rounds = [len(messages) for messages in bodies]
    assert rounds[:4] == [2, 4, 2, 4]  # a correction in each of the first two rounds


def test_what_was_accepted_stays_while_the_rest_is_corrected(tmp_path: Path) -> None:
    def half_right(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if len(messages) > 2:
            assert "Proposal 1 is accepted." in said_to(messages)
            assert "Proposal 2 is refused" in said_to(messages)
            return propose("dial1.tile = 3")
        good, bad = propose("dial0.tile = 5"), propose("dial1.tile = 99")
        return {"proposals": [*good["proposals"], *bad["proposals"]]}

    found = played(tmp_path, half_right, trials=2)
    dials = [candidate.program.dials for candidate in found.run.history[1:]]  # type: ignore[attr-defined]
    assert {(5, 0, 0), (0, 3, 0)} <= set(dials)
    assert not found.saved.of("refused")


def test_what_was_accepted_is_measured_even_if_no_correction_can_be_asked_for(
    tmp_path: Path,
) -> None:
    def half_right(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        good, bad = propose("dial0.tile = 5"), propose("dial1.tile = 99")
        return {"proposals": [*good["proposals"], *bad["proposals"]]}

    found = played(tmp_path, half_right, trials=9, calls=1)
    assert found.run.history[-1].program.dials == (5, 0, 0)  # type: ignore[attr-defined]
    assert found.agent.report()["stopped"] == "the 1 calls are spent"


def test_more_proposals_than_asked_for_and_programs_that_are_known_cost_nothing(
    tmp_path: Path,
) -> None:
    def eager(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        made = [propose(f"dial0.tile = {n}", base=1)["proposals"][0] for n in (1, 1, 2, 3)]
        return {"proposals": made}

    found = played(tmp_path, eager, trials=9, batch=3, patience=2, returns=0)
    messages = [line["message"] for line in found.saved.of("refused")]
    assert messages[:2] == [
        "one too many; expected at most 3",
        "makes the same program as another proposal of this round",
    ]
    assert "makes the same program as #2" in messages
    assert found.run.used == 2
    assert "Note: dial0.tile = 1: makes the same program as another" in found.prompts[1]


def test_a_look_shows_a_program_without_a_trial(tmp_path: Path) -> None:
    looked: list[str] = []

    def curious(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if len(messages) > 2:
            looked.append(said_to(messages))
        return {"look": {"actions": ["dial0.tile = 5"]}}

    found = played(tmp_path, curious, trials=5, looks=1, patience=1, returns=0)
    assert found.run.used == 0
    assert "Static cost: 100 us (base: " in looked[0]
    assert "dials (5, 0, 0)" in looked[0]
    assert looked[1] == "No look is left in this round. Propose programs, or stop."
    assert len(found.requests) == 3


def test_stale_rounds_return_to_the_best_and_then_end(tmp_path: Path) -> None:
    found = played(tmp_path, turns(8), trials=60, patience=2, returns=1)
    assert found.agent.report()["stopped"] == "the last 2 rounds gained less than 5 %"
    notes = [prompt for prompt in found.prompts if "back at the best program" in prompt]
    assert len(notes) == 1
    best = max(found.saved.of("measured"), key=lambda line: line["speedup"])
    assert f"Current program: #{best['number']} (the best so far)" in notes[0]
    assert found.best == best["speedup"] or found.best == pytest.approx(best["speedup"], rel=1e-3)


def test_the_next_round_goes_on_from_the_last_find_even_if_it_is_slower(tmp_path: Path) -> None:
    found = played(tmp_path, lambda m: propose("dial0.tile = 8" if len(m) else ""), trials=2)
    assert "Current program: #1\n" in found.prompts[0]
    second = played(tmp_path, turns(7), trials=7, patience=9)
    assert "Current program: #7\n" in second.prompts[-1]  # dial 6 is slower than dial 5


def test_branches_are_asked_together_and_meet(tmp_path: Path) -> None:
    barrier = threading.Barrier(3, timeout=10)

    def explorers(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        barrier.wait()
        prompt = said_to(messages)
        explorer = int(re.search(r"You are explorer (\d) of 3", prompt)[1])  # type: ignore[index]
        stands = [int(n) for n in re.findall(r"^  dial\d\.tile: .*\*(\d)\*", prompt, re.MULTILINE)]
        dial = {1: 0, 2: 1, 3: 2}[explorer]
        return propose(f"dial{dial}.tile = {min(8, stands[dial] + 2)}")

    found = played(tmp_path, explorers, trials=6, branches=3, milestone=1)
    assert found.most_at_once == 3
    dials = [candidate.program.dials for candidate in found.run.history[1:]]  # type: ignore[attr-defined]
    assert dials[:3] == [(2, 0, 0), (0, 2, 0), (0, 0, 2)]
    assert dials[3:6] == [(4, 0, 0), (2, 2, 0), (2, 0, 2)]  # all from the best of all
    assert "explorers meet: you go on from #2" in " ".join(found.prompts[3:])
    focus = {re.search(r"Look first at (\w+)", prompt)[1] for prompt in found.prompts[:3]}  # type: ignore[index]
    assert focus == {"data", "arithmetic", "structure"}


def test_a_failure_at_the_first_question_raises_and_a_later_one_keeps_what_was_found(
    tmp_path: Path,
) -> None:
    with pytest.raises(EndpointError, match="answers 500"):
        played(tmp_path, climber, faults=["500:always"], retries=0)
    found = played(tmp_path, climber, faults=["ok", "500:always"], retries=0)
    report = found.agent.report()
    assert "answers 500" in report["stopped"]
    assert found.agent.failure == report["failure"] == report["stopped"]
    assert found.run.used == 2
    assert found.saved.end is not None
    assert any("ended: " in line and "answers 500" in line for line in found.agent.notes())


def test_retries_are_counted_apart_from_calls(tmp_path: Path) -> None:
    found = played(tmp_path, climber, trials=2, faults=["429:2"])
    assert (found.agent.report()["calls"], found.agent.report()["retries"]) == (1, 2)


def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    def interrupted(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if "#3 " in said_to(messages):
            signal.raise_signal(signal.SIGINT)
        return climber(messages)

    found = played(tmp_path, interrupted, trials=60)
    assert found.stopped is Stopped.INTERRUPTED
    assert found.run.used >= 2
    assert found.saved.end is not None
    assert found.saved.end["stopped"] == "interrupted"


def test_verdicts_without_a_number_are_shown(tmp_path: Path) -> None:
    def verdict(program: Any, level: object) -> Status:
        return Status.WRONG_RESULT if program.dials[1] else Status.PASSED

    found = played(tmp_path, climber, trials=6, evaluator=ToyEvaluator(verdict))
    assert "measured wrong_result: bad (static cost" in found.prompts[-1]


def test_nothing_ever_passes(tmp_path: Path) -> None:
    broken = ToyEvaluator(lambda program, level: Status.COMPILE_ERROR)
    found = played(tmp_path, climber, trials=4, evaluator=broken)
    assert found.run.ranked() == []
    assert found.agent.report()["claims"]["checked"] == 0


def test_time_ends_the_run(tmp_path: Path) -> None:
    def slow(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        threading.Event().wait(0.3)
        return climber(messages)

    found = played(tmp_path, slow, trials=60, seconds=0.5)
    assert found.agent.report()["stopped"] == "the time is spent"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "the name of a model at the endpoint"),
        ({"model": "m", "batch": 0}, "at least 1"),
        ({"model": "m", "looks": -1}, "at least 0"),
        ({"model": "m", "prompt_tokens": 100}, "at least 1500"),
        ({"model": "m", "money": 1.0}, "price_in and price_out"),
        ({"model": "m", "batch": "many"}, "a whole number"),
        ({"model": "m", "costs": "perhaps"}, "true or false"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        LLMAgent(**options)


@pytest.mark.parametrize("options", [{"space": "decisions"}, {"answers": "xml"}])
def test_unknown_names_get_the_known_ones(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean|Accepted: auto"):
        LLMAgent(model="m", **options)


def test_names_and_numbers_of_boards_are_taken_as_meant() -> None:
    agent = LLMAgent(model=4, timeout=5, costs="false")
    assert (agent.args.model, agent.args.timeout, agent.args.costs) == ("4", 5.0, False)
    assert agent.name == "llm:4"


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tirgym.baselines.llm.endpoint.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tirgym\[llm\]'"):
        LLMAgent(model="m")
