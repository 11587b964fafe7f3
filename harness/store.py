"""`Store`: every verdict ever measured, by machine code, machine and versions (SQLite, WAL).

A settled verdict is written once and never changed: the first writer wins and later ones read its
row, so that identical code on one machine has one number for ever. The file survives `kill -9` at any moment
and a full disk; what was committed before stays readable.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from tirgym.errors import DamagedFileError, EvaluationError, InvalidValueError
from tirgym.harness.evaluation import Evaluation, GateReport, Level, Measurement, TimingStats
from tirgym.harness.status import Status
from tirgym.harness.store_schema import OLDEST_VERSION, SCHEMA_VERSION, prepare
from tirgym.harness.target import Target

__all__ = [
    "PROTOCOL_VERSION",
    "SCHEMA_VERSION",
    "SETTLED",
    "Context",
    "Record",
    "Store",
    "StoredProgram",
    "open_store",
]

SETTLED = frozenset(
    {
        Status.PASSED,
        Status.WRONG_RESULT,
        Status.FLAKY,
        Status.TOO_SLOW,
        Status.COMPILE_ERROR,
    }
)
"""Verdicts that stand; any other is replaced by the next one on the same key."""
PROTOCOL_VERSION = 2
"""How gate and timing work; numbers of different protocols are never mixed."""

_BUSY_S = 60.0


@dataclass(frozen=True, slots=True)
class Context:
    """What a verdict holds for, the code apart."""

    workload: str
    """URI; for kernels outside released suites with a digest of their functions"""
    target: Target
    versions: str
    """compiler versions, canonical"""
    machine: str
    """fingerprint"""
    protocol: int = PROTOCOL_VERSION

    @property
    def target_text(self) -> str:
        """Canonical text of the target, threads included."""
        return f"{self.target.backend} {self.target.arch} {self.target.num_threads}"


@dataclass(frozen=True, slots=True)
class Record:
    """One stored verdict."""

    context: Context
    key: str
    """code key, or "ir:" and the IR key of a program whose code was never emitted"""
    level: Level
    status: Status
    message: str = ""
    gate: GateReport | None = None
    measurement: Measurement | None = None
    slowdown_limit: float | None = None

    def evaluation(self, ir_key: str) -> Evaluation:
        """The verdict as an answer for a program with `ir_key`, marked as reused."""
        measured = self.measurement
        return Evaluation(
            self.status,
            ir_key,
            "" if self.key.startswith("ir:") else self.key,
            None if measured is None else replace(measured, reused=True),
            self.gate,
            self.message,
            self.level,
            slowdown_limit=self.slowdown_limit,
        )


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """How to make one program that was evaluated, and where its verdicts stand."""

    workload: str
    """as in `Context`"""
    target: Target
    versions: str
    ir_key: str
    key: str
    """of its verdicts: the code key, or "ir:" and the IR key if no code was emitted"""
    transforms: tuple[str, ...]
    """text forms, in order; from the unscheduled program"""


class Store:
    """Verdicts in a file, or in memory with ":memory:". Usable from several threads and processes;
    a forked child gets a connection of its own.

    Files of older schemas open too, and are renewed when they may be written. Raises
    DamagedFileError for a file that is no store or of an unknown schema, EvaluationError when it
    cannot be written (full disk, no permission).
    """

    def __init__(
        self, path: str | os.PathLike[str] = ":memory:", *, read_only: bool = False
    ) -> None:
        self.path = str(path)
        self.read_only = read_only
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner = 0
        self._schema: int | None = None
        with self._errors():
            self._connect()

    # --- verdicts ---------------------------------------------------------------------------

    def code_key(self, context: Context, ir_key: str) -> str | None:
        """Code key that a program was compiled to, None if it never was."""
        row = self._one(
            "SELECT code_key FROM codes WHERE (workload, target, versions, ir_key) = (?, ?, ?, ?)",
            (context.workload, context.target_text, context.versions, ir_key),
        )
        return None if row is None else str(row[0])

    def put_code_key(self, context: Context, ir_key: str, code_key: str) -> None:
        """Remember what a program compiles to."""
        self._write(
            "INSERT OR IGNORE INTO codes VALUES (?, ?, ?, ?, ?)",
            (context.workload, context.target_text, context.versions, ir_key, code_key),
        )

    def transforms(self, context: Context, ir_key: str) -> tuple[str, ...] | None:
        """The transforms that made a program, None if nobody noted them."""
        if not self._keeps_programs():
            return None
        row = self._one(
            "SELECT transforms FROM programs WHERE (workload, target, versions, ir_key) "
            "= (?, ?, ?, ?)",
            (context.workload, context.target_text, context.versions, ir_key),
        )
        return None if row is None else self._steps(row[0])

    def put_transforms(self, context: Context, ir_key: str, transforms: tuple[str, ...]) -> None:
        """Remember how a program is made; the first way that was noted stays."""
        self._write(
            "INSERT OR IGNORE INTO programs VALUES (?, ?, ?, ?, ?)",
            (
                context.workload,
                context.target_text,
                context.versions,
                ir_key,
                json.dumps(transforms),
            ),
        )

    def programs(self) -> Iterator[StoredProgram]:
        """Every program whose transforms are known, sorted by workload, target, versions, IR key."""
        if not self._keeps_programs():
            return
        for workload, target, versions, ir_key, code_key, transforms in self._all(_PROGRAMS):
            key = code_key or f"ir:{ir_key}"
            steps = self._steps(transforms)
            yield StoredProgram(workload, _target(target), versions, ir_key, key, steps)

    def get(self, context: Context, key: str, level: Level) -> Record | None:
        """The verdict on `key` at exactly `level`."""
        row = self._one(f"{_SELECT} {_WHERE}", (*_columns(context), key, str(level)))
        return None if row is None else self._record(row)

    def put(self, record: Record) -> Record:
        """Write a verdict unless there is a settled one; answers the one that the store now holds."""
        c, measured = record.context, record.measurement
        values = (
            *_columns(c),
            record.key,
            str(record.level),
            str(record.status),
            record.message,
            None if record.gate is None else json.dumps(asdict(record.gate), sort_keys=True),
            None if measured is None else json.dumps(asdict(measured), sort_keys=True),
            record.slowdown_limit,
        )
        self._write(_PUT, values)
        return self.get(c, record.key, record.level) or record

    def records(self) -> Iterator[Record]:
        """Every verdict, sorted by its key columns."""
        order = "ORDER BY workload, target, versions, machine, protocol, key, level"
        for row in self._all(f"{_SELECT} {order}"):
            yield self._record(row)

    def contexts(self) -> list[Context]:
        """Every (workload, target, versions, machine, protocol) there is a verdict for, sorted."""
        columns = "workload, target, versions, machine, protocol"
        rows = self._all(f"SELECT DISTINCT {columns} FROM verdicts ORDER BY {columns}")
        return [_context(*row) for row in rows]

    def __len__(self) -> int:
        row = self._one("SELECT count(*) FROM verdicts", ())
        return 0 if row is None else int(row[0])

    # --- file -------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file; the store opens again when it is next used (in memory: it is gone)."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is not None and self._owner == os.getpid():
            return self._connection
        made = self._open()
        try:
            self._schema = prepare(made, self.read_only)
        except BaseException:
            made.close()
            raise
        if self._schema is None or not OLDEST_VERSION <= self._schema <= SCHEMA_VERSION:
            made.close()
            expected = f"expected {OLDEST_VERSION} to {SCHEMA_VERSION}"
            problem = f"schema version {self._schema}, {expected}"
            if self._schema is None:
                problem = "a database without the tables of a store"
            raise DamagedFileError(self.path, "measurement store", problem)
        self._connection, self._owner = made, os.getpid()
        return made

    def _open(self) -> sqlite3.Connection:
        options: dict[str, Any] = {
            "timeout": _BUSY_S,
            "isolation_level": None,
            "check_same_thread": False,
        }
        made: sqlite3.Connection
        if self.path == ":memory:":
            made = sqlite3.connect(self.path, **options)
            return made
        if self.read_only:
            if not os.path.exists(self.path):
                raise DamagedFileError(self.path, "measurement store", "no such file")
            uri = f"{Path(self.path).absolute().as_uri()}?mode=ro"
            made = sqlite3.connect(uri, uri=True, **options)
            return made
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DamagedFileError(self.path, "measurement store", str(error)) from None
        made = sqlite3.connect(self.path, **options)
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = NORMAL")
        return made

    def _keeps_programs(self) -> bool:
        """Whether the file has room for transforms: not if it is old and must not be changed."""
        with self._lock, self._errors():
            self._connect()
            return (self._schema or 0) >= 2

    def _steps(self, text: str) -> tuple[str, ...]:
        try:
            steps = json.loads(text)
        except ValueError as error:
            problem = f"transforms that do not parse ({error})"
            raise DamagedFileError(self.path, "measurement store", problem) from None
        if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
            problem = "transforms that are no list of texts"
            raise DamagedFileError(self.path, "measurement store", problem)
        return tuple(steps)

    def _one(self, sql: str, values: tuple[object, ...]) -> tuple[Any, ...] | None:
        with self._lock, self._errors():
            row: tuple[Any, ...] | None = self._connect().execute(sql, values).fetchone()
            return row

    def _all(self, sql: str) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            return self._connect().execute(sql).fetchall()

    def _write(self, sql: str, values: tuple[object, ...]) -> None:
        with self._lock, self._errors():
            self._connect().execute(sql, values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as ours: a full or forbidden disk is no damage."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "").startswith(
                ("SQLITE_CORRUPT", "SQLITE_NOTADB")
            ):
                raise DamagedFileError(self.path, "measurement store", str(error)) from None
            raise EvaluationError(
                f"store {self.path}: {error}; what was stored before is safe. "
                "Free space or give another store path"
            ) from None
        except sqlite3.DatabaseError as error:
            raise DamagedFileError(self.path, "measurement store", str(error)) from None

    def _record(self, row: tuple[Any, ...]) -> Record:
        try:
            context = _context(*row[:5])
            key, level, status, message, gate, measured, slowdown = row[5:]
            record = Record(
                context,
                key,
                Level(level),
                Status(status),
                message,
                None if gate is None else _gate(json.loads(gate)),
                None if measured is None else _measurement(json.loads(measured)),
                slowdown,
            )
            record.evaluation("")  # a row that no evaluation can be made of was not written here
        except InvalidValueError:
            problem = f"a row that cannot be: {status}, with the wrong parts for that"
            raise DamagedFileError(self.path, "measurement store", problem) from None
        except (ValueError, TypeError, KeyError) as error:
            problem = f"a row that does not parse ({error})"
            raise DamagedFileError(self.path, "measurement store", problem) from None
        return record


_SELECT = (
    "SELECT workload, target, versions, machine, protocol, key, level, status, message, gate, "
    "measurement, slowdown FROM verdicts"
)
_PUT = (
    f"INSERT INTO verdicts VALUES ({', '.join('?' * 12)}) ON CONFLICT DO UPDATE SET "
    "status = excluded.status, message = excluded.message, gate = excluded.gate, "
    "measurement = excluded.measurement, slowdown = excluded.slowdown "
    f"WHERE status NOT IN ({', '.join(repr(str(s)) for s in sorted(SETTLED))})"
)
_PROGRAMS = (
    "SELECT workload, target, versions, ir_key, code_key, transforms FROM programs "
    "LEFT JOIN codes USING (workload, target, versions, ir_key) "
    "ORDER BY workload, target, versions, ir_key"
)
_WHERE = "WHERE (workload, target, versions, machine, protocol, key, level) = (?, ?, ?, ?, ?, ?, ?)"


def _columns(context: Context) -> tuple[object, ...]:
    c = context
    return (c.workload, c.target_text, c.versions, c.machine, c.protocol)


def _context(workload: str, target: str, versions: str, machine: str, protocol: int) -> Context:
    return Context(workload, _target(target), versions, machine, protocol)


def _target(text: str) -> Target:
    backend, arch, threads = text.split(" ")
    return Target(backend, arch, int(threads))


def _gate(data: dict[str, Any]) -> GateReport:
    return GateReport(**{**data, "regimes": tuple(data["regimes"])})


def _measurement(data: dict[str, Any]) -> Measurement:
    names = {f.name for f in fields(Measurement)}
    if set(data) != names:
        raise ValueError(f"measurement fields {sorted(data)}")
    return Measurement(
        **{
            **data,
            "candidate": TimingStats(**data["candidate"]),
            "baseline": TimingStats(**data["baseline"]),
            "speedup_ci": tuple(data["speedup_ci"]),
        }
    )


def open_store(store: Store | str | os.PathLike[str]) -> Store:
    """A store given as itself, as a path, or as ":memory:"; raises InvalidValueError otherwise."""
    if isinstance(store, Store):
        return store
    if isinstance(store, str | os.PathLike):
        return Store(store)
    raise InvalidValueError("store", store, 'a path, ":memory:" or a Store')
