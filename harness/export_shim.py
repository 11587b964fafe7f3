"""The C source that turns TVM's object file into a plain C library without TVM.

Generated code asks its runtime for four things: an error message, work memory, memory back, and
threads (`tvm/runtime/c_backend_api.h`, `tvm/ffi/c_api.h` of TVM 0.27). The source gives them, and
wraps the packed calling convention in an ordinary C function.
"""

from __future__ import annotations

from collections.abc import Sequence

from tirgym.errors import InvalidValueError
from tirgym.kernels_suite.kernel import Tensor

__all__ = [
    "ALIGNMENT",
    "c_declaration",
    "c_header",
    "c_runtime",
    "c_source",
    "dlpack_type",
    "threads_note",
]

THREADS_NOTE = (
    "a parallel loop starts its threads anew on each call; tirgym's speedups were measured with threads "
    "that wait for work, so a short kernel may gain less from them here"
)
"""what a library for several threads says about them"""
ALIGNMENT = 64
"""Bytes; generated code may use aligned vector moves (TVM's kAllocAlignment)."""

_C_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_DLPACK_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
"""DLDataTypeCode of dlpack.h."""


def threads_note(num_threads: int) -> dict[str, str]:
    """For the metadata of a library: how it makes threads, if it does."""
    return {"threads_note": THREADS_NOTE} if num_threads > 1 else {}


def c_declaration(function: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """`int tirgym_matmul(const float *a, const float *b, float *c)`.

    Raises InvalidValueError for a dtype that C cannot name.
    """
    arguments = [
        f"const {_c_type(t)} *{name}" for t, name in zip(inputs, _names(inputs), strict=True)
    ]
    names = _names([*inputs, *outputs])[len(inputs) :]
    arguments += [f"{_c_type(t)} *{name}" for t, name in zip(outputs, names, strict=True)]
    return f"int {function}({', '.join(arguments)})"


def c_header(
    function: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], comment: str
) -> str:
    """A header with the function, and what it wants."""
    lines = [f"   {t.name}: {t.dtype}{list(t.shape)}, input" for t in inputs]
    lines += [f"   {t.name}: {t.dtype}{list(t.shape)}, output" for t in outputs]
    guard = f"{function.upper()}_H"
    return _HEADER.format(
        guard=guard,
        comment=comment,
        tensors="\n".join(lines),
        alignment=ALIGNMENT,
        declaration=c_declaration(function, inputs, outputs),
        function=function,
    )


def c_source(
    function: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], num_threads: int
) -> str:
    """The C source to compile and link with the object file."""
    tensors = [*inputs, *outputs]
    names = _names(tensors)
    shapes: list[str] = []
    fields: list[str] = []
    for tensor in tensors:
        sizes = ", ".join(map(str, tensor.shape)) or "0"
        shapes.append(f"  static int64_t shape_{len(shapes)}[] = {{{sizes}}};")
        fields.append(
            f"    {{0, {{1, 0}}, {len(tensor.shape)}, {dlpack_type(tensor.dtype)}, "
            f"shape_{len(fields)}, 0, 0}},"
        )
    return c_runtime(function, inputs, outputs, num_threads) + _CALL.format(
        declaration=c_declaration(function, inputs, outputs),
        shapes="\n".join(shapes),
        tensors="\n".join(fields),
        given=", ".join(f"(void *){name}" for name in names),
        sizes=", ".join(str(tensor.nbytes) for tensor in tensors),
    )


def c_runtime(
    function: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], num_threads: int
) -> str:
    """What stands before the function: the four things, `{function}_error`, and `invoke`."""
    return _RUNTIME.format(
        threads=num_threads,
        alignment=ALIGNMENT,
        function=function,
        count=len(inputs) + len(outputs),
        inputs=len(inputs),
    )


def _names(tensors: Sequence[Tensor]) -> list[str]:
    """C parameter names: p0_a, p1_b, … can clash with no keyword or macro."""
    kept = ("".join(c if c.isascii() and c.isalnum() else "_" for c in t.name) for t in tensors)
    return [f"p{number}_{name}" for number, name in enumerate(kept)]


def _c_type(tensor: Tensor) -> str:
    if tensor.dtype not in _C_TYPES:
        accepted = f"one of {', '.join(_C_TYPES)}"
        raise InvalidValueError(f"dtype of {tensor.name} in a C library", tensor.dtype, accepted)
    return _C_TYPES[tensor.dtype]


def dlpack_type(dtype: str) -> str:
    """`{2, 32, 1}`: code, bits and lanes of a DLDataType."""
    kind = dtype.rstrip("0123456789")
    return f"{{{_DLPACK_CODES[kind]}, {int(dtype.removeprefix(kind) or 8)}, 1}}"


_HEADER = """\
/* {comment}

{tensors}

   Arrays are dense and row-major and must not overlap. Those that are not aligned to {alignment}
   bytes are copied on each call. Returns 0, else see {function}_error(). */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif
{declaration};
const char *{function}_error(void);
#ifdef __cplusplus
}}
#endif
#endif
"""

_RUNTIME = """\
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {{ THREADS = {threads}, ALIGNMENT = {alignment}, COUNT = {count}, INPUTS = {inputs} }};

typedef struct {{ int32_t type, id; }} Device;
typedef struct {{ uint8_t code, bits; uint16_t lanes; }} DataType;
typedef struct {{
  void *data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
}} Tensor;
typedef struct {{ int32_t type_index; uint32_t zero; union {{ void *ptr; int64_t word; }} value; }} Any;
typedef struct {{ void *sync; int32_t num_task; }} Group;
typedef int (*Body)(int, Group *, void *);
typedef struct {{
  Body body;
  Group *group;
  void *data;
  int id, result;
  char message[1024];
}} Task;

typedef int (*Kernel)(void *self, Any *args, int32_t num_args, Any *result);

static _Thread_local char message[1024];

const char *{function}_error(void) {{ return message; }}

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {{
  size_t used = (size_t)snprintf(message, sizeof message, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof message; ++i)
    if (parts[i]) used += (size_t)snprintf(message + used, sizeof message - used, "%s", parts[i]);
}}

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) {{
  TVMFFIErrorSetRaisedFromCStrParts(kind, &text, 1);
}}

static void *allocate(int type, int id, uint64_t bytes, int code, int bits) {{
  (void)type, (void)id, (void)code, (void)bits;
  return aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
}}

static int release(int type, int id, void *memory) {{
  (void)type, (void)id;
  free(memory);
  return 0;
}}

static void *run(void *argument) {{
  Task *task = argument;
  task->result = task->body(task->id, task->group, task->data);
  if (task->result) memcpy(task->message, message, sizeof message);
  return 0;
}}

static int launch(Body body, void *data, int num_task) {{
  Group group = {{0, num_task > 0 && num_task < THREADS ? num_task : THREADS}};
  Task tasks[THREADS];
  pthread_t threads[THREADS];
  int started[THREADS] = {{0}}, result = 0;
  for (int i = group.num_task - 1; i >= 0; --i) {{
    tasks[i].body = body, tasks[i].group = &group, tasks[i].data = data;
    tasks[i].id = i, tasks[i].result = 0;
    started[i] = i > 0 && pthread_create(&threads[i], 0, run, &tasks[i]) == 0;
    if (!started[i]) run(&tasks[i]);
  }}
  for (int i = 0; i < group.num_task; ++i) {{
    if (started[i]) pthread_join(threads[i], 0);
    if (tasks[i].result) {{
      result = tasks[i].result;
      memcpy(message, tasks[i].message, sizeof message); /* of its thread to the caller's */
    }}
  }}
  return result;
}}

void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = release;
int (*__TVMBackendParallelLaunch)(Body, void *, int) = launch;

static int invoke(Kernel kernel, Tensor *tensors, const size_t *sizes, void *const *given) {{
  void *copies[COUNT] = {{0}};
  Any args[COUNT], nothing = {{0}};
  int result = 0;
  for (int i = 0; i < COUNT; ++i) {{
    tensors[i].data = given[i];
    if ((uintptr_t)given[i] % ALIGNMENT != 0) {{
      tensors[i].data = copies[i] = allocate(0, 0, sizes[i], 0, 0);
      if (!copies[i]) {{
        TVMFFIErrorSetRaisedFromCStr("MemoryError", "no memory for an aligned copy");
        result = -1;
        break;
      }}
      if (i < INPUTS) memcpy(copies[i], given[i], sizes[i]);
    }}
    args[i] = (Any){{.type_index = 7, .value.ptr = &tensors[i]}};
  }}
  if (result == 0) result = kernel(0, args, COUNT, &nothing);
  for (int i = 0; i < COUNT; ++i) {{
    if (result == 0 && copies[i] && i >= INPUTS) memcpy(given[i], copies[i], sizes[i]);
    free(copies[i]);
  }}
  return result;
}}

"""

_CALL = """\
extern int __tvm_ffi_main(void *self, Any *args, int32_t num_args, Any *result);

{declaration} {{
{shapes}
  void *const given[COUNT] = {{{given}}};
  static const size_t sizes[COUNT] = {{{sizes}}};
  Tensor tensors[COUNT] = {{
{tensors}
  }};
  return invoke(__tvm_ffi_main, tensors, sizes, given);
}}
"""
