"""`RunFolder`: the files of one training; each is whole at any time, whenever it is killed."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.whole_file import write_whole

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RunFolder"]

_KEPT = 2
"""Newest states that stay."""
_STATE = re.compile(r"state-(\d{12})\.safetensors")


class RunFolder:
    """The folder of a training; held by one process at a time, inside a `with`.

    `args.json`, `state-STEPS.safetensors` (all that is needed to go on; the newest two),
    `progress.jsonl` (one line an evaluation), `tensorboard/`, `policy.safetensors`,
    `best.safetensors` and `curve.png`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.tensorboard = self.path / "tensorboard"
        self.policy = self.path / "policy.safetensors"
        self.best = self.path / "best.safetensors"
        self.curve = self.path / "curve.png"
        self.progress = self.path / "progress.jsonl"

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            accepted = "a folder that no other training is writing to"
            raise InvalidValueError("out", str(self.path), accepted) from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def claim(self, args: TrainArgs) -> None:
        """Note what is trained here; raises InvalidValueError if there are states of something else."""
        path = self.path / "args.json"
        if path.exists() and self.states():
            args.require_same(self._before())
        write_whole(path, json.dumps(args.to_dict(), indent=2) + "\n")

    def holds(self, args: TrainArgs) -> bool:
        """Whether the policy of the finished training `args` lies here, its states or not.

        Raises InvalidValueError for the policy of another training, and what `read_header` raises.
        """
        from tirgym.baselines.ppo.checkpoint import read_header

        if not self.policy.exists() or not (self.path / "args.json").exists():
            return False
        args.require_same(self._before())
        return read_header(self.policy).steps >= args.total_steps

    def _before(self) -> TrainArgs:
        """What was trained here; raises DamagedFileError."""
        path = self.path / "args.json"
        try:
            return TrainArgs.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DamagedFileError(str(path), "list of arguments", str(error)) from None

    # -- states -----------------------------------------------------------------------------

    def states(self) -> list[tuple[int, Path]]:
        """Steps and file of each state, the newest last."""
        names = ((_STATE.fullmatch(path.name), path) for path in self.path.iterdir())
        return sorted((int(match[1]), path) for match, path in names if match)

    def save_state(self, steps: int, tensors: Mapping[str, Tensor], facts: Any) -> None:
        """Write what a training needs to go on from `steps`, and drop old states."""
        from safetensors.torch import save

        text = json.dumps(facts, allow_nan=False)
        data = save(dict(tensors), metadata={"tirgym-training": text})
        write_whole(self.path / f"state-{steps:012d}.safetensors", data)
        for _, path in self.states()[:-_KEPT]:
            path.unlink()

    def load_state(self, path: Path) -> tuple[dict[str, Tensor], Any]:
        """Tensors and facts of a state; raises DamagedFileError."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {})["tirgym-training"])
                return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            problem = f"{error}; remove it to go on from the state before"
            raise DamagedFileError(str(path), "state of a training", problem) from None

    # -- logs -------------------------------------------------------------------------------

    def wait_for_a_new_log(self) -> None:
        """Until a new event file sorts behind those that are there, a second at most.

        TensorBoard reads them in the order of their names, which begin with the second.
        """
        names = [path.name for path in self.tensorboard.glob("events.out.tfevents.*")]
        newest = max((int(name.split(".")[3]) for name in names), default=0)
        left_s = newest + 1 - time.time()
        if 0 < left_s <= 1:
            time.sleep(left_s)

    # -- progress ---------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """The lines of `progress.jsonl`; a last line that was cut off is left out."""
        if not self.progress.exists():
            return []
        lines = self.progress.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a line to `progress.jsonl`."""
        with self.progress.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def keep_rows(self, steps: int) -> None:
        """Drop the lines of evaluations after `steps`."""
        rows: Sequence[Mapping[str, Any]] = [row for row in self.rows() if row["steps"] <= steps]
        write_whole(self.progress, "".join(json.dumps(row) + "\n" for row in rows))
