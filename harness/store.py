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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from tirgym.errors import DamagedFileError, EvaluationError, InvalidValueError
from tirgym.harness.evaluation import Level
from tirgym.harness.shipped_store import is_shipped
from tirgym.harness.status import Status
from tirgym.harness.store_records import (
    PROTOCOL_VERSION,
    SETTLED,
    Answers,
    Context,
    Record,
    StoredProgram,
    StoredWalk,
    columns_of,
    path_text,
    read_context,
    read_path,
    read_record,
    read_steps,
    read_target,
)
from tirgym.harness.store_schema import OLDEST_VERSION, SCHEMA_VERSION, prepare

__all__ = [
    "PROTOCOL_VERSION",
    "SCHEMA_VERSION",
    "SETTLED",
    "Context",
    "Record",
    "Store",
    "StoredProgram",
    "StoredWalk",
    "open_store",
]

T = TypeVar("T")

_BUSY_S = 60.0
_RETRY_S = 0.01


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
        if self._layout() < 2:
            return None
        row = self._one(
            "SELECT transforms FROM programs WHERE (workload, target, versions, ir_key) "
            "= (?, ?, ?, ?)",
            (context.workload, context.target_text, context.versions, ir_key),
        )
        return None if row is None else self._parsed(read_steps, row[0])

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
        if self._layout() < 2:
            return
        for workload, target, versions, ir_key, code_key, transforms in self._all(_PROGRAMS):
            key = code_key or f"ir:{ir_key}"
            steps = self._parsed(read_steps, transforms)
            yield StoredProgram(workload, read_target(target), versions, ir_key, key, steps)

    def put_walk(self, context: Context, path: Answers, ir_key: str, source: str) -> None:
        """Remember the answers that lead to a program; whoever came to them first stays the source."""
        self._write(
            "INSERT OR IGNORE INTO walks VALUES (?, ?, ?, ?, ?, ?)",
            (
                context.workload,
                context.target_text,
                context.versions,
                path_text(path),
                ir_key,
                source,
            ),
        )

    def walks(self, context: Context) -> list[StoredWalk]:
        """Every walk under `context`, sorted by its text; with the verdict of `context`'s machine.

        Where there are verdicts of both levels, a settled one is named before one that is not.
        """
        if self._layout() < 3:
            return []
        c = context
        place = (c.machine, c.protocol, c.workload, c.target_text, c.versions)
        found: dict[str, StoredWalk] = {}
        for text, ir_key, source, status in self._all(_WALKS, place):
            path = self._parsed(read_path, text)
            walk = StoredWalk(path, ir_key, source, status and self._parsed(Status, status))
            if text not in found or not found[text].settled:
                found[text] = walk
        return list(found.values())

    def notes(self) -> dict[str, str]:
        """What was noted about the whole file, by name."""
        return dict(self._all("SELECT name, value FROM meta WHERE name <> 'schema'"))

    def note(self, name: str, text: str) -> None:
        """Note something about the whole file; "schema" is taken."""
        if name == "schema":
            raise InvalidValueError("name of a note", name, "any other")
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, text))

    def get(self, context: Context, key: str, level: Level) -> Record | None:
        """The verdict on `key` at exactly `level`."""
        row = self._one(f"{_SELECT} {_WHERE}", (*columns_of(context), key, str(level)))
        return None if row is None else self._parsed(read_record, row)

    def put(self, record: Record) -> Record:
        """Write a verdict unless there is a settled one; answers the one that the store now holds."""
        c, measured = record.context, record.measurement
        values = (
            *columns_of(c),
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
            yield self._parsed(read_record, row)

    def contexts(self) -> list[Context]:
        """Every (workload, target, versions, machine, protocol) there is a verdict for, sorted."""
        columns = "workload, target, versions, machine, protocol"
        rows = self._all(f"SELECT DISTINCT {columns} FROM verdicts ORDER BY {columns}")
        return [read_context(*row) for row in rows]

    def __len__(self) -> int:
        row = self._one("SELECT count(*) FROM verdicts", ())
        return 0 if row is None else int(row[0])

    def compact(self) -> None:
        """Make one small file of it, which opens from read-only media too."""
        with self._lock, self._errors():
            self._connect().execute("PRAGMA journal_mode = DELETE")
            self._connect().execute("VACUUM")

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
        try:
            _write_ahead(made)
            made.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            made.close()
            raise
        return made

    def _layout(self) -> int:
        """Of the file: an old one that must not be changed lacks tables."""
        with self._lock, self._errors():
            self._connect()
            return self._schema or 0

    def _parsed(self, parse: Callable[[Any], T], row: Any) -> T:
        try:
            return parse(row)
        except (ValueError, TypeError, KeyError) as error:
            problem = f"a row that does not parse ({error})"
            raise DamagedFileError(self.path, "measurement store", problem) from None

    def _one(self, sql: str, values: tuple[object, ...]) -> tuple[Any, ...] | None:
        with self._lock, self._errors():
            row: tuple[Any, ...] | None = self._connect().execute(sql, values).fetchone()
            return row

    def _all(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            return self._connect().execute(sql, values).fetchall()

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
            if os.path.isdir(self.path):
                accepted = "a file, not a folder"
                raise InvalidValueError("store", str(self.path), accepted) from None
            raise EvaluationError(
                f"store {self.path}: {error}; what was stored before is safe. "
                "Free space or give another store path"
            ) from None
        except sqlite3.DatabaseError as error:
            raise DamagedFileError(self.path, "measurement store", str(error)) from None


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
_WALKS = (
    "SELECT answers, walks.ir_key, source, status FROM walks "
    "LEFT JOIN codes USING (workload, target, versions, ir_key) "
    "LEFT JOIN verdicts ON (verdicts.workload, verdicts.target, verdicts.versions, machine, protocol, "
    "key) = (walks.workload, walks.target, walks.versions, ?, ?, "
    "coalesce(code_key, 'ir:' || walks.ir_key)) "
    "WHERE (walks.workload, walks.target, walks.versions) = (?, ?, ?) ORDER BY answers"
)
_WHERE = "WHERE (workload, target, versions, machine, protocol, key, level) = (?, ?, ?, ?, ?, ?, ?)"


def _write_ahead(database: sqlite3.Connection) -> None:
    """Switch the file to WAL; raises sqlite3.OperationalError when it stays locked for `_BUSY_S`.

    SQLite does not wait here itself: the switch turns a shared lock into an exclusive one, and of
    several processes that open a new file at once, each would wait for the others.
    """
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            locked = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
            if not locked or time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_S)


def open_store(store: Store | str | os.PathLike[str]) -> Store:
    """A store given as itself, as a path, or as ":memory:"; raises InvalidValueError otherwise."""
    if isinstance(store, Store):
        return store
    if is_shipped(store):
        accepted = 'a path: a store that ships is only read, with reward="replay"'
        raise InvalidValueError("store", store, accepted)
    if isinstance(store, str | os.PathLike):
        return Store(store)
    raise InvalidValueError("store", store, 'a path, ":memory:" or a Store')
