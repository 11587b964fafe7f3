"""`tirgym export --shapes`: one library, several shapes, each through the gate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

from tirgym.harness import export
from tirgym.harness.tuned_library import TunedLibrary

pytestmark = pytest.mark.skipif(export.c_compiler() is None, reason="no C compiler")


def test_tuned_covered_and_other_shapes(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "add.so"
    done = cli(
        "export", "add", "--shapes", "m=16,n=32", "--cover", "m=16,n=64", "--trials", "2",
        "-o", str(path), "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    made = json.loads(done.out)
    assert [v["sizes"] for v in made["variants"]] == [{"m": 16, "n": 32}, {"m": 16, "n": 64}]
    assert made["variants"][0]["origin"] == "tuned"
    assert {check["status"] for check in made["checks"]} == {"passed"}
    assert made["dispatch_ns"] > 0
    library = TunedLibrary(path)
    for shape in ((16, 32), (16, 64), (3, 5)):
        x = np.ones(shape, np.float32)
        assert np.array_equal(library(x, x), x + x)
    assert len(library.used) == 3


_ONE_SHAPE = """
from dataclasses import replace
from tirgym.kernels_suite.registry import load_kernel
one = replace(load_kernel("add"), name="one", suite="local", train=({"m": 4, "n": 8},), tiny=None, holdout=())
"""


def test_other_shapes_need_one_to_be_checked_at(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(_ONE_SHAPE)
    path = tmp_path / "one.so"
    arguments = ("export", f"{tmp_path / 'one.py'}:one", "--trials", "1", "-o", str(path), "--json")
    done = cli(*arguments, "--shapes", "m=4,n=8")
    assert done.code == 0, done.err
    assert (
        "no program for other shapes: all tiny and holdout shapes of one are variants" in done.err
    )
    made = json.loads(done.out)
    assert made["any_shape"] is False
    assert [check["status"] for check in made["checks"]] == ["passed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shapes", "m=4,n=x"), "DIM=SIZE"),
        (("--shapes", "m=4,n=8", "--shapes", "m=4,n=8"), "each shape once"),
        (("--shapes", "m=4,n=8", "--cover", "m=4,n=8"), "each shape once"),
        (("--shapes", "m=4,n=8", "--shape", "m=4"), "nothing beside --shapes"),
        (("--cover", "m=4,n=8"), "nothing without --shapes"),
        (("--shapes", "m=4,n=8", "--agent", "oracle"), "oracle"),
        (("--shapes", "m=4,n=8", "--trials", "0"), "at least 1"),
    ],
)
def test_bad_input_is_one_line(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = cli("export", "add", *options, "-o", str(tmp_path / "lib.so"))
    assert done.code == 2
    assert message in done.err
    assert done.err.strip().count("\n") == 0
    assert not list(tmp_path.iterdir())
