"""The table of decision agents: who can be served by name; others are named as "package.module:Class"."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from tirgym.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from tirgym.harness.decisions import DecisionAgent

__all__ = ["DECISION_AGENTS", "decision_agent_maker"]

DECISION_AGENTS: Mapping[str, str] = {
    "static": "tirgym.harness.decisions.agents:StaticAgent",
    "random": "tirgym.harness.decisions.agents:RandomAgent",
    "model": "tirgym.serving.agents:model_agent",
    "policy": "tirgym.serving.agents:policy_agent",
}
"""Name → "module:callable" that makes one; imported only when asked for."""


def decision_agent_maker(name: str, options: Sequence[str] = ()) -> Callable[[], DecisionAgent]:
    """Makes the decision agent called `name`, or of the class at "package.module:Class".

    `options` are texts such as "seed=3": keyword arguments of the class or function that makes it, in
    the types of their defaults, or texts. Raises UnknownNameError and InvalidValueError for what is
    not there.
    """
    make = _maker(name)
    arguments = _arguments(name, make, options)
    return lambda: _made(name, make, arguments)


def _maker(name: str) -> Callable[..., object]:
    """What `name` stands for."""
    if ":" not in name and name not in DECISION_AGENTS:
        accepted = [*DECISION_AGENTS, "package.module:Class"]
        raise UnknownNameError("decision agent", name, accepted)
    module, _, attribute = DECISION_AGENTS.get(name, name).partition(":")
    expected = "package.module:Class, importable from here"
    try:
        made = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidValueError("decision agent", name, f"{expected} ({error})") from None
    if not callable(made):
        raise InvalidValueError("decision agent", name, expected)
    return cast(Callable[..., object], made)


def _arguments(name: str, make: Callable[..., object], options: Sequence[str]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters
    named = [p.name for p in parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    made = dict[str, Any]()
    for text in options:
        option, equals, value = text.partition("=")
        if not equals:
            raise InvalidValueError(f"option of agent {name}", text, "name=value, such as seed=3")
        if option not in named and not anything:
            raise UnknownNameError(f"option of agent {name}", option, named or ["none"])
        default = parameters[option].default if option in named else ""
        made[option] = _read(f"option {option} of agent {name}", value, type(default))
    missing = [p for p in named if parameters[p].default is inspect.Parameter.empty]
    for parameter in missing:
        if parameter not in made:
            accepted = f"--option {parameter}=…, which it cannot do without"
            raise InvalidValueError(f"options of agent {name}", " ".join(options), accepted)
    return made


_READ: Mapping[type, tuple[Callable[[str], object], str]] = {
    bool: ({"true": True, "false": False}.__getitem__, "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
}


def _read(what: str, value: str, kind: type) -> object:
    """`value` as a `kind`; as it is for anything but a number or truth value."""
    if kind not in _READ:
        return value
    read, accepted = _READ[kind]
    try:
        return read(value)
    except (KeyError, ValueError):
        raise InvalidValueError(what, value, accepted) from None


_MISTAKES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What the constructor of somebody's agent may raise."""


def _made(name: str, make: Callable[..., object], arguments: Mapping[str, Any]) -> DecisionAgent:
    """The agent; raises InvalidValueError if there is none, or it is none."""
    try:
        agent = make(**arguments)
    except _MISTAKES as error:
        accepted = f"one that can be made ({type(error).__name__}: {error})"
        raise InvalidValueError("decision agent", name, accepted) from error
    if not callable(getattr(agent, "decide", None)):
        accepted = "a class whose objects have a method decide(point)"
        raise InvalidValueError("decision agent", name, accepted)
    return cast("DecisionAgent", agent)


# -- agents that are served by name -----------------------------------------------------------


def model_agent(model: str, files: bool = False) -> DecisionAgent:
    """`ModelAgent` with the trained model (`tirgym model train`) in the file `model`.

    `files` lets those who ask name kernels in Python files, which are run.
    """
    from tirgym.harness.backend import backend
    from tirgym.harness.decisions import ModelAgent
    from tirgym.performance_model.model import PerformanceModel

    loaded = PerformanceModel.load(model)
    backend(loaded.header.target.backend)  # the first question shall not wait for the compiler
    return ModelAgent(loaded, files=files)


def policy_agent(checkpoint: str = "", files: bool = False) -> DecisionAgent:
    """A trained policy (`tirgym train`) in the file `checkpoint`; "": the one that comes with tirgym.

    `files` is that of `model_agent`.
    """
    from tirgym.baselines.ppo.agent import decision_agent
    from tirgym.baselines.ppo.extra import require_rl
    from tirgym.harness.backend import backend

    require_rl("agent policy")
    backend("llvm")  # the first question shall not wait for the compiler
    return decision_agent(checkpoint, files=files)
