"""`tirgym train`: train a policy, and go on where a training ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import ArchOption, JsonFlag, SeedOption, ThreadsOption
from tirgym.cli.output import note, print_json, print_table, progress_bar, result_console
from tirgym.cli.subject import named_workload, require_writable

if TYPE_CHECKING:
    from tirgym.baselines.ppo.boundary import TrainProgress
    from tirgym.baselines.ppo.training import TrainResult

__all__ = ["policy_command"]


def policy_command(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder of checkpoints, logs and curve; a training there goes on.",
            show_default=False,
        ),
    ],
    agent: Annotated[
        str, typer.Option("--agent", help="ppo-gnn, ppo-mlp, or ppo-gnn-shuffled (an ablation).")
    ] = "ppo-gnn",
    env: Annotated[
        str, typer.Option("--env", help="tirgym/Decision-v0 or tirgym/Schedule-v0.")
    ] = "tirgym/Decision-v0",
    reward: Annotated[
        str,
        typer.Option(
            "--reward",
            help="static (predicted by formulas), model (predicted by --model), measured, "
            "replay (from --store), or package.module:Class.",
        ),
    ] = "static",
    model: Annotated[
        str | None,
        typer.Option("--model", help="Performance model that the reward model asks."),
    ] = None,
    suite: Annotated[str, typer.Option("--suite", help="Kernels to train on.")] = "core-v0",
    split: Annotated[
        str, typer.Option("--split", help="Families of the suite: train, val, test.")
    ] = "train",
    kernels: Annotated[
        list[str] | None,
        typer.Option(
            "--kernels",
            metavar="KERNEL,…",
            help="Train on these instead: names, URIs or file.py:name; repeatable.",
            show_default="those of the split",
        ),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(
            "--shapes",
            help="Shapes to draw: train, default, holdout or tiny.",
            show_default="train; with a replay those of the store",
        ),
    ] = None,
    curriculum: Annotated[
        str,
        typer.Option("--curriculum", help="rounds (every kernel in turn) or progress."),
    ] = "rounds",
    steps: Annotated[
        int, typer.Option("--steps", help="Environment steps, rounded up to whole rollouts.")
    ] = 200_000,
    envs: Annotated[int, typer.Option("--envs", help="Environments side by side.")] = 16,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", help="Processes for them; 0: this one.", show_default="one a core"
        ),
    ] = None,
    seed: SeedOption = 0,
    eval_kernels: Annotated[
        list[str] | None,
        typer.Option(
            "--eval-kernels",
            metavar="KERNEL,…",
            help="Evaluate on these; repeatable.",
            show_default="the val families",
        ),
    ] = None,
    eval_every: Annotated[
        int, typer.Option("--eval-every", help="Steps between evaluations on val kernels.")
    ] = 20_000,
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", help="Steps between checkpoints.")
    ] = 10_000,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="Measurement store: a path, or core-v0 for the one that ships.",
            show_default="the user's store",
        ),
    ] = None,
    imitate: Annotated[
        str | None,
        typer.Option(
            "--imitate",
            help="Measurement store whose best walks the policy imitates before it plays; core-v0 ships.",
            show_default="none",
        ),
    ] = None,
    imitation_epochs: Annotated[
        int, typer.Option("--imitation-epochs", help="Passes over those walks.")
    ] = 10,
    missing: Annotated[
        str | None,
        typer.Option(
            "--missing",
            help="What a replay does with states that the store lacks: measure or refuse.",
            show_default="what fits the store",
        ),
    ] = None,
    candidate_costs: Annotated[
        bool,
        typer.Option(
            "--candidate-costs", help="Show each option with its static cost (slower steps)."
        ),
    ] = False,
    observation: Annotated[
        str | None,
        typer.Option("--observation", help="What the policy sees.", show_default="the agent's own"),
    ] = None,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Of Adam.")] = 1e-3,
    entropy: Annotated[
        float, typer.Option("--entropy", help="Weight of the entropy bonus.")
    ] = 0.01,
    rollout: Annotated[
        int, typer.Option("--rollout", help="Steps of all environments between updates.")
    ] = 1024,
    batch: Annotated[int, typer.Option("--batch", help="Steps of a minibatch.")] = 128,
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over a rollout.")] = 4,
    learner_threads: Annotated[
        int, typer.Option("--learner-threads", help="Threads of the learner.")
    ] = 1,
    threads: ThreadsOption = None,
    arch: ArchOption = None,
    json: JsonFlag = False,
) -> None:
    """Train a policy on many kernels (extra: rl); the same command again goes on after a kill."""
    from tirgym import settings
    from tirgym.baselines.ppo.training import TrainArgs, train

    if ":" in reward:
        sys.path.append(os.getcwd())  # an installed command, unlike python -m, does not look there
    require_writable(out / "args.json", "--out")
    args = TrainArgs(
        agent=agent,
        env=env,
        reward=reward,
        model=model,
        suite=suite,
        split=split,
        kernels=_named(kernels),
        eval_kernels=_named(eval_kernels),
        shapes=shapes,
        curriculum=curriculum,
        steps=steps,
        envs=envs,
        workers=workers,
        seed=seed,
        out=str(out),
        store=store,
        imitate=imitate,
        imitation_epochs=imitation_epochs,
        missing=missing,
        observation=observation,
        num_threads=settings.default_threads() if threads is None else threads,
        arch=arch,
        candidate_costs=candidate_costs,
        eval_every=eval_every,
        checkpoint_every=checkpoint_every,
        learner_threads=learner_threads,
        learning_rate=learning_rate,
        entropy=entropy,
        rollout=rollout,
        batch=batch,
        epochs=epochs,
    )
    try:
        with _progress(f"training {agent}") as tell, redirect_stdout(sys.stderr):
            result = train(args, tell)
    except KeyboardInterrupt:
        note(f"interrupted; the same command goes on from the last checkpoint in {out}")
        raise
    if result.curve is None:
        note("no curve.png: it needs matplotlib; pip install 'tirgym[plot]'")
    if json:
        print_json(_record(result))
    else:
        _report(result)


def _named(texts: Sequence[str] | None) -> tuple[str, ...]:
    """The kernels of comma lists, each of which must exist."""
    names = tuple(name for text in texts or () for name in text.split(",") if name)
    for name in names:
        named_workload(name)
    return names


@contextmanager
def _progress(title: str) -> Iterator[Callable[[TrainProgress], None]]:
    """A progress bar, or a line for each evaluation."""
    said, terminal = "", sys.stderr.isatty()
    with progress_bar(title) as advance:

        def tell(at: TrainProgress) -> None:
            nonlocal said
            advance(at.steps, at.total, at.text)
            if not terminal and at.text != said:
                said = at.text
                note(f"{title}: step {at.steps} of {at.total}: {at.text}")

        yield tell


def _record(result: TrainResult) -> dict[str, Any]:
    args = result.args
    last = result.evaluations[-1]
    return {
        "agent": args.agent,
        "env": args.env,
        "reward": args.reward,
        "seed": args.seed,
        "steps": result.steps,
        "resumed_from": result.resumed_from,
        "seconds": round(result.seconds, 3),
        "steps_per_s": result.steps_per_s,
        "eval_split": args.eval_split,
        "geomean_speedup": last["geomean_speedup"],
        "verified_speedup": last["verified_speedup"],
        "evaluations": list(result.evaluations),
        "policy_file": str(result.policy),
        "best_file": str(result.best),
        "curve_file": None if result.curve is None else str(result.curve),
    }


def _report(result: TrainResult) -> None:
    """The last evaluation, and where things are."""
    args, last = result.args, result.evaluations[-1]
    said = "verified" if last["verified_speedup"] is not None else f"by the {args.reward} reward"
    rows = [
        (p["workload"], p["steps"], f"{p['speedup']:.2f}x", "yes" if p["verified"] else "no")
        for p in last["played"]
    ]
    title = f"{args.agent} after {result.steps} steps, one greedy episode each"
    print_table(title, ("kernel", ">steps", ">speedup", "verified"), rows)
    console = result_console()
    console.print(f"\ngeometric mean {last['geomean_speedup']:.2f}x ({said})")
    if result.steps_per_s is None:
        console.print("nothing was left to train; more --steps go on")
    else:
        begun = f", gone on from step {result.resumed_from}" if result.resumed_from else ""
        console.print(f"{result.steps_per_s:.0f} steps/s over {result.seconds:.0f} s{begun}")
    console.print(f"policy   {result.policy}")
    console.print(f"best     {result.best}")
    if result.curve is not None:
        console.print(f"curve    {result.curve}")
    console.print(f"logs     tensorboard --logdir {args.out}")
