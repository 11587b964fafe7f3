"""Schedules that a program hands out are private: TVM must not change shared IR in place."""

from __future__ import annotations

from handmade import start


def test_a_schedule_whose_program_is_gone_does_not_change_the_cached_build() -> None:
    for _ in range(3):
        schedule = start().schedule  # the program ends here, which leaves its IR one owner fewer
        loops = schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0])
        assert len(loops) == 2
        schedule.split(loops[0], [None, 8])
