"""The made-up measurements of `learned`, made once. A plugin: it imports no compiler by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tirgym.performance_model.dataset import Dataset


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """Samples of four training families and a held-out one."""
    from learned import HELD_OUT, KERNELS, TARGET, fill

    from tirgym.harness.store import Store
    from tirgym.performance_model.dataset import read_store

    store = Store()
    fill(store, [*KERNELS.values(), HELD_OUT])
    return read_store(store, TARGET)
