"""`tirgym show` and `tirgym profile` of GPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tirgym.harness.backends import triton as triton_backend

Cli = Callable[..., Any]
KERNEL = ("softmax", "--backend", "triton", "--shape", "m=16,n=256")

needs_triton = pytest.mark.skipif(
    triton_backend.TritonBackend().why_unavailable() is not None,
    reason="needs triton: pip install 'tirgym[triton]'",
)


@needs_triton
@pytest.mark.parametrize(
    ("level", "arch", "mark"),
    [
        ("python", "sm_90", "@triton.jit"),
        ("ttir", "gfx942", "tt.load"),
        ("ttgir", "sm_80", "#ttg.blocked"),
        ("sass", "sm_90", "EXIT"),
    ],
)
def test_show_prints_any_level(cli: Cli, level: str, arch: str, mark: str) -> None:
    shown = cli("show", *KERNEL, "--arch", arch, "--level", level)
    assert shown.code == 0
    assert mark in shown.out


@needs_triton
def test_show_says_what_is_there(cli: Cli) -> None:
    refused = cli("show", *KERNEL, "--arch", "gfx942", "--level", "sass")
    assert refused.code == 2
    assert "Accepted: python, ttir, ttgir, llir, amdgcn" in refused.err
    refused = cli("show", "core-v0/relu", "--backend", "triton", "--arch", "sm_90")
    assert "a kernel with a Triton source" in refused.err
    refused = cli("show", *KERNEL, "--arch", "sm_91")
    assert "Accepted: sm_80, sm_90" in refused.err


@needs_triton
def test_profile_prints_tables_and_json(cli: Cli) -> None:
    told = cli("profile", *KERNEL, "--arch", "sm_90")
    assert told.code == 0
    for what in ("registers", "occupancy", "roofline", "predicted time", "tt.load"):
        assert what in told.out
    assert "not run: code for sm_90 cannot run here" in told.err
    record = cli("profile", *KERNEL, "--arch", "sm_90", "--json").json()
    assert record["profile"]["programs"] == 16
    assert record["profile"]["accesses"][0]["tensor"] == "x"


SEARCH = ("optimize", "softmax", "--backend", "triton", "--arch", "sm_90", "--shape", "m=64,n=1024")


@needs_triton
def test_optimize_predicts_and_says_that_it_does(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    told = cli(*SEARCH, "--agent", "random", "--trials", "2", "--out", out)
    assert told.code == 0
    assert "not measured: no device" in told.out
    assert "semantic_only" in told.err
    verified = cli("verify", out, "--json")
    assert verified.code == 1
    assert verified.json()["verified"]["status"] == "semantic_only"
    assert verified.json()["same_code"]
    assert "not passed: semantic_only: right as executed" in verified.err
    refused = cli("compare", out, out)
    assert refused.code == 2
    assert "a backend that measures" in refused.err


@needs_triton
def test_greedy_climbs_by_predictions(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    options = ("--agent", "greedy", "--option", "tries=2", "--trials", "2", "--out", out)
    record = cli(*SEARCH, *options, "--json").json()
    assert (record["status"], record["speedup"], record["best_us"]) == ("semantic_only", None, None)
    assert record["predicted_speedup"] >= 1.0
    assert record["predicted_us"] > 0
    replayed = cli("replay", out, "--no-measure", "--json").json()
    assert replayed["transforms"] == record["trace"]


@needs_triton
def test_a_beam_is_refused_where_every_prediction_compiles(cli: Cli) -> None:
    refused = cli(*SEARCH, "--agent", "beam", "--trials", "2")
    assert refused.code == 2
    assert "expected greedy or random" in refused.err
    assert "Traceback" not in refused.err


def test_without_triton_one_line_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tirgym.harness import backend

    monkeypatch.setattr(triton_backend, "find_spec", lambda _: None)
    monkeypatch.setattr(backend, "_made", {})
    refused = cli("show", *KERNEL, "--arch", "sm_90")
    assert refused.code == 2
    assert "pip install 'tirgym[triton]'" in refused.err
    assert refused.err.count("\n") == 1
