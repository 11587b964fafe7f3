"""`Workbench`: secret inputs and their pools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from handmade import SetTimer, workbench

from tirgym.harness.evaluation import Level
from tirgym.kernels_suite.kernel import Regime


def test_secret_and_public_seed_both_change_the_inputs(tmp_path: Path) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    base = bench.rng(Regime.NORMAL, "x").random()
    assert base == bench.rng(Regime.NORMAL, "x").random()
    assert base != bench.rng(Regime.NORMAL, "y").random()
    assert base != bench.rng(Regime.RAMP, "x").random()
    for change in ({"secret": b"other"}, {"seed": 1}):
        bench.rules = replace(bench.rules, **change)
        assert base != bench.rng(Regime.NORMAL, "x").random()


def test_pools_are_drawn_again_and_forget_old_inputs(tmp_path: Path) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    first, _ = bench.sets(Level.TRAINING, 0)
    again, _ = bench.sets(Level.TRAINING, 3)
    assert first[0] is again[0]
    later, _ = bench.sets(Level.TRAINING, 48)
    assert not np.array_equal(first[0].inputs[0], later[0].inputs[0])
    assert {epoch for _, epoch in bench.pool} == {1}
    full, timed = bench.sets(Level.FULL, 1)
    assert any(timed is s for s in full)
    assert not {id(s) for s in full} & {id(s) for s in bench.pool.values()}
