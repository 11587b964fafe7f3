"""Tables of the measurement store: their layout, its versions, and the way from one to the next."""

from __future__ import annotations

import sqlite3

__all__ = ["OLDEST_VERSION", "SCHEMA_VERSION", "prepare"]

SCHEMA_VERSION = 3
"""Layout of the tables: 2 keeps the transforms of every program, 3 the answers that led to it."""
OLDEST_VERSION = 1
"""Oldest layout that still opens; when it is opened for writing it becomes the newest."""

_FIRST = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE codes (
        workload TEXT NOT NULL, target TEXT NOT NULL, versions TEXT NOT NULL, ir_key TEXT NOT NULL,
        code_key TEXT NOT NULL,
        PRIMARY KEY (workload, target, versions, ir_key)
    ) WITHOUT ROWID""",
    """CREATE TABLE verdicts (
        workload TEXT NOT NULL, target TEXT NOT NULL, versions TEXT NOT NULL, machine TEXT NOT NULL,
        protocol INTEGER NOT NULL, key TEXT NOT NULL, level TEXT NOT NULL,
        status TEXT NOT NULL, message TEXT NOT NULL, gate TEXT, measurement TEXT, slowdown REAL,
        PRIMARY KEY (workload, target, versions, machine, protocol, key, level)
    ) WITHOUT ROWID""",
    "INSERT INTO meta VALUES ('schema', '1')",
)
_CHANGES = {
    2: (
        """CREATE TABLE programs (
        workload TEXT NOT NULL, target TEXT NOT NULL, versions TEXT NOT NULL, ir_key TEXT NOT NULL,
        transforms TEXT NOT NULL,
        PRIMARY KEY (workload, target, versions, ir_key)
    ) WITHOUT ROWID""",
    ),
    3: (
        """CREATE TABLE walks (
        workload TEXT NOT NULL, target TEXT NOT NULL, versions TEXT NOT NULL, answers TEXT NOT NULL,
        ir_key TEXT NOT NULL, source TEXT NOT NULL,
        PRIMARY KEY (workload, target, versions, answers)
    ) WITHOUT ROWID""",
    ),
}
"""What makes each layout of the one before."""


def prepare(database: sqlite3.Connection, read_only: bool) -> int | None:
    """Make or renew the tables; answers the layout that the file then has.

    None for a database that is no store. A layout that is not known here is answered as it is, and
    nothing is changed. All or nothing: a process that dies in between leaves what there was.
    """
    if read_only or _version(database) == SCHEMA_VERSION:
        return _version(database)
    database.execute("BEGIN IMMEDIATE")  # two processes may make or renew the file at once
    try:
        if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
            _execute(database, _FIRST)
        found = _version(database)
        if found is not None and OLDEST_VERSION <= found < SCHEMA_VERSION:
            for version in range(found + 1, SCHEMA_VERSION + 1):
                _execute(database, _CHANGES[version])
            row = (str(SCHEMA_VERSION),)
            database.execute("UPDATE meta SET value = ? WHERE name = 'schema'", row)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return _version(database)


def _version(database: sqlite3.Connection) -> int | None:
    """The layout of the file; None without the tables of a store, 0 if it says none."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    if not database.execute(query).fetchone():
        return None
    row = database.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    return int(row[0]) if row is not None and str(row[0]).isdecimal() else 0


def _execute(database: sqlite3.Connection, statements: tuple[str, ...]) -> None:
    for statement in statements:
        database.execute(statement)
