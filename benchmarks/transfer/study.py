"""`python -m tirgym.benchmarks.transfer.study --out DIR`: train on some families, play on others.

Policies are trained on the train families of `core-v0`; then they, random, greedy and beam search play
the test families and held-out shapes at equal measured trials, each behind the same gate. The answer
of the first trial of a policy is its own, without search. A policy of each seed plays with that seed.
Everything is kept: a killed study goes on where it stopped. `report.json`, `report.md` and
`curves.png` are made of what is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tirgym.baselines.ppo.env_spec import ENV_IDS
from tirgym.baselines.ppo.run_folder import RunFolder
from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.baselines.ppo.training import train
from tirgym.benchmarks.command_line import run_command
from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.running import Conditions, run_row
from tirgym.benchmarks.transfer.plan import PLAYERS, TransferPlan
from tirgym.benchmarks.transfer.report import write_report
from tirgym.harness.verification import SESSIONS

__all__ = ["main", "play_all", "train_all"]


def train_all(plan: TransferPlan, folder: Path) -> None:
    """Train what is not trained yet, one after the other; a training goes on from its checkpoint.

    Of one that came to its end, arguments, curve and policy are all that is needed.
    """
    for seed in range(plan.seeds):
        for policy in plan.policies:
            args = plan.training(folder, policy, seed)
            if not RunFolder(args.out).holds(args):
                _say(f"training {policy}, seed {seed}")
                train(args)


def play_all(plan: TransferPlan, folder: Path) -> None:
    """Play what is not played yet; players take turns within a seed and a workload."""
    given = Conditions(plan.target, plan.trials, sessions=SESSIONS)
    board = BoardFolder(folder)
    known = {record.key for record in board.records()[0]}
    for seed in range(plan.seeds):
        rows = [plan.player(folder, name, seed) for name in plan.players]
        for uri in plan.groups:
            for row in rows:
                if (row.label, uri, seed) not in known:
                    _say(f"{uri}: {row.label}, seed {seed}")
                    append_line(board.records_path, run_row(row, uri, seed, given).to_json())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(
    out: Annotated[Path, typer.Option(help="Folder; what is there is not done again.")],
    steps: Annotated[int, typer.Option(help="Environment steps of each training.")] = 500_000,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    reward: Annotated[str, typer.Option(help="What policies are trained on.")] = "static",
    model: Annotated[
        str | None, typer.Option(help="Performance model, with the reward model.")
    ] = None,
    imitate: Annotated[
        str | None, typer.Option(help="Store whose best walks policies imitate before they play.")
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="Of Adam.")] = TrainArgs.learning_rate,
    entropy: Annotated[float, typer.Option(help="Weight of the bonus.")] = TrainArgs.entropy,
    env: Annotated[
        str, typer.Option(help=f"Which policies are trained in: {', '.join(ENV_IDS)}.")
    ] = TransferPlan.env,
    arch: Annotated[
        str | None,
        typer.Option(help="Of the machine code that is played for. Default: this CPU's."),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Held-out workload URI; repeatable. Default: all.")
    ] = None,
    player: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(PLAYERS)}; repeatable. Default: all.")
    ] = None,
    report_only: Annotated[bool, typer.Option(help="Report what is there, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report on stdout.")] = False,
) -> None:
    """Train, play and report what is missing in `out`."""
    plan = TransferPlan(
        steps=steps,
        seeds=seeds,
        reward=reward,
        model=model,
        imitate=imitate,
        learning_rate=learning_rate,
        entropy=entropy,
        env=env,
        arch=arch,
        workloads=tuple(workload or ()),
        players=tuple(player or PLAYERS),
    )
    plan.keep(out)
    if not report_only:
        with BoardFolder(out).writing():
            train_all(plan, out)
            play_all(plan, out)
    found = write_report(plan, out)
    print(json.dumps(found, indent=2) if as_json else (out / "report.md").read_text())


def main() -> None:
    """Command line."""
    run_command("transfer", run)


if __name__ == "__main__":
    main()
