"""The way that the docs show: a server in one process, `tirgym optimize` in another, then a replay."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Cli

from tirgym.baselines.llm.scripted_player import scripted_answer
from tirgym.baselines.llm.scripted_server import ScriptedServer, main
from tirgym.harness.trace import Trace

pytest.importorskip("openai")

PROMPT = """Trials left: 9. Propose up to 2 programs now.
Programs so far:
  #0 unscheduled | measured 1x, 100 us (static cost 90 us)
  #1 the compiler's static choices | measured 4x, 25 us (static cost 20 us)
  #2 from #1: c.init = before | predicted 5x, measured 4x, 25 us (static cost 20 us) | why: so
Current program: #1
Questions: KEY: question -> options (the answer of the current program in *stars*):
  c.vector: lanes -> none [90 us] | *8 lanes* [20 us] | 16 lanes [10 us]
  c.init: where -> *inside* [10 us] | before [8 us]
  c.unroll: how far -> *none* [8 us] | up to 16 [7.9 us] | up to 64 [9 us]
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "tirgym.baselines.llm.scripted_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "scripted, no language model: --model scripted" in line
        yield re.search(r"http://\S+", line)[0]  # type: ignore[index]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_the_whole_way_without_a_key_and_back_from_the_transcript(
    cli: Cli, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    trace, again = tmp_path / "softmax.json", tmp_path / "again.json"
    play = ("optimize", "softmax", "--shape", "tiny", "--agent", "llm", "--trials", 3, "--json")
    found = cli(*play, "--model", "scripted", "--base-url", url, "--out", trace)
    assert found.code == 0, found.err
    said = found.json()
    assert said["agent"] == "llm:scripted"
    assert said["status"] == "passed"
    report = said["agent_report"]
    assert (report["calls"], report["replayed"]) == (1, False)
    assert report["transcript"] == str(tmp_path / "softmax.llm.jsonl")
    assert "it answers with tool calls" in found.err
    assert "predictions: " in found.err

    replayed = cli(*play, "--transcript", report["transcript"], "--out", again)
    assert replayed.code == 0, replayed.err
    told = replayed.json()
    assert [point["depth"] for point in told["curve"]] == [p["depth"] for p in said["curve"]]
    assert told["agent_report"]["tokens"] == report["tokens"]
    assert Trace.load(again).agent == "llm:scripted (replayed transcript)"

    explained = cli("explain", report["transcript"])
    assert explained.code == 0
    assert "scripted, no language model: static cost" in explained.out
    assert "right about the direction" in explained.out
    assert cli("explain", report["transcript"], "--json").json()["summary"]["made"] == 2
    assert "nothing: a transcript is shown" in cli("explain", report["transcript"], "--step", 1).err


def test_the_script_takes_the_options_of_lowest_static_cost() -> None:
    made = scripted_answer([{"role": "user", "content": PROMPT}])["proposals"]
    assert [proposal["actions"] for proposal in made] == [
        ["c.vector = 16 lanes"], ["c.unroll = up to 16"],
    ]  # fmt: skip
    assert made[0]["predicted_speedup"] == 8.0
    assert made[0]["base"] == 1
    assert all(proposal["why"].startswith("scripted, no language model") for proposal in made)
    assert "stop" in scripted_answer([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--faults", "smoke"], "unknown fault 'smoke'"), (["--port", "99999999"], "port")],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_errors_of_endpoints_are_one_line_of_the_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = ("optimize", "add", "--shape", "tiny", "--agent", "llm", "--trials", 2)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for arguments, code, said in (
        ((), 2, "the name of a model at the endpoint (--model)"),
        (("--model", "m"), 1, "set OPENAI_API_KEY"),
        (("--model", "m", "--base-url", "localhost"), 2, "an http or https address"),
        (("--transcript", "none.jsonl"), 2, "there is no such file"),
        (("--model", "m", "--option", "tokes=5"), 2, "did you mean 'tokens'"),
    ):
        found = cli(*play, *arguments)
        assert (found.code, found.out) == (code, "")
        assert said in found.err.splitlines()[-1]
    with ScriptedServer(key="secret") as server:
        found = cli(*play, "--model", "scripted", "--base-url", server.url)
        assert found.code == 1
        assert "refuses the key in OPENAI_API_KEY" in found.err.splitlines()[-1]
    found = cli("optimize", "add", "--agent", "beam", "--base-url", "http://x")
    assert found.code == 2
    assert "unknown option of agent beam 'base_url'" in found.err
