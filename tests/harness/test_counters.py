"""Hardware counters: the kernel interface works; where there are none, a line says why."""

from __future__ import annotations

import errno
import mmap
import platform

import pytest

from tirgym.errors import InvalidValueError
from tirgym.harness import counters
from tirgym.harness.counters import HARDWARE, Counters, count, why_unavailable

SOFTWARE = {"task_clock_ns": (1, 1), "page_faults": (1, 2)}
"""Counted by the kernel itself, so virtual machines have them."""
linux = pytest.mark.skipif(platform.system() != "Linux", reason="perf_event_open is Linux")


def work(size: int) -> int:
    return sum(i * i for i in range(size))


@linux
def test_counts_grow_with_the_work() -> None:
    def touch_pages() -> None:
        with mmap.mmap(-1, 4096 * 200) as pages:
            for page in range(200):
                pages[page * 4096] = 1

    few = count(lambda: work(100), 20, SOFTWARE)
    many = count(lambda: work(20_000), 20, SOFTWARE)
    if isinstance(few, str) or isinstance(many, str):
        pytest.skip(f"no software counters: {few}")
    assert many.per_call["task_clock_ns"] > 5 * few.per_call["task_clock_ns"] > 0
    touched = count(touch_pages, 3, {"page_faults": SOFTWARE["page_faults"]})
    assert isinstance(touched, Counters)
    assert touched.per_call["page_faults"] >= 200


def test_hardware_counters_or_one_line_why_not() -> None:
    reason = why_unavailable()
    counted = count(lambda: work(10_000), 3)
    if reason is None:
        assert isinstance(counted, Counters)
        assert counted.per_call["cycles"] > 0
        assert counted.instructions_per_cycle is None or counted.instructions_per_cycle > 0
    else:
        assert "\n" not in reason
        assert isinstance(counted, str) or "cycles" not in counted.per_call


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.EACCES, "perf_event_paranoid"),
        (errno.EPERM, "perf_event_paranoid"),
        (errno.ENOENT, "no hardware counters"),
        (errno.EMFILE, "perf_event_open says"),
    ],
)
@linux
def test_the_reason_names_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, code: int, says: str
) -> None:
    def refuse(kind: int, config: int) -> int:
        raise OSError(code, "refused")

    monkeypatch.setattr(counters, "_open", refuse)
    reason = why_unavailable()
    assert reason is not None
    assert says in reason
    assert count(lambda: None) == reason


@linux
def test_counters_close_when_the_function_raises() -> None:
    def fail() -> None:
        raise KeyError("inside")

    import os

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError, match="inside"):
        count(fail, 1, SOFTWARE)
    assert len(os.listdir("/proc/self/fd")) == before


def test_repeats_must_be_positive() -> None:
    with pytest.raises(InvalidValueError, match="at least 1"):
        count(lambda: None, 0)


def test_instructions_per_cycle() -> None:
    assert Counters({"cycles": 2.0, "instructions": 6.0}, 1).instructions_per_cycle == 3
    assert Counters({"instructions": 6.0}, 1).instructions_per_cycle is None
    assert set(HARDWARE) >= {"cycles", "instructions", "cache_misses", "branch_misses"}
