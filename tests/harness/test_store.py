"""The store: first writer wins, nothing is lost by a kill or a full disk, damage is named."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from stored import CONTEXT, FIRST_LAYOUT, OLD, OLD_RECORD, in_process, measured, passed

from tirgym.errors import DamagedFileError, EvaluationError, InvalidValueError
from tirgym.harness.evaluation import Level
from tirgym.harness.status import Status
from tirgym.harness.store import SETTLED, Context, Record, Store, open_store
from tirgym.harness.target import Target


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store.sqlite"


def test_round_trip_through_the_file(path: Path) -> None:
    records = [
        passed(),
        passed(level=Level.FULL, speedup=3.0),
        Record(CONTEXT, "slow", Level.TRAINING, Status.TOO_SLOW, "slow", None, None, 20.0),
        Record(CONTEXT, "ir:7", Level.FULL, Status.COMPILE_ERROR, "what it said"),
    ]
    with_store = Store(path)
    for record in records:
        assert with_store.put(record) == record
    with_store.put_code_key(CONTEXT, "ir7", "code")
    with_store.close()
    again = Store(path, read_only=True)
    assert [again.get(CONTEXT, r.key, r.level) for r in records] == records
    assert again.code_key(CONTEXT, "ir7") == "code"
    assert again.code_key(CONTEXT, "ir8") is None
    assert len(again) == 4


def test_evaluations_from_records_are_marked_as_reused() -> None:
    found = passed().evaluation("ir")
    assert found.passed
    assert found.measurement == replace(measured(2.0), reused=True)
    assert (found.ir_key, found.code_key) == ("ir", "code")
    unbuilt = Record(CONTEXT, "ir:7", Level.TRAINING, Status.COMPILE_ERROR).evaluation("7")
    assert unbuilt.code_key == ""


def test_a_settled_verdict_is_never_replaced() -> None:
    store = Store()
    first = store.put(passed(speedup=2.0))
    assert store.put(passed(speedup=2.1)) == first
    assert store.put(replace(passed(), status=Status.WRONG_RESULT, measurement=None)) == first


@pytest.mark.parametrize("status", sorted(set(Status) - SETTLED))
def test_an_unsettled_verdict_gives_way(status: Status) -> None:
    store = Store()
    store.put(Record(CONTEXT, "code", Level.TRAINING, status, "once"))
    assert store.put(passed()) == passed()


@pytest.mark.parametrize(
    "other",
    [
        replace(CONTEXT, workload="tirgym://core-v0/matmul?m=2"),
        replace(CONTEXT, target=Target("llvm", "skylake", 2)),
        replace(CONTEXT, target=Target("llvm", "haswell", 1)),
        replace(CONTEXT, versions="tvm=2"),
        replace(CONTEXT, machine="another"),
        replace(CONTEXT, protocol=CONTEXT.protocol + 1),
    ],
    ids=["workload", "threads", "arch", "versions", "machine", "protocol"],
)
def test_every_part_of_the_context_tells_verdicts_apart(other: Context) -> None:
    store = Store()
    store.put(passed())
    assert store.get(other, "code", Level.TRAINING) is None
    assert store.get(CONTEXT, "code", Level.FULL) is None


def test_iteration_is_sorted_and_contexts_are_listed() -> None:
    store = Store()
    other = replace(CONTEXT, machine="a machine before")
    for key in ("c", "a", "b"):
        store.put(passed(key))
        store.put(replace(passed(key), context=other))
    assert [(r.context.machine, r.key) for r in store.records()] == sorted(
        (m, k) for m in ("a machine before", "machine") for k in "abc"
    )
    assert store.contexts() == [other, CONTEXT]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_folder_is_no_store(tmp_path: Path, read_only: bool) -> None:
    with pytest.raises(InvalidValueError, match="a file, not a folder"):
        Store(tmp_path, read_only=read_only).records()


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"x" * 8000]
)
def test_damaged_files_are_named(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="measurement store"):
        Store(path)
    assert path.read_bytes() == content


def test_another_database_or_schema_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE birds (name TEXT)")
    database.close()
    with pytest.raises(DamagedFileError, match="without the tables"):
        Store(path)
    path.unlink()
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = '99'")
    database.close()
    with pytest.raises(DamagedFileError, match="schema version 99, expected 1 to 3"):
        Store(path)


def test_walks_carry_the_verdict_of_their_program() -> None:
    store = Store()
    there, elsewhere = (("a.tile", 4), ("b", 0)), (("a.tile", 8),)
    store.put_walk(CONTEXT, there, "ir1", "random 0.0")
    store.put_walk(CONTEXT, there, "ir1", "near 0.1")
    store.put_walk(CONTEXT, (("a.tile", 2),), "ir1", "near 0.3")
    store.put_walk(CONTEXT, elsewhere, "ir2", "static")
    assert [walk.status for walk in store.walks(CONTEXT)] == [None, None, None]
    store.put_code_key(CONTEXT, "ir1", "code")
    store.put(Record(CONTEXT, "code", Level.FULL, Status.NOISY))
    store.put(passed())
    store.put(Record(CONTEXT, "ir:ir2", Level.TRAINING, Status.ILLEGAL, "too large"))
    walks = {walk.path: walk for walk in store.walks(CONTEXT)}
    assert walks[there].source == "random 0.0"
    assert [walk.status for walk in walks.values()] == ["passed", "passed", "illegal"]
    assert all(walk.settled for walk in walks.values())
    other = replace(CONTEXT, machine="another")
    assert {walk.status for walk in store.walks(other)} == {None}
    assert store.walks(replace(CONTEXT, versions="tvm=2")) == []


def test_walks_that_do_not_parse_are_damage(path: Path) -> None:
    store = Store(path)
    store.put_walk(CONTEXT, (("a", 1),), "ir", "static")
    with sqlite3.connect(path) as database:
        database.execute("""UPDATE walks SET answers = '[["a", "b"]]'""")
    database.close()
    with pytest.raises(DamagedFileError, match="pairs of a key and a number"):
        store.walks(CONTEXT)


def test_notes_are_kept_apart_from_the_layout() -> None:
    store = Store()
    assert store.notes() == {}
    store.note("suite", "core-v0")
    assert store.notes() == {"suite": "core-v0"}
    with pytest.raises(InvalidValueError, match="schema"):
        store.note("schema", "9")


@pytest.fixture
def old_file(path: Path) -> Path:
    path.parent.mkdir()
    database = sqlite3.connect(path)
    database.executescript(FIRST_LAYOUT)
    database.close()
    return path


def test_a_file_of_the_first_layout_is_renewed_and_keeps_all_it_had(old_file: Path) -> None:
    store = Store(old_file)
    assert list(store.records()) == [OLD_RECORD]
    assert store.transforms(OLD, "ir") is None
    store.put_transforms(OLD, "ir", ("Unroll(loop=1)",))
    store.close()
    again = Store(old_file, read_only=True)
    assert again.code_key(OLD, "ir") == "code"
    assert [p.transforms for p in again.programs()] == [("Unroll(loop=1)",)]


def test_a_file_of_the_first_layout_can_be_read_without_a_change(old_file: Path) -> None:
    before = old_file.read_bytes()
    store = Store(old_file, read_only=True)
    assert list(store.records()) == [OLD_RECORD]
    assert store.transforms(OLD, "ir") is None
    assert list(store.programs()) == []
    store.close()
    assert old_file.read_bytes() == before


def test_many_processes_renew_a_file_at_once(old_file: Path) -> None:
    writers = [in_process(old_file, "print(len(store))") for _ in range(4)]
    assert [w.communicate(timeout=120)[0] for w in writers] == ["1\n"] * 4
    assert list(Store(old_file).records()) == [OLD_RECORD]


def test_programs_stand_with_the_key_of_their_verdicts(path: Path) -> None:
    store = Store(path)
    store.put_code_key(CONTEXT, "ir2", "code")
    store.put_transforms(CONTEXT, "ir2", ("Split(loop=0, factor=8)", "Unroll(loop=1)"))
    store.put_transforms(CONTEXT, "ir1", ())
    store.put_transforms(CONTEXT, "ir1", ("Unroll(loop=0)",))
    store.close()
    programs = list(Store(path, read_only=True).programs())
    assert [(p.ir_key, p.key, p.transforms) for p in programs] == [
        ("ir1", "ir:ir1", ()),
        ("ir2", "code", ("Split(loop=0, factor=8)", "Unroll(loop=1)")),
    ]
    assert {(p.workload, p.target, p.versions) for p in programs} == {
        (CONTEXT.workload, CONTEXT.target, CONTEXT.versions)
    }


@pytest.mark.parametrize("text", ["[1", "{}", "[1]"])
def test_transforms_that_do_not_parse_are_damage(path: Path, text: str) -> None:
    store = Store(path)
    store.put_transforms(CONTEXT, "ir", ())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE programs SET transforms = ?", (text,))
    database.close()
    with pytest.raises(DamagedFileError, match="transforms"):
        store.transforms(CONTEXT, "ir")
    with pytest.raises(DamagedFileError, match="transforms"):
        list(store.programs())


def test_a_page_overwritten_in_the_middle_is_damage(path: Path) -> None:
    store = Store(path)
    for i in range(400):
        store.put(passed(f"code {i:04}"))
    store.close()
    data = bytearray(path.read_bytes())
    data[4096 * 4 : 4096 * 20] = b"\xff" * (4096 * 16)
    path.write_bytes(data)
    with pytest.raises(DamagedFileError):
        list(Store(path).records())


def test_a_row_that_does_not_parse_is_damage(path: Path) -> None:
    store = Store(path)
    store.put(passed())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE verdicts SET measurement = '{\"speedup\": 9}'")
    database.close()
    with pytest.raises(DamagedFileError, match="does not parse"):
        store.get(CONTEXT, "code", Level.TRAINING)


def test_a_missing_file_is_not_made_by_reading(path: Path) -> None:
    with pytest.raises(DamagedFileError, match="no such file"):
        Store(path, read_only=True)
    assert not path.exists()


def test_stores_open_from_paths_and_themselves(path: Path) -> None:
    store = Store()
    assert open_store(store) is store
    assert open_store(str(path)).path == str(path)
    with pytest.raises(InvalidValueError, match="a path"):
        open_store(7)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DamagedFileError, match="measurement store"):
        Store(tmp_path / "file" / "store.sqlite")


def test_a_record_refuses_a_number_without_a_pass(path: Path) -> None:
    store = Store(path)
    store.put(passed())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE verdicts SET status = 'wrong_result'")
    database.close()
    with pytest.raises(DamagedFileError, match="wrong_result, with the wrong parts"):
        store.get(CONTEXT, "code", Level.TRAINING)


def test_gate_reports_are_stored_as_json(path: Path) -> None:
    store = Store(path)
    store.put(passed())
    with sqlite3.connect(path) as database:
        (text,) = database.execute("SELECT gate FROM verdicts").fetchone()
    database.close()
    assert json.loads(text)["regimes"] == ["ramp", "normal"]


def test_a_read_only_store_cannot_be_written(path: Path) -> None:
    Store(path).close()
    with pytest.raises(EvaluationError, match="readonly"):
        Store(path, read_only=True).put(passed())
