"""The soundness study tells right from wrong, and the step profile adds up."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from tirgym.benchmarks.soundness import _difference


def test_difference_sees_wrong_elements_and_leaves_rounding_alone() -> None:
    right = np.linspace(-1, 1, 100, dtype=np.float32)
    assert _difference(right * np.float32(1 + 1e-6), right) == ""
    wrong = right.copy()
    wrong[7] = np.nan
    assert _difference(wrong, right).startswith("1 of 100 elements differ, 1 NaN")
    assert _difference(np.array([1, 2, 3]), np.array([1, 2, 4])) == "1 of 3 elements differ"


def study(options: str) -> dict[str, int]:
    """The counts, from a process of its own: it forks, which a process that has threads must not do."""
    answer = subprocess.run(
        [sys.executable, "-m", "tirgym.benchmarks.soundness", *options.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    counts: dict[str, int] = json.loads(answer.stdout.splitlines()[-1])
    return counts


def test_random_schedules_of_two_kernels_are_right() -> None:
    found = study("--schedules 6 --kernels softmax,matmul_bias_gelu --seed 3")
    assert found == {"schedules": 6, "ok": 6}


def test_random_schedules_for_a_gpu_are_right() -> None:
    found = study("--backend cuda --schedules 8 --depth 6 --kernels matmul,tiled_product --seed 3")
    assert found["ok"] + found.get("refused", 0) == 8
