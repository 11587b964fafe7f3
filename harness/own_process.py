"""`call_apart`: one function call in a fresh Python process with its own thread settings.

For measurements that cannot share a process with others: a BLAS takes its thread count from the
environment when it is loaded, and so does TVM's pool when it first runs. Libraries also read there
which machine code to use; such variables stay behind, so that each picks the best for this machine.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tirgym.errors import EvaluationError, InvalidValueError, ProcessDiedError

__all__ = ["KERNEL_VARIABLES", "call_apart"]

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS",
)  # fmt: skip
KERNEL_VARIABLES = (
    "OPENBLAS_CORETYPE",
    "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS",
    "BLIS_ARCH_TYPE", "BLIS_MODEL_TYPE", "AOCL_ENABLE_INSTRUCTIONS", "NVPL_BLAS_DEBUG_CPU_TYPE",
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "DNNL_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
    "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES",
)  # fmt: skip
"""What holds OpenBLAS, MKL, BLIS, NVPL, oneDNN, ATen and NumPy to other machine code than they would
choose, by their documentation."""
_CODE = """
import os, pickle, sys, traceback

answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
try:
    from tirgym.harness.fork_server import die_with_parent

    die_with_parent()
    function, arguments = pickle.load(sys.stdin.buffer)
    answer = pickle.dumps((True, function(*arguments)))
except Exception:
    answer = pickle.dumps((False, traceback.format_exc()))
answers.write(answer)
answers.close()
"""


def call_apart(
    function: Callable[..., Any], *arguments: Any, num_threads: int, timeout_s: float = 300.0
) -> Any:
    """`function(*arguments)` in a process whose libraries use `num_threads` threads.

    No variable of `KERNEL_VARIABLES` reaches it.
    Everything must pickle by name, so `function` cannot lie in the module that is run as the program:
    InvalidValueError. Raises TimeoutError after `timeout_s`, ProcessDiedError with the
    last words of a process that a signal killed or that ended without an answer, and EvaluationError
    (no subclass) with those of a call that raised, whatever it raised, or that could not begin.
    """
    if getattr(function, "__module__", "") == "__main__":
        accepted = "one of a module that another process can import"
        raise InvalidValueError("function", getattr(function, "__name__", function), accepted)
    threads = dict.fromkeys(THREAD_VARIABLES, str(num_threads))
    kept = {name: text for name, text in os.environ.items() if name not in KERNEL_VARIABLES}
    name = getattr(function, "__name__", function)
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE],
            input=pickle.dumps((function, arguments)),
            env={**kept, **threads, "PYTHONPATH": paths},
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{name} did not end within {timeout_s:.0f} s") from None
    except OSError as error:
        raise EvaluationError(f"no process could be started for {name}: {error}") from None
    if done.returncode != 0 or not done.stdout:
        words = _last_words(done.stderr.decode("utf-8", "replace"))
        raise ProcessDiedError(f"a process of its own ended with {done.returncode}: {words}")
    returned, answer = pickle.loads(done.stdout)
    if not returned:
        raise EvaluationError(f"{name} failed in a process of its own: {_last_words(answer)}")
    return answer


def _last_words(text: str) -> str:
    return " ".join(text.split())[-400:]
