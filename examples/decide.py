"""Answer the compiler's open questions about a matmul by a rule of your own."""

import gymnasium as gym

import tirgym  # noqa: F401  (registers the environments)
from tirgym.harness.decisions import DecisionPoint, Guard, Recommendation


class WideTiles:
    """Takes the largest tile factor up to 16, and the static choice everywhere else."""

    def decide(self, point: DecisionPoint) -> Recommendation:
        if point.kind != "tile":
            return Recommendation(point.default)
        values = [option.value for option in point.options]
        best = max(range(len(values)), key=lambda i: (values[i] <= 16, values[i]))
        return Recommendation(best, explanation=f"{values[best]} of {values}")


env = gym.make("tirgym/DecisionStatic-v0", kernel="matmul").unwrapped
agent = Guard(WideTiles())
observation, info = env.reset(seed=0)
done = False
while not done:
    observation, reward, terminated, truncated, info = env.decide(agent)
    done = terminated or truncated
    print(info["transform"])
print(f"predicted speedup {info['speedup']:.2f}x, {agent.report.taken} answers taken")
env.close()
