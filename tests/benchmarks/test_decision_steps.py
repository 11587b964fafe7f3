"""The benchmark of decision steps counts what it says."""

from __future__ import annotations

from tirgym.benchmarks.decision_steps import steps


def test_reports_are_complete_and_costs_change_no_question() -> None:
    plain, priced = (steps("softmax", 2, costs) for costs in (False, True))
    assert (plain.kernel, plain.episodes, plain.candidate_costs) == ("softmax", 2, False)
    assert plain.steps_per_episode == priced.steps_per_episode > 3
    assert plain.options_per_step == priced.options_per_step >= 2
    for report in (plain, priced):
        assert 0 < report.step_median_ms <= report.step_p95_ms
    assert priced.candidate_costs
