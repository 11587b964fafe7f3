"""`require_serve`: what the service and its client need beyond the core install."""

from __future__ import annotations

from importlib.util import find_spec

from tirgym.errors import MissingExtraError

__all__ = ["require_client", "require_serve"]

_PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
}
"""Module → the package that brings it."""


def require_serve(what: str) -> None:
    """Raise MissingExtraError unless everything that a service needs is installed; imports nothing."""
    for module, package in _PACKAGES.items():
        _require(what, module, package)


def require_client(what: str) -> None:
    """Raise MissingExtraError unless everything that a client over HTTP needs is installed."""
    _require(what, "httpcore", "httpcore")


def _require(what: str, module: str, package: str) -> None:
    if find_spec(module) is None:
        raise MissingExtraError(what, package, "serve")
