"""A board of made-up runs, through the code that makes real ones: records, verdicts, report."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from fakes import passed

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.entrants import CONTROL, reference_of
from tirgym.benchmarks.leaderboard.folder import Plan
from tirgym.benchmarks.leaderboard.record import (
    Answer,
    Claim,
    Kind,
    Machine,
    Outcome,
    Point,
    Recipe,
    RecipeKind,
    Record,
    Saw,
    SawWhat,
    Used,
)
from tirgym.benchmarks.leaderboard.report import board_of
from tirgym.benchmarks.leaderboard.shipped import Shipped
from tirgym.benchmarks.leaderboard.verdicts import Session, judge_record
from tirgym.benchmarks.leaderboard.winners import winners
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.kernels_suite.hand_schedules import hand_schedule
from tirgym.kernels_suite.registry import load_workload

__all__ = ["ATTACK", "KERNELS", "made_board", "made_record"]

ATTACK = "<script>document.title='owned'</script><img src=x onerror=alert(1)>.module:Agent"
"""Name of an agent of a third party."""
KERNELS = ("matmul", "softmax", "conv2d", "row_sum", "blur")
TARGET = Target("llvm", "skylake-avx512", 1)
MACHINE = Machine("0123456789abcdef", "Made-up processor at 3.00 GHz", 2)
MADE = "2026-01-01T00:00:00+00:00"
TRIALS = (16, 64)
SEARCHES = {
    "random": 2.2, "greedy": 3.0, "beam": 4.4, "evolutionary": 5.0, "mcts": 3.8,
    "ppo-gnn": 4.1, "llm,model=made-up": 2.7, "metaschedule": 4.6, ATTACK: 1.4,
}  # fmt: skip
"""Speedup that each tends to."""
REFERENCES = {"noop": 1.0, "default": 1.6, "vendor-numpy": 6.0, "vendor-torch": 7.0}
SAW = {
    "ppo-gnn": Saw(SawWhat.MODEL, ("softmax", "reduction"), "checkpoint.safetensors"),
    ATTACK: Saw(SawWhat.UNKNOWN, (), ATTACK),
}


AGENTS = (CONTROL, *REFERENCES, *SEARCHES)


@cache
def made_board(
    kernels: tuple[str, ...] = KERNELS,
    seeds: tuple[int, ...] = (0, 1, 2),
    agents: tuple[str, ...] = AGENTS,
) -> Any:
    """The JSON of a board with searches, a peer, references and a control, some of which fail.

    One run is missing, one is not measured, one fails the gate, one claims too much, the vendor's
    libraries have no blur. Every step of the winning traces is measured.
    """
    uris = tuple(load_workload(kernel).uri for kernel in kernels)
    plan = Plan(agents, uris, TRIALS, seeds)
    records, verified = [], []
    for agent, uri, seed in plan.rows():
        if (agent, uri, seed) == ("mcts", uris[-1], seeds[-1]):
            continue
        record = made_record(agent, uri, seed)
        records.append(record)
        sessions = {(uri, a.recipe.digest): _sessions(record, a) for a in record.answers}
        verified += judge_record(record, sessions, 3)
    problem = f"records.jsonl:7: a second run of {ATTACK} on {uris[0]}, seed 0; the first counts"
    shipped = (Shipped(uris[0], 64, 95.0, 210.0, MACHINE.fingerprint, MADE),)
    board = Board(plan, records, verified, 3, (problem,), shipped)
    return board_of(board, list(winners(board, _evaluate)))


def made_record(agent: str, uri: str, seed: int) -> Record:
    """One run; the same for the same arguments."""
    rng = random.Random(f"{agent}/{uri}/{seed}")
    kind = _kind(agent)
    kernel = load_workload(uri).kernel.name
    if kind in (Kind.REFERENCE, Kind.CONTROL):
        recipe = reference_of(agent, load_workload(uri))
        if recipe is None:
            return _record(agent, kind, uri, seed, (), (), Outcome.NOT_APPLICABLE, "has none")
        answers = tuple(Answer(trials, recipe, code_key=f"code-{agent}") for trials in TRIALS)
        return _record(agent, kind, uri, seed, answers)
    best, curve = 1.0, [Point(0, False, "passed", 1.0, 1.0, 0.1, "code-0")]
    top = 1.0 + (SEARCHES[agent] - 1.0) * (1.4 if kernel == "matmul" else rng.uniform(0.5, 1.1))
    if (agent, seed) == ("evolutionary", 0):
        top *= 1.15
    for trial in range(1, TRIALS[-1] + 1):
        speedup = 1.0 + (top - 1.0) * (1.0 - 0.5 ** (trial / 9.0)) * rng.uniform(0.3, 1.0)
        status = "passed" if rng.random() > 0.1 else "wrong_result"
        best = max(best, speedup) if status == "passed" else best
        number = speedup if status == "passed" else None
        code = f"code-{agent}-{seed}-{trial}"
        curve.append(Point(trial, True, status, number, best, 0.3 * trial, code, 4))
    answers = tuple(_answer(agent, kind, kernel, seed, trials, curve) for trials in TRIALS)
    return _record(agent, kind, uri, seed, answers, tuple(curve))


def _kind(agent: str) -> Kind:
    if agent == CONTROL:
        return Kind.CONTROL
    if agent in REFERENCES:
        return Kind.REFERENCE
    return Kind.PEER if agent == "metaschedule" else Kind.AGENT


def _answer(
    agent: str, kind: Kind, kernel: str, seed: int, trials: int, curve: Sequence[Point]
) -> Answer:
    """The best point of the first `trials`; of an agent's answer the first steps of a hand schedule."""
    passing = [p for p in curve if p.trial <= trials and p.speedup is not None]
    best = max(passing, key=lambda point: point.speedup or 0.0)
    steps = hand_schedule(kernel)
    claimed = best.best_speedup * (3.0 if (agent, kernel) == (ATTACK, "matmul") else 1.0)
    if kind is Kind.PEER:
        recipe = Recipe(RecipeKind.SCHEDULE, schedule=f"[[],[{seed},{trials}]]")
    else:
        whole = (agent, seed) == ("evolutionary", 0)
        recipe = Recipe(RecipeKind.TRANSFORMS, steps if whole else steps[: 1 + len(agent) % 3])
    return Answer(trials, recipe, "", best.code_key, Claim("passed", claimed))


def _record(
    agent: str,
    kind: Kind,
    uri: str,
    seed: int,
    answers: tuple[Answer, ...],
    curve: tuple[Point, ...] = (),
    outcome: Outcome = Outcome.FINISHED,
    message: str = "",
) -> Record:
    spent = len([point for point in curve if point.charged])
    failures = len([point for point in curve if point.status != "passed"])
    tokens = 41_000 if agent.startswith("llm") else None
    used = Used(spent, failures, spent, 4 * spent, tokens, 0.4 * spent)
    return Record(
        agent, kind, uri, seed, TRIALS, outcome, MACHINE, TARGET,
        {"tirgym": "0.1.0", "apache-tvm": "0.27.0.post1"}, 1, SAW.get(agent, Saw()), message,
        "budget spent" if curve else "", None, answers, curve, used, MADE,
    )  # fmt: skip


def _sessions(record: Record, answer: Answer) -> list[Session]:
    """Three sessions near what the run claims, or near what a reference tends to."""
    rng = random.Random(f"{record.agent}/{record.workload}/{answer.recipe.digest}")
    kernel = load_workload(record.workload).kernel.name
    tends = REFERENCES.get(record.agent, 1.0) * rng.uniform(0.7, 1.2)
    if record.agent in (CONTROL, "noop"):
        tends = 1.0
    claim = answer.claim.speedup if answer.claim else None
    if (record.agent, kernel) == (ATTACK, "matmul") and claim:
        claim /= 3.0
    status, message = "passed", ""
    if (record.agent, kernel) == ("random", "softmax"):
        status, message = "wrong_result", f"output 0 differs at [3, 7]: 0.25, expected 0.5 {ATTACK}"
    found = []
    for number in range(2 if (record.agent, kernel) == ("greedy", "row_sum") else 3):
        speedup = (claim or tends) * rng.uniform(0.99, 1.01)
        best_us = 1000.0 / speedup
        fine = status == "passed"
        found.append(
            Session(
                record.workload, answer.recipe.digest, number, status, MACHINE.fingerprint,
                str(TARGET), record.versions, message, speedup if fine else None, None,
                best_us if fine else None, 1000.0, 90.0, answer.ir_key, answer.code_key,
                {"here": "passed", "there": "not_portable: no such loop"} if number == 0 else {},
            )
        )  # fmt: skip
    return found


def _evaluate(program: Program) -> Evaluation:
    """Each step gains less than the one before."""
    steps = len(program.steps)
    return passed(1.0 + 4.0 * (1.0 - 0.7**steps), program.ir_key, spread=0.02)
