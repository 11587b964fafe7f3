"""`DesignSpace`: what can be decided about a program, by backend; the table of spaces."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Protocol, cast

from tirgym.errors import UnknownNameError
from tirgym.harness.decisions.walk import Task, Walk
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import NodeRef

__all__ = ["SPACES", "DesignSpace", "design_space", "space_for"]


class DesignSpace(Protocol):
    """The open choices of one backend's programs."""

    def tasks(self, program: Program) -> tuple[Task, ...]:
        """The agenda for an unscheduled program; a pure function of program and target."""

    def snippet(self, program: Program, node: NodeRef) -> str:
        """The IR around `node` as text, numbered as transforms address it."""


SPACES: dict[str, str] = {"llvm": "tirgym.harness.decisions.cpu:CpuSpace"}
"""Backend → "module:Class"; imported only when asked for."""


@cache
def _load(where: str) -> DesignSpace:
    module, _, name = where.partition(":")
    return cast(DesignSpace, getattr(import_module(module), name)())


def space_for(program: Program) -> DesignSpace:
    """The space of `program`'s backend; raises UnknownNameError."""
    backend = program.target.backend
    if backend not in SPACES:
        raise UnknownNameError("backend with a design space", backend, sorted(SPACES))
    return _load(SPACES[backend])


def design_space(program: Program) -> Walk:
    """The first open question about the unscheduled `program`; a walk without one if there is none.

    Raises UnknownNameError for a backend that has no design space.
    """
    return Walk.begin(program, space_for(program).tasks(program))
