"""Claims beside their effect."""

from __future__ import annotations

import pytest

from tirgym.baselines.llm.claims import claims_of, summary


def line(
    number: int, base: int | None, predicted: float | None, measured: float | None
) -> dict[str, object]:
    status = "passed" if measured is not None else "crash"
    return {"number": number, "base": base, "actions": ["a = 1"], "why": "since", "status": status,
            "predicted_speedup": predicted, "speedup": measured}  # fmt: skip


LINES = [
    {"number": 0, "name": "unscheduled", "speedup": 1.0},
    {"number": 1, "name": "static", "speedup": 4.0},
    line(2, 1, 8.0, 6.0),  # promised twice as fast, got 1.5
    line(3, 1, 8.0, 3.0),  # got slower
    line(4, 1, 4.04, 4.0),  # no change promised, none got
    line(5, 1, 8.0, None),
    line(6, 1, None, 5.0),
    line(7, 5, 9.0, 5.0),
]


def test_each_claim_is_held_against_what_it_started_from() -> None:
    claims = claims_of(LINES)
    assert [claim.number for claim in claims] == [2, 3, 4, 5, 6, 7]
    assert (claims[0].predicted_gain, claims[0].measured_gain) == (2.0, 1.5)
    assert [claim.verdict for claim in claims] == [
        "right direction", "wrong direction", "right direction", "no number: crash",
        "no prediction", "base has no number",
    ]  # fmt: skip


def test_the_summary_counts_what_could_be_checked() -> None:
    found = summary(LINES)
    assert (found["made"], found["checked"], found["right_direction"]) == (6, 3, 2)
    assert found["median_factor_off"] == pytest.approx(8 / 6)
    assert (
        found["text"] == "2 of 3 right about the direction, off by a factor of 1.33 in the median"
    )
    assert summary(LINES[:2])["text"] == "none"
