"""Who stands on a board: rows by name, and how each is made."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tirgym.baselines.registry import AGENTS, in_space, make_agent
from tirgym.benchmarks.leaderboard.record import Kind, Recipe, RecipeKind, Saw, SawWhat, one_line
from tirgym.errors import InvalidValueError, MissingExtraError, UnknownNameError, UsageError
from tirgym.harness.agent import Agent
from tirgym.harness.vendor import LIBRARIES, has_call
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload

__all__ = [
    "CONTROL",
    "DEFAULT",
    "NOOP",
    "PEER",
    "VENDORS",
    "Entrant",
    "agent_of",
    "entrant",
    "kind_of",
    "reference_of",
    "row_names",
    "seen_by",
]

CONTROL = "a/a"
NOOP = "noop"
DEFAULT = "default"
PEER = "metaschedule"
VENDORS: Mapping[str, tuple[str, ...]] = {
    "vendor-numpy": ("numpy", "numpy-program"),
    "vendor-torch": ("torch",),
}
"""Row → libraries of `tirgym.harness.vendor`, the first that has a call for the kernel counts."""
BLANK = frozenset({"random", "static", "greedy", "beam", "evolutionary", "mcts", PEER})
"""Agents that bring nothing along: what they learn, they learn within the run."""


@dataclass(frozen=True)
class Entrant:
    """One row of the board."""

    label: str
    """as typed: name, and options where they are not the defaults"""
    name: str
    kind: Kind
    options: Mapping[str, Any]

    def reference(self, workload: Workload) -> Recipe | None:
        """What a row that does not search answers; None where it has nothing for `workload`."""
        if self.name == NOOP:
            return Recipe(RecipeKind.TRANSFORMS)
        if self.kind is Kind.CONTROL:
            return Recipe(RecipeKind.CONTROL)
        if self.name == DEFAULT:
            return Recipe(RecipeKind.DEFAULT)
        kernel = workload.kernel.name
        libraries = [name for name in VENDORS[self.name] if has_call(name, kernel)]
        return Recipe(RecipeKind.LIBRARY, vendor=libraries[0]) if libraries else None

    def saw(self, declared: object) -> Saw:
        """What the agent says that it saw; agents of this package that bring nothing need not say."""
        if declared is None:
            blank = self.kind is not Kind.AGENT or self.name in BLANK
            return Saw(SawWhat.NOTHING if blank else SawWhat.UNKNOWN)
        return _saw(declared)


def _saw(declared: object) -> Saw:
    """From JSON values: {"what": "model", "families": [...], "source": "..."}."""
    if not isinstance(declared, Mapping):
        return Saw(SawWhat.UNKNOWN)
    families, source = declared.get("families", ()), declared.get("source", "")
    try:
        what = SawWhat(str(declared.get("what")))
    except ValueError:
        return Saw(SawWhat.UNKNOWN)
    if not isinstance(families, list | tuple):
        return Saw(SawWhat.UNKNOWN)
    if not all(isinstance(text, str) for text in (*families, source)):
        return Saw(SawWhat.UNKNOWN)
    return Saw(what, tuple(map(one_line, families)), one_line(source))


def row_names() -> tuple[str, ...]:
    """Every row that can be asked for by name."""
    return (CONTROL, NOOP, DEFAULT, *VENDORS, PEER, *AGENTS)


def kind_of(label: str) -> Kind:
    """The kind of the row `label`: what it is called decides what it may answer."""
    name = label.partition(",")[0]
    if name in (NOOP, DEFAULT, *VENDORS):
        return Kind.REFERENCE
    return {CONTROL: Kind.CONTROL, PEER: Kind.PEER}.get(name, Kind.AGENT)


def reference_of(label: str, workload: Workload) -> Recipe | None:
    """What the row `label`, which does not search, answers for `workload`; None for nothing. Whether its
    package is installed does not matter."""
    return Entrant(label, label, kind_of(label), {}).reference(workload)


def entrant(text: str) -> Entrant:
    """The row of `name,option=value,…`.

    Raises UnknownNameError for a name that is in no table, InvalidValueError for an option without
    a value, and MissingExtraError for a row that needs a package that is not installed. Agents of
    third parties ("package.module:Class") are imported in their own process alone.
    """
    name, *words = text.split(",")
    options = _options(words)
    if ":" in name:
        return Entrant(text, name, Kind.AGENT, options)
    if name not in row_names():
        raise UnknownNameError("agent", name, [*row_names(), "package.module:Class"])
    if name in (CONTROL, NOOP, DEFAULT, *VENDORS):
        if options:
            raise InvalidValueError(f"options of {name}", ",".join(words), "none")
        for package in {LIBRARIES[library].package for library in VENDORS.get(name, ())}:
            if find_spec(package) is None:
                raise MissingExtraError(f"row {name}", package, "peers")
        return Entrant(text, name, kind_of(text), options)
    agent_of(name, options, "llvm")  # says now what would end every run
    return Entrant(text, name, kind_of(text), options)


def _options(words: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InvalidValueError("option of an agent", word, "name=value")
        try:
            made[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            made[key] = value
    return made


def seen_by(agent: Agent) -> object:
    """What `agent` says that it saw, as JSON values: its attribute `saw`, or the kernels that the
    header of its checkpoint names; None if it says nothing."""
    declared: object = getattr(agent, "saw", None)
    player: Any = getattr(agent, "player", None)
    header = getattr(player, "header", None)
    if declared is not None or header is None:
        return declared
    source = f"{Path(player.checkpoint).name} {header.weights[:12]}"
    try:
        workloads = [load_workload(name, files=False) for name in header.kernels]
        families = sorted({workload.kernel.family for workload in workloads})
    except UsageError:
        return {"what": SawWhat.UNKNOWN.value, "source": source}
    return {"what": SawWhat.MODEL.value, "families": families, "source": source}


def agent_of(
    name: str, options: Mapping[str, Any], backend: str
) -> tuple[Agent, Vocabulary | None]:
    """The agent and the vocabulary that it plays, None for the backend's default."""
    rest = dict(options)
    if name == PEER:
        from tirgym.baselines.metaschedule import MetaScheduleAgent

        return MetaScheduleAgent(**rest), None
    space, vocabulary = rest.pop("space", None), None
    if space is not None:
        more, vocabulary = in_space(name, space, backend)
        rest |= more
    return make_agent(name, **rest), vocabulary
