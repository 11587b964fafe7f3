"""`one_thread`: small networks run on one thread of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["one_thread"]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside, as many as before afterwards.

    On a busy machine two threads take 50 times as long as one for networks of this size.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
