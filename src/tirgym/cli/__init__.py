"""The command line: one file per group of commands, `app.py` puts them together."""

from __future__ import annotations

from tirgym.cli.app import main

__all__ = ["main"]
