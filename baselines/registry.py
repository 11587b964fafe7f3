"""The agent table: every search agent by name; third parties are named as "package.module:Class"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, cast

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Agent
from tirgym.harness.branches import Branches

__all__ = ["AGENTS", "make_agent", "make_branches"]

AGENTS: Mapping[str, str] = {
    "random": "tirgym.baselines.random_walk:RandomAgent",
    "greedy": "tirgym.baselines.greedy:GreedyAgent",
    "beam": "tirgym.baselines.beam:BeamAgent",
    "evolutionary": "tirgym.baselines.evolutionary:EvolutionaryAgent",
    "mcts": "tirgym.baselines.mcts:MCTSAgent",
}
"""Name → "module:Class"; imported only when asked for."""


def make_agent(name: str, **options: Any) -> Agent:
    """The agent called `name`, or the class at "package.module:Class", made with `options`.

    Options are the fields of the agent's `Args`. Raises UnknownNameError for a name that is in no
    table or module, and InvalidValueError for an option that the agent does not have.
    """
    if ":" in name:
        made = _third_party(name)
    elif name in AGENTS:
        made = _load(AGENTS[name])
    else:
        raise UnknownNameError("agent", name, [*AGENTS, "package.module:Class"])
    args = getattr(import_module(made.__module__), "Args", None)
    if args is not None:
        accepted = [field.name for field in fields(args)]
        for option in options:
            if option not in accepted:
                raise UnknownNameError(f"option of agent {name}", option, accepted)
    return cast(Agent, made(**options))


def make_branches(name: str, number: int, **options: Any) -> Agent:
    """`number` agents called `name` that explore side by side (see `Branches`); one is itself."""
    agents = [make_agent(name, **options) for _ in range(number)]
    return agents[0] if number == 1 else Branches(agents)


def _load(where: str) -> type:
    module, _, attribute = where.partition(":")
    return cast(type, getattr(import_module(module), attribute))


def _third_party(name: str) -> type:
    module, _, attribute = name.partition(":")
    expected = "package.module:Class, importable from here"
    try:
        made = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidValueError("agent", name, f"{expected} ({error})") from None
    if not callable(getattr(made, "run", None)):
        raise InvalidValueError("agent", name, f"{expected}, with a method run(search)")
    return cast(type, made)
