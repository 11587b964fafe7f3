"""`TunedLibrary`: calls a library of variants on NumPy arrays or torch tensors of any shape."""

from __future__ import annotations

import ast
import ctypes
import json
import operator
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tirgym.errors import DamagedFileError, EvaluationError, InvalidValueError

__all__ = ["ANY_SHAPE", "TunedLibrary"]

ANY_SHAPE = "any shape"
"""Name of the program that takes what no variant was made for."""
FORMAT = "tirgym-variants-1"

_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class TunedLibrary:
    """A library that `export_variants` wrote; needs NumPy alone, no compiler.

    `library(*inputs)` answers the output, or a tuple of outputs, as new arrays; `out=` takes arrays
    to write to. Inputs are NumPy arrays or CPU tensors of torch, of the dtypes in `arguments`; those
    that are not dense and row-major are copied first. Outputs are of the kind of the first input;
    those that are given must be writable and share no memory with another array.
    `used` counts the calls by variant.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Load it; raises DamagedFileError if the library or its .json cannot be read."""
        self.path = Path(path)
        self.info = _metadata(self.path)
        self.arguments: list[dict[str, Any]] = self.info["arguments"]
        self.inputs = [a for a in self.arguments if a["role"] == "input"]
        self.outputs = [a for a in self.arguments if a["role"] == "output"]
        self.variants: list[dict[str, Any]] = self.info["variants"]
        self.used: Counter[str] = Counter()
        try:
            library = ctypes.CDLL(str(self.path.absolute()))
        except OSError as error:
            raise DamagedFileError(str(self.path), "shared library", str(error)) from None
        name = self.info["function"]
        self._call, self._variant = getattr(library, name), getattr(library, f"{name}_variant")
        self._error = getattr(library, f"{name}_error")
        self._error.restype = ctypes.c_char_p

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Compute; raises InvalidValueError for arrays or shapes that it cannot take."""
        given = [_Array.of(x, a) for x, a in zip(inputs, self.inputs, strict=False)]
        if len(inputs) != len(self.inputs):
            names = ", ".join(a["name"] for a in self.inputs)
            raise InvalidValueError("number of inputs", len(inputs), f"{len(self.inputs)}: {names}")
        shapes = self.output_shapes([x.shape for x in given])
        if out is None:
            made = [given[0].empty(s, a) for s, a in zip(shapes, self.outputs, strict=True)]
        else:
            made = list(out) if isinstance(out, tuple | list) else [out]
        results = [_Array.of(x, a, dense=True) for x, a in zip(made, self.outputs, strict=True)]
        for result, shape, argument in zip(results, shapes, self.outputs, strict=True):
            if result.shape != shape:
                raise InvalidValueError(f"shape of {argument['name']}", result.shape, str(shape))
        _require_apart(given, results)
        self._run([*given, *results])
        return made[0] if len(made) == 1 else tuple(made)

    def variant_of(self, shapes: Sequence[Sequence[int]]) -> str:
        """Which variant takes inputs of `shapes`: its workload, `ANY_SHAPE`, or "" for none."""
        for variant in self.variants:
            known = variant["shapes"][: len(self.inputs)]
            if [list(s) for s in shapes] == known:
                return str(variant["workload"])
        return ANY_SHAPE if self.info["any_shape"] else ""

    def output_shapes(self, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Shapes of the outputs for inputs of `shapes`.

        Raises InvalidValueError if they do not fit together, or if no program takes them.
        """
        given = [list(shape) for shape in shapes]
        for variant in self.variants:
            if given == variant["shapes"][: len(self.inputs)]:
                return [tuple(shape) for shape in variant["shapes"][len(self.inputs) :]]
        if not self.info["any_shape"]:
            known = "; ".join(str(v["sizes"]) for v in self.variants)
            raise InvalidValueError(f"shapes for {self.info['kernel']}", given, f"one of: {known}")
        sizes = self._sizes(shapes)
        return [
            tuple(_evaluate(extent, sizes) for extent in argument["shape"])
            for argument in self.outputs
        ]

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The kernel's sizes by name, from dimensions that tell one size each; all must agree."""
        sizes: dict[str, int] = {}
        for shape, argument in zip(shapes, self.inputs, strict=True):
            wanted = argument["shape"]
            if len(shape) != len(wanted):
                what = f"dimensions of {argument['name']}"
                raise InvalidValueError(what, shape, f"{len(wanted)} of them")
            for extent, text in zip(shape, wanted, strict=True):
                for name, size in _solve(text, extent, self.info["sizes"]).items():
                    sizes.setdefault(name, size)
        for shape, argument in zip(shapes, self.inputs, strict=True):
            fits = tuple(_evaluate(text, sizes) for text in argument["shape"])
            if fits != tuple(shape):
                raise InvalidValueError(f"shape of {argument['name']}", shape, str(fits))
        return sizes

    def _run(self, arrays: Sequence[_Array]) -> None:
        dims = [(ctypes.c_int64 * max(1, len(x.shape)))(*x.shape) for x in arrays]
        shapes = (ctypes.POINTER(ctypes.c_int64) * len(arrays))(
            *(ctypes.cast(d, ctypes.POINTER(ctypes.c_int64)) for d in dims)
        )
        data = (ctypes.c_void_p * len(arrays))(*(x.address for x in arrays))
        chosen = self._variant(shapes)
        if self._call(shapes, data) != 0:
            words = (self._error() or b"").decode("utf-8", "replace")
            raise EvaluationError(f"{self.info['function']} failed: {words}")
        known = 0 <= chosen < len(self.variants)
        self.used[self.variants[chosen]["workload"] if known else ANY_SHAPE] += 1


class _Array:
    """An array or tensor with what C needs of it; keeps a dense copy alive."""

    def __init__(
        self, owner: Any, address: int, shape: tuple[int, ...], name: str, nbytes: int
    ) -> None:
        self.owner, self.address, self.shape = owner, address, shape
        self.name, self.nbytes = name, nbytes

    @classmethod
    def of(cls, array: Any, argument: Mapping[str, Any], dense: bool = False) -> _Array:
        """`dense`: it will be written to, so that a copy does not do."""
        name, wanted = argument["name"], argument["dtype"]
        tensor = hasattr(array, "data_ptr")
        if not tensor and not isinstance(array, np.ndarray):
            accepted = "a NumPy array or a CPU tensor of torch"
            raise InvalidValueError(name, type(array).__name__, accepted)
        dtype = str(array.dtype).removeprefix("torch.")
        if dtype != wanted:
            raise InvalidValueError(f"dtype of {name}", dtype, wanted)
        if tensor and array.device.type != "cpu":
            raise InvalidValueError(f"device of {name}", str(array.device), "cpu")
        ready = array.is_contiguous() if tensor else array.flags.c_contiguous
        if not ready and dense:
            raise InvalidValueError(f"layout of {name}", "strided", "dense and row-major")
        if dense and not tensor and not array.flags.writeable:
            raise InvalidValueError(f"output {name}", "read-only", "an array that can be written")
        kept: Any = (
            array if ready else array.contiguous() if tensor else np.ascontiguousarray(array)
        )
        address = kept.data_ptr() if tensor else kept.ctypes.data
        shape = tuple(int(extent) for extent in array.shape)
        return cls(kept, int(address), shape, name, int(kept.nbytes))

    def overlaps(self, other: _Array) -> bool:
        """Whether a byte belongs to both; both are dense."""
        start = max(self.address, other.address)
        return start < min(self.address + self.nbytes, other.address + other.nbytes)

    def empty(self, shape: tuple[int, ...], argument: Mapping[str, Any]) -> Any:
        """A new array of this one's kind."""
        if isinstance(self.owner, np.ndarray):
            return np.empty(shape, argument["dtype"])
        import torch

        return torch.empty(shape, dtype=getattr(torch, argument["dtype"]))


def _require_apart(inputs: Sequence[_Array], outputs: Sequence[_Array]) -> None:
    for number, output in enumerate(outputs):
        for other in (*inputs, *outputs[:number]):
            if output.overlaps(other):
                problem = f"shares memory with {other.name}"
                raise InvalidValueError(f"output {output.name}", problem, "memory of its own")


def _metadata(path: Path) -> dict[str, Any]:
    place = path.with_name(f"{path.name}.json")
    try:
        info = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFileError(str(place), "description of a library", str(error)) from None
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        problem = f"its format is not {FORMAT}; `tirgym export --shapes` writes it"
        raise DamagedFileError(str(place), "description of a library", problem)
    return info


def _evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """The value of `h - k + 1`; raises InvalidValueError for what is no such expression."""

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise InvalidValueError("extent", text, f"an expression of {', '.join(sizes)}")

    return value(ast.parse(text, mode="eval").body)


def _solve(text: str, extent: int, names: Sequence[str]) -> dict[str, int]:
    """The size that makes the expression `text`, affine in one size, equal to `extent`.

    Nothing if other sizes stand in it, or if no whole number of at least 1 does.
    """
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    if len(used) != 1 or not used <= set(names):
        return {}
    (name,) = used
    constant = _evaluate(text, {name: 0})
    factor = _evaluate(text, {name: 1}) - constant
    if factor <= 0 or (extent - constant) % factor or extent <= constant:
        return {}
    size = (extent - constant) // factor
    return {name: size} if _evaluate(text, {name: size}) == extent else {}
