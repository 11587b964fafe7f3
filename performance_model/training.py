"""`train`: from what a store holds to a `PerformanceModel`, with intervals from unseen families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.kernel import Split
from tirgym.performance_model.dataset import Dataset, Sample, versions_text
from tirgym.performance_model.header import Header, features_digest
from tirgym.performance_model.learner import Encoded, Examples, Learner, Member, make_learner
from tirgym.performance_model.model import PerformanceModel, spread
from tirgym.performance_model.view import ProgramView, view_of
from tirgym.whole_number import require_whole

__all__ = ["FEWEST_FAMILIES", "FEWEST_PROGRAMS", "LEVEL", "Encoding", "encode", "train"]

Vector = NDArray[np.float64]

FEWEST_PROGRAMS = 100
FEWEST_FAMILIES = 4
"""Kernel families at least: with fewer no interval could be vouched for at `LEVEL` (see `_doubts`)."""
MEMBERS = 5
_SEEDS = 2**32
"""Different seeds of a member: XGBoost reads no more bits than these."""
LEVEL = 0.8
"""Share of truths that intervals are meant to hold."""
FLOOR = 0.3
"""What members are unsure of even where they agree, in log-speedup; about a quarter of their usual
error on unseen families."""


@dataclass(frozen=True)
class Encoding:
    """Samples in the form of one learner, so that they are made once for several trainings."""

    samples: tuple[Sample, ...]
    programs: tuple[Encoded, ...]
    starts: tuple[Encoded, ...]
    workloads: NDArray[np.int64]
    """(samples,): index into `starts`"""
    static: Vector
    """(samples,): log-speedup by the static cost"""

    @property
    def measured(self) -> Vector:
        """(samples,): log-speedup."""
        return np.array([sample.log_speedup for sample in self.samples])

    @property
    def families(self) -> NDArray[np.str_]:
        """(samples,): kernel family."""
        return np.array([sample.family for sample in self.samples], dtype=np.str_)

    def examples(self, chosen: NDArray[np.bool_]) -> Examples:
        """What a member learns from the `chosen` (samples,) ones."""
        targets = (self.measured - self.static)[chosen]
        programs = [self.programs[i] for i in np.flatnonzero(chosen)]
        return Examples(programs, self.starts, self.workloads[chosen], targets)

    def opinion(self, member: Member, chosen: NDArray[np.bool_]) -> Vector:
        """Log-speedups of the `chosen` samples by one member."""
        programs = [self.programs[i] for i in np.flatnonzero(chosen)]
        starts = member.predict(self.starts)
        return member.predict(programs) - starts[self.workloads[chosen]] + self.static[chosen]


def encode(samples: Sequence[Sample], learner: Learner) -> Encoding:
    """The samples as `learner` sees them."""
    number: dict[str, int] = {}
    views: list[ProgramView] = []
    starts: list[Encoded] = []
    programs: list[Encoded] = []
    static: list[float] = []
    for sample in samples:
        uri, target = sample.workload.uri, sample.program.target
        if uri not in number:
            number[uri] = len(views)
            views.append(view_of(backend(target.backend).start(sample.workload, target)))
            starts.append(learner.encode(views[-1], views[-1]))
        start, view = views[number[uri]], view_of(sample.program)
        programs.append(learner.encode(view, start))
        static.append(float(start.cost[0] - view.cost[0]))
    workloads = np.array([number[sample.workload.uri] for sample in samples], dtype=np.int64)
    return Encoding(tuple(samples), tuple(programs), tuple(starts), workloads, np.array(static))


def train(
    dataset: Dataset,
    kind: str = "trees",
    seed: int = 0,
    families: Sequence[str] | None = None,
    *,
    encoding: Encoding | None = None,
    on_member: Callable[[int, int], None] | None = None,
) -> PerformanceModel:
    """Learn from the samples of the training families, or of `families`.

    Deterministic: the same store, seed and families give the same model. `encoding` is that of
    `dataset` by the learner of that kind, where there is one already; `on_member` hears how many
    members are done. Raises InvalidValueError for too few samples or a seed that is no whole number of
    at least 0, MissingExtraError without the package of `kind`.
    """
    require_whole("seed", seed, 0)
    learner = make_learner(kind)
    if encoding is None:
        encoding = encode(dataset.samples, learner)
    fitted = tuple(families) if families is not None else _training_families(dataset)
    inside = np.isin(encoding.families, np.array(fitted, dtype=np.str_))
    present = sorted(set(encoding.families[inside].tolist()))
    _require_enough(int(inside.sum()), present)
    folds = [tuple(present[k::MEMBERS]) for k in range(min(MEMBERS, len(present)))]
    members: list[Member] = []
    for number, fold in enumerate(folds):
        seen = inside & ~np.isin(encoding.families, np.array(fold, dtype=np.str_))
        drawn = (seed * MEMBERS + number) % _SEEDS
        members.append(learner.fit(encoding.examples(seen), drawn))
        if on_member is not None:
            on_member(number + 1, len(folds))
    doubts = _doubts(encoding, inside, folds, members)
    header = _header(dataset, kind, seed, encoding, inside, folds, doubts)
    return PerformanceModel(header, learner, members)


def _header(
    dataset: Dataset,
    kind: str,
    seed: int,
    encoding: Encoding,
    inside: NDArray[np.bool_],
    folds: Sequence[tuple[str, ...]],
    doubts: float,
) -> Header:
    """What the model is to say of itself; `inside` (samples,) are those that it learned from."""
    target = dataset.target
    learned = [encoding.samples[i] for i in np.flatnonzero(inside)]
    return Header(
        kind=kind,
        target=target,
        machine=dataset.machine,
        versions=versions_text(),
        vocabulary=default_vocabulary(target.backend).digest,
        features=features_digest(target),
        seed=seed,
        families=tuple(sorted({sample.family for sample in learned})),
        kernels=tuple(sorted({sample.workload.kernel.name for sample in learned})),
        programs=len(learned),
        folds=tuple(folds),
        level=LEVEL,
        doubts=doubts,
        floor=FLOOR,
    )


def _training_families(dataset: Dataset) -> tuple[str, ...]:
    return tuple(sorted({s.family for s in dataset.samples if s.split is Split.TRAIN}))


def _require_enough(programs: int, families: Sequence[str]) -> None:
    if programs < FEWEST_PROGRAMS or len(families) < FEWEST_FAMILIES:
        found = f"{programs} programs of {len(families)} families ({', '.join(families) or 'none'})"
        accepted = (
            f"at least {FEWEST_PROGRAMS} measured programs of {FEWEST_FAMILIES} training families; "
            "tirgym model record --store STORE adds some"
        )
        raise InvalidValueError("store to learn from", found, accepted)


def _doubts(
    encoding: Encoding,
    inside: NDArray[np.bool_],
    folds: Sequence[Sequence[str]],
    members: Sequence[Member],
) -> float:
    """Half-width in units of `spread` that holds `LEVEL` of the truths of an unseen family.

    Conformal prediction across families: each truth is held against the member that did not see its
    family (Vovk, "Cross-conformal predictors", 2015). Families count alike, and the unseen one counts
    as one more that nothing is known of (Dunn, Wasserman and Ramdas, "Distribution-free prediction
    sets for two-layer hierarchical models", JASA 2022), so the level is raised by one part in their
    number. A truth that was cut off counts with its number.
    """
    opinions = np.stack([encoding.opinion(member, inside) for member in members])
    truths, scale = encoding.measured[inside], spread(opinions, FLOOR)
    kinds = encoding.families[inside]
    scores = np.zeros(len(truths))
    weights = np.zeros(len(truths))
    for number, fold in enumerate(folds):
        for family in fold:
            of_it = kinds == family
            error = np.abs(truths[of_it] - opinions[number, of_it])
            scores[of_it] = error / scale[of_it]
            weights[of_it] = 1.0 / of_it.sum()
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    families = sum(len(fold) for fold in folds)
    wanted = LEVEL * (1.0 + 1.0 / families)
    place = min(int(np.searchsorted(reached, wanted)), len(order) - 1)
    return float(scores[order][place])
