"""The device check end to end on a device of NumPy: right and troubled, cut short, killed, without TVM."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numpy_device import HereDesk, QuickPool

from tirgym.benchmarks.device_check.__main__ import main
from tirgym.benchmarks.device_check.aims import aims
from tirgym.benchmarks.device_check.bench import DeviceCheck
from tirgym.benchmarks.device_check.plan import Plan
from tirgym.benchmarks.device_check.record import FILE, Record
from tirgym.benchmarks.device_check.report import report
from tirgym.benchmarks.device_check.run import PARTS, ROUNDS, planned, run_check
from tirgym.benchmarks.device_check.trial import Trial
from tirgym.errors import DamagedFileError, InvalidValueError, TargetMismatchError, WorkerDiedError
from tirgym.harness.channel import DeadlineError
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.status import Status

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

SMALL = Plan(
    kernels=("softmax", "rope"),
    searched=("softmax",),
    ranked=("softmax",),
    search_trials=4,
    tuned_trials=2,
    ranked_configs=4,
    ranked_pipelines=2,
    copy_bytes=1 << 10,
    tiny=True,
)
TROUBLED = replace(
    SMALL,
    kernels=("softmax", "gelu", "transpose", "rope", "add"),
    searched=("add",),
    ranked=(),
    search_trials=6,
    row_timeout_s=8.0,
    trial_timeout_s=8.0,
)


def checked(plan: Plan, folder: Path, **how: Any) -> Record:
    """On the right device, in this process."""
    device, pool = HereDesk(), QuickPool()
    return run_check(plan, folder, secret=b"", pool=pool, device=device, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return checked(SMALL, tmp_path_factory.mktemp("right"))


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return run_check(
        TROUBLED,
        tmp_path_factory.mktemp("troubled"),
        factory="numpy_device:open_troubled",
        secret=b"tests" * 4,
        pool=QuickPool(trouble=True),  # type: ignore[arg-type]
    )


def test_every_planned_row_is_there_and_passed(right: Record) -> None:
    wanted = {(part, name) for part, name, _ in planned(SMALL)}
    assert set(right.rows) == wanted
    assert {row["status"] for row in right.rows.values()} == {"passed"}
    kernel = right.rows["correctness", "softmax"]
    assert len(kernel["odd"]["regimes"]) == 8
    assert kernel["timed"]["regimes"] == ["ramp", "ties", "mixed"]
    assert 0.0 < kernel["timed"]["worst_error"] < 1.0
    assert kernel["clock_mhz"] == [1980, 1980]


def test_pairs_with_the_vendor_have_an_interval_and_name_their_timer(right: Record) -> None:
    row = right.rows["vendor", "softmax"]
    assert row["vendor"]["us"] == pytest.approx(20.0)
    assert row["vendor"]["ratio"] == pytest.approx(20.0 / row["default_us"])
    assert row["vendor"]["deviation"] == ""
    assert row["vendor"]["interval"] == pytest.approx([row["vendor"]["ratio"]] * 2)
    assert row["timer"].startswith("synthetic, 2 sets")
    assert row["gbs"] == pytest.approx(2 * 6 * 20 * 4 / row["default_us"] * 1e-3)
    none = right.rows["vendor", "rope"]
    assert none["vendor"] is None
    assert "rotary" in none["vendor_why"]


def test_the_search_has_as_many_trials_as_the_autotuner(right: Record) -> None:
    row = right.rows["search", "softmax"]
    keys = [trial["code_key"] for trial in row["trials"]]
    assert len(keys) == len(set(keys)) == row["autotuner"]["configs"] == 4
    times = [trial["latency_us"] for trial in row["trials"]]
    assert row["best"]["latency_us"] == min(times)
    # the device's autotuner takes the last configuration that it gets
    chosen = row["autotuner"]
    assert chosen["ratio"] is not None
    assert chosen["its_times_us"] == [10.0, 11.0, 12.0, 13.0]


def test_the_static_cost_ranks_as_the_clock_where_it_knows_the_clock(right: Record) -> None:
    row = right.rows["ranking", "softmax"]
    assert row["spearman"] == pytest.approx(1.0)
    assert row["measured"] + sum(n for s, n in row["verdicts"].items() if s != "passed") <= 6


def test_the_report_has_every_part_and_the_aims(right: Record) -> None:
    text = report(right)
    assert text.count("\n## ") == len(PARTS)  # all but "prepared", and the aims
    assert "torch has no kernel of its own for rotary" in text
    assert "Not reached" not in text
    found = {aim.aim: aim for aim in aims(right.rows)}
    assert found["at least 10 kernels correct on the device"].verdict == "missed"
    assert found["matmul (float16) at least 0.8 of cuBLAS's speed"].verdict == "not measured"
    (search,) = [aim for name, aim in found.items() if name.startswith("best of the search")]
    assert search.verdict in ("met", "missed")
    kept = json.loads(right.path.read_text())
    assert kept["summary"]["aims"][0]["found"] == 2.0


def test_a_wrong_kernel_is_wrong_and_gets_no_time(troubled: Record) -> None:
    row = troubled.rows["correctness", "softmax"]
    assert row["status"] == "wrong_result"
    assert "fails its own gate" in row["message"]
    vendor = troubled.rows["vendor", "softmax"]
    assert vendor["status"] == "wrong_result"
    assert "default_us" not in vendor
    assert not any("softmax" in key for key in troubled.trials)


def test_a_hang_and_a_crash_cost_their_row_alone(troubled: Record) -> None:
    assert troubled.rows["correctness", "gelu"]["status"] == "timeout"
    crash = troubled.rows["correctness", "transpose"]
    assert crash["status"] == "crash"
    assert "process ended" in crash["message"]
    assert troubled.rows["correctness", "add"]["status"] == "passed"
    assert troubled.summary["processes_lost"] >= 2


def test_trials_are_refused_caught_after_timing_and_never_win(troubled: Record) -> None:
    row = troubled.rows["search", "add"]
    refused, wrong, *others = row["trials"]
    assert refused["status"] == "out_of_memory"
    assert "too many resources" in refused["message"]
    assert wrong["status"] == "wrong_result"
    assert wrong["message"].startswith("timed calls: normal: out[0, 0]")
    assert refused["latency_us"] is None
    assert wrong["latency_us"] is None
    assert row["best"] in others
    assert "triton.autotune failed: RuntimeError: no C compiler" in row["autotuner"]["how"]
    assert row["vendor"]["deviation"].startswith("normal: out[")


def test_a_compile_failure_keeps_the_compilers_words(troubled: Record) -> None:
    row = troubled.rows["correctness", "rope"]
    assert row["status"] == "compile_error"
    assert row["message"] == "no ptx: ptxas: too much of everything"
    assert troubled.rows["autotuner", "rope"]["status"] == "compile_error"


def test_what_the_budget_does_not_reach_is_named_and_made_later(tmp_path: Path) -> None:
    plan = replace(SMALL, kernels=("rope",), searched=(), ranked=(), budget_s=0.0)
    record = checked(plan, tmp_path)
    names = {f"{part} {name}" for part, name, _ in planned(plan)}
    assert set(record.summary["not_reached"]) == names
    assert "Not reached: device copy, correctness rope" in report(record)
    assert {row["status"] for row in record.rows.values()} == {"not_reached"}
    again = checked(replace(plan, budget_s=480.0), tmp_path)
    assert again.summary["not_reached"] == []


def test_a_killed_run_leaves_a_whole_file_and_goes_on(tmp_path: Path) -> None:
    plan = replace(SMALL, kernels=("rope",), searched=(), ranked=())

    def stop(line: str) -> None:
        if line.startswith("correctness"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked(plan, tmp_path, say=stop)
    kept = json.loads((tmp_path / FILE).read_text())
    assert [row["part"] for row in kept["rows"]] == ["device", "correctness"]
    said: list[str] = []
    record = checked(plan, tmp_path, say=said.append)
    assert [line.split()[0] for line in said] == ["vendor", "autotuner"]
    assert record.rows["correctness", "rope"]["wall_s"] == kept["rows"][1]["wall_s"]


def test_a_record_of_another_plan_or_of_nothing_is_refused(tmp_path: Path) -> None:
    head = {"device": "d", "versions": {}, "plan": {"seed": 0}}
    Record(tmp_path, head).write()
    assert Record(tmp_path, head).rows == {}
    with pytest.raises(TargetMismatchError, match="another plan; name another folder"):
        Record(tmp_path, {**head, "plan": {"seed": 1}})
    (tmp_path / FILE).write_text("{")
    with pytest.raises(DamagedFileError, match="not a readable device check"):
        Record(tmp_path, head)


def test_every_part_is_in_one_round() -> None:
    assert [part for parts in ROUNDS for part in parts] == list(PARTS)
    order = [(part, name) for part, name, _ in planned(Plan())]
    assert len(order) == len(set(order)) == 1 + 14 + 14 + 3 + 5 + 11
    assert order[1:4] == [
        ("correctness", "matmul"),
        ("vendor", "matmul"),
        ("correctness", "softmax"),
    ]


def test_a_trial_refuses_a_time_without_a_pass() -> None:
    with pytest.raises(InvalidValueError, match="trial with a time"):
        Trial({}, "", "key", "crash", "", 1.0, latency_us=1.0)


class _Frail:
    """A device's process that `method` ends; hears how long each call may take."""

    def __init__(self, method: str, error: Exception) -> None:
        self.method, self.error, self.patience = method, error, list[float]()

    def call(self, method: str, *arguments: Any, timeout_s: float) -> Evaluation:
        self.patience.append(timeout_s)
        if method == self.method:
            raise self.error
        return Evaluation(Status.CRASH, "", "")


@pytest.mark.parametrize("error", [WorkerDiedError("gone"), DeadlineError("late")])
@pytest.mark.parametrize("method", ["evaluate", "compare"])
def test_whatever_ends_the_devices_process_the_next_one_has_time_for_its_references(
    tmp_path: Path, method: str, error: Exception
) -> None:
    device, plan = _Frail("", error), Plan()
    record = Record(tmp_path, {"device": "d", "versions": {}, "plan": {}})
    check = DeviceCheck(plan, "sm_90", None, device, record, time.monotonic(), {})  # type: ignore[arg-type]
    numbers = itertools.count()

    def trial() -> None:
        binary = SimpleNamespace(workload="w", code_key=str(next(numbers)))
        check.trial(binary, binary, (), 0.0, "it", None)

    trial()
    trial()
    device.method = method
    if method == "evaluate":
        trial()
    else:
        with pytest.raises(type(error)):
            check.ask(method)
    device.method = ""
    trial()
    trial()
    first, later = plan.row_timeout_s, plan.trial_timeout_s
    assert device.patience[:2] == device.patience[-2:] == [first, later]


def test_without_a_device_it_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tirgym.harness.triton.device.cuda.cuda_capability", lambda: None)
    assert main(["--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("device_check: no NVIDIA GPU")
    assert said.err.count("\n") == 1
    assert not (tmp_path / FILE).exists()


_ABSENT = "import sys\nfor name in {names}: sys.modules[name] = None\n"
_RUN = """
import sys
from dataclasses import replace
from pathlib import Path
from numpy_device import QuickPool
from tirgym.benchmarks.device_check.plan import Plan
from tirgym.benchmarks.device_check.run import run_check
from tirgym.benchmarks.device_check.report import report
plan = replace(Plan(), kernels=("rope",), searched=(), ranked=(), tuned_trials=1, tiny=True,
               copy_bytes=1024)
record = run_check(plan, Path(sys.argv[1]), factory="numpy_device:open_device", secret=b"s" * 8,
                   pool=QuickPool())
print(report(record))
import tirgym
assert sys.modules["tvm"] is None and sys.modules["gymnasium"] is None
"""


def test_it_runs_where_tvm_and_gymnasium_are_not_installed(tmp_path: Path) -> None:
    absent = ("tvm", "tvm_ffi", "gymnasium", "platformdirs", "pydantic", "torch")
    (tmp_path / "sitecustomize.py").write_text(_ABSENT.format(names=absent))
    paths = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out" / FILE).read_text())["rows"]
    assert {row["status"] for row in rows} == {"passed"}
    assert len(rows) == 4
