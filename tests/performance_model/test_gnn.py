"""The files of a network: what comes back, and what is said of those that are damaged."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tirgym.performance_model.gnn import Args, GnnLearner, GnnMember, _Network

WEIGHTS = "enter.1.weight.npy"
SCALE = "cost_scale.npy"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """Of a small network."""
    return GnnMember(_Network(7, 3, Args(width=4))).files()


def packed(values: Any) -> bytes:
    made = io.BytesIO()
    np.save(made, values)
    return made.getvalue()


def several() -> bytes:
    made = io.BytesIO()
    np.savez(made, a=np.zeros(2, np.float32))
    return made.getvalue()


def claiming(*shape: int) -> bytes:
    """The header of an array that is not there."""
    made = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(made, header)
    return made.getvalue()


def test_a_network_comes_back_as_it_was(files: dict[str, bytes]) -> None:
    assert GnnLearner().load(files).files() == files


def test_loading_leaves_the_random_state_of_torch_alone(files: dict[str, bytes]) -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    GnnLearner().load(files)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", [WEIGHTS, SCALE])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no array",
        packed(np.zeros((4, 7), np.float32))[:-5],
        several(),
        claiming(10**13),
        claiming(-3),
        packed(np.zeros((0, 7), np.float32)),
        packed(np.zeros((30_000, 7), np.float32)),  # relations between that many take 100 GB
        packed(np.float32(3)),
        packed(np.array(["a"])),
        packed(np.zeros((4, 7), complex)),
        packed(np.full((4, 7), np.nan, np.float32)),
    ],
)
def test_a_damaged_array_is_refused(files: dict[str, bytes], name: str, data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are NumPy's and torch's
        GnnLearner().load({**files, name: data})


def test_a_missing_array_is_named(files: dict[str, bytes]) -> None:
    for name in files:
        with pytest.raises(ValueError, match="weights of another network"):
            GnnLearner().load({other: data for other, data in files.items() if other != name})
