"""The benchmark of latency: it asks every transport, and says by how much the wire is slower."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from services import POINT

from tirgym.errors import MissingExtraError
from tirgym.serving import extra
from tirgym.serving.latency import measure
from tirgym.serving.remote import RemoteAgent


def test_every_transport_is_measured_beside_the_call() -> None:
    command = [sys.executable, "-W", "error", "-m", "tirgym.serving.latency"]
    options = ["--kernel", "relu", "--rounds", "2", "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    call, stdio, http = json.loads(done.stdout)["transports"]
    assert [row["transport"] for row in (call, stdio, http)] == ["in process", "stdio", "http"]
    assert call["ratio"] == 1.0
    assert min(stdio["ratio"], http["ratio"]) > 1.0
    assert all(0 < row["median_ms"] <= row["p95_ms"] for row in (call, stdio, http))


def test_without_the_extra_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tirgym\[serve\]'"):
        measure([POINT], 1)
    with pytest.raises(MissingExtraError, match="a remote agent needs httpcore"):
        RemoteAgent("http://127.0.0.1:1")
