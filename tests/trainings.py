"""The smallest training for tests."""

from __future__ import annotations

from tirgym.baselines.ppo.train_args import TrainArgs

SMALLEST = TrainArgs(
    agent="ppo-mlp",
    eval_kernels=("core-v0/row_sum",),
    shapes="tiny",
    envs=4,
    workers=0,
    rollout=64,
    batch=32,
    epochs=2,
    checkpoint_every=64,
    learner_threads=1,
)
"""Two minibatches an update, on tiny shapes, in one process and thread."""
