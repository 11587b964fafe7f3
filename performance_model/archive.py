"""A trained model as one file: a ZIP archive of a JSON header and of plain arrays, never of code."""

from __future__ import annotations

import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Mapping

from tirgym.errors import DamagedFileError
from tirgym.harness.whole_file import write_whole

__all__ = ["read_archive", "write_archive"]

_WHAT = "performance model"
_MOST_BYTES = 256 << 20
"""Unpacked; a file that claims more was not written here."""
_DAMAGED = (
    zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, lzma.LZMAError, zlib.error
)  # fmt: skip
"""What `zipfile` raises for bytes that are no archive; ValueError for names that are no UTF-8."""


def write_archive(path: str | os.PathLike[str], files: Mapping[str, bytes]) -> None:
    """Write `files` by name, whole or not at all: a crash leaves the old file or none.

    The same files make the same bytes.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    write_whole(path, packed.getvalue())


def read_archive(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The files of an archive; raises DamagedFileError for a missing, damaged or huge one."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > _MOST_BYTES:
                problem = f"{size >> 20} MiB unpacked, {_MOST_BYTES >> 20} at most"
                raise DamagedFileError(str(path), _WHAT, problem)
            return {info.filename: archive.read(info) for info in archive.infolist()}
    except FileNotFoundError:
        problem = "there is no such file; `tirgym model train --out MODEL` writes one"
        raise DamagedFileError(str(path), _WHAT, problem) from None
    except OSError as error:
        raise DamagedFileError(str(path), _WHAT, error.strerror or str(error)) from None
    except _DAMAGED as error:
        raise DamagedFileError(str(path), _WHAT, str(error)) from None
