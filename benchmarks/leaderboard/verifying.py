"""`verify_board`: measures every answer of a board in clean processes and writes the verdicts."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line, read_lines
from tirgym.benchmarks.leaderboard.measuring import NOT_MEASURED, Job, measure_apart
from tirgym.benchmarks.leaderboard.parallel import parallel_map, require_jobs
from tirgym.benchmarks.leaderboard.record import Record
from tirgym.benchmarks.leaderboard.running import versions
from tirgym.benchmarks.leaderboard.signing import Signer
from tirgym.benchmarks.leaderboard.verdicts import Session, Standing, Verified, judge_record
from tirgym.errors import InvalidValueError, UsageError
from tirgym.harness.hardware import fingerprint
from tirgym.harness.store import PROTOCOL_VERSION
from tirgym.harness.target import Target
from tirgym.harness.whole_file import write_whole
from tirgym.kernels_suite.registry import load_workload

__all__ = ["Step", "Summary", "Verdicts", "admitted", "read_verified", "verify_board"]

SESSION_FORMAT = "tirgym-session-1"
VERIFIED_FORMAT = "tirgym-verified-1"
CHUNK = 24
"""Recipes that one process measures; what a killed verification loses. Each process works out the
references of the kernel's other shapes anew, so that few recipes a process would be slow."""

Measure = Callable[[str, Target, Sequence[Job], int], list[Session]]


@dataclass(frozen=True, slots=True)
class Step:
    """What `verify_board` tells after each process."""

    workload: str
    session: int
    done: int
    """recipes measured in sessions"""
    total: int
    left_s: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What a verification found."""

    verified: tuple[Verified, ...]
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Every answer that was claimed holds, and every line could be read."""
        fine = (Standing.VERIFIED, Standing.NOT_APPLICABLE)
        return not self.problems and all(
            v.standing in fine and v.claim_holds is not False for v in self.verified
        )


def verify_board(
    folder: BoardFolder,
    sessions: int,
    on_step: Callable[[Step], None] = lambda step: None,
    measure: Measure = measure_apart,
    *,
    jobs: int = 1,
) -> Summary:
    """Measure what lacks sessions, `jobs` processes at a time, then write verified.jsonl.

    Killed at any moment and called again, it goes on after the last process that ended. What the
    machine failed to measure is a problem, and no session, so that the next call measures it. Raises
    InvalidValueError for a folder without records that can be verified here, and for more jobs than
    have cores of their own.
    """
    folder.require()
    records, problems = folder.records()
    records, left_out = admitted(records, fingerprint())
    problems += left_out
    if not records:
        accepted = "at least one record that can be verified here"
        told = "; ".join(problems[:3]) or "no record"
        raise InvalidValueError("board", f"{folder.path} ({told})", accepted)
    signer = Signer()
    target = records[0].target
    known, forged = _sessions(folder, signer, target)
    problems += forged
    require_jobs(jobs, target.num_threads)
    wanted = _jobs(records)
    waiting = list(_waiting(wanted, known, sessions))
    total = sum(len(recipes) for recipes in wanted.values()) * sessions
    done = total - sum(len(chunk) for _, _, chunk in waiting)
    began, fresh = time.monotonic(), 0
    with closing(parallel_map(_Chunk(measure, target), waiting, jobs)) as results:
        for (uri, session, chunk), measured in results:
            problems += _not_measured(measured)
            for given in (each for each in measured if each.status != NOT_MEASURED):
                found = replace(given, concurrent=jobs - 1)
                line = signer.signed({"format": SESSION_FORMAT, **asdict(found)})
                append_line(folder.sessions_path, line)
                known[found.workload, found.recipe].append(found)
            fresh += len(chunk)
            left_s = (time.monotonic() - began) / fresh * (total - done - fresh)
            on_step(Step(uri, session, done + fresh, total, left_s))
    verified = [v for record in records for v in judge_record(record, known, sessions)]
    verified += _missing(folder, records)
    most = max((s.concurrent for each in known.values() for s in each), default=0)
    head = {"format": VERIFIED_FORMAT, "wanted": sessions, "concurrent": most}
    lines = [signer.signed({**head, **asdict(v)}) for v in verified]
    write_whole(folder.verified_path, "".join(line + "\n" for line in lines))
    return Summary(tuple(verified), tuple(problems))


@dataclass(frozen=True)
class _Chunk:
    """Measures chunks, in any process."""

    measure: Measure
    target: Target

    def __call__(self, chunk: tuple[str, int, list[Job]]) -> list[Session]:
        uri, session, jobs = chunk
        return self.measure(uri, self.target, jobs, session)


def _not_measured(found: Iterable[Session]) -> Iterator[str]:
    """One line for all recipes that the machine failed for the same reason."""
    lost = Counter((s.workload, s.session, s.message) for s in found if s.status == NOT_MEASURED)
    for (uri, session, reason), many in lost.items():
        what = f"{uri}, session {session + 1}" + (f", {many} recipes" if many > 1 else "")
        yield f"not measured, try again: {what}: {reason}"


def _missing(folder: BoardFolder, records: Sequence[Record]) -> Iterator[Verified]:
    """Rows that the plan asks for and nobody ran, or that were dropped."""
    plan, known = folder.expected(records), {record.key for record in records}
    for agent, uri, seed in plan.rows():
        if (agent, uri, seed) not in known:
            for trials in plan.trials:
                text = "there is no record"
                yield Verified(agent, uri, seed, trials, Standing.MISSING, text)


def admitted(records: Sequence[Record], machine: str) -> tuple[list[Record], list[str]]:
    """Records that can stand on one board of `machine`, and a line for each group that cannot.

    A board has one machine, one target (threads included), one list of trial counts and one time limit:
    those that most of its records have.
    """
    here = [(r.target, r.trials, r.seconds) for r in records if r.machine.fingerprint == machine]
    usual = Counter(here).most_common(1)[0][0] if here else None
    kept: list[Record] = []
    refused: Counter[str] = Counter()
    for record in records:
        reason = _refusal(record, machine, usual)
        if reason:
            refused[reason] += 1
        else:
            kept.append(record)
    return kept, [f"{number} left out: {reason}" for reason, number in refused.items()]


def _refusal(
    record: Record, machine: str, usual: tuple[Target, tuple[int, ...], float | None] | None
) -> str:
    if usual is None or record.machine.fingerprint != machine:
        theirs = f"{record.machine.cpu}, {record.machine.fingerprint}"
        return f"recorded on other hardware ({theirs}; here {machine}); run and verify it there"
    target, trials, seconds = usual
    if record.target != target:
        return f"recorded for {record.target}; this board is for {target}"
    if record.trials != trials:
        return f"answers at trials {record.trials}; this board has {trials}"
    if record.seconds != seconds:
        return f"searched within {record.seconds} s; the limit of this board is {seconds}"
    return _unknown(record.workload)


@lru_cache(maxsize=1024)
def _unknown(uri: str) -> str:
    """Why `uri` is no workload of the suites that are installed, "" if it is one."""
    try:
        load_workload(uri)
    except UsageError as error:
        return f"{uri}: {error}"
    return ""


def _jobs(records: Iterable[Record]) -> dict[str, dict[str, Job]]:
    """By workload, each different recipe."""
    found: dict[str, dict[str, Job]] = defaultdict(dict)
    for record in records:
        for answer in record.answers:
            job = Job(answer.recipe, record.kind, shapes=False)
            found[record.workload].setdefault(answer.recipe.digest, job)
    return found


def _waiting(
    jobs: Mapping[str, Mapping[str, Job]],
    known: Mapping[tuple[str, str], Sequence[Session]],
    sessions: int,
) -> Iterator[tuple[str, int, list[Job]]]:
    """(workload, session, recipes) of each process that is needed: all of one session, then the next."""
    for session in range(sessions):
        for uri, wanted in jobs.items():
            lacking = [
                Job(job.recipe, job.kind, shapes=session == 0)
                for digest, job in wanted.items()
                if all(s.session != session for s in known.get((uri, digest), ()))
            ]
            for at in range(0, len(lacking), CHUNK):
                yield uri, session, lacking[at : at + CHUNK]


def _sessions(
    folder: BoardFolder, signer: Signer, target: Target
) -> tuple[dict[tuple[str, str], list[Session]], list[str]]:
    """Sessions that this installation measured for `target`, on this machine and with the versions that
    it has now; others are problems.

    The first line of a session counts. Lines of others are taken out of the file.
    """

    good: list[str] = []
    here = (fingerprint(), versions(), str(target), PROTOCOL_VERSION)

    def parse(text: str) -> Session:
        data = signer.opened(text)
        if data.pop("format", None) != SESSION_FORMAT:
            raise ValueError(f"its format is not {SESSION_FORMAT!r}")
        interval = data.pop("speedup_ci", None)
        try:
            session = Session(**data, speedup_ci=tuple(interval) if interval else None)
        except TypeError as error:
            raise ValueError(str(error)) from None
        if (session.machine, session.versions, session.target, session.protocol) != here:
            raise ValueError("measured on another machine, for another target or by other versions")
        good.append(text)
        return session

    known: dict[tuple[str, str], list[Session]] = defaultdict(list)
    found, problems = read_lines(folder.sessions_path, parse)
    for _, session in found:
        place = (session.workload, session.recipe)
        if all(s.session != session.session for s in known[place]):
            known[place].append(session)
    if problems:
        write_whole(folder.sessions_path, "".join(line + "\n" for line in good))
    return known, list(_grouped(folder, problems))


def _grouped(folder: BoardFolder, problems: Sequence[str]) -> Iterator[str]:
    """One line for all lines with the same defect."""
    places: dict[str, list[str]] = defaultdict(list)
    for problem in problems:
        number, _, reason = problem.removeprefix(f"{folder.sessions_path}:").partition(": ")
        places[reason].append(number)
    for reason, numbers in places.items():
        more = f" and {len(numbers) - 1} more lines" if len(numbers) > 1 else ""
        yield f"{folder.sessions_path}:{numbers[0]}{more}: {reason}; measured again"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What stands in verified.jsonl."""

    verified: tuple[Verified, ...]
    sessions: int
    """that they were asked for"""
    foreign: int
    """verdicts that this installation did not make, or that were changed since"""
    concurrent: int
    """other processes at the same time, at most"""
    problems: tuple[str, ...]


def read_verified(folder: BoardFolder) -> Verdicts:
    """The verdicts of a board, made here or elsewhere."""
    wanted: Counter[int] = Counter()
    signer, foreign, concurrent = Signer(), 0, 0

    def parse(text: str) -> Verified:
        nonlocal foreign, concurrent
        try:
            data = signer.opened(text)
        except ValueError:
            foreign += 1
            data = json.loads(text)
            data.pop("mark", None)
        if data.pop("format", None) != VERIFIED_FORMAT:
            raise ValueError(f"its format is not {VERIFIED_FORMAT!r}")
        wanted[int(data.pop("wanted"))] += 1
        concurrent = max(concurrent, int(data.pop("concurrent", 0)))
        data["standing"] = Standing(data["standing"])
        data["sessions"] = tuple(map(float, data["sessions"]))
        return Verified(**data)

    def checked(text: str) -> Verified:
        try:
            return parse(text)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"missing or unexpected field ({error})") from None

    found, problems = read_lines(folder.verified_path, checked)
    sessions = wanted.most_common(1)[0][0] if wanted else 0
    verified = tuple(verdict for _, verdict in found)
    return Verdicts(verified, sessions, foreign, concurrent, tuple(problems))
