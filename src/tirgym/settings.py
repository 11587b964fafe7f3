"""Environment variables, read here and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = [
    "c_compiler",
    "cache_dir",
    "data_dir",
    "debug",
    "default_home",
    "default_threads",
    "freeze_collector",
    "serve_token",
    "store_path",
]


def data_dir() -> Path:
    """Folder of the measurement store: TIRGYM_HOME, else the user's data folder."""
    home = os.environ.get("TIRGYM_HOME")
    if home:
        return Path(home)
    import platformdirs

    return Path(platformdirs.user_data_dir("tirgym"))


def default_home(folder: Path) -> None:
    """Use `folder` for data and cache where TIRGYM_HOME names none, here and in processes below."""
    os.environ.setdefault("TIRGYM_HOME", str(folder))


def cache_dir() -> Path:
    """Folder for what can be made again: in TIRGYM_HOME, else the user's cache folder."""
    home = os.environ.get("TIRGYM_HOME")
    if home:
        return Path(home) / "cache"
    import platformdirs

    return Path(platformdirs.user_cache_dir("tirgym"))


def store_path() -> Path:
    """Default measurement store (SQLite)."""
    return data_dir() / "store.sqlite"


def default_threads() -> int:
    """Threads of the default track: 1, which is stable."""
    return 1


def debug() -> bool:
    """Whether errors show their traceback: TIRGYM_DEBUG set to anything but "" or "0"."""
    return os.environ.get("TIRGYM_DEBUG", "") not in ("", "0")


def freeze_collector() -> bool:
    """Whether what the compiler's import leaves is kept from the garbage collector, which is faster:
    TIRGYM_GC_FREEZE set to anything but "0"."""
    return os.environ.get("TIRGYM_GC_FREEZE", "1") != "0"


def serve_token() -> str | None:
    """Token that `tirgym serve` asks for and its clients send: TIRGYM_SERVE_TOKEN, None for none."""
    return os.environ.get("TIRGYM_SERVE_TOKEN") or None


def c_compiler() -> str | None:
    """Command of the C compiler that links exported libraries: CC, None to look for one."""
    return os.environ.get("CC") or None
