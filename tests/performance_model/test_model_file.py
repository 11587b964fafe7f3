"""Model files: where they hold, and what is said of those that do not."""

from __future__ import annotations

import contextlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from learned import TARGET, start

from tirgym.errors import DamagedFileError, TargetMismatchError
from tirgym.harness.target import Target
from tirgym.performance_model.archive import read_archive, write_archive
from tirgym.performance_model.dataset import Dataset
from tirgym.performance_model.header import Header, features_digest
from tirgym.performance_model.model import PerformanceModel
from tirgym.performance_model.training import train

pytest.importorskip("xgboost")


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> PerformanceModel:
    return train(dataset)


@pytest.fixture
def path(model: PerformanceModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "runs" / "model")
    return tmp_path / "runs" / "model"


def rewritten(path: Path, name: str, data: bytes | None) -> Path:
    """The file with one part replaced, or left out."""
    files = read_archive(path)
    files.pop(name)
    write_archive(path, files if data is None else {**files, name: data})
    return path


def with_header(path: Path, **changes: object) -> Path:
    header = json.loads(read_archive(path)["header.json"])
    return rewritten(path, "header.json", json.dumps({**header, **changes}).encode())


def test_saving_replaces_a_file_whole_and_leaves_nothing_else(
    path: Path, model: PerformanceModel
) -> None:
    path.write_bytes(b"something old")
    model.save(path)
    assert PerformanceModel.load(path).header == model.header
    assert [file.name for file in path.parent.iterdir()] == ["model"]


def test_a_file_holds_data_alone(path: Path) -> None:
    names = sorted(zipfile.ZipFile(path).namelist())
    assert names == ["header.json", *(f"member{i}/trees.ubj" for i in range(4))]


@pytest.mark.parametrize(
    "target",
    [
        Target("llvm", "skylake-avx512", 2),
        Target("llvm", "haswell", 1),
    ],
    ids=["threads", "architecture"],
)
def test_another_target_is_refused(path: Path, model: PerformanceModel, target: Target) -> None:
    remedy = f"train one here: .* --threads {target.num_threads}"
    with pytest.raises(TargetMismatchError, match=remedy):
        PerformanceModel.load(path, target)
    program = start("tirgym://core-v0/add?m=8&n=16&dtype=float32")
    other = type(program)(program.workload, target, (), program.schedule)
    with pytest.raises(TargetMismatchError, match="the program is for"):
        model.predict_us(other)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("features", "features of another version"),
        ("vocabulary", "another vocabulary"),
        ("versions", "other compiler versions"),
    ],
)
def test_a_model_from_other_circumstances_is_refused(path: Path, field: str, said: str) -> None:
    with pytest.raises(TargetMismatchError, match=f"{said}.*tirgym model train"):
        PerformanceModel.load(with_header(path, **{field: "0123"}), TARGET)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "tirgym-performance-model-0"}, "its format is not"),
        ({"seed": None}, "seed: .* integer"),
        ({"target": 7}, "target: "),
        ({"level": "high"}, "level: .* number"),
        ({"extra": 1}, "extra: "),
        ({"folds": []}, "no members"),
    ],
)
def test_damaged_headers_are_named(path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(DamagedFileError, match=said):
        PerformanceModel.load(with_header(path, **changes))


HEADER = Header(
    "trees", TARGET, "here", "tvm=1", "01", "23", 0, ("a",), ("k",), 5, (("a",),), 0.8, 1.0, 0.3
)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(
            (name, text)
            for name in ("seed", "programs")
            for text in ("1.5", "true", '"7"', "1e999")
        ),
        *(
            (name, text)
            for name in ("level", "doubts", "floor")
            for text in ("NaN", "Infinity", "1e999", "1" + "0" * 400, "true", '"1"')
        ),
        *((name, text) for name in ("kind", "machine", "features") for text in ("5", "null", "[]")),
        *((name, text) for name in ("families", "kernels") for text in ('"abc"', "[1]", "null")),
        *(("folds", text) for text in ('["abc"]', '"abc"', "[[1]]", "7")),
        ("target", "7"),
        ("target", "{}"),
        ("target", '{"backend": 5, "arch": [], "num_threads": "x"}'),
        ("target", '{"backend": "llvm", "arch": "x", "num_threads": true}'),
        ("target", '{"backend": "llvm", "arch": "x", "num_threads": 1, "more": 2}'),
    ],
)
def test_no_field_of_a_header_may_be_of_another_type(field: str, text: str) -> None:
    data = json.loads(HEADER.to_json())
    whole = json.dumps({**data, field: "HERE"}).replace('"HERE"', text)
    with pytest.raises(ValueError, match=f"^{field}"):
        Header.from_json(whole)


def test_whatever_byte_of_an_archive_is_damaged_it_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_archive(path, {"header.json": b"{}", "é/trees.ubj": bytes(range(64))})
    whole = path.read_bytes()
    for place in range(len(whole)):
        for value in (0x00, 0x0C, 0x0E, 0xFF):  # 12 and 14: packed by bzip2 or LZMA
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            with contextlib.suppress(DamagedFileError):
                read_archive(path)


def test_damaged_parts_are_named(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    with pytest.raises(DamagedFileError, match="tirgym model train"):
        PerformanceModel.load(tmp_path / "missing")
    for content in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match="performance model"):
            PerformanceModel.load(path)
    for name, data in (("member1/trees.ubj", None), ("member1/trees.ubj", b"{L no trees")):
        path.write_bytes(whole)
        with pytest.raises(DamagedFileError, match="performance model"):
            PerformanceModel.load(rewritten(path, name, data))
    path.write_bytes(whole)
    with pytest.raises(DamagedFileError, match=r"no header\.json"):
        PerformanceModel.load(rewritten(path, "header.json", None))


def test_a_header_comes_back_from_json_as_it_was(model: PerformanceModel) -> None:
    for header in (HEADER, replace(model.header, target=Target("llvm", "x", 3))):
        assert Header.from_json(header.to_json()) == header


def test_features_are_told_apart_by_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = features_digest(TARGET)
    features_digest.cache_clear()
    from tirgym.performance_model import features

    pooled = features._pooled
    monkeypatch.setattr(features, "_pooled", lambda view: pooled(view) * 1.01)
    try:
        assert features_digest(TARGET) != before
    finally:
        features_digest.cache_clear()
