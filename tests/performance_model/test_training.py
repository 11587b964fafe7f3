"""Training: what is learned, what it is sure of, and that a seed fixes it. For every kind of model."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from learned import HELD_OUT, KERNELS, TARGET, fill, start

from tirgym.errors import InvalidValueError, MissingExtraError, UnknownNameError
from tirgym.harness.program import Program
from tirgym.harness.store import Store
from tirgym.kernels_suite import registry
from tirgym.kernels_suite.kernel import Split, Workload
from tirgym.kernels_suite.registry import load_kernel, register_kernel
from tirgym.performance_model import learner
from tirgym.performance_model.dataset import Dataset, read_store
from tirgym.performance_model.learner import LEARNERS, make_learner
from tirgym.performance_model.model import PerformanceModel
from tirgym.performance_model.report import held_out, leave_one_out, means
from tirgym.performance_model.training import FEWEST_PROGRAMS, train
from tirgym.performance_model.view import view_of

TRAINED: dict[str, PerformanceModel] = {}


def installed(kind: str) -> pytest.MarkDecorator:
    package = LEARNERS[kind][1]
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


EVERY_KIND = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=installed(kind)) for kind in sorted(LEARNERS)]
)


def trained(dataset: Dataset, kind: str) -> PerformanceModel:
    if kind not in TRAINED:
        TRAINED[kind] = train(dataset, kind)
    return TRAINED[kind]


@EVERY_KIND
def test_it_learns_what_the_static_cost_does_not_know(dataset: Dataset, kind: str) -> None:
    model = trained(dataset, kind)
    inside = [s for s in dataset.samples if s.workload.uri in KERNELS.values()]
    truths = np.array([sample.log_speedup for sample in inside])
    expected = model.predict([sample.program for sample in inside]).expected
    first = {uri: start(uri) for uri in KERNELS.values()}
    static = np.array([model.start_cost(first[s.workload.uri]) for s in inside]) - np.array(
        [log_static_us(s.program) for s in inside]
    )
    assert np.abs(expected - truths).mean() < 0.8 * np.abs(static - truths).mean()


def log_static_us(program: Program) -> float:
    return float(view_of(program).cost[0])


@EVERY_KIND
def test_it_learns_from_training_families_alone(dataset: Dataset, kind: str) -> None:
    header = trained(dataset, kind).header
    assert header.families == tuple(sorted(KERNELS))
    assert "softmax" not in header.kernels
    assert header.programs == sum(s.family != "softmax" for s in dataset.samples)
    left_out = [family for fold in header.folds for family in fold]
    assert sorted(left_out) == sorted(KERNELS), "each family is unseen by one member"


@installed("trees")
def test_a_kernel_of_ones_own_does_not_bring_a_held_out_family_into_training(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(load_kernel("softmax"), name="own", train=({"m": 16, "n": 48},))
    monkeypatch.setattr(registry, "_registered", {})
    store = Store()
    fill(store, [Workload.of(register_kernel(own)).uri])
    more = read_store(store, TARGET).samples
    assert {sample.split for sample in more} == {Split.VAL}
    header = train(replace(dataset, samples=dataset.samples + more)).header
    assert header.families == tuple(sorted(KERNELS))
    assert header.programs == trained(dataset, "trees").header.programs


@EVERY_KIND
def test_the_unscheduled_program_has_speedup_one(dataset: Dataset, kind: str) -> None:
    model = trained(dataset, kind)
    for uri in (*KERNELS.values(), HELD_OUT):
        program = start(uri)
        assert model.opinions([program]) == pytest.approx(0.0, abs=1e-4)
        assert np.log(model.predict_us(program)) == pytest.approx(log_static_us(program), abs=1e-4)


@EVERY_KIND
def test_a_seed_fixes_the_model_and_a_file_keeps_it(
    dataset: Dataset, kind: str, tmp_path: Path
) -> None:
    folder = tmp_path
    model = trained(dataset, kind)
    model.save(folder / "one")
    train(dataset, kind).save(folder / "two")
    train(dataset, kind, seed=1).save(folder / "other")
    one = (folder / "one").read_bytes()
    assert one == (folder / "two").read_bytes()
    assert one != (folder / "other").read_bytes()
    programs = [sample.program for sample in dataset.samples[::7]]
    again = PerformanceModel.load(folder / "one", TARGET)
    assert again.header == model.header
    assert np.array_equal(again.opinions(programs), model.opinions(programs))


@EVERY_KIND
def test_a_seed_may_be_of_any_size(dataset: Dataset, kind: str) -> None:
    assert train(dataset, kind, 2**64 + 1).header.seed == 2**64 + 1


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_a_seed_that_is_none_is_refused(seed: int) -> None:
    with pytest.raises(InvalidValueError, match="seed"):
        train(Dataset((), TARGET, "here", {}), seed=seed)


@EVERY_KIND
def test_predictions_do_not_depend_on_what_is_asked_together(dataset: Dataset, kind: str) -> None:
    model = trained(dataset, kind)
    programs = [sample.program for sample in dataset.samples[::11]]
    together = PerformanceModel(model.header, make_learner(kind), model._members).opinions(programs)
    alone = PerformanceModel(model.header, make_learner(kind), model._members)
    one_by_one = np.concatenate([alone.opinions([program]) for program in programs], axis=1)
    assert np.allclose(together, one_by_one, atol=2e-5)
    assert model.opinions([]).shape == (len(model.header.folds), 0)


@EVERY_KIND
def test_intervals_hold_most_truths_and_widen_with_disagreement(
    dataset: Dataset, kind: str
) -> None:
    model = trained(dataset, kind)
    prediction = model.predict([sample.program for sample in dataset.samples])
    truths = np.array([sample.log_speedup for sample in dataset.samples])
    inside = (truths >= prediction.low) & (truths <= prediction.high)
    assert inside.mean() > 0.75
    opinions = model.opinions([sample.program for sample in dataset.samples])
    widths, spreads = prediction.high - prediction.low, opinions.std(axis=0)
    assert widths[spreads.argmax()] == widths.max() > widths.min()


@installed("trees")
def test_reports_hold_out_families_and_compare_with_the_static_cost(dataset: Dataset) -> None:
    (row,) = held_out(trained(dataset, "trees"), dataset)
    assert (row.kernel, row.split) == ("softmax", "val")
    assert row.model.coverage is not None
    assert row.static.coverage is None
    rows = leave_one_out(dataset)
    assert sorted(r.family for r in rows) == sorted([*KERNELS, "softmax"])
    found = means(rows)
    assert found["all"]["workloads"] == 5
    assert set(found) == {"all", "train", "val"}
    with pytest.raises(InvalidValueError, match="none"):
        means([])


def test_too_little_to_learn_from_is_refused_with_the_remedy(dataset: Dataset) -> None:
    pytest.importorskip("xgboost")
    few = replace(dataset, samples=dataset.samples[: FEWEST_PROGRAMS - 10])
    with pytest.raises(InvalidValueError, match="tirgym model record"):
        train(few)
    with pytest.raises(InvalidValueError, match="of 2 families"):
        train(dataset, families=("matmul", "layout"))


def test_unknown_kinds_and_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="trees, gnn"):
        make_learner("forest")
    monkeypatch.setattr(learner, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"xgboost.*tirgym\[model\]"):
        make_learner("trees")
    with pytest.raises(MissingExtraError, match=r"torch.*tirgym\[rl\]"):
        make_learner("gnn")


@installed("gnn")
def test_training_leaves_threads_and_randomness_of_torch_alone(dataset: Dataset) -> None:
    import torch

    threads = torch.get_num_threads()
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    trained(dataset, "gnn").opinions([dataset.samples[0].program])
    train(dataset, "gnn", families=("layout", "elementwise", "reduction", "matmul"))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), before)
