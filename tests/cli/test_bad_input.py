"""Bad input is answered by one clear line on stderr, exit code 2, and nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

NO_TRACE = "{tmp}/none.json"
CASES: dict[str, tuple[list[str], str]] = {
    "command": (["shwo", "matmul"], "did you mean 'show'"),
    "missing command": (["gate"], "selftest"),
    "command of a group": (["gate", "selftst"], "did you mean 'selftest'"),
    "option": (["show", "matmul", "--levle", "asm"], "--levle"),
    "missing argument": (["show"], "KERNEL|TRACE"),
    "not a number": (["optimize", "matmul", "--trials", "many"], "--trials"),
    "list": (["list", "kernel"], "did you mean 'kernels'"),
    "suite": (["list", "--suite", "core-v9"], "core-v0"),
    "split": (["list", "--split", "dev"], "train, val, test"),
    "split of agents": (["list", "agents", "--split", "train"], "only the list of kernels"),
    "kernel": (["show", "matmull"], "did you mean 'matmul'"),
    "trace for a kernel": (["optimize", "{tmp}/good.json"], "not a trace"),
    "kernel file": (["show", "{tmp}/none.py:k"], "no such file"),
    "kernel in a file": (["show", "{tmp}/kernels.py:k"], "no_reference"),
    "kernel file elsewhere": (["show", "none.py:k"], "no such file in /"),
    "kernel without a reference": (["optimize", "{tmp}/kernels.py:no_reference"], "lambda a, b"),
    "kernel file that raises": (["show", "{tmp}/raises.py:k"], "ZeroDivisionError: division"),
    "kernel that cannot be built": (["optimize", "{tmp}/kernels.py:unbuilt"], "line 4"),
    "kernel without a program": (["optimize", "{tmp}/kernels.py:empty"], "PrimFunc"),
    "kernel file that raises its own": (["show", "{tmp}/own.py:k"], "Oops: no (/"),
    "kernel file whose command fails": (["show", "{tmp}/command.py:k"], "command.py, line 2)"),
    "kernel file that exits": (["show", "{tmp}/exits.py:k"], "SystemExit: 3 (/"),
    "kernel file, escaped": (["show", "tirgym://local/{tmp}/exits.p%79:k"], "SystemExit: 3 (/"),
    "kernel file with a null byte": (["show", "tirgym://local/%00.py:k"], "null byte"),
    "kernel file with a long name": (["show", "x" * 5000 + ".py:k"], "too long"),
    "build that exits": (["optimize", "{tmp}/kernels.py:exits"], "SystemExit: 4 (/"),
    "build at a shape": (["show", "{tmp}/kernels.py:some", "-s", "n=3"], "Exception: n is 3 (/"),
    "URI": (["show", "tirgym://core-v0"], "tirgym://SUITE/KERNEL"),
    "URI bracket": (["show", "tirgym://[::1/softmax"], "workload URI"),
    "URI closing bracket": (["optimize", "tirgym://core-v0]/softmax"], "workload URI"),
    "URI of an odd suite": (["show", "tirgym://core\u2105v0/softmax"], "workload URI"),
    "URI without a suite": (["profile", "tirgym:///softmax"], "workload URI"),
    "URI alone": (["baseline", "tirgym:"], "workload URI"),
    "trace with a URI bracket": (["verify", "{tmp}/bracket.json"], "workload URI"),
    "URI suite": (["show", "tirgym://core-v9/matmul"], "core-v0"),
    "URI dimension": (["show", "tirgym://core-v0/matmul?m=8&q=8"], "m, n, k"),
    "URI size": (["show", "tirgym://core-v0/matmul?m=x&n=8&k=8"], "integer"),
    "URI dtype": (["show", "tirgym://core-v0/matmul?dtype=int3"], "float32"),
    "shape of zero": (["show", "matmul", "-s", "m=0"], "positive integers"),
    "negative shape": (["optimize", "matmul", "-s", "m=-4"], "positive integers"),
    "shape text": (["show", "matmul", "-s", "m:4"], "DIM=SIZE"),
    "shape dimension": (["show", "matmul", "--shape", "z=4"], "m, n, k"),
    "backend": (["show", "matmul", "--backend", "cudda"], "llvm"),
    "arch": (["show", "matmul", "--arch", "pentium-9"], "mcpu"),
    "no threads": (["show", "matmul", "--threads", "0"], "1 to"),
    "too many threads": (["show", "matmul", "--threads", "100000"], "1 to"),
    "level": (["show", "matmul", "--level", "ptx"], "tir, lowered, llvm, asm"),
    "agent": (["optimize", "matmul", "--agent", "beem"], "did you mean 'beam'"),
    "agent class": (["optimize", "matmul", "--agent", "nowhere:Agent"], "package.module:Class"),
    "space": (["optimize", "matmul", "--space", "macros"], "did you mean 'macro'"),
    "space of an agent": (
        ["optimize", "matmul", "--agent", "beam", "--space", "decision"],
        "primitive, macro, both",
    ),
    "agent option": (
        ["optimize", "matmul", "--option", "populaton=3"],
        "did you mean 'population'",
    ),
    "agent option without value": (["optimize", "matmul", "--option", "batch"], "name=value"),
    "agent option of a type": (["optimize", "matmul", "--option", "batch=x"], "a whole number"),
    "agent without checkpoints": (
        ["optimize", "matmul", "--agent", "beam", "--checkpoint", "{tmp}/p.safetensors"],
        "option of agent beam 'checkpoint'",
    ),
    "no trials": (["optimize", "matmul", "--trials", "0"], "at least 1"),
    "no seconds": (["optimize", "matmul", "--seconds", "0"], "positive"),
    "seconds": (["optimize", "matmul", "--seconds", "nan"], "positive"),
    "seed": (["optimize", "matmul", "--seed", "-1"], "at least 0"),
    "no patience": (["optimize", "matmul", "--patience", "0"], "at least 1"),
    "no branches": (["optimize", "matmul", "--branches", "0"], "at least 1"),
    "trace to a folder": (["optimize", "matmul", "--out", "{tmp}"], "this is a folder"),
    "trace below a file": (["optimize", "matmul", "--out", "{tmp}/kernels.py/t.json"], "is a file"),
    "picture format": (["optimize", "matmul", "--picture", "{tmp}/p.txt"], ".png"),
    "no trace": (
        ["replay", NO_TRACE],
        "none.json is not a readable trace (tirgym-trace-1): there is",
    ),
    "no trace to verify": (["verify", NO_TRACE], "none.json"),
    "no trace to compare": (["compare", NO_TRACE, NO_TRACE], "none.json"),
    "no trace to show": (["show", NO_TRACE], "none.json"),
    "no trace to export": (["export", NO_TRACE, "-o", "{tmp}/l.so"], "none.json"),
    "no trace to profile": (["profile", NO_TRACE], "none.json"),
    "truncated trace": (["replay", "{tmp}/truncated.json"], "not JSON"),
    "empty trace": (["verify", "{tmp}/empty.json"], "not JSON"),
    "other JSON": (["replay", "{tmp}/list.json"], "not an object"),
    "trace format": (["show", "{tmp}/format.json"], "tirgym-trace-1"),
    "trace field": (["replay", "{tmp}/field.json"], "field"),
    "trace kernel": (["replay", "{tmp}/kernel.json"], "did you mean 'matmul'"),
    "trace backend": (["replay", "{tmp}/backend.json"], "llvm"),
    "trace backend type": (["replay", "{tmp}/backend_list.json"], "must be strings"),
    "trace arch type": (["replay", "{tmp}/arch_list.json"], "must be strings"),
    "trace versions": (["show", "{tmp}/versions_list.json"], "an object of strings"),
    "trace seed": (["show", "{tmp}/seed_text.json"], "seed must be an integer"),
    "trace speedup": (["show", "{tmp}/speedup_text.json"], "must be numbers"),
    "trace speedup too large": (["explain", "{tmp}/speedup_large.json"], "must be numbers"),
    "trace interval of nulls": (["explain", "{tmp}/nulls.json"], "must be numbers"),
    "trace interval": (["show", "{tmp}/interval.json"], "two numbers"),
    "nested trace": (["replay", "{tmp}/nested.json"], "not JSON"),
    "trace threads": (["replay", "{tmp}/threads.json"], "1 to"),
    "transform text": (["replay", "{tmp}/text.json"], "NAME(KEY=VALUE"),
    "transform name": (["verify", "{tmp}/name.json"], "did you mean 'Split'"),
    "transform argument": (["replay", "{tmp}/argument.json"], "factor=integer"),
    "trace of another program": (["replay", "{tmp}/key.json"], "recorded"),
    "trace with a shape": (["show", "{tmp}/good.json", "-s", "m=8"], "no --shape"),
    "no trace to explain": (["explain", NO_TRACE], "none.json"),
    "step of a trace": (["explain", "{tmp}/good.json", "--step", "2"], "1 to 1"),
    "step zero": (["explain", "{tmp}/good.json", "--step", "0"], "1 to 1"),
    "step of a kernel": (["explain", "matmul", "--step", "1"], "a kernel has no steps"),
    "no log": (["explain", "{tmp}/good.json", "--log", "{tmp}/none.jsonl"], "no such file"),
    "damaged log": (["explain", "{tmp}/good.json", "--log", "{tmp}/list.json"], "no JSON object"),
    "path to nowhere": (["show", "runs/none"], "a trace file that exists"),
    "replay at zero": (["replay", "{tmp}/good.json", "-s", "m=0"], "positive integers"),
    "replay at another axis": (["replay", "{tmp}/good.json", "-s", "q=8"], "m, n, k"),
    "replay too large": (["replay", "{tmp}/good.json", "-s", "m=9999999,n=999999"], "at most"),
    "huge size": (["replay", "{tmp}/good.json", "-s", "m=99999999999"], "2147483647"),
    "trace at zero": (["replay", "{tmp}/zero.json"], "an integer from 1"),
    "trace at another axis": (["replay", "{tmp}/axis.json"], "m, n, k"),
    "trace too large": (["verify", "{tmp}/large.json"], "at most"),
    "kernel too large": (["optimize", "matmul", "-s", "m=999999,n=999999"], "at most"),
    "profile too large": (["profile", "matmul", "-s", "m=999999,n=999999"], "at most"),
    "library name": (["export", "matmul", "-o", "{tmp}/library.json"], ".so"),
    "library below a file": (["export", "matmul", "-o", "{tmp}/list.json/l.so"], "is a file"),
}


def write_files(folder: Path) -> None:
    """Damaged traces, and a file with a kernel that has no reference."""
    target = {"backend": "llvm", "arch": "x86-64-v2", "num_threads": 1}
    good: dict[str, Any] = {
        "format": "tirgym-trace-1",
        "workload": "tirgym://core-v0/matmul?m=8&n=8&k=8&dtype=float32",
        "target": target,
        "transforms": ["Split(loop=0, factor=2)"],
    }
    changes: dict[str, dict[str, Any]] = {
        "good": {},
        "format": {"format": "other-trace-7"},
        "field": {"colour": "red"},
        "kernel": {"workload": "tirgym://core-v0/matmull?m=8&n=8&k=8"},
        "bracket": {"workload": "tirgym://[::1/softmax"},
        "backend": {"target": {**target, "backend": "cudda"}},
        "backend_list": {"target": {**target, "backend": ["llvm"]}},
        "arch_list": {"target": {**target, "arch": ["x86-64-v2"]}},
        "versions_list": {"ir_key": "0123456789abcdef", "versions": ["tvm"]},
        "seed_text": {"seed": "1"},
        "speedup_text": {"result": {"status": "PASSED", "speedup": "2"}},
        "speedup_large": {"result": {"status": "passed", "speedup": 10**400}},
        "nulls": {"result": {"status": "passed", "speedup": 2.0, "speedup_ci": [None, None]}},
        "interval": {"result": {"status": "PASSED", "speedup": 2.0, "speedup_ci": [1.0]}},
        "threads": {"target": {**target, "num_threads": 100_000}},
        "text": {"transforms": ["Split loop 0"]},
        "name": {"transforms": ["Splitt(loop=0, factor=2)"]},
        "argument": {"transforms": ["Split(loop=0)"]},
        "key": {"ir_key": "0123456789abcdef"},
        "zero": {"workload": "tirgym://core-v0/matmul?m=0&n=8&k=8"},
        "axis": {"workload": "tirgym://core-v0/matmul?m=8&q=8&k=8"},
        "large": {"workload": "tirgym://core-v0/matmul?m=9999999&n=9999999&k=8"},
    }
    for name, change in changes.items():
        (folder / f"{name}.json").write_text(json.dumps({**good, **change}))
    (folder / "truncated.json").write_text(json.dumps(good)[:-20])
    (folder / "empty.json").write_text("")
    (folder / "nested.json").write_text("[" * 200_000)
    (folder / "list.json").write_text("[]")
    (folder / "kernels.py").write_text(
        "from tirgym.kernels_suite.kernel import Kernel\n"
        "no_reference = Kernel('k', 'f', lambda shape: None, None, train=({'n': 4},))\n"
        "def fail(shape):\n"
        "    raise RuntimeError('no build')\n"
        "unbuilt = Kernel('k', 'f', fail, lambda x: x, train=({'n': 4},))\n"
        "def leave(shape):\n"
        "    raise SystemExit(4)\n"
        "exits = Kernel('k', 'f', leave, lambda x: x, train=({'n': 4},))\n"
        "def some(shape):\n"
        "    if shape['n'] == 3:\n"
        "        raise Exception('n is 3')\n"
        "    from tvm import te\n"
        "    x = te.placeholder((shape['n'],), 'float32', 'x')\n"
        "    return te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] * x[i], 'y')])\n"
        "some = Kernel('k', 'f', some, lambda x: x * x, train=({'n': 4},))\n"
        "empty = Kernel('k', 'f', lambda shape: None, lambda x: x, train=({'n': 4},))\n"
    )
    (folder / "raises.py").write_text("1 / 0\n")
    (folder / "own.py").write_text("class Oops(Exception): pass\nraise Oops('no')\n")
    command = "import subprocess\nsubprocess.run(['false'], check=True)\n"
    (folder / "command.py").write_text(command)
    (folder / "exits.py").write_text("raise SystemExit(3)\n")


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_exit_code_2(case: str, cli: Cli, tmp_path: Path) -> None:
    write_files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    arguments, accepted = CASES[case]
    done = cli(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    lines = [line for line in done.err.splitlines() if not line.startswith("tirgym: warning: ")]
    assert done.code == 2, done.err
    assert done.out == ""
    assert len(lines) == 1, lines
    assert lines[0].startswith("tirgym: error: ")
    assert accepted in lines[0]
    assert sorted(p for p in tmp_path.rglob("*") if "__pycache__" not in p.parts) == before
