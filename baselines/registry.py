"""The agent table: every search agent by name; third parties are named as "package.module:Class"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, cast

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Agent
from tirgym.harness.branches import Branches
from tirgym.harness.decisions.space import SPACES
from tirgym.harness.macros import VOCABULARY_NAMES, named_vocabulary
from tirgym.harness.vocabulary import Vocabulary

__all__ = [
    "AGENTS",
    "EVIDENCE",
    "STRONGEST",
    "agent_spaces",
    "default_agent",
    "in_space",
    "make_agent",
    "make_branches",
    "option_names",
    "parse_options",
]

AGENTS: Mapping[str, str] = {
    "random": "tirgym.baselines.random_walk:RandomAgent",
    "static": "tirgym.baselines.static_choice:StaticAgent",
    "greedy": "tirgym.baselines.greedy:GreedyAgent",
    "beam": "tirgym.baselines.beam:BeamAgent",
    "evolutionary": "tirgym.baselines.evolutionary:EvolutionaryAgent",
    "mcts": "tirgym.baselines.mcts:MCTSAgent",
    "llm": "tirgym.baselines.llm.agent:LLMAgent",
    "ppo-gnn": "tirgym.baselines.ppo.agent:GnnAgent",
    "ppo-mlp": "tirgym.baselines.ppo.agent:MlpAgent",
}
"""Name → "module:Class"; imported only when asked for."""


STRONGEST = "evolutionary"
"""The agent that plays unless another is asked for, where the compiler has decision points."""

EVIDENCE = (
    "strongest at 64 trials on matmul, conv2d, softmax, layernorm, attention and gemm_bias_gelu"
)
"""Why: `python -m tirgym.benchmarks.agents_compare`, see `docs/agents.md`."""


def default_agent(backend: str) -> tuple[str, str]:
    """The agent that plays for `backend` unless another is asked for, and why that one."""
    if backend in SPACES:
        return STRONGEST, EVIDENCE
    return "greedy", f"{STRONGEST} needs decision points, which {backend} has none of"


def agent_spaces(name: str) -> tuple[str, ...]:
    """The spaces that the agent called `name` plays, its default first; () if it takes none.

    Spaces are the compiler's decision points ("decision") and the action tables by name. Raises
    what `make_agent` raises.
    """
    return tuple(getattr(_class_of(name), "spaces", ()))


def in_space(
    name: str, space: str | None, backend: str
) -> tuple[dict[str, Any], Vocabulary | None]:
    """Options and vocabulary with which the agent called `name` plays `space`; None: its default.

    Raises UnknownNameError for a space that the agent does not play, or the backend does not have.
    """
    if space is None:
        return {}, None
    spaces = agent_spaces(name)
    if space not in spaces:
        raise UnknownNameError(f"space of agent {name}", space, spaces or ["none: leave it out"])
    takes = "space" in (_options_of(name) or {})
    vocabulary = named_vocabulary(space, backend) if space in VOCABULARY_NAMES else None
    return {"space": space} if takes else {}, vocabulary


def make_agent(name: str, **options: Any) -> Agent:
    """The agent called `name`, or the class at "package.module:Class", made with `options`.

    Options are the fields of the agent's `Args`. Raises UnknownNameError for a name that is in no
    table or module, and InvalidValueError for an option that the agent does not have.
    """
    made, accepted = _class_of(name), _options_of(name)
    for option in options if accepted is not None else ():
        if option not in (accepted or ()):
            raise UnknownNameError(f"option of agent {name}", option, accepted or ["none"])
    return cast(Agent, made(**options))


def parse_options(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """Options for `make_agent` from texts such as "width=8", in the types of the agent's `Args`.

    Raises UnknownNameError for an option that the agent does not have, and InvalidValueError for a
    text that is no option or a value of another type.
    """
    types, made = _options_of(name) or {}, dict[str, Any]()
    for text in texts:
        option, equals, value = text.partition("=")
        if not equals:
            raise InvalidValueError(f"option of agent {name}", text, "name=value, such as batch=8")
        if option not in types:
            raise UnknownNameError(f"option of agent {name}", option, types or ["none"])
        kind, read = types[option], _READ.get(types[option], types[option])
        try:
            made[option] = read(value)
        except (KeyError, ValueError):
            what = f"option {option} of agent {name}"
            raise InvalidValueError(what, value, _VALUES.get(kind, kind.__name__)) from None
    return made


_READ: Mapping[type, Any] = {bool: {"true": True, "false": False}.__getitem__}
_VALUES = {bool: "true or false", int: "a whole number", float: "a number"}


def _options_of(name: str) -> dict[str, type] | None:
    """Name → type of what the agent called `name` can be given; None if that is not declared."""
    args = getattr(import_module(_class_of(name).__module__), "Args", None)
    return None if args is None else {f.name: type(f.default) for f in fields(args)}


def option_names(name: str) -> tuple[str, ...]:
    """The options that the agent called `name` declares; raises what `make_agent` raises."""
    return tuple(_options_of(name) or ())


def make_branches(name: str, number: int, **options: Any) -> Agent:
    """`number` agents called `name` that explore side by side (see `Branches`); one is itself.

    An agent with an option `branches` does so by itself.
    """
    if number > 1 and "branches" in (_options_of(name) or {}):
        return make_agent(name, **{**options, "branches": number})
    agents = [make_agent(name, **options) for _ in range(number)]
    return agents[0] if number == 1 else Branches(agents)


def _class_of(name: str) -> type:
    if ":" in name:
        return _third_party(name)
    if name not in AGENTS:
        raise UnknownNameError("agent", name, [*AGENTS, "package.module:Class"])
    return _load(AGENTS[name])


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
