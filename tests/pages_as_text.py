"""Pages read as text, and what holds for every page that is one file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection
from html.parser import HTMLParser

__all__ = ["Tags", "assert_sealed", "parsed"]


class Tags(HTMLParser):
    """Elements with their attributes, and the text of script and style elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style"):
            self.scripts.append(data)


def parsed(text: str) -> Tags:
    """The elements of a page."""
    tags = Tags()
    tags.feed(text)
    tags.close()
    return tags


def assert_sealed(text: str, loading: Collection[str]) -> None:
    """Nothing is loaded by an attribute of `loading`, and only the script that was shipped runs."""
    tags = parsed(text)
    assert not [a for _, a in tags.found if set(loading) & set(a)]
    assert not [key for _, attributes in tags.found for key in attributes if key.startswith("on")]
    policy = next(
        a["content"] for _, a in tags.found if a.get("http-equiv") == "Content-Security-Policy"
    )
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for forbidden in ("innerHTML", "outerHTML", "document.write", "insertAdjacent", "eval("):
        assert forbidden not in script
