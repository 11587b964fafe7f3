"""`is_http_address`: whether a client could be pointed at a text at all."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["is_http_address"]


def is_http_address(url: str) -> bool:
    """Whether `url` is http or https, in one line, and names a host that can be looked up and a port
    that can be."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # an empty label, or one that is too long
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and url.isprintable()
        )
    except ValueError:  # an open bracket, no such port
        return False
