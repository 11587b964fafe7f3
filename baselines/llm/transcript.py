"""`Transcript`: all that was said with a language model, as JSON lines; `Replayed` answers from one.

Format `tirgym-llm-1`. Each line is an object with `kind`:

    header     what was played: model, base_url (without credentials), workload, target, options,
               hardware (as prompts name it), versions, made
    exchange   branch, round, form, messages, reply, usage, retries, seconds: one question, one answer
    refused    branch, round, base, actions, predicted_speedup, why, message: not measured, and why
    measured   number, branch, round, base, actions, predicted_speedup, why, ir_key, status, speedup,
               latency_us, message, predicted_us: a claim beside its effect
    round      round, trials_left, best: after each round
    note       text
    end        stopped, calls, retries, requests (HTTP), prompt_tokens, answer_tokens, tokens_estimated, money

A line is on disk before the run goes on, so that a killed run can be read, and replayed as far as it
went. Keys of endpoints are in no line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from tirgym.baselines.llm.answers import Call, Message, Reply
from tirgym.baselines.llm.budget import Usage
from tirgym.baselines.llm.endpoint import Exchange
from tirgym.errors import DamagedFileError, InvalidValueError, TargetMismatchError

__all__ = [
    "FORMAT",
    "SUFFIX",
    "Replayed",
    "Saved",
    "Transcript",
    "TranscriptOverError",
    "chosen_transcript",
    "free_path",
    "is_transcript",
]

FORMAT = "tirgym-llm-1"
SUFFIX = ".llm.jsonl"


class TranscriptOverError(Exception):
    """A transcript has no further answer; the message says why it ends there."""


class Transcript:
    """Appends lines to a new file: `path`, or the first that is free; used as a context manager."""

    def __init__(
        self, path: Path, header: Mapping[str, Any], hide: Callable[[str], str] = lambda text: text
    ) -> None:
        self._hide = hide
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self.path = free_path(path)
            with suppress(FileExistsError):  # another run has taken it meanwhile
                self._file = self.path.open("x", encoding="utf-8")
                break
        self.add("header", format=FORMAT, **header)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, kind: str, **fields: Any) -> None:
        """One line, handed to the operating system."""
        line = json.dumps({"kind": kind, **fields}, ensure_ascii=False)
        self._file.write(self._hide(line) + "\n")
        self._file.flush()

    def exchange(
        self, branch: int, number: int, messages: Sequence[Message], answered: Exchange
    ) -> None:
        """A question and its answer."""
        self.add(
            "exchange",
            branch=branch,
            round=number,
            form=answered.form,
            messages=list(messages),
            reply=asdict(answered.reply),
            usage=asdict(answered.usage),
            retries=answered.retries,
            seconds=answered.seconds,
        )


def free_path(path: Path) -> Path:
    """`path`, or the first of `NAME-2…`, `NAME-3…` that does not exist; nothing is overwritten."""
    stem = path.name.removesuffix(SUFFIX) if path.name.endswith(SUFFIX) else path.stem
    suffix, number = path.name[len(stem) :], 1
    while os.path.lexists(path):  # a link that leads nowhere is no new file
        number += 1
        path = path.with_name(f"{stem}-{number}{suffix}")
    return path


def is_transcript(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like a transcript."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.loads(file.readline(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


class Saved:
    """A transcript that was read: its header and its other lines in order.

    The last line may be half-written. Raises DamagedFileError for anything else that is wrong.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        try:
            lines = Path(path).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            raise self._damaged("there is no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None
        self.lines: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            if line:
                self._take(line, number, last=number == len(lines))
        if not self.lines or self.lines[0].get("format") != FORMAT:
            raise self._damaged(f"its first line is no header of format {FORMAT!r}")
        self.header = self.lines.pop(0)

    def _take(self, line: str, number: int, last: bool) -> None:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict) and isinstance(data.get("kind"), str):
            wrong = _wrong_field(data)
            if wrong:
                raise self._damaged(f"line {number} ({data['kind']}): {wrong} is missing or wrong")
            self.lines.append(data)
        elif not last:
            raise self._damaged(f"line {number} is no object with a kind")

    def _damaged(self, problem: str) -> DamagedFileError:
        return DamagedFileError(self.path, f"transcript ({FORMAT})", problem)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def end(self) -> dict[str, Any] | None:
        """The last line, None if the run was killed."""
        ends = self.of("end")
        return ends[-1] if ends else None

    @property
    def tokens(self) -> int:
        """Of all exchanges, as they were booked."""
        usages = [line["usage"] for line in self.of("exchange")]
        return sum(usage["prompt"] + usage["answer"] for usage in usages)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_figure(value: object) -> bool:
    """A positive number, or None."""
    if value is None or not isinstance(value, int | float) or isinstance(value, bool):
        return value is None
    return 0 < value < float("inf")


def _is_messages(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(message, dict) for message in value)


def _is_reply(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("calls"), list):
        return False
    texts = {name: text for name, text in value.items() if name != "calls"}
    return all(
        isinstance(each, dict) and all(map(_is_text, each.values()))
        for each in (texts, *value["calls"])
    )


def _is_usage(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_count(value.get(name)) for name in ("prompt", "answer")
    )


_Fits = Callable[[Any], bool]
_CLAIM: Mapping[str, _Fits] = {
    "base": lambda value: value is None or type(value) is int, "actions": _is_texts,
    "predicted_speedup": _is_figure, "why": _is_text, "message": _is_text,
}  # fmt: skip
_FIELDS: Mapping[str, Mapping[str, _Fits]] = {
    "exchange": {"branch": _is_count, "messages": _is_messages, "reply": _is_reply,
                 "usage": _is_usage},
    "refused": _CLAIM,
    "measured": {"number": _is_count, "name": _is_text, "status": _is_text,
                 "speedup": _is_figure, "latency_us": _is_figure, **_CLAIM},
    "round": {"round": _is_count, "trials_left": _is_count},
}  # fmt: skip
"""By kind of line, what is read of it and whether it is that."""


def _wrong_field(line: Mapping[str, Any]) -> str:
    """The first field of `line` that a reader could not use, "" if there is none."""
    fields = _FIELDS.get(line["kind"], {})
    return next((name for name, fits in fields.items() if not fits(line.get(name))), "")


class Replayed:
    """Answers as a saved transcript did, as long as it is asked the same questions."""

    together = False

    def __init__(self, saved: Saved) -> None:
        self.saved = saved
        self.notes = [f"replayed from {saved.path}; no model was asked"]
        self._waiting: dict[int, list[dict[str, Any]]] = {}
        for line in saved.of("exchange"):
            self._waiting.setdefault(line["branch"], []).append(line)
        self._asked = 0

    def ask(
        self,
        branch: int,
        messages: Sequence[Message],
        answer_tokens: int = 0,
        seconds_left: float | None = None,
    ) -> Exchange:
        """The recorded answer.

        Raises TargetMismatchError naming the first line that differs from the recorded question, and
        TranscriptOverError where the recording ends.
        """
        waiting = self._waiting.get(branch)
        if not waiting:
            end = self.saved.end
            why = f"ended: {end.get('stopped')}" if end else "breaks off: its run was killed"
            raise TranscriptOverError(f"the transcript {why}")
        self._asked += 1
        line = waiting.pop(0)
        difference = _difference(line.get("messages", []), list(messages))
        if difference:
            versions = self.saved.header.get("versions")
            version = versions.get("tirgym", "unknown") if isinstance(versions, dict) else "unknown"
            raise TargetMismatchError(
                f"{self.saved.path}, exchange {self._asked}: the prompt is another one, "
                f"{difference}; it was recorded with tirgym {version}"
            )
        try:
            reply = dict(line["reply"])
            calls = tuple(Call(**call) for call in reply.pop("calls"))
            usage = Usage(**line["usage"])
            made = Reply(calls=calls, **reply)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(
                self.saved.path, f"transcript ({FORMAT})", f"exchange {self._asked}: {error}"
            ) from None
        return Exchange(made, usage, 0, 0.0, str(line.get("form", "tools")))

    def close(self) -> None:
        """Nothing is open."""


def _difference(recorded: Sequence[Message], now: Sequence[Message]) -> str:
    """Where two conversations differ, in one line; "" if they do not."""
    for old, new in zip(recorded, now, strict=False):
        if old == new:
            continue
        one, other = (str(m.get("content") or m).split("\n") for m in (old, new))
        for number, (was, is_) in enumerate(zip(one, other, strict=False), 1):
            if was != is_:
                return f"line {number} of its {new.get('role')} message: {_cut(was, is_)}"
        return f"its {new.get('role')} message has {len(other)} lines, recorded were {len(one)}"
    if len(recorded) != len(now):
        return f"{len(now)} messages, recorded were {len(recorded)}"
    return ""


def _cut(was: str, is_: str) -> str:
    """Both lines from shortly before they part."""
    same = next((n for n, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b), 0)
    start = max(0, same - 20)
    return f"{is_[start : start + 70]!r}, recorded was {was[start : start + 70]!r}"


def chosen_transcript(path: str, workload: str) -> Saved:
    """The transcript at `path`, or the only one of `workload` in that folder.

    Raises InvalidValueError for a folder that holds none or several.
    """
    if not os.path.isdir(path):
        return Saved(path)
    files = sorted(str(file) for file in Path(path).glob("*.jsonl") if is_transcript(file))
    found = [saved for saved in map(Saved, files) if saved.header.get("workload") == workload]
    if len(found) != 1:
        names = ", ".join(Path(saved.path).name for saved in found) or "none"
        accepted = f"a file, or a folder with one transcript of {workload} ({names} found)"
        raise InvalidValueError("transcript of agent llm", path, accepted)
    return found[0]
