"""`board_of`: everything that a board shows, as one JSON object: the input of tables and website.

Format `tirgym-board-1`. Numbers are floats, null where there is none (never NaN); speedups are verified
ones, unscheduled time / program time, unless a name says `claimed` or `searching`. Keys that are trial counts are
strings ("16", "64"). Fields may be added within the format; none changes its meaning or goes away.

    format        "tirgym-board-1"
    suite         name of the suite, such as "core-v0"
    made          UTC time of the report, ISO 8601
    machine       {fingerprint, cpu, cores}
    target        {backend, arch, num_threads}
    versions      {package: version}
    protocol      [sentence, …]: how was run, checked, measured and scored
    trials        [16, 64], ascending
    seeds         [0, 1, 2]
    sessions      independent sessions that each verified number is the median of
    counts        {expected, verified, failed, missing, unmeasured, not_applicable}: answers, that is
                  agent × workload × seed × trial count; {…, claims_not_reached}
    foreign       verdicts that the installation which made the report did not make itself: to be
                  believed as far as their source, or verified anew
    problems      [line, …]: what is wrong with the files, and which rows were left out
    agents        [{name, kind: agent|peer|reference|control, saw: {what: nothing|model|store|unknown,
                  families, source}, headline: bool, why: "" or why it is not in the headline table}]
                  in the order of the plan. The headline table admits rows that saw no measurement of
                  a family that they are evaluated on.
    workloads     [{uri, kernel, label, family, split, shape: {dim: size}, dtype, flops, bytes, naive_us,
                  floor_us}]; label is short and unique; naive_us, floor_us (time at the measured
                  roofline) may be null
    rankings      {trials: [row, …]} best first, the control row left out; a row is
                  {agent, rank, headline, kind, geomean, median, iqm: {value, low, high}; low, high null for a single
                  seed, and where all seeds gave the same answers, which are measured once for all,
                  geomean_unclipped: {value, low, high}, without "below 1 counts as 1",
                  fast_p: {"0": share, "1": …, "1.5": …, "2": …, "5": …, "10": …},
                  against: {naive|default|metaschedule|vendor-numpy|…: {geomean, low, high, workloads} or null}:
                  how many times as fast: geometric mean over the workloads where the other is verified and
                  this row has an answer (0.5 if that is not verified; below 1 counts 1 for searches), its 95 %
                  interval, null as above, and how many workloads those are,
                  roofline: mean share of the measured roofline or null,
                  verified, failed, missing, unmeasured, not_applicable: answers,
                  trials_used, failures, compiles, steps, tokens, wall_s: means over runs, of whole
                  runs whatever the trial count (tokens null without a model)}
                  rank counts headline rows from 1, and the others from 1 in their own table
    fast_p        {trials: {p: [0, 0.1, …], share: {agent: [share, …]}}}
    profiles      {trials: {tau: [0.5, …], share: {agent: [share of runs with score > tau, …]}}}
    improvement   {trials: {agent: {other: {value, low, high}}}}: probability that agent beats other
    cells         [cell, …], one for each agent × workload × seed × trial count:
                  {agent, workload: URI, seed, trials, standing: verified|failed|missing|unmeasured|
                  not_applicable, reason, speedup, low, high: slowest and fastest session, sessions:
                  [speedup, …], score, best_us, naive_us, roofline, claimed, claim_holds, shapes:
                  {passed|not_portable|failed|unjudged: number}, recipe: transforms|schedule|default|
                  library|control or null, transforms: [text, …], library, code_key, outcome, message}
    workload_table [{workload: URI, cells: {trials: {agent: {speedup, low, high, verified, runs, roofline}}}}]:
                  geometric mean over the verified seeds, extremes over seeds, how many of the runs are
                  verified, and their mean share of the measured roofline or null
    curves        {n: [1, 2, 4, …], agents: {agent: [x, …]}, workloads: {URI: {agent: [x, …]}}}: best speedup
                  after n trials, as seen while searching (not verified), geometric mean over seeds
                  and workloads; null for rows that do not search
    trials_to     {levels: [0.5, 0.8, 0.9, 0.95], n: [1, 2, …], agents: {agent: {level: {median: trials or
                  null, share: [share of runs there after n trials, …]}}}}: trials to a share of the best verified
                  speedup of the workload, as seen while searching
    control       {workloads: {URI: [ratio by session, …]}, geomean, low, high, worst: largest
                  |ratio - 1| of a workload's median} or null: the unscheduled program against itself
    shipped       [{workload: URI, trials, wall_s, best_us, searches: {agent: wall_s}, ratios: {agent: x}}]:
                  MetaSchedule with its own builder and runner, checked by nobody; beside it the mean
                  wall seconds of a run of as many trials of each searching row there, from the start of its
                  process to its last result, and how many times as fast it was
    winners       [{workload: URI, agent, seed, trials, speedup, start: {text, predicted_us, measured_us},
                  steps: [{transform, text: IR after it as TVMScript, predicted_us, changes: [sentence, …],
                  measured_us or null, speedup or null, gain: measured time before / after or null,
                  gain_ci, verdict: "faster" | "slower" | "no difference shown" | ""}]}]: the fastest verified trace of the vocabulary by workload;
                  predicted_us is the static cost model's; measured ones come from `--measure-steps`
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.curves import curves_of, trials_to
from tirgym.benchmarks.leaderboard.folder import plain
from tirgym.benchmarks.leaderboard.ranking import ranking
from tirgym.benchmarks.leaderboard.record import Kind, Saw, SawWhat
from tirgym.benchmarks.leaderboard.shipped import Shipped
from tirgym.benchmarks.leaderboard.statistics import (
    fast_p,
    improvement,
    improvement_interval,
    profile,
    ranked,
    unclipped,
)
from tirgym.benchmarks.leaderboard.verdicts import Standing
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.problem import bytes_of, flops_of
from tirgym.kernels_suite.registry import load_workload, split_of

__all__ = ["FORMAT", "PROTOCOL", "board_of"]

FORMAT = "tirgym-board-1"
SHARES = tuple(round(0.1 * step, 1) for step in range(201))
"""p of the fast_p curves"""
TAUS = tuple(round(0.5 * 1.1**step, 4) for step in range(64))
"""scores of the performance profiles, 0.5 to 200"""
PROTOCOL = (
    "A trial is one evaluator call with machine code new to the run, failures included.",
    "Every run starts from an empty store, with one agent in a process of its own; the run counts.",
    "The largest trial count is run once; a smaller one is the best of its first trials.",
    "The best three of a run are measured again in full to choose one; this costs no trial.",
    "Each answer is made again from its recipe in clean processes.",
    "There it passes the gate on secret inputs, at its own shape and the kernel's other shapes.",
    "A speedup is the median over independent sessions of unscheduled time / program time.",
    "Both are interleaved, for one target and thread count, with inputs in warm caches.",
    "In the ranking a verified speedup below 1 counts 1, and what is not verified 0.5 (0 in fast_p).",
    "Intervals are 95 % stratified bootstrap percentiles over seeds.",
)


def board_of(board: Board, winners: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The JSON object; raises nothing for what is missing in the board."""
    plan, records = board.plan, board.records
    workloads = [load_workload(uri) for uri in plan.workloads]
    agents = [_agent(board, name, workloads) for name in plan.agents]
    headline = {agent["name"]: bool(agent["headline"]) for agent in agents}
    return plain(
        {
            "format": FORMAT,
            "suite": workloads[0].kernel.suite if workloads else "",
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": asdict(records[0].machine) if records else {},
            "target": asdict(records[0].target) if records else {},
            "versions": records[0].versions if records else {},
            "protocol": [*PROTOCOL, *_concurrency(board)],
            "trials": list(plan.trials),
            "seeds": list(plan.seeds),
            "sessions": board.sessions,
            "counts": _counts(board),
            "foreign": board.foreign,
            "problems": list(board.problems),
            "agents": agents,
            "workloads": [_workload(board, w) for w in _labelled(workloads)],
            "rankings": {str(t): ranking(board, t, headline) for t in plan.trials},
            "fast_p": {str(t): _fast_p(board, t) for t in plan.trials},
            "profiles": {str(t): _profiles(board, t) for t in plan.trials},
            "improvement": {str(t): _improvement(board, t) for t in plan.trials},
            "cells": list(_cells(board)),
            "workload_table": [_table(board, uri) for uri in plan.workloads],
            "curves": curves_of(board),
            "trials_to": trials_to(board),
            "control": _control(board),
            "shipped": [_shipped(board, row) for row in board.shipped],
            "winners": list(winners),
        }
    )


def _concurrency(board: Board) -> Iterator[str]:
    """What shared the machine, if anything did."""
    most = max((record.used.concurrent for record in board.records), default=0)
    if most:
        yield f"Up to {most + 1} searches ran at once: wall seconds are longer than for one alone."
    if board.concurrent:
        yield f"Up to {board.concurrent + 1} processes verified at once; timings took turns."


def _agent(board: Board, name: str, workloads: Sequence[Workload]) -> dict[str, Any]:
    records = [record for record in board.records if record.agent == name]
    families = {workload.kernel.family for workload in workloads}
    seen = [record.saw for record in records]
    whats = {saw.what for saw in seen} or {SawWhat.NOTHING}
    merged = Saw(
        next(what for what in reversed(SawWhat) if what in whats),
        tuple(sorted({family for saw in seen for family in saw.families})),
        ", ".join(sorted({saw.source for saw in seen} - {""})),
    )
    not_admitted = sorted(
        {
            load_workload(r.workload).kernel.family
            for r in records
            if not _admitted(r.saw, r.workload)
        }
        & families
    )
    why = ""
    if not_admitted:
        unknown = merged.what is SawWhat.UNKNOWN
        unsaid = merged.source or "does not say what it saw"
        why = unsaid if unknown else f"saw {', '.join(not_admitted)}"
    return {
        "name": name,
        "kind": board.kind(name).value,
        "saw": asdict(merged),
        "headline": not why,
        "why": why,
    }


def _admitted(saw: Saw, uri: str) -> bool:
    return saw.admits(load_workload(uri).kernel.family)


def _labelled(workloads: Sequence[Workload]) -> list[tuple[Workload, str]]:
    """The kernel's name, with the shape where a kernel is there twice."""
    often = Counter(workload.kernel.name for workload in workloads)
    return [(w, str(w) if often[w.kernel.name] > 1 else w.kernel.name) for w in workloads]


def _workload(board: Board, labelled: tuple[Workload, str]) -> dict[str, Any]:
    workload, label = labelled
    here = [v for v in board.verified if v.workload == workload.uri]
    naive = [v.naive_us for v in here if v.naive_us is not None]
    floor = [v.floor_us for v in here if v.floor_us is not None]
    split = split_of(workload.kernel)
    return {
        "uri": workload.uri,
        "kernel": workload.kernel.name,
        "label": label,
        "family": workload.kernel.family,
        "split": split.value if split else None,
        "shape": workload.shape,
        "dtype": workload.kernel.dtype,
        "flops": flops_of(workload),
        "bytes": bytes_of(workload),
        "naive_us": statistics.median(naive) if naive else None,
        "floor_us": statistics.median(floor) if floor else None,
    }


def _counts(board: Board) -> dict[str, int]:
    cells = list(board.cells())
    found = Counter(cell.standing for cell in cells)
    return {
        "expected": len(cells),
        **{standing.value: found[standing] for standing in Standing},
        "claims_not_reached": sum(cell.claim_holds is False for cell in cells),
    }


def _fast_p(board: Board, trials: int) -> dict[str, Any]:
    share = {
        name: [fast_p(board.matrix(name, trials).measured, p) for p in SHARES]
        for name in board.players()
    }
    return {"p": list(SHARES), "share": share}


def _profiles(board: Board, trials: int) -> dict[str, Any]:
    share = {
        name: profile(ranked(board.matrix(name, trials).speedups), TAUS).tolist()
        for name in board.players()
    }
    return {"tau": list(TAUS), "share": share}


def _improvement(board: Board, trials: int) -> dict[str, Any]:
    scores = {name: ranked(board.matrix(name, trials).speedups) for name in board.players()}
    found: dict[str, Any] = {}
    for one, mine in scores.items():
        found[one] = {}
        for other, theirs in scores.items():
            if one != other:
                low, high = improvement_interval(mine, theirs) or (None, None)
                value = float(improvement(mine, theirs))
                found[one][other] = {"value": value, "low": low, "high": high}
    return found


def _cells(board: Board) -> Iterator[dict[str, Any]]:
    for cell in board.cells():
        record = board.record(cell.agent, cell.workload, cell.seed)
        answer = record.answer(cell.trials) if record else None
        applies = cell.standing is not Standing.NOT_APPLICABLE
        yield {
            **asdict(cell),
            "score": float(ranked(cell.speedup if cell.speedup else math.nan)) if applies else 1.0,
            "roofline": _share(cell.floor_us, cell.best_us),
            "recipe": answer.recipe.kind.value if answer else None,
            "transforms": list(answer.recipe.steps) if answer else [],
            "vendor": answer.recipe.vendor if answer else "",
            "outcome": record.outcome.value if record else None,
            "message": record.message if record else "",
        }


def _shipped(board: Board, row: Shipped) -> dict[str, Any]:
    here = [
        r
        for r in board.records
        if r.workload == row.workload and r.curve and r.trials[-1] == row.trials
    ]
    times: dict[str, list[float]] = {}
    for record in here:
        times.setdefault(record.agent, []).append(record.used.start_s + record.used.wall_s)
    searches = {agent: statistics.fmean(values) for agent, values in times.items()}
    ratios = {agent: row.wall_s / wall_s for agent, wall_s in searches.items() if wall_s > 0.0}
    return {**asdict(row), "searches": searches, "ratios": ratios}


def _share(floor_us: float | None, best_us: float | None) -> float | None:
    return floor_us / best_us if floor_us and best_us else None


def _table(board: Board, uri: str) -> dict[str, Any]:
    cells: dict[str, dict[str, Any]] = {}
    for trials in board.plan.trials:
        cells[str(trials)] = {}
        for name in board.players():
            row = [board.cell(name, uri, seed, trials) for seed in board.plan.seeds]
            known = [cell.speedup for cell in row if cell.speedup is not None]
            shares = [_share(cell.floor_us, cell.best_us) for cell in row]
            reached = [share for share in shares if share is not None]
            cells[str(trials)][name] = {
                "speedup": statistics.geometric_mean(known) if known else None,
                "low": min(known, default=None),
                "high": max(known, default=None),
                "verified": len(known),
                "runs": len(row),
                "roofline": statistics.fmean(reached) if reached else None,
            }
    return {"workload": uri, "cells": cells}


def _control(board: Board) -> dict[str, Any] | None:
    """The A/A row: every session is one ratio."""
    names = [name for name in board.plan.agents if board.kind(name) is Kind.CONTROL]
    ratios: dict[str, list[float]] = {}
    for verdict in board.verified:
        if verdict.agent in names and verdict.sessions:
            ratios[verdict.workload] = list(verdict.sessions)
    if not ratios:
        return None
    medians = [statistics.median(values) for values in ratios.values()]
    return {
        "workloads": ratios,
        "geomean": statistics.geometric_mean(unclipped(medians).tolist()),
        "low": min(medians),
        "high": max(medians),
        "worst": max(abs(value - 1.0) for value in medians),
    }
