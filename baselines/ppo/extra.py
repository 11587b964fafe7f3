"""`require_rl`: what learned policies need beyond the core install."""

from __future__ import annotations

from importlib.util import find_spec

from tirgym.errors import MissingExtraError

__all__ = ["require_rl"]

_PACKAGES = {
    "torch": "torch",
    "stable_baselines3": "stable-baselines3",
    "sb3_contrib": "sb3-contrib",
    "torch_geometric": "torch-geometric",
    "safetensors": "safetensors",
}
"""Module → the package that brings it."""


def require_rl(what: str) -> None:
    """Raise MissingExtraError unless everything that `what` needs is installed; imports nothing."""
    for module, package in _PACKAGES.items():
        if find_spec(module) is None:
            raise MissingExtraError(what, package, "rl")
