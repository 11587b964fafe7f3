"""What a store holds; the part of it that is exported, packed and unpacked."""

from __future__ import annotations

import json
import lzma
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import fill_with_walks
from small import SMALL, TARGET

from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import Level
from tirgym.harness.hardware import cpu_model, fingerprint
from tirgym.harness.shipped_store import pack, unpack
from tirgym.harness.status import Status
from tirgym.harness.store import Record, Store
from tirgym.harness.store_contents import cpu_note, export_store, read_contents
from tirgym.kernels_suite.registry import load_workload

URIS = [SMALL["add"], SMALL["softmax"]]


@pytest.fixture
def source() -> Store:
    """Walks of two kernels, one verdict that does not stand, and one of another machine."""
    store = Store()
    fill_with_walks(store, URIS, 5)
    context = context_of(load_workload(SMALL["add"]), TARGET)
    store.put_walk(context, (("no", 1),), "unsettled", "random 0.99")
    store.put_code_key(context, "unsettled", "loud")
    store.put(Record(context, "loud", Level.TRAINING, Status.NOISY, "loud"))
    store.put(Record(replace(context, machine="other"), "slow", Level.TRAINING, Status.TOO_SLOW))
    return store


def test_contents_count_by_status_and_say_the_split(source: Store) -> None:
    held = {(c.context.workload, c.context.machine): c for c in read_contents(source)}
    add = held[SMALL["add"], fingerprint()]
    assert (add.split, add.walks, add.verdicts) == ("train", 5, {"passed": 5, "noisy": 1})
    assert add.best_speedup is not None
    assert add.best_speedup > 1
    assert held[SMALL["softmax"], fingerprint()].split == "val"
    other = held[SMALL["add"], "other"]
    assert (other.walks, other.verdicts, other.best_speedup) == (0, {"too_slow": 1}, None)


def test_an_export_has_the_settled_verdicts_of_one_machine_with_their_walks(
    source: Store, tmp_path: Path
) -> None:
    made = export_store(source, tmp_path / "made.sqlite", TARGET, fingerprint())
    contexts = made.contexts()
    assert {context.machine for context in contexts} == {fingerprint()}
    assert [record for record in source.records() if record.status is Status.PASSED] == list(
        made.records()
    )
    for context in contexts:
        assert made.walks(context) == [w for w in source.walks(context) if w.settled]
    passed = {program.key for program in made.programs()}
    assert passed == {record.key for record in made.records()}
    assert made.notes()[cpu_note(fingerprint())] == cpu_model()
    assert json.loads(made.notes()["splits"]) == {SMALL["add"]: "train", SMALL["softmax"]: "val"}
    with pytest.raises(InvalidValueError, match="does not exist yet"):
        export_store(source, tmp_path / "made.sqlite", TARGET, fingerprint())
    with pytest.raises(InvalidValueError, match="other"):
        export_store(source, tmp_path / "unclear.sqlite", TARGET)
    with pytest.raises(InvalidValueError, match="machine to export"):
        export_store(source, tmp_path / "nobody.sqlite", TARGET, "nobody")


@pytest.fixture
def packed(source: Store, tmp_path: Path) -> Path:
    """A packed store."""
    made = export_store(source, tmp_path / "made.sqlite", TARGET, fingerprint())
    made.close()
    path = tmp_path / "data" / "mine.sqlite.xz"
    pack(Path(made.path), path, {"walks": 10})
    return path


def test_what_was_packed_is_unpacked_once(packed: Path, tmp_path: Path) -> None:
    assert json.loads((packed.parent / "mine.json").read_text())["walks"] == 10
    first = unpack(packed, tmp_path / "cache")
    assert first.read_bytes() == (tmp_path / "made.sqlite").read_bytes()
    before = first.stat().st_ino
    assert unpack(packed, tmp_path / "cache") == first
    assert first.stat().st_ino == before
    first.write_bytes(b"somebody wrote here")
    again = unpack(packed, tmp_path / "cache")
    assert Store(again, read_only=True).contexts()
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [first.name]


def test_it_opens_where_nothing_can_be_written(packed: Path, tmp_path: Path) -> None:
    made = unpack(packed, tmp_path / "cache")
    assert len(Store(made, read_only=True)) == 10
    assert [file.name for file in made.parent.iterdir()] == [made.name]


def test_processes_that_unpack_at_once_find_it_whole(packed: Path, tmp_path: Path) -> None:
    found: list[int] = []

    def load() -> None:
        found.append(len(Store(unpack(packed, tmp_path / "cache"), read_only=True)))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [10] * 4


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "no xz": lambda content: b"x" * 1000,
    "another store": lambda content: lzma.compress(b"another"),
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_or_foreign_file_is_one_line(packed: Path, tmp_path: Path, kind: str) -> None:
    packed.write_bytes(DAMAGE[kind](packed.read_bytes()))
    with pytest.raises(DamagedFileError, match="packed measurement store") as error:
        unpack(packed, tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("cache/*"))


@pytest.mark.parametrize("text", ["", "{}", '{"sha256": 3}', "[]", '{"sha256": "abc"}'])
def test_a_damaged_digest_is_one_line(packed: Path, tmp_path: Path, text: str) -> None:
    (packed.parent / "mine.json").write_text(text)
    with pytest.raises(DamagedFileError, match="digest"):
        unpack(packed, tmp_path / "cache")
