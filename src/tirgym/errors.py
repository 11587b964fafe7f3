"""The errors that tirgym raises, as one tree.

    TirgymError
    ├── UsageError                 the caller asked for something that does not exist; CLI exit code 2
    │   ├── UnknownNameError       a name that is in no table; lists the names that are
    │   ├── InvalidValueError      a value outside what is accepted; says what would be accepted
    │   ├── DamagedFileError       a trace, store or kernel file that does not parse
    │   ├── MissingExtraError      an optional package is not installed; says how to get it
    │   └── TargetMismatchError    a trace or record made for another target, version or vocabulary
    ├── BackendUnavailableError    a compiler or device is missing; says which and how to get it
    ├── CompileFailedError         a compiler refused a program; carries the stage and its words
    ├── IllegalTransformError      a rule or the compiler refused a transform; carries rule and location
    ├── AgentError                 an agent gave no usable answer: it raised, or cannot be reached
    │   ├── AgentBusyError         too many questions wait for it, or it hangs
    │   └── AgentTimeoutError      it did not answer in time
    ├── EndpointError              a language model's endpoint refuses, or does not answer
    ├── TrainingError              a training cannot go on: a reward or a loss is no number
    └── EvaluationError            the measuring machinery failed, as opposed to the program it measured
        ├── WorkerDiedError        the worker process ended in the middle of a request
        ├── ProcessDiedError       a process that was started for one call ended without an answer
        ├── DeviceError            a GPU's driver refused a kernel or lost it
        └── TrustedProgramError    the program that others are judged against is wrong itself

Every error pickles, so that it can cross a process border.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AgentBusyError",
    "AgentError",
    "AgentTimeoutError",
    "BackendUnavailableError",
    "CompileFailedError",
    "DamagedFileError",
    "DeviceError",
    "EndpointError",
    "EvaluationError",
    "IllegalTransformError",
    "InvalidValueError",
    "MissingExtraError",
    "ProcessDiedError",
    "TargetMismatchError",
    "TirgymError",
    "TrainingError",
    "TrustedProgramError",
    "UnknownNameError",
    "UsageError",
    "WorkerDiedError",
]


class TirgymError(Exception):
    """Root of all errors raised by tirgym on purpose."""

    exit_code = 1


class UsageError(TirgymError):
    """The caller asked for something that cannot be; nothing was changed."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that is in no table, with the close and the accepted ones."""

    def __init__(self, kind: str, name: str, accepted: Iterable[str]) -> None:
        self.kind, self.name, self.accepted = kind, name, tuple(accepted)
        super().__init__(kind, name, self.accepted)

    def __str__(self) -> str:
        close = difflib.get_close_matches(str(self.name), self.accepted, n=1)
        hint = f"; did you mean {str(close[0])!r}?" if close else "."
        return f"unknown {self.kind} {self.name!r}{hint} Accepted: {', '.join(self.accepted)}"


class InvalidValueError(UsageError):
    """A value outside what is accepted."""

    def __init__(self, what: str, value: object, accepted: str) -> None:
        self.what, self.value, self.accepted = what, value, accepted
        super().__init__(what, value, accepted)

    def __str__(self) -> str:
        return f"{self.what}: {self.value!r} is not accepted; expected {self.accepted}"


class DamagedFileError(UsageError):
    """A file that exists but cannot be read as what it should be."""

    def __init__(self, path: str, what: str, problem: str) -> None:
        self.path, self.what, self.problem = path, what, problem
        super().__init__(path, what, problem)

    def __str__(self) -> str:
        return f"{self.path} is not a readable {self.what}: {self.problem}"


class MissingExtraError(UsageError):
    """Something that needs an optional package, which is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        self.what, self.package, self.extra = what, package, extra
        super().__init__(what, package, extra)

    def __str__(self) -> str:
        return (
            f"{self.what} needs {self.package}, which is not installed; "
            f"pip install 'tirgym[{self.extra}]'"
        )


class TargetMismatchError(UsageError):
    """A trace or record made for another target, version or vocabulary."""


class BackendUnavailableError(TirgymError):
    """A compiler or device that is not there; never replaced silently by another."""

    exit_code = 2


class CompileFailedError(TirgymError):
    """A compiler refused a program.

    `stage` is the IR level that it could not make, `reason` what it said about that, and `log` all
    that it wrote on stderr.
    """

    def __init__(self, stage: str, reason: str, log: str = "") -> None:
        self.stage, self.reason, self.log = stage, reason, log
        super().__init__(stage, reason, log)

    def __str__(self) -> str:
        return f"no {self.stage}: {self.reason}"


class IllegalTransformError(TirgymError):
    """A vocabulary rule or the compiler refused a transform.

    `rule` is the name of the rule, or "compiler"; `location` names the loop or block.
    """

    def __init__(self, transform: str, rule: str, reason: str, location: str = "") -> None:
        self.transform, self.rule, self.reason, self.location = transform, rule, reason, location
        super().__init__(transform, rule, reason, location)

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location else ""
        return f"{self.transform} is illegal{where}: {self.reason} [{self.rule}]"


class AgentError(TirgymError):
    """An agent gave no usable answer; a `Guard` takes the static choice."""


class AgentBusyError(AgentError):
    """An agent cannot be asked now."""


class AgentTimeoutError(AgentError, TimeoutError):
    """An agent did not answer in time."""


class EndpointError(TirgymError):
    """The endpoint of a language model refuses, or does not answer; one line says why."""


class TrainingError(TirgymError):
    """A training cannot go on: a reward or a loss is no finite number."""


class EvaluationError(TirgymError):
    """The measuring machinery failed; says nothing about the program."""


class WorkerDiedError(EvaluationError):
    """The worker process ended in the middle of a request."""


class ProcessDiedError(EvaluationError):
    """A process that was started for one call was killed by a signal, or ended without an answer.

    What it was doing may have ended it, as opposed to a call that raised: that one says what failed.
    """


class DeviceError(EvaluationError):
    """A GPU's driver refused a kernel or lost it: `call` is the driver's function, `code` its answer."""

    def __init__(self, call: str, code: int, reason: str) -> None:
        self.call, self.code, self.reason = call, code, reason
        super().__init__(call, code, reason)

    def __str__(self) -> str:
        return f"{self.call}: {self.reason} (error {self.code})"


class TrustedProgramError(EvaluationError):
    """The program that others are judged against fails its own gate."""
