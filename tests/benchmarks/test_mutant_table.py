"""The literal table covers the suite, and says the truth about what is left out."""

from __future__ import annotations

import pytest

from tirgym.benchmarks.gate_selftest import start_of
from tirgym.benchmarks.mutant_table import (
    COLUMNS,
    NOTHING_TO_BREAK,
    SAME_MEANING,
    TABLE,
    kinds_of,
    skips_of,
)
from tirgym.errors import UnknownNameError
from tirgym.harness.mutants import KINDS, mutate
from tirgym.kernels_suite.registry import list_kernels


def test_every_kernel_of_the_suite_has_a_row() -> None:
    assert sorted(TABLE) == sorted(k.name for k in list_kernels("core-v0"))


def test_every_kind_has_a_column() -> None:
    assert sorted(COLUMNS) == sorted(KINDS)


@pytest.mark.parametrize("kernel", TABLE)
def test_row_is_complete(kernel: str) -> None:
    assert sorted([*kinds_of(kernel), *skips_of(kernel)]) == sorted(COLUMNS)
    assert len(kinds_of(kernel)) >= 5


@pytest.mark.parametrize("kernel", TABLE)
def test_mutators_agree_with_the_row(kernel: str) -> None:
    mod = start_of(kernel).mod
    made = {kind for kind in COLUMNS if mutate(kind, mod) is not None}
    same_meaning = {k for k, why in skips_of(kernel).items() if why in SAME_MEANING.values()}
    assert made == {*kinds_of(kernel), *same_meaning}


def test_reasons_have_one_letter_each_and_none_is_unused() -> None:
    assert not set(NOTHING_TO_BREAK) & set(SAME_MEANING)
    used = set("".join(TABLE.values())) - {"x", " "}
    assert used == {*NOTHING_TO_BREAK, *SAME_MEANING}


def test_unknown_kernel_is_named() -> None:
    with pytest.raises(UnknownNameError, match="kernel with mutants 'matmull'"):
        kinds_of("matmull")
