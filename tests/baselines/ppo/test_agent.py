"""Trained policies search and answer decision points, on a toy compiler that takes microseconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from fakes import FakeCost, FakeEvaluator
from policies import untrained
from toy import EmptySpace, ToyCost, ToyEvaluator, toy_start, toy_vocabulary

pytest.importorskip("sb3_contrib")
pytest.importorskip("torch_geometric")

from tirgym.baselines.ppo.agent import decision_agent
from tirgym.baselines.registry import in_space, make_agent, make_branches
from tirgym.errors import InvalidValueError, TargetMismatchError, UnknownNameError
from tirgym.harness.agent import Budget
from tirgym.harness.backend import backend
from tirgym.harness.cost import COST_MODELS
from tirgym.harness.decisions import SPACES, Guard, design_space
from tirgym.harness.program import Program
from tirgym.harness.replay import replay
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.trace import Trace
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel

pytestmark = pytest.mark.usefixtures("toy_compiler")

EVERY_SEARCH = pytest.mark.parametrize("search", ["sample", "beam"])
EVERY_AGENT = pytest.mark.parametrize("agent", ["ppo-gnn", "ppo-mlp"])


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Agent → checkpoint of random weights for the toy's decisions."""
    folder = tmp_path_factory.mktemp("policies")
    return {
        name: untrained(folder / name, name, backend="toy", seed=1)
        for name in ("ppo-gnn", "ppo-mlp")
    }


def play(
    checkpoints: dict[str, str], agent: str, trials: int, seed: int = 0, **options: Any
) -> SearchRun:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(trials), seed)
    run.run(make_agent(agent, checkpoint=checkpoints[agent], **options))
    return run


@EVERY_AGENT
@EVERY_SEARCH
@pytest.mark.parametrize("trials", [1, 2, 30])
def test_it_spends_its_trials_and_no_more(
    checkpoints: dict[str, str], agent: str, search: str, trials: int
) -> None:
    run = play(checkpoints, agent, trials, search=search)
    assert run.used == trials
    assert run.stopped is Stopped.TRIALS


@EVERY_SEARCH
def test_no_program_is_tried_twice(checkpoints: dict[str, str], search: str) -> None:
    run = play(checkpoints, "ppo-gnn", 60, search=search, batch=7)
    keys = [candidate.program.ir_key for candidate in run.history]
    assert len(keys) == len(set(keys))


@EVERY_SEARCH
def test_it_ends_by_itself_when_nothing_is_left(checkpoints: dict[str, str], search: str) -> None:
    run = play(checkpoints, "ppo-gnn", 2000, search=search)
    assert run.used < 9 * 9
    assert run.stopped in (Stopped.FINISHED, Stopped.DUPLICATES)


def test_a_beam_finds_every_program_there_is(checkpoints: dict[str, str]) -> None:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(100_000), 0)
    run.run(make_agent("ppo-gnn", checkpoint=checkpoints["ppo-gnn"], search="beam", width=500))
    assert len({candidate.program.ir_key for candidate in run.history}) == 9**3


@EVERY_AGENT
@EVERY_SEARCH
def test_the_first_trial_is_the_answer_of_the_policy_without_search(
    checkpoints: dict[str, str], agent: str, search: str
) -> None:
    run = play(checkpoints, agent, 3, seed=5, search=search)
    walk = design_space(toy_start()).follow(decision_agent(checkpoints[agent], toy_start()))
    assert walk.program.ir_key != toy_start().ir_key
    assert run.history[1].program.ir_key == walk.program.ir_key
    assert run.trials[1].answers == {answer.key: answer.value for answer in walk.answers}


def test_beams_hand_over_the_likeliest_walks_first(checkpoints: dict[str, str]) -> None:
    from tirgym.baselines.ppo.player import Player

    run = play(checkpoints, "ppo-gnn", 40, search="beam", width=729)
    walks = Player(checkpoints["ppo-gnn"]).walks(toy_start())
    scores = []
    for trial in run.trials[1:]:
        path = tuple(trial.answers.values())  # of the toy, where value n is option n
        scores.append(sum(float(walks.opinions([path[:i]])[0][path[i]]) for i in range(3)))
    assert scores[1:] == sorted(scores[1:], reverse=True)


def test_a_seed_fixes_the_samples_and_another_gives_others(checkpoints: dict[str, str]) -> None:
    def programs(seed: int) -> list[str]:
        run = play(checkpoints, "ppo-gnn", 20, seed)
        return [candidate.program.ir_key for candidate in run.history]

    assert programs(0) == programs(0)
    assert programs(0)[2:] != programs(1)[2:]


def test_branches_search_side_by_side(checkpoints: dict[str, str]) -> None:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(30), 0)
    run.run(make_branches("ppo-gnn", 3, checkpoint=checkpoints["ppo-gnn"]))
    assert (run.used, run.stopped) == (30, Stopped.TRIALS)


def test_a_low_temperature_keeps_to_what_the_policy_finds_likeliest(
    checkpoints: dict[str, str],
) -> None:
    from tirgym.baselines.ppo.player import Player

    walks = Player(checkpoints["ppo-gnn"]).walks(toy_start())
    rng = np.random.default_rng(0)
    best = walks.follow(1, 0.0, rng)[0]
    assert set(walks.follow(20, 1e-7, rng)) == {best}
    assert len(set(walks.follow(20, 3.0, rng))) > 10


@EVERY_SEARCH
def test_a_program_without_choices_is_measured_as_it_is(
    checkpoints: dict[str, str], search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SPACES, "toy", "toy:EmptySpace")
    assert EmptySpace().tasks(toy_start()) == ()
    run = play(checkpoints, "ppo-gnn", 5, search=search)
    assert (run.used, run.stopped) == (0, Stopped.FINISHED)


def test_decision_points_are_answered_with_the_confidence_of_the_policy(
    checkpoints: dict[str, str],
) -> None:
    agent = decision_agent(checkpoints["ppo-gnn"], toy_start())
    guard = Guard(agent, seconds=None)
    point = design_space(toy_start()).point()
    answer = guard.decide(point)
    assert guard.report.overruled == 0
    assert 1 / len(point.options) < answer.confidence < 1


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A checkpoint whose policy was shown the costs of the options; the toy's costs are static ones."""
    monkeypatch.setitem(COST_MODELS, "toy", "toy:ToyCost")
    return untrained(tmp_path / "priced", "ppo-mlp", backend="toy", seed=1, candidate_costs=True)


class Asked(ToyCost):
    """A cost model that the policy was not trained with; remembers what it was asked about."""

    def __init__(self) -> None:
        self.programs: set[str] = set()

    def predict_us(self, program: Program) -> float:
        self.programs.add(program.ir_key)
        return super().predict_us(program)


def test_a_search_shows_the_policy_the_costs_it_was_trained_on(priced: str) -> None:
    asked = Asked()
    run = SearchRun(toy_start(), toy_vocabulary(), asked, ToyEvaluator(), Budget(1), 0)
    run.run(make_agent("ppo-mlp", checkpoint=priced))
    assert run.used == 1
    assert asked.programs <= {candidate.program.ir_key for candidate in run.history}


def test_decision_points_are_priced_as_in_the_training(
    priced: str, checkpoints: dict[str, str]
) -> None:
    from tirgym.baselines.ppo.player import Player

    walk = design_space(toy_start())
    confidences = {}
    for name, path in {"priced": priced, "plain": checkpoints["ppo-mlp"]}.items():
        (opinion,) = Player(path).walks(toy_start()).opinions([()])
        agent = decision_agent(path, toy_start())
        for point in (walk.point(), walk.point(ToyCost()), walk.point(FakeCost())):
            assert agent.decide(point).confidence == pytest.approx(np.exp(opinion.max()))
        confidences[name] = np.exp(opinion.max())
    assert confidences["priced"] != confidences["plain"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"search": "beem"}, "did you mean 'beam'"),
        ({"temperature": 0.0}, "positive"),
        ({"batch": 0}, "at least 1"),
        ({"width": 0}, "at least 1"),
        ({"warming": 0.5}, "at least 1"),
    ],
)
def test_options_out_of_range_are_refused(
    checkpoints: dict[str, str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises((InvalidValueError, UnknownNameError), match=said):
        make_agent("ppo-gnn", checkpoint=checkpoints["ppo-gnn"], **options)


def test_a_checkpoint_of_another_agent_is_refused(checkpoints: dict[str, str]) -> None:
    with pytest.raises(InvalidValueError, match="this one is of ppo-gnn"):
        make_agent("ppo-mlp", checkpoint=checkpoints["ppo-gnn"])


def test_programs_of_another_backend_are_refused(checkpoints: dict[str, str]) -> None:
    start = replace(toy_start(), target=replace(toy_start().target, backend="abacus"))
    run = SearchRun(start, toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(3))
    with pytest.raises(TargetMismatchError, match="trained for backend toy"):
        run.run(make_agent("ppo-gnn", checkpoint=checkpoints["ppo-gnn"]))


def test_policies_that_play_transforms_answer_no_decision_points(tmp_path: Path) -> None:
    path = untrained(tmp_path / "policy", environment="tirgym/Schedule-v0")
    with pytest.raises(InvalidValueError, match="Decision environment"):
        decision_agent(path)


@EVERY_SEARCH
@EVERY_AGENT
def test_policies_that_play_transforms_search_them(agent: str, search: str, tmp_path: Path) -> None:
    path = untrained(tmp_path / "policy", agent, environment="tirgym/ScheduleStatic-v0")
    kernel = load_kernel("softmax")
    start = backend("llvm").start(Workload.of(kernel, kernel.tiny_shape), backend("llvm").target())
    run = SearchRun(start, default_vocabulary(), FakeCost(), FakeEvaluator(), Budget(4))
    run.run(make_agent(agent, checkpoint=path, search=search, width=2, batch=2))
    assert run.used == 4
    assert len({candidate.program.ir_key for candidate in run.history}) == 5
    assert 1 <= max(len(candidate.program.steps) for candidate in run.history) <= 32


def test_optimize_with_a_checkpoint_finds_a_verified_program(tmp_path: Path, cli: Cli) -> None:
    path, out = untrained(tmp_path / "policy"), tmp_path / "trace.json"
    done = cli(
        "optimize", "relu", "--shape", "tiny", "--agent", "ppo-gnn", "--checkpoint", path,
        "--trials", "2", "--option", "batch=2", "--out", out, "--json",
    )  # fmt: skip
    found = done.json()
    assert (found["agent"], found["status"]) == ("ppo-gnn", "passed")
    assert 1 <= found["trials"] <= 2
    assert replay(Trace.load(out)).workload.uri == found["workload"]


@EVERY_AGENT
def test_a_policy_plays_the_space_that_it_was_trained_in(
    checkpoints: dict[str, str], agent: str
) -> None:
    options, vocabulary = in_space(agent, "decision", "llvm")
    assert vocabulary is None
    make_agent(agent, checkpoint=checkpoints[agent], **options)
    options, _ = in_space(agent, "primitive", "llvm")
    with pytest.raises(InvalidValueError, match=r"decision, in which ppo-\w+ was trained"):
        make_agent(agent, checkpoint=checkpoints[agent], **options)
