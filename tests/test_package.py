"""The package as a whole: packaging, import cost, error tree, public names."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tirgym
from tirgym import errors

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "kernels_suite", "harness", "spaces", "performance_model", "rewards", "envs", "baselines",
    "benchmarks", "serving", "docs",
)  # fmt: skip


def test_every_package_in_the_tree_is_in_the_wheel() -> None:
    listed = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    )
    found = {"tirgym"}
    for init in (ROOT / "src/tirgym").glob("*/__init__.py"):
        if not init.parent.is_symlink():
            found.add(f"tirgym.{init.parent.name}")
    for folder in FOLDERS:
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join(("tirgym", *init.parent.relative_to(ROOT).parts)))
    assert listed == found


def test_every_part_of_a_page_is_in_the_wheel() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = {
        file
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
        for file in ROOT.joinpath(*package.split(".")[1:]).glob(pattern)
    }
    found = {
        file
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".html", ".css", ".js") and (file.parent / "__init__.py").exists()
    }
    assert len(found) > 3
    assert found <= listed


def test_every_root_folder_has_its_link_for_type_checkers() -> None:
    for folder in FOLDERS:
        if (ROOT / folder).exists():
            assert (ROOT / "src/tirgym" / folder).resolve() == ROOT / folder


@pytest.mark.parametrize("module", ["tirgym", "tirgym.envs", "tirgym.cli"])
def test_import_loads_no_compiler(module: str) -> None:
    code = (
        f"import sys, {module}; "
        "print(sorted({'tvm', 'torch', 'triton', 'matplotlib', 'xgboost'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_resolve() -> None:
    for name in tirgym.__all__:
        assert getattr(tirgym, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        tirgym.no_such_name  # noqa: B018


def test_error_tree_is_whole_and_pickles() -> None:
    made = [
        errors.UnknownNameError("kernel", "matmull", ["matmul", "softmax"]),
        errors.UnknownNameError("backend", None, ["llvm"]),  # type: ignore[arg-type]
        errors.InvalidValueError("trials", 0, "a positive integer"),
        errors.DamagedFileError("t.json", "trace", "not JSON"),
        errors.MissingExtraError("a picture", "matplotlib", "plot"),
        errors.TargetMismatchError("made for skylake"),
        errors.BackendUnavailableError("no CUDA device"),
        errors.IllegalTransformError(
            "Split(loop=9, factor=2)", "loop exists", "no loop 9", "loop 9"
        ),
        errors.EvaluationError("no worker"),
        errors.WorkerDiedError("gone"),
        errors.ProcessDiedError("a process of its own ended with -11"),
        errors.DeviceError("cuLaunchKernel", 700, "an illegal memory access was encountered"),
        errors.TrustedProgramError("matmul fails its own gate"),
        errors.TrainingError("the reward is nan"),
        errors.CompileFailedError("cubin", "ptxas: unknown architecture", "log"),
        errors.EndpointError("http://127.0.0.1:8000/v1 cannot be reached"),
        errors.AgentBusyError("256 messages wait for the agent already"),
        errors.AgentTimeoutError("no answer within 0.05 s"),
    ]
    classes = {getattr(errors, name) for name in errors.__all__}
    covered = {cls for error in made for cls in type(error).__mro__}
    assert classes <= covered
    for error in made:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert "\n" not in str(error)
    assert "did you mean 'matmul'" in str(made[0])


BORDERS = {
    "harness/decisions/guard.py",
    "baselines/ppo/remote_group.py",
    "harness/triton/compiling.py",
}
"""Where foreign code (an agent, a compiler) is called and whatever it raises is counted; and the workers."""


def test_no_broad_except_outside_the_borders() -> None:
    """`except Exception` stands at the worker-process border and where agents are asked."""
    offenders = []
    for folder in (*FOLDERS, "src/tirgym"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name.startswith("worker") or str(path.relative_to(ROOT)) in BORDERS:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ExceptHandler) and (
                    node.type is None
                    or (isinstance(node.type, ast.Name) and node.type.id == "Exception")
                ):
                    offenders.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert offenders == []
