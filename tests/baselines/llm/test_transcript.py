"""Transcripts: complete, readable after a kill, without keys, and replayed to the same programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from llm_runs import Played, climber, played, propose, replayed, toy_run
from toy import ToyEvaluator, ToyProgram, toy_workload

from tirgym.baselines.llm import transcript as module
from tirgym.baselines.llm.agent import LLMAgent
from tirgym.baselines.llm.claims import summary
from tirgym.baselines.llm.scripted_server import ScriptedServer
from tirgym.baselines.llm.transcript import Saved, free_path, is_transcript
from tirgym.errors import (
    DamagedFileError,
    EndpointError,
    InvalidValueError,
    TargetMismatchError,
    TirgymError,
)

pytest.importorskip("openai")
pytestmark = pytest.mark.usefixtures("toy_compiler")

TESTS = Path(__file__).parents[2]
KEY = "sk-secret-0123456789"


def path_of(found: Played) -> str:
    return str(found.agent.report()["transcript"])


def programs(found: Played) -> list[str]:
    return [candidate.program.ir_key for candidate in found.run.history]


class Slower(ToyEvaluator):
    """Another machine: every speedup is another one."""

    def evaluate(self, program: Any, *arguments: Any, **options: Any) -> Any:
        shifted = ToyProgram(program.workload, program.target, (program.dials[0], 1, 0))
        found = super().evaluate(shifted, *arguments, **options)
        object.__setattr__(found, "ir_key", program.ir_key)
        object.__setattr__(found, "code_key", f"code{program.ir_key}")
        return found


@pytest.mark.parametrize(
    "options",
    [{}, {"tools": False}, {"space": "primitive"}, {"branches": 3, "milestone": 1},
     {"faults": ["garbage", "ok", "illegal"]}],
)  # fmt: skip
def test_a_replay_makes_the_same_programs_without_a_model(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    first = played(tmp_path, patience=9, **options)
    again = replayed(path_of(first), tmp_path / "again")
    assert programs(again) == programs(first)
    assert again.run.used == first.run.used
    assert again.agent.tokens == first.agent.tokens
    assert again.agent.name == "llm:scripted (replayed transcript)"
    report = again.agent.report()
    assert report["replayed"]
    assert report["stopped"] == first.agent.report()["stopped"]
    third = replayed(path_of(again), tmp_path / "third")  # a replay's own transcript replays
    assert programs(third) == programs(first)


def test_a_replay_shows_what_was_measured_then_and_measures_anew(tmp_path: Path) -> None:
    first = played(tmp_path, climber, trials=9)
    again = replayed(path_of(first), tmp_path / "again", trials=9, evaluator=Slower())
    assert programs(again) == programs(first)
    assert [c.evaluation.speedup for c in again.run.history] != [
        c.evaluation.speedup for c in first.run.history
    ]


def test_fewer_trials_replay_the_beginning(tmp_path: Path) -> None:
    first = played(tmp_path, climber, trials=9)
    again = replayed(path_of(first), tmp_path / "again", trials=4)
    assert again.run.used == 4
    assert programs(again) == programs(first)[: len(programs(again))]


def test_another_prompt_is_one_clear_line(tmp_path: Path) -> None:
    first = played(tmp_path, climber)
    text = Path(path_of(first)).read_text()
    other = tmp_path / "other.jsonl"
    other.write_text(text.replace("where dial 1 stands", "where dial 1 is"))
    with pytest.raises(TargetMismatchError) as caught:
        replayed(other, tmp_path / "again")
    line = str(caught.value)
    assert "\n" not in line
    assert "exchange 1: the prompt is another one, line " in line
    assert "dial 1 stands" in line
    assert "recorded was" in line
    assert "recorded with tirgym" in line


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("tirgym://", "tirgym://other/", "workload"), ("toy/dials", "toy/knobs", "target")],
)
def test_another_workload_or_target_is_one_clear_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    saved = Path(path_of(played(tmp_path)))
    head, _, rest = saved.read_text().partition("\n")
    header = json.loads(head)
    header["workload"] = header["workload"].replace(old, new)
    header["target"] = header["target"].replace(old, new)
    if said == "workload":
        header["workload"] = "tirgym://core-v0/add?m=1&n=1&dtype=float32"
    saved.write_text(f"{json.dumps(header)}\n{rest}")
    with pytest.raises(TargetMismatchError, match=f"was recorded for {said} .*, not "):
        replayed(saved, tmp_path / "again")


def test_options_that_decide_what_is_asked_come_from_the_transcript(tmp_path: Path) -> None:
    first = path_of(played(tmp_path, batch=2))
    assert replayed(first, tmp_path / "again").agent.args.batch == 2
    replayed(first, tmp_path / "again", batch=2)
    with pytest.raises(InvalidValueError, match=r"batch of agent llm: 3 .* expected 2, as in"):
        LLMAgent(transcript=first, batch=3)


def test_everything_that_was_said_is_in_the_transcript(tmp_path: Path) -> None:
    found = played(tmp_path, climber, trials=4, faults=["garbage"])
    saved = found.saved
    asked = [line["messages"] for line in saved.of("exchange")]
    assert asked == [body["messages"] for body, _ in found.requests]
    assert saved.of("exchange")[0]["reply"]["content"].startswith("Sure!")
    assert saved.tokens == found.agent.tokens
    lines = saved.of("measured")
    assert [line["number"] for line in lines] == list(range(len(lines)))
    assert lines[-1]["why"] == "tried"
    assert (lines[-1]["predicted_speedup"], lines[-1]["status"]) == (3.0, "passed")
    assert saved.header["model"] == "scripted"
    assert saved.end is not None
    assert saved.end["answer_tokens"] + saved.end["prompt_tokens"] == saved.tokens


def test_the_key_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def parrot(messages: Any) -> dict[str, Any]:
        return {"stop": f"your key is {KEY}"}

    found = played(tmp_path, parrot, key=KEY)
    assert KEY in str(found.requests[0][1])
    text = Path(path_of(found)).read_text()
    assert KEY not in text
    assert "your key is ***" in text
    assert KEY not in json.dumps(found.agent.report()) + "".join(found.agent.notes())


def test_credentials_of_the_address_are_never_written(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        address = server.url.replace("http://", "http://me:password@") + "?token=password"
        agent = LLMAgent(model="scripted", base_url=address, save=f"{tmp_path}/t.llm.jsonl")
        with pytest.raises(EndpointError) as caught:
            toy_run(3, None, None).run(agent)
        assert "password" not in str(caught.value)
    assert "password" not in (tmp_path / "t.llm.jsonl").read_text()


def test_a_killed_run_can_be_read_and_replayed_as_far_as_it_went(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import threading, toy_optimize, toy\n"
        "from tirgym.harness.backend import BACKENDS\n"
        "from tirgym.harness.decisions import SPACES\n"
        "from tirgym.spaces.graph import ENCODERS\n"
        "BACKENDS['toy'], ENCODERS['toy'] = 'toy:ToyBackend', 'toy:ToyEncoder'\n"
        "SPACES['toy'] = 'toy:ToySpace'\n"
        "from pathlib import Path\n"
        "from llm_runs import climber, played\n"
        "played(Path(sys.argv[2]), climber, trials=40, faults=['ok', 'ok', 'hang:always'])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(TESTS), str(tmp_path)])
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            files = list(tmp_path.glob("*.llm.jsonl"))
            if files and files[0].read_text().count('"kind": "round"') == 3:
                break
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    saved = Saved(files[0])
    assert saved.end is None
    assert len(saved.of("exchange")) == 2
    with files[0].open("a") as file:
        file.write('{"kind": "exchange", "bra')  # what a kill may leave
    again = replayed(files[0], tmp_path / "again", trials=40)
    assert programs(again) == list(dict.fromkeys(line["ir_key"] for line in saved.of("measured")))
    assert "breaks off: its run was killed" in again.agent.report()["stopped"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no such file"),
        ("", "its first line is no header"),
        ('{"kind": "header", "format": "tirgym-llm-0"}\n', "tirgym-llm-1"),
        ('{"kind": "header", "format": "tirgym-llm-1"}\nnonsense\n{"kind": "end"}\n', "line 2"),
        ('{"kind": "header", "format": "tirgym-llm-1"}\n', "no option space"),
    ],
)
def test_a_file_that_is_no_transcript_is_one_line(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "t.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DamagedFileError, match=said):
        LLMAgent(transcript=str(path))


def test_a_folder_stands_for_the_transcript_of_the_workload(tmp_path: Path) -> None:
    first = played(tmp_path / "one")
    agent = replayed(tmp_path / "one", tmp_path / "again").agent
    assert agent.name == "llm:scripted (replayed transcript)"
    assert agent.report()["tokens"] == first.agent.tokens
    shutil.copy(path_of(first), tmp_path / "one" / "copy.jsonl")
    for folder in (tmp_path / "one", tmp_path / "again" / "none"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(InvalidValueError, match=r"one transcript of .* found"):
            replayed(folder, tmp_path / "again")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.llm.jsonl"
    for expected in ("x.llm.jsonl", "x-2.llm.jsonl", "x-3.llm.jsonl"):
        found = played(tmp_path, lambda m: {"stop": ""}, save=str(path))
        assert Path(path_of(found)).name == expected
    assert free_path(tmp_path / "y.txt") == tmp_path / "y.txt"
    assert is_transcript(path)
    assert not is_transcript(tmp_path / "y.txt")


def test_transcripts_go_to_the_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    found = played(tmp_path, lambda m: propose("dial0.tile = 1"), trials=1, save="")
    path = Path(path_of(found))
    assert path.parent == Path(os.environ["TIRGYM_HOME"]) / "transcripts"
    assert path.name.startswith(toy_workload().kernel.name)


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        {"proposals": [{"actions": ["dial0.tile = 1"], "why": "half \ud800"}]},
        {"proposals": [{"actions": ["dial0.tile = \udc00"]}]},
        {"half \ud800": 1},
        {"stop": "half \ud800"},
        "half \ud800",
    ],
)
def test_half_a_character_is_recorded_and_replayed(
    tmp_path: Path, answer: Any, tools: bool
) -> None:
    answers = [answer, propose("dial0.tile = 2"), {"stop": "done"}]
    first = played(tmp_path, lambda messages: answers.pop(0), tools=tools)
    again = replayed(path_of(first), tmp_path / "again")
    assert programs(again) == programs(first)
    assert again.agent.report()["stopped"] == first.agent.report()["stopped"]


def damaged(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`line` with another value in the place of each field, and without it."""
    for name, value in line.items():
        if name == "kind":
            continue
        yield {other: kept for other, kept in line.items() if other != name}
        wrong_values: list[Any] = [None, -1, "x", [], {}, [1], float("inf")]
        for wrong in wrong_values:
            yield {**line, name: wrong}
        if isinstance(value, dict):
            yield from ({**line, name: inner} for inner in damaged(value))
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from ({**line, name: [inner, *value[1:]]} for inner in damaged(value[0]))


def test_a_field_that_is_wrong_is_one_line_or_is_not_read(tmp_path: Path) -> None:
    whole = played(tmp_path, branches=2, trials=4, faults=["ok", "illegal", "illegal"])
    lines = [json.loads(line) for line in Path(path_of(whole)).read_text("utf-8").splitlines()]
    refused: list[str] = []
    for kind in ("header", "exchange", "refused", "measured", "round", "note", "end"):
        at = max(number for number, line in enumerate(lines) if line["kind"] == kind)
        for wrong in damaged(lines[at]):
            path = tmp_path / "damaged.jsonl"
            changed = [*lines[:at], wrong, *lines[at + 1 :]]
            path.write_text("\n".join(map(json.dumps, changed)) + "\n", "utf-8")
            try:
                saved = Saved(path)
                summary(saved.of("measured"))
                assert saved.tokens >= 0
                replayed(path, tmp_path / "again", trials=4)
            except TirgymError as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert not any("\n" in line for line in refused)


def test_runs_that_begin_at_once_write_a_transcript_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.llm.jsonl").symlink_to(tmp_path / "nowhere")
    barrier = threading.Barrier(4)
    chosen = module.free_path

    def chosen_together(path: Path) -> Path:
        found = chosen(path)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(0.3)
        return found

    monkeypatch.setattr(module, "free_path", chosen_together)
    with ThreadPoolExecutor(4) as pool:
        made = list(
            pool.map(lambda n: module.Transcript(tmp_path / "run.llm.jsonl", {"run": n}), range(4))
        )
    for number, transcript in enumerate(made):
        transcript.add("end")
        with transcript:
            assert Saved(transcript.path).header["run"] == number
    assert len({transcript.path for transcript in made}) == 4
    assert not (tmp_path / "nowhere").exists()
