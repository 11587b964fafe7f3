"""`Header`: what a model was trained on; a model is refused wherever that does not hold."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache, lru_cache

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from tirgym.errors import TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.target import Target
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.dataset import versions_text
from tirgym.performance_model.features import row, row_names
from tirgym.performance_model.view import view_of, viewer_for

__all__ = ["FORMAT", "REMEDY", "Header", "features_digest"]

FORMAT = "tirgym-performance-model-1"
REMEDY = "train one here: tirgym model train --store STORE --out MODEL"

_PROBE = "tirgym://core-v0/softmax?m=8&n=16&dtype=float32"
_PROBE_STEPS = ("Split(loop=1, factor=8)", "Unroll(loop=2)")


@dataclass(frozen=True, slots=True)
class Header:
    """Facts about a trained model, as plain data."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False, extra="forbid")

    kind: str
    """name of the learner"""
    target: Target
    machine: str
    """fingerprint of the machine that was measured"""
    versions: str
    """of the compiler"""
    vocabulary: str
    """digest of the backend's default vocabulary"""
    features: str
    """digest of what programs are described by (`features_digest`)"""
    seed: int
    families: tuple[str, ...]
    """that it learned from"""
    kernels: tuple[str, ...]
    programs: int
    folds: tuple[tuple[str, ...], ...]
    """for each member the families that it did not see"""
    level: float
    """share of truths that intervals are meant to hold"""
    doubts: float
    """half-width of an interval in units of `spread`, from families that members did not see"""
    floor: float
    """added to the members' variance, squared: what they are unsure of even where they agree"""

    def require(self, target: Target, path: str = "the model") -> None:
        """Raise TargetMismatchError unless the model holds for `target` with what is installed here."""
        if target != self.target:
            raise TargetMismatchError(
                f"{path} was trained for {self.target}, the program is for {target}; {REMEDY} "
                f"--threads {target.num_threads}"
            )
        for what, here, there in (
            ("the features of another version", features_digest(target), self.features),
            ("another vocabulary", default_vocabulary(target.backend).digest, self.vocabulary),
            ("other compiler versions", versions_text(), self.versions),
        ):
            if here != there:
                raise TargetMismatchError(
                    f"{path} was trained on {what} ({there}; here {here}); {REMEDY}"
                )

    def to_json(self) -> str:
        """Canonical text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Header:
        """The header whose `to_json` is `text`; raises ValueError with what is wrong."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        try:
            return _reader().validate_json(json.dumps(data), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@cache
def _reader() -> TypeAdapter[Header]:
    """Reads headers: each field of its own type, numbers finite, nothing beside them."""
    return TypeAdapter(Header)


@lru_cache(maxsize=8)
def features_digest(target: Target) -> str:
    """16 hex digits of the names of the features and of what they are on a small program.

    So a model is also refused when the encoder, the static cost or the analysis behind them changed.
    """
    start = backend(target.backend).start(load_workload(_PROBE), target)
    program = start
    for text in _PROBE_STEPS:
        program = program.apply(parse_transform(text))
    digest = hashlib.sha256(" ".join(row_names(viewer_for(start.dialect))).encode())
    for each in (start, program):
        values = np.round(row(view_of(each), view_of(start)).astype(np.float64), 3) + 0.0
        digest.update(json.dumps(values.tolist()).encode())
    return digest.hexdigest()[:16]
