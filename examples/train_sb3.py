"""Train a policy with plain Stable-Baselines3 classes: python examples/train_sb3.py [STEPS]

Needs pip install 'tirgym[rl]'. Speedups are predicted: tirgym/DecisionStatic-v0 pays what the static cost
model says. Write tirgym/Decision-v0 in both places to pay measured ones, which takes far longer.
`tirgym train` adds curricula, evaluation, checkpoints and resuming.
"""

import sys

import gymnasium as gym
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env

import tirgym  # noqa: F401 - registers the environments
from tirgym.baselines.ppo.policy import GraphPolicy

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
kernels = ["add", "row_sum", "matmul"]
env = make_vec_env("tirgym/DecisionStatic-v0", n_envs=4, seed=0, env_kwargs={"kernel": kernels})
model = MaskablePPO(GraphPolicy, env, n_steps=64, batch_size=64, gamma=1.0, seed=0)
model.learn(steps)

unseen = gym.make("tirgym/DecisionStatic-v0", kernel="softmax")
observation, info = unseen.reset(seed=0)
done = False
while not done:
    mask = info["action_mask"].astype(bool)
    action, _ = model.predict(observation, action_masks=mask, deterministic=True)
    observation, reward, terminated, truncated, info = unseen.step(action)
    done = terminated or truncated
print(f"softmax, unseen: predicted speedup {info['speedup']:.2f}x")
