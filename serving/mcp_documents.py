"""The documents that come with the package, by name."""

from __future__ import annotations

from importlib.metadata import metadata
from importlib.resources import files

from tirgym.errors import UnknownNameError

__all__ = ["README", "document", "document_names", "document_title"]

README = "readme"
_SUFFIX = ".md"


def document_names() -> tuple[str, ...]:
    """Names that `document` takes."""
    found = (each.name for each in files("tirgym.docs").iterdir())
    names = sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))
    return (README, *names)


def document(name: str) -> str:
    """A document as Markdown; raises UnknownNameError."""
    names = document_names()
    if name not in names:
        raise UnknownNameError("document", name, names)
    if name == README:
        about = metadata("tirgym")
        return str(about.get("Description") or about.get_payload())  # type: ignore[attr-defined]
    return files("tirgym.docs").joinpath(name + _SUFFIX).read_text(encoding="utf-8")


def document_title(name: str) -> str:
    """The first heading of a document."""
    lines = document(name).splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), name)
