"""A released suite is never edited: its kernels, splits, shapes and IR are pinned by one digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import tvm_ffi

from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.problem import build_of
from tirgym.kernels_suite.registry import list_kernels, split_of

RELEASED = {"core-v0": "fe96c3c3e5d373a3", "triton-v0": "a45106a390617c08"}
"""A change here means that published results no longer compare: make a new suite instead."""


def _rows(suite: str) -> list[Any]:
    rows: list[Any] = []
    for kernel in list_kernels(suite):
        shapes = [dict(s) for s in (*kernel.train, *kernel.holdout, kernel.tiny_shape)]
        ir = tvm_ffi.structural_hash(build_of(Workload.of(kernel))) & (2**64 - 1)
        rows.append([kernel.name, kernel.family, split_of(kernel), kernel.dtype, shapes, ir])
    return sorted(rows)


@pytest.mark.parametrize("suite", RELEASED)
def test_released_suites_are_not_edited(suite: str) -> None:
    text = json.dumps(_rows(suite), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == RELEASED[suite]
