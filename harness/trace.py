"""`Trace`: the replayable answer, a workload and the transforms applied to it, as plain JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tirgym.errors import DamagedFileError
from tirgym.harness.target import Target
from tirgym.harness.whole_file import write_whole

__all__ = ["FORMAT", "REPLAYED", "Trace", "TraceResult"]

FORMAT = "tirgym-trace-1"
REPLAYED = "replayed"
"""Status of a number that a store gave and nobody measured for the trace."""


@dataclass(frozen=True, slots=True)
class TraceResult:
    """What was measured when the trace was recorded; a claim until `tirgym verify` replays it."""

    status: str
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None
    baseline_us: float | None = None
    best_us: float | None = None
    replayed_from: str = ""
    """fingerprint of the machine whose stored numbers these are; then a `status` of "passed" reads
    "replayed", since nothing was run"""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that is needed to make a program again."""

    workload: str
    """workload URI"""
    target: Target
    transforms: tuple[str, ...]
    """text forms, in order"""
    ir_key: str = ""
    code_key: str = ""
    vocabulary: str = ""
    """digest of the action table the trace was made with, "" if none"""
    versions: dict[str, str] = field(default_factory=dict)
    agent: str = ""
    seed: int | None = None
    result: TraceResult | None = None

    def to_json(self) -> str:
        """Canonical text: sorted keys, two spaces, a newline at the end."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str = "<trace>") -> Trace:
        """Parse `text`; raises DamagedFileError naming `path` and what is wrong."""

        def damaged(problem: str) -> DamagedFileError:
            return DamagedFileError(path, f"trace ({FORMAT})", problem)

        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise damaged(f"not JSON ({error})") from None
        if not isinstance(data, dict):
            raise damaged("the top level is not an object")
        if data.pop("format", None) != FORMAT:
            raise damaged(f"its format field is not {FORMAT!r}")
        try:
            target = Target(**data.pop("target"))
            result = data.pop("result", None)
            if result is not None:
                interval = result.get("speedup_ci")
                result = TraceResult(
                    **{**result, "speedup_ci": tuple(interval) if interval else None}
                )
            transforms = data.pop("transforms")
            trace = cls(target=target, transforms=tuple(transforms), result=result, **data)
        except (TypeError, AttributeError, KeyError) as error:
            raise damaged(f"missing or unexpected field ({error})") from None
        if not isinstance(transforms, list) or type(target.num_threads) is not int:
            raise damaged("transforms must be a list and num_threads an integer")
        problem = _type_problem(trace)
        if problem:
            raise damaged(problem)
        return trace

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write whole or not at all: a crash leaves the old file or none."""
        write_whole(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace; raises DamagedFileError if the file is missing, unreadable or damaged."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = str(error)
            if isinstance(error, OSError) and error.strerror:
                problem = error.strerror
            if isinstance(error, FileNotFoundError):
                problem = "there is no such file"
            raise DamagedFileError(str(path), f"trace ({FORMAT})", problem) from None
        return cls.from_json(text, str(path))


def _type_problem(trace: Trace) -> str:
    """Which fields have values of the wrong type; "" if none."""
    texts = (trace.workload, *trace.transforms, trace.target.backend, trace.target.arch)
    notes = (trace.ir_key, trace.code_key, trace.vocabulary, trace.agent)
    if not all(isinstance(text, str) for text in (*texts, *notes)):
        return "workload, transforms, backend, arch, keys and agent must be strings"
    versions, seed, result = trace.versions, trace.seed, trace.result
    if not isinstance(versions, dict) or not all(isinstance(v, str) for v in versions.values()):
        return "versions must be an object of strings"
    if not (seed is None or isinstance(seed, int)):
        return "seed must be an integer"
    if result is not None:
        given = (result.speedup, result.baseline_us, result.best_us)
        numbers = [n for n in given if n is not None] + list(result.speedup_ci or ())
        if not isinstance(result.replayed_from, str):
            return "replayed_from must be a string"
        if not isinstance(result.status, str) or len(result.speedup_ci or (0, 0)) != 2:
            return "status must be a string and speedup_ci two numbers"
        if not all(map(_is_number, numbers)):
            return "speedup, its interval and the times must be numbers"
    return ""


def _is_number(value: object) -> bool:
    """Whether `value` is a number that a float holds."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
