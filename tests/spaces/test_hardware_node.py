"""The hardware node is a function of the target alone."""

from __future__ import annotations

import pytest

from tirgym.harness.target import Target
from tirgym.spaces.graph import FEATURES, NodeType
from tirgym.spaces.hardware import hardware_features, log_size

NAMES = FEATURES[NodeType.HARDWARE]


def named(target: Target) -> dict[str, float]:
    return dict(zip(NAMES, hardware_features(target), strict=True))


@pytest.mark.parametrize(
    ("arch", "vector_bytes"), [("skylake-avx512", 64), ("haswell", 32), ("x86-64", 16)]
)
def test_vector_width_follows_the_architecture(arch: str, vector_bytes: int) -> None:
    found = named(Target("llvm", arch, 1))
    assert found["log_vector_bytes"] == log_size(vector_bytes)
    assert found["llvm"] == 1.0
    assert sum(found[name] for name in NAMES[:6]) == 1.0


def test_threads_and_backends_differ() -> None:
    one, four = (named(Target("llvm", "haswell", n)) for n in (1, 4))
    assert {name for name in NAMES if one[name] != four[name]} == {"log_threads"}
    assert named(Target("cuda", "sm_90", 1))["cuda"] == 1.0
    assert named(Target("elsewhere", "haswell", 1))["other_backend"] == 1.0
