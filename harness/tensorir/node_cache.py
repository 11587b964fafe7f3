"""`NodeCache`: facts by node identity; `items`: the elements of a TVM array."""

from __future__ import annotations

from typing import Any

import tvm_ffi

__all__ = ["RECENT", "NodeCache", "array_item", "array_size", "items", "map_size"]


RECENT = 128
"""Nodes that a cache keeps by default: those of about the last hundred programs."""


class NodeCache:
    """Facts by node identity; holds the nodes alive so that handles stay unique; bounded.

    Nodes and facts stand in two dictionaries, and the oldest entry goes when a new one comes. Caches
    are small: Python's garbage collector visits young containers when 700 more were made than freed,
    and all containers when they have become a quarter more; where a cache is full soon, none become
    more. With caches ten times as large it took a fifth of the time of a step.
    """

    def __init__(self, limit: int = RECENT) -> None:
        self.limit = limit
        self.entries: dict[Any, Any] = {}
        """facts by handle; for look-ups"""
        self._nodes: dict[Any, Any] = {}

    def put(self, node: Any, value: Any) -> Any:
        """Store `value`, which is not None, for `node`; returns it."""
        return self.put_at(hash(node), node, value)

    def put_at(self, key: Any, nodes: Any, value: Any) -> Any:
        """Store `value` by a key made of handles of `nodes`."""
        entries = self.entries
        if len(entries) >= self.limit:
            oldest = next(iter(entries))
            del entries[oldest], self._nodes[oldest]
        entries[key] = value
        self._nodes[key] = nodes
        return value


array_item = tvm_ffi.get_global_func("ffi.ArrayGetItem")
"""An element of a TVM array, without the checks of its Python wrapper."""
array_size = tvm_ffi.get_global_func("ffi.ArraySize")
"""Number of elements of a TVM array, without the checks of its Python wrapper."""
map_size = tvm_ffi.get_global_func("ffi.MapSize")
"""Number of entries of a TVM map, without the checks of its Python wrapper."""


def items(array: Any) -> list[Any]:
    """Elements of a TVM array, without the checks of its Python wrapper."""
    return [array_item(array, i) for i in range(array_size(array))]
