"""`Tools`: the tools of the MCP server, one method each; their signatures are what clients read."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, TextContent
from pydantic import Field

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.whole_file import write_whole
from tirgym.kernels_suite.kernel import Split, Workload
from tirgym.kernels_suite.registry import SUITES, list_kernels, split_of
from tirgym.serving.mcp_results import (
    Actions,
    Applied,
    Baselines,
    Closed,
    Evaluated,
    Exported,
    History,
    IRText,
    KernelEntry,
    Kernels,
    Loaded,
    Profile,
    Result,
    Snapshot,
)
from tirgym.serving.mcp_sessions import SessionLimits, Sessions, Tell
from tirgym.serving.mcp_wire import START, Opening

__all__ = ["ServerOptions", "Tools"]

MAX_CHARACTERS = 20_000
"""Of an IR text, unless asked for otherwise."""

Ctx = Context[Sessions, Any]
Handle = Annotated[str, Field(description="Handle of the session, from load.")]
Offset = Annotated[int, Field(ge=0, description="Entries to skip.")]
Limit = Annotated[int, Field(ge=1, le=1000, description="Entries to answer at most.")]
Node = Annotated[int | None, Field(description="Only actions on this one.")]
Sizes = dict[str, Annotated[int, Field(ge=1, le=2**31 - 1)]]
"""Indices are 32-bit."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What holds for every session of a server."""

    limits: SessionLimits = field(default_factory=SessionLimits)
    backend: str = "llvm"
    arch: str | None = None
    """None: this machine's"""
    threads: int = 1
    files: bool = False
    """whether clients may load kernels from Python files, which are run"""
    store: str | None = None
    """path of the measurement store; None: the user's"""
    out: Path | None = None
    """folder that exported traces are saved in"""


class Tools:
    """What clients may call. Raises UsageError, which the server answers as a tool error."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options

    async def list_kernels(
        self,
        suite: Annotated[str | None, Field(description="Only this suite's.")] = None,
        split: Annotated[str | None, Field(description="train, val or test.")] = None,
    ) -> Annotated[CallToolResult, Kernels]:
        """List the kernels that load takes, with their default shapes."""
        return _answer(await anyio.to_thread.run_sync(_kernels, suite, split))

    async def load(
        self,
        ctx: Ctx,
        kernel: Annotated[
            str, Field(description="Name (matmul), URI (tirgym://…) or file.py:NAME.")
        ],
        shape: Annotated[
            Sizes | Literal["tiny"] | None,
            Field(description='Sizes by dimension, such as {"m": 64}; the rest keeps its default.'),
        ] = None,
        trials: Annotated[
            int | None, Field(ge=1, description="Budget; the server's limit by default.")
        ] = None,
        space: Annotated[
            Literal["primitive", "macro", "both"],
            Field(description="Actions: single transforms, several in one, or both."),
        ] = "both",
    ) -> Annotated[CallToolResult, Loaded]:
        """Begin a session with the unscheduled program of a kernel; answers its handle."""
        options, limits = self.options, self.options.limits
        if trials is not None and trials > limits.trials:
            raise InvalidValueError("trials", trials, f"1 to {limits.trials} (tirgym mcp --trials)")
        opening = Opening(
            session="",
            kernel=kernel,
            shape=shape,
            space=space,
            trials=trials or limits.trials,
            seconds=limits.seconds,
            agent=_agent(ctx),
            files=options.files,
            backend=options.backend,
            arch=options.arch,
            threads=options.threads,
            store=options.store,
        )
        return _answer(await _sessions(ctx).open(opening, _teller(ctx)))

    async def get_ir(
        self,
        ctx: Ctx,
        session: Handle,
        level: Annotated[str, Field(description="tir, lowered, llvm, asm or passes.")] = "tir",
        max_characters: Annotated[
            int, Field(ge=200, le=1_000_000, description="Longer texts lose their middle.")
        ] = MAX_CHARACTERS,
    ) -> Annotated[CallToolResult, IRText]:
        """The current program as text at one IR level."""
        return await _ask(ctx, session, "ir", level=level, max_characters=max_characters)

    async def legal_actions(
        self,
        ctx: Ctx,
        session: Handle,
        kind: Annotated[str | None, Field(description="Only this kind, such as Split.")] = None,
        loop: Node = None,
        block: Node = None,
        offset: Offset = 0,
        limit: Limit = 50,
    ) -> Annotated[CallToolResult, Actions]:
        """The actions that are legal now, by page; there are often thousands, so name a kind."""
        return await _ask(
            ctx,
            session,
            "legal_actions",
            kind=kind,
            loop=loop,
            block=block,
            offset=offset,
            limit=limit,
        )

    async def apply(
        self,
        ctx: Ctx,
        session: Handle,
        action: Annotated[str, Field(description="Such as Split(loop=2, factor=8).")],
        why: Annotated[
            str, Field(max_length=2000, description="Your reason, kept in the history.")
        ] = "",
    ) -> Annotated[CallToolResult, Applied]:
        """Apply an action; answers what changed statically and the new loop nest."""
        return await _ask(ctx, session, "apply", action=action, why=why)

    async def evaluate(
        self,
        ctx: Ctx,
        session: Handle,
        level: Annotated[
            Literal["training", "full"],
            Field(description="full: fresh inputs of every kind, timed against unscheduled."),
        ] = "training",
    ) -> Annotated[CallToolResult, Evaluated]:
        """Build, check and time the current program; machine code that is new costs a trial."""
        return await _ask(ctx, session, "evaluate", level=level)

    async def profile(
        self,
        ctx: Ctx,
        session: Handle,
        measure: Annotated[
            bool,
            Field(description="Also evaluate (may cost a trial), roofline and hardware counters."),
        ] = False,
    ) -> Annotated[CallToolResult, Profile]:
        """What the current program does: work, memory traffic, vectors, instructions."""
        return await _ask(ctx, session, "profile", measure=measure)

    async def baseline(self, ctx: Ctx, session: Handle) -> Annotated[CallToolResult, Baselines]:
        """Measure the kernel unscheduled, as the compiler schedules it, and in vendors' libraries."""
        return await _ask(ctx, session, "baseline")

    async def snapshot(self, ctx: Ctx, session: Handle) -> Annotated[CallToolResult, Snapshot]:
        """Remember the current program; answers a name for rollback."""
        return await _ask(ctx, session, "snapshot")

    async def rollback(
        self,
        ctx: Ctx,
        session: Handle,
        snapshot: Annotated[
            str, Field(description="From snapshot; start is the unscheduled program.")
        ] = START,
    ) -> Annotated[CallToolResult, Snapshot]:
        """Make a snapshot the current program again."""
        return await _ask(ctx, session, "rollback", snapshot=snapshot)

    async def history(
        self, ctx: Ctx, session: Handle, offset: Offset = 0, limit: Limit = 50
    ) -> Annotated[CallToolResult, History]:
        """What was done, why, and what came of it, oldest first."""
        return await _ask(ctx, session, "history", offset=offset, limit=limit)

    async def export_trace(
        self,
        ctx: Ctx,
        session: Handle,
        program: Annotated[
            Literal["best", "current"], Field(description="The best that passed, or the current.")
        ] = "best",
        measure: Annotated[
            bool, Field(description="Measure it anew in full, so that the number is verified.")
        ] = True,
    ) -> Annotated[CallToolResult, Exported]:
        """The steps to a program as a trace that `tirgym verify` accepts."""
        kept = _sessions(ctx).last_best(session)
        if kept is not None and not measure and program == "best":
            made = kept
        else:
            found = await _sessions(ctx).ask(
                session, "export", {"program": program, "measure": measure}, _teller(ctx)
            )
            assert isinstance(found, Exported)
            made = found
        if self.options.out is not None:
            path = await anyio.to_thread.run_sync(_save, self.options.out, made)
            made = made.model_copy(update={"file": path})
        return _answer(made)

    async def close(self, ctx: Ctx, session: Handle) -> Annotated[CallToolResult, Closed]:
        """End a session; its state is lost."""
        await _sessions(ctx).close(session)
        return _answer(Closed(session=session))


def _sessions(ctx: Ctx) -> Sessions:
    return ctx.request_context.lifespan_context


def _teller(ctx: Ctx) -> Tell:
    """Reports progress of the call that `ctx` belongs to: seconds so far, and what it is at."""

    async def tell(seconds: float, text: str) -> None:
        await ctx.report_progress(round(seconds, 2), None, text)

    return tell


async def _ask(ctx: Ctx, session: str, call: str, **arguments: Any) -> CallToolResult:
    return _answer(await _sessions(ctx).ask(session, call, arguments, _teller(ctx)))


def _answer(result: Result) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=result.text())],
        structured_content=result.model_dump(mode="json"),
    )


def _agent(ctx: Ctx) -> str:
    """How traces name the client: `mcp:` and what it calls itself."""
    client = ctx.session.client_params
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", client.client_info.name)[:64] if client else ""
    return f"mcp:{name}" if name else "mcp"


def _kernels(suite: str | None, split: str | None) -> Kernels:
    if suite is not None and suite not in SUITES:
        raise UnknownNameError("suite", suite, sorted(SUITES))
    if split is not None and split not in list(Split):
        raise UnknownNameError("split", split, list(Split))
    found = []
    for kernel in list_kernels(suite):
        part = split_of(kernel)
        if split is None or part == split:
            found.append(
                KernelEntry(
                    kernel=kernel.name,
                    suite=kernel.suite,
                    family=kernel.family,
                    split=str(part or ""),
                    dtype=kernel.dtype,
                    shape=dict(kernel.default_shape),
                    uri=Workload.of(kernel).uri,
                )
            )
    return Kernels(kernels=found)


def _save(folder: Path, made: Exported) -> str:
    """Save a trace under a new name in `folder`; raises InvalidValueError if that cannot be."""
    kernel = re.sub(r"[^A-Za-z0-9_]+", "-", made.trace["workload"].partition("?")[0])
    stem = kernel.rpartition("-")[2] or "kernel"
    number = 1
    while True:
        path = folder / f"{stem}-{number}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.touch(exist_ok=False)
            write_whole(path, json.dumps(made.trace, indent=2, sort_keys=True) + "\n")
        except FileExistsError:
            number += 1
        except OSError as error:
            accepted = f"a folder that can be written ({error.strerror})"
            raise InvalidValueError("--out", str(folder), accepted) from None
        else:
            return str(path)
