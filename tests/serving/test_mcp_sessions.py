"""Sessions of the MCP server: limits, isolation, crashes, cancelling; with processes that compile
nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import psutil
import pytest
from mcp_hosts import HOST, opening

from tirgym.errors import InvalidValueError, UsageError
from tirgym.serving.mcp_results import Closed
from tirgym.serving.mcp_sessions import SessionLimits, Sessions

LIMITS = SessionLimits(sessions=2, trials=4, seconds=600.0, idle_s=600.0)
PATIENCE_S = 150.0
"""For things that have to happen on a busy machine."""


async def silent(seconds: float, text: str) -> None:
    """Nobody listens."""


@asynccontextmanager
async def serving(limits: SessionLimits = LIMITS) -> AsyncIterator[Sessions]:
    """Sessions that are watched, and shut at the end."""
    sessions = Sessions(limits, HOST)
    async with sessions.running():
        yield sessions


async def opened(sessions: Sessions) -> str:
    """Handle of a new session."""
    found = await sessions.open(opening(), silent)
    assert isinstance(found, Closed)
    return found.session


async def told(sessions: Sessions, name: str, call: str = "recall", **arguments: object) -> str:
    """What a session answers."""
    found = await sessions.ask(name, call, arguments, silent)
    assert isinstance(found, Closed)
    return found.session


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test, which must not hang."""

    async def limited() -> None:
        with anyio.fail_after(2 * PATIENCE_S):
            await test()

    anyio.run(limited)


async def until_ended(sessions: Sessions, name: str) -> str:
    """Why a session ended, once it has, without a call to it."""
    deadline = anyio.current_time() + PATIENCE_S
    while anyio.current_time() < deadline:
        await anyio.sleep(0.1)
        if sessions._table[name].ended:
            break
    with pytest.raises(UsageError) as caught:
        await told(sessions, name)
    return str(caught.value)


def test_two_sessions_know_nothing_of_each_other() -> None:
    async def test() -> None:
        async with serving() as sessions:
            one, two = await opened(sessions), await opened(sessions)
            assert one != two
            await told(sessions, one, "tell", text="secret")
            assert await told(sessions, one) == "secret"
            assert await told(sessions, two) == two

    run(test)


def test_a_handle_must_be_known_whole() -> None:
    async def test() -> None:
        async with serving() as sessions:
            one = await opened(sessions)
            for wrong in ("", one[:-1], one + "x", one.swapcase()):
                with pytest.raises(InvalidValueError, match="the handle that load answered"):
                    await told(sessions, wrong)

    run(test)


def test_only_so_many_sessions_and_closing_one_makes_room() -> None:
    async def test() -> None:
        async with serving() as sessions:
            one, _ = await opened(sessions), await opened(sessions)
            with pytest.raises(UsageError, match="2 sessions are open, as many as this server"):
                await opened(sessions)
            await sessions.close(one)
            await opened(sessions)
            with pytest.raises(UsageError, match="it was closed; load begins a new one"):
                await told(sessions, one)

    run(test)


def test_what_cannot_be_loaded_takes_no_place() -> None:
    async def test() -> None:
        async with serving() as sessions:
            for _ in range(3):
                with pytest.raises(UsageError, match=r"^no such kernel$"):
                    await sessions.open(opening("refused"), silent)
            await opened(sessions)
            await opened(sessions)

    run(test)


def test_a_session_ends_when_its_time_is_over_even_in_the_middle_of_a_call() -> None:
    async def test() -> None:
        async with serving(SessionLimits(seconds=3.0)) as sessions:
            with pytest.raises(UsageError, match="its 3 s are over"):
                await told(sessions, await opened(sessions), "sleep", seconds=1000)

    run(test)


def test_a_session_that_nobody_uses_ends_and_one_at_work_does_not() -> None:
    async def test() -> None:
        async with serving(SessionLimits(idle_s=2.0)) as sessions:
            working = await opened(sessions)
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: told(sessions, working, "sleep", seconds=1000))
                idle = await opened(sessions)
                assert "no call for 2 s" in await until_ended(sessions, idle)
                group.cancel_scope.cancel()
            assert await told(sessions, working) == working

    run(test)


def test_a_crash_ends_one_session_alone() -> None:
    async def test() -> None:
        async with serving() as sessions:
            one, two = await opened(sessions), await opened(sessions)
            with pytest.raises(UsageError, match=r"its process ended \(SIGSEGV"):
                await told(sessions, one, "crash")
            assert await told(sessions, two) == two
            await opened(sessions)  # its place is free

    run(test)


def test_an_unforeseen_error_is_one_line_and_the_session_goes_on() -> None:
    async def test() -> None:
        async with serving() as sessions:
            one = await opened(sessions)
            with pytest.raises(UsageError, match=r"^LookupError: no such thing$"):
                await told(sessions, one, "mistake")
            assert await told(sessions, one) == one

    run(test)


@pytest.mark.parametrize(("call", "survives"), [("sleep", True), ("deaf", False)])
def test_a_cancelled_call_ends(call: str, survives: bool) -> None:
    async def test() -> None:
        async with serving() as sessions:
            one = await opened(sessions)
            began = time.monotonic()
            with anyio.move_on_after(1.0):
                await told(sessions, one, call, seconds=1000)
            if survives:
                assert await told(sessions, one) == one
            else:  # the process does not listen, so it is killed
                with pytest.raises(UsageError, match="killed to cancel a call"):
                    await told(sessions, one)
            assert time.monotonic() - began < PATIENCE_S

    run(test)


def test_calls_of_one_session_follow_each_other_and_others_do_not_wait() -> None:
    async def test() -> None:
        answered: list[str] = []
        async with serving() as sessions:
            one, two = await opened(sessions), await opened(sessions)

            async def second() -> None:
                answered.append(await told(sessions, one))

            async with anyio.create_task_group() as later, anyio.create_task_group() as first:
                first.start_soon(lambda: told(sessions, one, "sleep", seconds=1000))
                await anyio.sleep(0.1)
                later.start_soon(second)
                assert await told(sessions, two) == two
                assert answered == []
                first.cancel_scope.cancel()
            assert answered == [one]

    run(test)


def test_progress_says_how_long_and_at_what() -> None:
    async def test() -> None:
        news: list[tuple[float, str]] = []

        async def tell(seconds: float, text: str) -> None:
            news.append((seconds, text))

        async with serving() as sessions:
            one = await opened(sessions)
            await sessions.ask(one, "sleep", {"seconds": 1.5}, tell)
        assert news
        assert news[0][1] == "sleeping"
        assert 0 < news[0][0] < PATIENCE_S

    run(test)


def test_no_process_is_left_when_sessions_are_shut() -> None:
    async def test() -> None:
        async with serving() as sessions:
            one, two = await opened(sessions), await opened(sessions)
            workers = [sessions._table[name].worker for name in (one, two)]
            pids = [worker.pid for worker in workers if worker is not None]
            assert len(pids) == 2
            assert all(psutil.pid_exists(pid) for pid in pids)
        assert not any(psutil.pid_exists(pid) for pid in pids)

    run(test)


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"sessions": 0}, "--sessions: 0 is not accepted; expected a whole number of at least 1"),
        ({"trials": -1}, "--trials: -1 is not accepted; expected a whole number of at least 1"),
        ({"seconds": 0.0}, "--seconds: 0.0 is not accepted; expected a positive number"),
        ({"seconds": float("nan")}, "--seconds: nan is not accepted"),
        ({"idle_s": float("inf")}, "--idle: inf is not accepted"),
    ],
)
def test_limits_that_leave_nothing_to_do_are_refused(limits: dict[str, float], line: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        SessionLimits(**limits)  # type: ignore[arg-type]
    assert line in str(caught.value)
