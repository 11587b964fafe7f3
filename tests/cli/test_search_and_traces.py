"""`optimize` for real on a small kernel, and everything that one does with the trace it saved."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tirgym.baselines.registry import STRONGEST
from tirgym.cli import main
from tirgym.harness import baselines_report, verification
from tirgym.harness.in_sessions import MOST_SESSIONS
from tirgym.harness.macros import named_vocabulary
from tirgym.harness.status import Status
from tirgym.harness.trace import Trace
from tirgym.harness.transforms import TRANSFORMS

Cli = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("-s", "m=40,n=48", "-s", "k=36")
PROMISED = {
    "workload", "backend", "target", "num_threads", "agent", "trials", "status", "baseline_us",
    "best_us", "speedup", "speedup_ci", "code_key", "trace",
}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with trace.json and picture.png, and the JSON of the command that made them."""
    folder = tmp_path_factory.mktemp("search")
    arguments = ["optimize", "matmul", *SMALL, "--agent", "random", "--trials", "6", "--seed", "1"]
    files = ["--out", str(folder / "new" / "trace.json"), "--picture", str(folder / "picture.png")]
    command = [sys.executable, "-m", "tirgym", *arguments, *files, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_optimize_keeps_its_promise(found: tuple[Path, dict[str, Any]]) -> None:
    folder, record = found
    assert set(record) >= PROMISED
    assert (record["status"], record["agent"], record["trials"]) == ("passed", "random", 6)
    assert record["workload"] == "tirgym://core-v0/matmul?m=40&n=48&k=36&dtype=float32"
    low, high = record["speedup_ci"]
    assert low <= min(record["sessions"]) <= max(record["sessions"]) <= high
    assert record["speedup"] in record["sessions"]
    assert len(record["sessions"]) >= 3
    assert record["speedup"] == pytest.approx(record["baseline_us"] / record["best_us"])
    trace = Trace.load(folder / "new" / "trace.json")
    assert list(trace.transforms) == record["trace"]
    assert trace.result is not None
    assert (trace.result.status, trace.result.speedup) == ("passed", record["speedup"])
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_branches_share_their_verdicts_and_patience_ends_the_search(cli: Cli) -> None:
    arguments = ["optimize", "add", "-s", "tiny", "--agent", "random", "--trials", "200"]
    done = cli(*arguments, "--branches", "2", "--patience", "2", "--json")
    record = done.json()
    assert (record["agent"], record["stopped"]) == ("random x2", "converged")
    assert 2 <= record["trials"] < 200
    assert record["status"] == "passed"


def test_the_default_agent_is_named_with_the_reason(cli: Cli) -> None:
    done = cli("optimize", "add", "-s", "tiny", "--trials", "1", "--json")
    assert done.json()["agent"] == STRONGEST
    assert f"agent: {STRONGEST} (default: strongest at 64 trials on" in done.err
    named = cli("optimize", "add", "-s", "tiny", "--trials", "1", "--agent", STRONGEST, "--json")
    assert "default" not in named.err


def test_spaces_are_chosen_by_name(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "macro.json"
    arguments = ["optimize", "matmul", *SMALL, "--agent", "mcts", "--space", "macro"]
    done = cli(*arguments, "--trials", "4", "--out", trace, "--json")
    assert (done.json()["agent"], done.json()["status"]) == ("mcts", "passed")
    kinds = {text.partition("(")[0] for text in done.json()["trace"]}
    assert kinds <= set(TRANSFORMS)  # what macros are made of
    assert Trace.load(trace).vocabulary == named_vocabulary("macro").digest
    assert cli("verify", trace).code == 0


def test_optimize_for_people(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    done = cli(
        "optimize", "add", "-s", "tiny", "--agent", "random", "--trials", "2", "--out", trace
    )
    assert done.code == 0, done.err
    assert "unscheduled" in done.out
    assert "best of 2 trials" in done.out
    assert str(trace) in done.out
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert trace.stat().st_mode == ordinary.stat().st_mode


def test_verify_sets_claim_and_number_side_by_side(
    found: tuple[Path, dict[str, Any]], cli: Cli
) -> None:
    folder, record = found
    verified = cli("verify", folder / "new" / "trace.json", "--json").json()
    assert verified["passed"] is True
    assert verified["same_code"] is True
    assert verified["claim"]["speedup"] == record["speedup"]
    assert verified["verified"]["reused"] is False
    assert verified["verified"]["regimes"]
    assert len(verified["verified"]["sessions"]) >= 3
    assert not [finding for finding in verified["findings"] if finding.startswith("error")]


def test_verify_rejects_a_wrong_program(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from tvm import te\n"
        "from tirgym.kernels_suite.kernel import Kernel\n"
        "def build(shape):\n"
        "    x = te.placeholder((shape['n'],), 'float32', 'x')\n"
        "    y = te.compute(x.shape, lambda i: x[i] + 1.0, 'y')\n"
        "    return te.create_prim_func([x, y])\n"
        "wrong = Kernel('wrong', 'mine', build, lambda x: x + 2.0, train=({'n': 64},))\n"
    )
    target = cli("show", "add", "--json").json()["target"]
    from tirgym.harness.target import Target

    uri = f"tirgym://local/{tmp_path}/wrong.py:wrong?n=64&dtype=float32"
    Trace(uri, Target("llvm", target), ()).save(tmp_path / "t.json")
    done = cli("verify", tmp_path / "t.json")
    assert done.code == 1
    assert "fails its own gate" in done.err
    assert done.err.count("\n") == 1


def test_what_too_few_processes_could_measure_is_no_number_in_any_command(
    found: tuple[Path, dict[str, Any]], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_full, fresh_ones = verification.evaluate_in_full, itertools.count()

    def noisy_from_the_third_on(evaluator: Any, program: Any, *, fresh: bool = False) -> Any:
        evaluation = in_full(evaluator, program, fresh=fresh)
        if fresh and next(fresh_ones) % MOST_SESSIONS >= 2:
            return replace(evaluation, status=Status.NOISY, measurement=None, message="spread")
        return evaluation

    monkeypatch.setattr(verification, "evaluate_in_full", noisy_from_the_third_on)
    monkeypatch.setattr(baselines_report, "vendor_libraries", lambda kernel, backend: ())
    says = "2 of 5 processes could be measured, and a number takes 3 (spread)"
    trace, out = found[0] / "new" / "trace.json", tmp_path / "out.json"
    done = cli("verify", str(trace))
    assert (done.code, done.err.count(says)) == (1, 1)
    assert "too few for a number" in done.out
    done = cli("verify", str(trace), "--json")
    verified = done.json()["verified"]
    assert (done.code, verified["status"], verified["speedup"]) == (1, "noisy", None)
    assert len(verified["sessions"]) == 2
    done = cli(
        "optimize", "matmul", *SMALL, "--agent", "random", "--trials", "2", "--out", str(out)
    )
    assert (done.code, done.err.count(says)) == (1, 1)
    assert "no number: noisy" in done.err
    assert "no program was faster" not in done.out
    saved = Trace.load(out).result
    assert saved is not None
    assert (saved.status, saved.speedup) == ("noisy", None)
    done = cli("export", str(trace), "-o", str(tmp_path / "matmul.so"))
    assert (done.code, "gate      passed" in done.out) == (0, True)  # right, if not measured
    done = cli("baseline", "matmul", *SMALL, "--json")
    naive, default, *_ = done.json()["baselines"]
    for row in (naive, default):
        assert (row["status"], row["message"], row["speedup"]) == ("noisy", says, None)
    assert done.code == 1


def test_an_inflated_claim_shows(
    found: tuple[Path, dict[str, Any]], cli: Cli, tmp_path: Path
) -> None:
    text = json.loads((found[0] / "new" / "trace.json").read_text())
    text["result"].update(speedup=1e6, speedup_ci=[9e5, 1.1e6])
    (tmp_path / "t.json").write_text(json.dumps(text))
    done = cli("verify", tmp_path / "t.json", "--json")
    assert done.code == 0
    assert done.json()["claim_holds"] is False


def test_replay_shows_every_step(found: tuple[Path, dict[str, Any]], cli: Cli) -> None:
    folder, record = found
    replayed = cli("replay", folder / "new" / "trace.json", "--json").json()
    assert [step["transform"] for step in replayed["steps"]] == record["trace"]
    assert replayed["evaluation"]["reused"] is True
    human = cli("replay", folder / "new" / "trace.json", "--no-measure")
    for text in record["trace"]:
        assert text in human.out


def test_replay_for_another_target_warns(
    found: tuple[Path, dict[str, Any]], cli: Cli, tmp_path: Path
) -> None:
    text = json.loads((found[0] / "new" / "trace.json").read_text())
    text["target"]["arch"] = "x86-64-v2"
    (tmp_path / "t.json").write_text(json.dumps(text))
    done = cli("replay", tmp_path / "t.json", "--no-measure")
    assert done.code == 0
    assert "warning: recorded for llvm/x86-64-v2/1 thread" in done.err


def test_compare_a_trace_with_itself(found: tuple[Path, dict[str, Any]], cli: Cli) -> None:
    trace = found[0] / "new" / "trace.json"
    compared = cli("compare", trace, trace, "--json").json()
    assert compared["same_code"] is True
    assert (compared["ratio"], compared["verdict"]) == (1.0, "no difference shown")
    assert "same machine code" in cli("compare", trace, trace).out


def test_compare_refuses_other_workloads(
    found: tuple[Path, dict[str, Any]], cli: Cli, tmp_path: Path
) -> None:
    trace = found[0] / "new" / "trace.json"
    text = json.loads(trace.read_text())
    text["workload"] = text["workload"].replace("m=40", "m=80")
    del text["ir_key"]
    (tmp_path / "other.json").write_text(json.dumps(text))
    done = cli("compare", trace, tmp_path / "other.json")
    assert (done.code, done.out) == (2, "")
    assert "workload and target must be equal" in done.err


def test_exported_trace_computes_in_ten_lines(
    found: tuple[Path, dict[str, Any]], cli: Cli, tmp_path: Path
) -> None:
    library = tmp_path / "lib.so"
    record = cli("export", found[0] / "new" / "trace.json", "-o", library, "--json").json()
    assert record["gate"] == "passed"
    assert record["code_key"] == found[1]["code_key"]
    example = [sys.executable, str(ROOT / "examples" / "call_exported.py"), str(library)]
    done = subprocess.run(example, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("mean 36.0")


def test_a_wrong_kernel_is_not_exported(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fakes import verdict

    from tirgym.cli import export

    monkeypatch.setattr(export, "evaluate_fully", lambda program: verdict(Status.WRONG_RESULT))
    done = cli("export", "add", "-s", "tiny", "-o", tmp_path / "lib.so")
    assert (done.code, done.out) == (1, "")
    assert "wrong_result" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_too_slow_is_not_exported_as_right(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate is cut off after one regime; this program is right there and wrong in others."""
    from tvm import te, tirx

    from tirgym.cli import export
    from tirgym.cli.subject import Subject
    from tirgym.harness.backend import backend
    from tirgym.harness.desk import Limits
    from tirgym.harness.evaluation import Level
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.harness.tensorir.handles import new_schedule
    from tirgym.harness.tensorir.program import TensorIRProgram
    from tirgym.kernels_suite.registry import load_workload

    workload, target = load_workload("add", {"m": 8, "n": 8}), backend("llvm").target()
    a, b = (te.placeholder((8, 8), "float32", name) for name in "AB")

    def value(i: Any, j: Any) -> Any:
        return tirx.Select(a[i, j] > 1e6, tirx.const(7.0, "float32"), a[i, j] + b[i, j])

    func = te.create_prim_func([a, b, te.compute((8, 8), value, "C")])
    program = TensorIRProgram(workload, target, (), new_schedule(func))
    limits = Limits(slowdown=0.0, slow_floor_s=0.0)
    with (
        closing(LocalEvaluator(target, ":memory:", limits=limits)) as hasty,
        closing(LocalEvaluator(target, ":memory:")) as patient,
    ):
        monkeypatch.setattr(export, "load_subject", lambda *_: Subject(program))
        monkeypatch.setattr(
            export, "evaluate_fully", lambda program: hasty.evaluate(program, Level.FULL)
        )
        assert patient.check(program).status is Status.WRONG_RESULT
        done = cli("export", "add", "-s", "tiny", "-o", tmp_path / "lib.so")
    assert (done.code, done.out) == (1, "")
    assert "too_slow" in done.err
    assert "not judged on all inputs; see --no-check" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_is_named(
    found: tuple[Path, dict[str, Any]], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"this is no database " * 100)
    monkeypatch.setenv("TIRGYM_HOME", str(tmp_path))
    done = cli("replay", found[0] / "new" / "trace.json")
    assert (done.code, done.out) == (2, "")
    assert "store.sqlite" in done.err
    assert done.err.count("\n") == 1


def test_ctrl_c_verifies_what_was_found(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    command = [sys.executable, "-m", "tirgym", "optimize", "matmul", *SMALL, "--trials", "100000"]
    process = subprocess.Popen(
        [*command, "--agent", "random", "--out", str(trace), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TIRGYM_HOME": str(tmp_path)},
    )
    deadline = time.monotonic() + 120
    while not trace.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("tirgym: interrupted")
    assert json.loads(out)["stopped"] == "interrupted"
    saved = Trace.load(trace).result
    assert saved is not None
    assert saved.status == "passed"


def test_a_talkative_kernel_and_agent_leave_stdout_to_the_result(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = (ROOT / "examples" / "my_kernel.py").read_text()
    (tmp_path / "loud.py").write_text(f"print('kernel')\n{example}")
    (tmp_path / "loud_agent.py").write_text(
        "class Loud:\n    name = 'loud'\n    def run(self, search):\n        print('agent')\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)  # where --agent finds the module
    kernel = ("optimize", f"{tmp_path}/loud.py:my_kernel", "-s", "n=32")
    done = cli(*kernel, "--agent", "loud_agent:Loud", "--json")
    assert done.json()["agent"] == "loud"
    assert {"kernel", "agent"} <= set(done.err.splitlines())


def test_own_kernel_in_ten_lines() -> None:
    kernel = f"{ROOT / 'examples' / 'my_kernel.py'}:my_kernel"
    arguments = ["optimize", kernel, "-s", "n=32", "--agent", "random", "--trials", "2", "--json"]
    assert main(arguments) == 0
