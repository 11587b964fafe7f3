"""`PreparedKernel`: programs of one workload made where TVM is, in a file for a machine that has none.

One JSON file for each kernel. It ends with a digest of itself, so that one that was cut or changed is
noticed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tirgym.errors import DamagedFileError, InvalidValueError, UsageError
from tirgym.harness.cuda.program import CudaProgram, Problem
from tirgym.harness.launches import DeviceCode, Launch
from tirgym.harness.whole_file import write_whole
from tirgym.kernels_suite.kernel import Tensor

__all__ = [
    "FORMAT",
    "MAX_BYTES",
    "UNSCHEDULED",
    "PreparedKernel",
    "PreparedProgram",
    "prepared_files",
]

FORMAT = "tirgym-prepared-1"
MAX_BYTES = 64 << 20
"""of all files of a folder together"""
UNSCHEDULED = "unscheduled"
"""name of the program that the others are judged and timed against"""
SUFFIX = ".prepared.json"


@dataclass(frozen=True)
class PreparedProgram:
    """One schedule, compiled."""

    name: str
    """"unscheduled", "dlight Matmul", "random 3", … """
    transforms: tuple[str, ...]
    """of its trace; none for a schedule that the compiler chose"""
    code: DeviceCode
    cubin: bytes
    predicted_us: float | None
    """by the static cost; None where there is none"""


@dataclass(frozen=True)
class PreparedKernel:
    """What a file holds. The first program is the unscheduled one."""

    problem: Problem
    arch: str
    seed: int
    checked_at: str
    """URI of the size at which every program's schedule passed the serial check"""
    predicted_by: str
    """name of the static cost model"""
    versions: Mapping[str, str]
    """of what made it"""
    programs: tuple[PreparedProgram, ...]

    def __post_init__(self) -> None:
        """Raises InvalidValueError for programs that cannot be launched, or none to compare with."""
        names = [program.name for program in self.programs]
        if not names or names[0] != UNSCHEDULED or len(set(names)) < len(names):
            accepted = f"different names, {UNSCHEDULED} first"
            raise InvalidValueError("names of prepared programs", ", ".join(names), accepted)
        for program in self.programs:
            misfit = self.program(program).misfits()
            if misfit:
                raise InvalidValueError(f"prepared program {program.name}", misfit, "launches")

    def program(self, chosen: PreparedProgram) -> CudaProgram:
        """`chosen` as a device takes it."""
        return CudaProgram(self.problem, self.arch, chosen.code, chosen.cubin)

    def to_json(self) -> str:
        """Canonical text: equal content gives equal bytes."""
        content = _fields(self)
        return json.dumps({**content, "digest": _digest(content)}, indent=1, sort_keys=True) + "\n"

    def save(self, folder: Path) -> Path:
        """Into `folder`, under the kernel's name; answers the path."""
        path = folder / f"{self.problem.stated().kernel.name}{SUFFIX}"
        write_whole(path, self.to_json())
        return path

    @classmethod
    def load(cls, path: Path) -> PreparedKernel:
        """Raises DamagedFileError for a file that is missing, cut, changed or of another format."""

        def damaged(problem: str) -> DamagedFileError:
            return DamagedFileError(str(path), f"prepared kernel ({FORMAT})", problem)

        try:
            if path.stat().st_size > MAX_BYTES:
                raise damaged(f"it is larger than {MAX_BYTES >> 20} MiB")
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(f"not JSON ({error})") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise damaged(f"its format field is not {FORMAT!r}")
        if content.pop("digest", None) != _digest(content):
            raise damaged("its digest is another: it was cut or changed")
        try:
            return _read(content)
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise damaged(f"{type(error).__name__}: {error}") from None


def prepared_files(folder: Path) -> tuple[Path, ...]:
    """The files of a folder, by name; raises UsageError where there are none, or too much."""
    found = tuple(sorted(folder.glob(f"*{SUFFIX}"))) if folder.is_dir() else ()
    if not found:
        raise UsageError(
            f"{folder} holds no *{SUFFIX}; make them where TVM is installed: "
            "python -m tirgym.benchmarks.device_check.prepare --out DIR --arch sm_90"
        )
    total = sum(path.stat().st_size for path in found)
    if total > MAX_BYTES:
        raise UsageError(f"{folder} holds {total >> 20} MiB; at most {MAX_BYTES >> 20} are taken")
    return found


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _fields(kernel: PreparedKernel) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **{name: value for name, value in asdict(kernel).items() if name != "programs"},
        "programs": [
            {**asdict(program), "cubin": base64.b64encode(program.cubin).decode()}
            for program in kernel.programs
        ],
    }


def _read(content: dict[str, Any]) -> PreparedKernel:
    problem = dict(content["problem"])
    tensors = tuple(
        Tensor(t["name"], tuple(t["shape"]), t["dtype"]) for t in problem.pop("tensors")
    )
    return PreparedKernel(
        Problem(tensors=tensors, **problem),
        content["arch"],
        content["seed"],
        content["checked_at"],
        content["predicted_by"],
        dict(content["versions"]),
        tuple(_program(fields) for fields in content["programs"]),
    )


def _program(fields: dict[str, Any]) -> PreparedProgram:
    code = fields["code"]
    launches = tuple(_launch(launch) for launch in code["launches"])
    return PreparedProgram(
        fields["name"],
        tuple(fields["transforms"]),
        DeviceCode(code["source"], launches, tuple(code["workspaces"])),
        base64.b64decode(fields["cubin"], validate=True),
        fields["predicted_us"],
    )


def _launch(fields: dict[str, Any]) -> Launch:
    made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return Launch(**made)
