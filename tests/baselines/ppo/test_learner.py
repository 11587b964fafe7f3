"""The state of a learner: its random generators, on the CPU and on GPUs."""

from __future__ import annotations

import pytest

for package in ("sb3_contrib", "torch_geometric"):
    pytest.importorskip(package)

import torch

from tirgym.baselines.ppo.learner import _set_torch_generators, _torch_generators


def test_the_generator_of_the_cpu_goes_on_where_it_was() -> None:
    cpu = torch.device("cpu")
    states = _torch_generators(cpu)
    assert set(states) == {"torch"}
    expected = torch.rand(3)
    _set_torch_generators(cpu, states)
    assert torch.equal(torch.rand(3), expected)


def test_those_of_all_gpus_are_kept_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, held = torch.device("cuda"), [torch.tensor([n], dtype=torch.uint8) for n in (3, 4)]
    put: dict[int, torch.Tensor] = {}
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: held)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, n: put.update({n: state}))
    states = _torch_generators(gpu)
    assert set(states) == {"torch", "cuda.0", "cuda.1"}
    for here in (1, 2, 3):
        monkeypatch.setattr(torch.cuda, "device_count", lambda here=here: here)
        put.clear()
        _set_torch_generators(gpu, states)
        assert put == dict(list(enumerate(held))[:here])
    _set_torch_generators(gpu, {"torch": states["torch"]})
