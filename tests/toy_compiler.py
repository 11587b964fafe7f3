"""Plugin: the toy compiler of `toy.py`, for tests that ask for it."""

from __future__ import annotations

import pytest

from tirgym.harness import transforms
from tirgym.harness.backend import BACKENDS
from tirgym.harness.decisions import SPACES
from tirgym.spaces.graph import ENCODERS


@pytest.fixture
def toy_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the toy in the tables of backends, encoders and design spaces."""
    monkeypatch.setitem(BACKENDS, "toy", "toy:ToyBackend")
    monkeypatch.setitem(ENCODERS, "toy", "toy:ToyEncoder")
    monkeypatch.setitem(SPACES, "toy", "toy:ToySpace")


@pytest.fixture
def toy_transforms(toy_compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the toy's transform in the table as well, so that its traces replay."""
    installed = transforms._installed()
    monkeypatch.setattr(transforms, "_installed", lambda: {**installed, "Turn": "toy:Turn"})
