"""How well models rank programs of kernels that they did not learn from, beside the static cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tirgym.errors import InvalidValueError
from tirgym.kernels_suite.kernel import Split
from tirgym.performance_model.dataset import Dataset, Sample
from tirgym.performance_model.learner import make_learner
from tirgym.performance_model.model import PerformanceModel
from tirgym.performance_model.scores import Prediction, Score, mean_score, score
from tirgym.performance_model.training import FEWEST_FAMILIES, FEWEST_PROGRAMS, encode, train
from tirgym.performance_model.view import view_of

__all__ = [
    "FEWEST",
    "WorkloadReport",
    "held_out",
    "leave_one_out",
    "means",
    "require_each_can_be_left_out",
]

FEWEST = 8
"""Programs of a workload below which it has no score."""


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """One workload whose family the model did not see."""

    workload: str
    """URI"""
    kernel: str
    family: str
    split: str
    model: Score
    static: Score
    """of the static cost, on the same programs"""


def held_out(model: PerformanceModel, dataset: Dataset) -> list[WorkloadReport]:
    """The workloads of families that `model` did not learn from, by URI.

    None where it learned from all families of the store.
    """
    samples = [s for s in dataset.samples if s.family not in model.header.families]
    return [_report(model, group) for group in _by_workload(samples)]


def leave_one_out(
    dataset: Dataset,
    kind: str = "trees",
    seed: int = 0,
    on_family: Callable[[int, int], None] | None = None,
) -> list[WorkloadReport]:
    """Each family judged by a model that learned from all others; sorted by family, then URI.

    Raises what `require_each_can_be_left_out` raises, before anything is trained.
    """
    require_each_can_be_left_out(dataset)
    encoding = encode(dataset.samples, make_learner(kind))
    families = sorted({sample.family for sample in dataset.samples})
    rows: list[WorkloadReport] = []
    for number, family in enumerate(families):
        others = [other for other in families if other != family]
        model = train(dataset, kind, seed, others, encoding=encoding)
        own = [sample for sample in dataset.samples if sample.family == family]
        rows += [_report(model, group) for group in _by_workload(own)]
        if on_family is not None:
            on_family(number + 1, len(families))
    return rows


def require_each_can_be_left_out(dataset: Dataset) -> None:
    """Raise InvalidValueError unless enough to learn from is left without any one family."""
    programs = Counter(sample.family for sample in dataset.samples)
    for family, own in sorted(programs.items()):
        rest, others = programs.total() - own, len(programs) - 1
        if rest < FEWEST_PROGRAMS or others < FEWEST_FAMILIES:
            found = f"{rest} programs of {others} families without {family}"
            accepted = (
                f"at least {FEWEST_PROGRAMS} measured programs of {FEWEST_FAMILIES} families "
                "without any one; tirgym model record --store STORE adds some"
            )
            raise InvalidValueError("store to leave families out of", found, accepted)


def means(rows: Sequence[WorkloadReport]) -> dict[str, Any]:
    """Mean scores over the workloads of all rows and of each split, as JSON values.

    Raises InvalidValueError without rows.
    """
    if not rows:
        accepted = f"a store with at least {FEWEST} programs of a kernel of a held-out family"
        raise InvalidValueError("workloads to report on", "none", accepted)
    groups: Mapping[str, Sequence[WorkloadReport]] = {
        "all": rows,
        **{split.value: [row for row in rows if row.split == split.value] for split in Split},
    }
    return {
        name: {
            "workloads": len(group),
            "model": asdict(mean_score([row.model for row in group])),
            "static": asdict(mean_score([row.static for row in group])),
        }
        for name, group in groups.items()
        if group
    }


def _by_workload(samples: Iterable[Sample]) -> list[list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.workload.uri, []).append(sample)
    return [group for _, group in sorted(groups.items()) if len(group) >= FEWEST]


def _report(model: PerformanceModel, samples: Sequence[Sample]) -> WorkloadReport:
    workload, programs = samples[0].workload, [sample.program for sample in samples]
    measured = np.array([sample.log_speedup for sample in samples])
    cut_off = np.array([sample.cut_off for sample in samples], dtype=np.bool_)
    prediction: Prediction = model.predict(programs)
    static = -np.array([view_of(program).cost[0] for program in programs])
    offset = float(model.start_cost(programs[0]))
    return WorkloadReport(
        workload=workload.uri,
        kernel=workload.kernel.name,
        family=workload.kernel.family,
        split=samples[0].split.value,
        model=score(measured, cut_off, prediction.expected, prediction),
        static=score(measured, cut_off, static + offset, None),
    )
