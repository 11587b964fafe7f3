"""A Gymnasium loop: random legal transforms on softmax, paid by the static cost model."""

import gymnasium as gym

import tirgym  # noqa: F401  (registers the environments)

env = gym.make("tirgym/ScheduleStatic-v0", kernel="softmax", max_steps=12)
for episode in range(3):
    observation, info = env.reset(seed=episode)
    env.action_space.seed(episode)
    total, done = 0.0, False
    while not done:
        action = env.action_space.sample(info["action_mask"])
        observation, reward, terminated, truncated, info = env.step(action)
        total, done = total + reward, terminated or truncated
    print(f"episode {episode}: predicted speedup {2.718281828**total:.2f}x")
env.close()
