"""`tirgym doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

import typer

from tirgym import settings
from tirgym.cli.options import JsonFlag
from tirgym.cli.output import print_json
from tirgym.errors import BackendUnavailableError, TirgymError

__all__ = ["Finding", "doctor_command", "examine"]

EXTRAS = {
    "llm": ("openai",),
    "opencl": ("pyopencl",),
    "plot": ("matplotlib",),
    "rl": (
        "safetensors",
        "sb3_contrib",
        "stable_baselines3",
        "tensorboard",
        "torch",
        "torch_geometric",
    ),
}
"""Optional extra → modules that it brings."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    status: str
    """ok, note (something optional is missing), or failed (the core does not work)"""
    detail: str
    remedy: str = ""


def doctor_command(json: JsonFlag = False) -> None:
    """Check the installation: builds, gates and times a tiny kernel for real; exit 1 if it fails."""
    findings = list(examine())
    failed = [finding for finding in findings if finding.status == "failed"]
    if json:
        print_json({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        for found in findings:
            remedy = f": {found.remedy}" if found.remedy else ""
            typer.echo(f"{found.status:7} {found.check}: {found.detail}{remedy}")
    if failed:
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Every finding, the quick ones first."""
    yield _python()
    yield from _pins()
    yield from _backends()
    yield from _extras()
    for check in (_compiler, _counters, _threads, _store, _core):
        yield check()


def _python() -> Finding:
    found = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("python", "ok", found)
    return Finding("python", "failed", found, "use Python 3.11, 3.12 or 3.13")


def _pins() -> Iterator[Finding]:
    """Packages that must have one exact version, from the package's own requirements."""
    for requirement in requires("tirgym") or ():
        name, pinned, wanted = requirement.partition("==")
        if not pinned or ";" in requirement:
            continue
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "not installed"
        remedy = f"pip install '{name}=={wanted}'"
        right = found == wanted
        yield Finding(name, "ok" if right else "failed", found, "" if right else remedy)


def _backends() -> Iterator[Finding]:
    from tirgym.harness.backend import BACKENDS, backend

    for name in BACKENDS:
        try:
            target = backend(name).target()
        except BackendUnavailableError as error:
            yield Finding(f"backend {name}", "note", "not available", str(error))
        else:
            yield Finding(f"backend {name}", "ok", f"this machine is {target.arch}")


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            remedy = f"pip install 'tirgym[{extra}]'"
            yield Finding(f"extra {extra}", "note", f"without {', '.join(missing)}", remedy)
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(modules))


def _compiler() -> Finding:
    from tirgym.harness.export import c_compiler

    command = c_compiler()
    if command is None:
        remedy = "needed by `tirgym export` alone: install gcc or clang, or pip install ziglang"
        return Finding("C compiler", "note", "none", remedy)
    return Finding("C compiler", "ok", " ".join(command))


def _counters() -> Finding:
    from tirgym.harness.counters import why_unavailable

    reason = why_unavailable()
    if reason is None:
        return Finding("hardware counters", "ok", "cycles, instructions, cache and branch misses")
    return Finding("hardware counters", "note", "not available", reason)


def _threads() -> Finding:
    cores = os.cpu_count() or 1
    detail = f"{cores} cores; the default track uses {settings.default_threads()}"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 0.8 * cores:
        remedy = f"load is {load:.1f}: other work makes measurements noisy"
        return Finding("threads", "note", detail, remedy)
    return Finding("threads", "ok", detail)


def _store() -> Finding:
    """The measurement store can be opened and holds what SQLite calls a sound database."""
    path = settings.store_path()
    if not path.exists():
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        if os.access(folder, os.W_OK):
            return Finding("store", "ok", f"{path} (not made yet)")
        return Finding("store", "failed", f"{folder} is read-only", "set TIRGYM_HOME")
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        try:
            verdict = str(connection.execute("PRAGMA quick_check").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as error:
        verdict = str(error)
    if verdict == "ok":
        return Finding("store", "ok", f"{path}, {path.stat().st_size / 1e6:.1f} MB")
    return Finding("store", "failed", f"{path}: {verdict}", "move the file away; it is a cache")


def _core() -> Finding:
    """Builds, gates and times a tiny kernel in the worker."""
    from tirgym.harness.session import CompileHarness
    from tirgym.kernels_suite.kernel import Workload
    from tirgym.kernels_suite.registry import load_kernel

    kernel = load_kernel("matmul")
    try:
        with CompileHarness() as harness:
            harness.load_ir(Workload.of(kernel, kernel.tiny_shape))
            evaluation = harness.compile_and_benchmark()
    except TirgymError as error:
        return Finding("build, gate, time", "failed", str(error), "reinstall tirgym")
    if evaluation.measurement is not None:
        time_us = evaluation.measurement.latency_us
        return Finding("build, gate, time", "ok", f"matmul at its tiny shape: {time_us:.2f} µs")
    detail = f"{evaluation.status.value}: {evaluation.message}"
    if evaluation.status in ("noisy", "suspect", "too_slow"):
        return Finding("build, gate, time", "note", detail, "correct, but not timed: try again")
    return Finding("build, gate, time", "failed", detail, "reinstall tirgym")
