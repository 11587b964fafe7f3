"""Claims: 1.25 times the measured speedup is the limit, for every command that judges one."""

from __future__ import annotations

import math

import pytest

from tirgym.harness.speedup_claim import CLAIM_MARGIN, claim_holds


@pytest.mark.parametrize(
    ("claimed", "measured", "holds"),
    [
        (2.0, 2.0, True),
        (1.0, 2.0, True),
        (CLAIM_MARGIN * 2.0, 2.0, True),
        (2.6, 2.0, False),
        (1000.0, 2.0, False),
        (math.inf, 2.0, False),
        (math.nan, 2.0, False),
        (None, 2.0, None),
        (2.0, None, None),
        (None, None, None),
    ],
)
def test_a_claim_holds_up_to_the_margin(
    claimed: float | None, measured: float | None, holds: bool | None
) -> None:
    assert claim_holds(claimed, measured) is holds
