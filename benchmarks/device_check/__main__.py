"""The command line of the device check."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from tirgym import settings
from tirgym.benchmarks.device_check.plan import Plan
from tirgym.benchmarks.device_check.prepared_set import SHIPPED, PreparedSet
from tirgym.benchmarks.device_check.report import report
from tirgym.benchmarks.device_check.run import run_check
from tirgym.errors import BackendUnavailableError, TirgymError
from tirgym.harness.backends.triton import TritonBackend
from tirgym.harness.triton.device.cuda import why_no_cuda
from tirgym.harness.whole_file import write_whole

REPORT = "device_check.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the check ran (whatever it found), 2 without a device or for bad usage."""
    parser = argparse.ArgumentParser(
        prog="device_check",
        description="Kernels of Triton and of TVM on this machine's GPU, checked and timed.",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder; a later run goes on there")
    parser.add_argument("--budget", type=float, default=480.0, help="wall seconds (480)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--prepared",
        type=Path,
        default=SHIPPED,
        help="folder of `prepare`: TVM's programs made elsewhere (those that ship)",
    )
    parser.add_argument("--json", action="store_true", help="the record on stdout, no table")
    given = parser.parse_args(arguments)
    try:
        problem = why_no_cuda() or TritonBackend().why_unavailable()
        if problem is not None:
            raise BackendUnavailableError(problem)
        settings.default_home(given.out / "home")
        found = PreparedSet.of(given.prepared)
        plan = Plan(
            budget_s=given.budget,
            seed=given.seed,
            prepared=tuple(found.files),
            prepared_key=found.key,
        )
        secret = secrets.token_bytes(32)
        record = run_check(plan, given.out, secret=secret, say=_say, prepared=found.files)
    except TirgymError as error:
        print(f"device_check: {error}", file=sys.stderr)
        return error.exit_code
    text = report(record)
    write_whole(given.out / REPORT, text)
    sys.stdout.write(record.path.read_text(encoding="utf-8") if given.json else text)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
