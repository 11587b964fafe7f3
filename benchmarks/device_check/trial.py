"""`Trial`: one candidate's verdict and time, as it stands in the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from tirgym.errors import InvalidValueError
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.status import Status

__all__ = ["Trial"]


@dataclass(frozen=True, slots=True)
class Trial:
    """Refuses to exist with a time but no pass."""

    config: dict[str, int]
    without: str
    """pass that was left out of the stock pipeline, "" for none"""
    code_key: str
    status: str
    message: str
    predicted_us: float | None
    """by the static cost; None without code"""
    latency_us: float | None = None
    """lower quartile"""
    speedup: float | None = None
    """time of the default configuration (of the unscheduled program) / this one's, interleaved"""
    interval: tuple[float, float] | None = None
    """95 % bootstrap interval of `speedup`"""
    timer: str = ""
    worst_error: float | None = None
    """in units of the tolerance; None where the gate did not end"""
    program: str = ""
    """name of a prepared program, "" for a configuration of a Triton kernel"""

    def __post_init__(self) -> None:
        if self.latency_us is not None and self.status != Status.PASSED:
            raise InvalidValueError("trial with a time", self.status, "status passed")

    @classmethod
    def of(
        cls, config: Mapping[str, int], without: str, predicted_us: float, found: Evaluation
    ) -> Self:
        """From the device's answer."""
        measured = found.measurement
        return cls(
            config=dict(config),
            without=without,
            code_key=found.code_key,
            status=str(found.status),
            message=found.message,
            predicted_us=predicted_us if predicted_us < float("inf") else None,
            latency_us=measured.latency_us if measured else None,
            speedup=measured.speedup if measured else None,
            interval=measured.speedup_ci if measured else None,
            timer=measured.timer if measured else "",
            worst_error=found.gate.worst_error if found.gate else None,
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """What `to_json` made, read back."""
        interval = fields["interval"]
        return cls(**{**fields, "interval": tuple(interval) if interval else None})

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @property
    def passed(self) -> bool:
        """Correct and timed."""
        return self.status == Status.PASSED
