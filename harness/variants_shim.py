"""The C source of a library that holds several variants of one kernel and picks one by shape."""

from __future__ import annotations

from collections.abc import Sequence

from tirgym.harness.export_shim import ALIGNMENT, c_runtime, dlpack_type
from tirgym.kernels_suite.kernel import Tensor

__all__ = ["FALLBACK", "dispatcher_header", "dispatcher_source", "variant_symbol"]

FALLBACK = "fallback"
"""Symbol of the program that takes any shape."""

Tensors = Sequence[Tensor]


def variant_symbol(number: int) -> str:
    """Name of variant `number` in the object file."""
    return f"variant_{number}"


def dispatcher_source(
    function: str, variants: Sequence[tuple[Tensors, Tensors]], fallback: bool, num_threads: int
) -> str:
    """The C source to compile and link with the object file of all variants.

    `variants` are the inputs and outputs of each, alike but for their shapes; `fallback` says
    whether the object file also holds a program for any shape.
    """
    inputs, outputs = variants[0]
    tensors = [*inputs, *outputs]
    symbols = [variant_symbol(number) for number in range(len(variants))]
    symbols += [FALLBACK] if fallback else []
    rows = [
        "{" + ", ".join(str(d) for t in (*ins, *outs) for d in t.shape) + "}"
        for ins, outs in variants
    ]
    return c_runtime(function, inputs, outputs, num_threads) + _DISPATCH.format(
        function=function,
        externs="\n".join(
            f"extern int __tvm_ffi_{symbol}(void *, Any *, int32_t, Any *);" for symbol in symbols
        ),
        kernels=", ".join(f"__tvm_ffi_{symbol}" for symbol in symbols),
        variants=len(variants),
        fallback=int(fallback),
        dims=max(1, sum(len(t.shape) for t in tensors)),
        ranks=", ".join(str(len(t.shape)) for t in tensors),
        types=", ".join(dlpack_type(t.dtype) for t in tensors),
        rows=",\n  ".join(rows),
    )


def dispatcher_header(function: str, inputs: Tensors, outputs: Tensors, comment: str) -> str:
    """A header with the functions, and what they want."""
    lines = [f"   {t.name}: {t.dtype}, {len(t.shape)} dimensions, input" for t in inputs]
    lines += [f"   {t.name}: {t.dtype}, {len(t.shape)} dimensions, output" for t in outputs]
    return _HEADER.format(
        guard=f"{function.upper()}_H",
        comment=comment,
        tensors="\n".join(lines),
        alignment=ALIGNMENT,
        function=function,
    )


_HEADER = """\
/* {comment}

{tensors}

   `shapes` and `data` have one entry for each array, in this order. Arrays are dense and row-major
   and must not overlap. Those that are not aligned to {alignment} bytes are copied on each call.
   Returns 0, else see {function}_error(). {function}_variant() answers the number of the variant that
   takes these shapes: one more than the last is the program for any shape, -1 is none. */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif
int {function}(const int64_t *const *shapes, void *const *data);
int {function}_variant(const int64_t *const *shapes);
const char *{function}_error(void);
#ifdef __cplusplus
}}
#endif
#endif
"""

_DISPATCH = """\
enum {{ VARIANTS = {variants}, FALLBACK = {fallback}, DIMS = {dims} }};

{externs}

static const Kernel kernels[] = {{{kernels}}};
static const int32_t ranks[COUNT] = {{{ranks}}};
static const DataType types[COUNT] = {{{types}}};
static const int64_t known[VARIANTS][DIMS] = {{
  {rows}
}};

static int matches(const int64_t *row, const int64_t *const *shapes) {{
  for (int i = 0; i < COUNT; ++i)
    for (int32_t d = 0; d < ranks[i]; ++d)
      if (*row++ != shapes[i][d]) return 0;
  return 1;
}}

int {function}_variant(const int64_t *const *shapes) {{
  for (int v = 0; v < VARIANTS; ++v)
    if (matches(known[v], shapes)) return v;
  return FALLBACK ? VARIANTS : -1;
}}

int {function}(const int64_t *const *shapes, void *const *data) {{
  int chosen = {function}_variant(shapes);
  size_t sizes[COUNT];
  Tensor tensors[COUNT];
  if (chosen < 0) {{
    TVMFFIErrorSetRaisedFromCStr("ValueError", "no variant for these shapes");
    return -1;
  }}
  for (int i = 0; i < COUNT; ++i) {{
    sizes[i] = (size_t)(types[i].bits + 7) / 8;
    for (int32_t d = 0; d < ranks[i]; ++d) sizes[i] *= (size_t)shapes[i][d];
    tensors[i] = (Tensor){{0, {{1, 0}}, ranks[i], types[i], (int64_t *)shapes[i], 0, 0}};
  }}
  return invoke(kernels[chosen], tensors, sizes, data);
}}
"""
