"""Ahead-of-time compilation in this process, level by level, with a cache of its own.

The stages are Triton's (`BaseBackend.add_stages`), with the first two replaced by the request's
pass pipeline. Triton's own cache and its launcher are left out: no driver is asked for. The key of
the cache holds the pipeline, whatever this version of Triton does about that.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from tirgym import settings
from tirgym.errors import CompileFailedError, TirgymError
from tirgym.harness.triton.gpus import Gpu
from tirgym.harness.triton.pipeline import run_passes
from tirgym.harness.triton.request import Compiled, CompileRequest
from tirgym.harness.triton.stderr import captured_stderr, complaints
from tirgym.harness.whole_file import write_whole
from tirgym.kernels_suite.triton.source import Argument

__all__ = [
    "cache_key",
    "compile_here",
    "compiled_before",
    "lowered",
    "lowered_before",
    "parse_module",
    "request_key",
    "triton_cache",
]

Stage = Callable[[Any, dict[str, Any]], Any]
_BUFFER_LIMIT = 2**31
"""AMD's buffer instructions reach this many bytes; Triton specialises for tensors below it."""


def triton_cache() -> Path:
    """Folder of compiled kernels."""
    return settings.cache_dir() / "triton"


def request_key(request: CompileRequest) -> str:
    """Equal if and only if the compiler is given the same work: source, arguments, options, GPU,
    pipeline, and version of Triton."""
    import triton

    parts = {
        "triton": triton.__version__,
        "source": request.ir or request.source.function.cache_key,
        "arguments": [
            (a.name, a.type, *_constant(a), a.divisible) for a in request.launch.arguments
        ],
        "small": _small_tensors(request),
        "options": _options(request),
        "arch": request.arch,
        "passes": request.passes.to_lists(),
        "until": request.until,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cache_key(request: CompileRequest) -> str:
    """`request_key`, and what the compiler takes from this machine: its assembler, which
    TRITON_PTXAS_PATH may name, and the switches that Triton reads from the environment."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.compiler.compiler import make_backend

    assembler = make_backend(request.gpu.triton_target()).hash()
    switches = sorted(get_cache_invalidating_env_vars().items())
    text = json.dumps([request_key(request), assembler, switches])
    return hashlib.sha256(text.encode()).hexdigest()


def _constant(argument: Argument) -> tuple[str | int | float, ...]:
    return (argument.value,) if argument.type == "constexpr" else ()


def compiled_before(request: CompileRequest) -> Compiled | None:
    """What the cache has for `request`; a damaged file counts as none."""
    return _cached(_stored(request, "json"))


def _stored(request: CompileRequest, ending: str) -> Path:
    return triton_cache() / f"{cache_key(request)}.{ending}"


def _cached(path: Path) -> Compiled | None:
    try:
        return Compiled.from_json(path.read_text("utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compile_here(request: CompileRequest, fresh: bool = False) -> Compiled:
    """Compile in this process, or answer from the cache unless `fresh`.

    Raises CompileFailedError with the compiler's own words. May crash or hang with the compiler:
    `CompilePool` guards against both.
    """
    path = _stored(request, "json")
    found = None if fresh else _cached(path)
    if found is None:
        found = _compile(request)
        write_whole(path, found.to_json())
    return found


def lowered_before(request: CompileRequest, level: str) -> bool:
    """Whether `lowered` need not compile, nor read a whole kernel."""
    return _stored(request, level).is_file()


def lowered(request: CompileRequest, level: str) -> str:
    """The text of `request` at `level`, which the cache holds apart, since all levels of a kernel are
    a hundred times as long; else compiled in this process. Raises CompileFailedError."""
    path = _stored(request, level)
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    found = compiled_before(request)
    if found is None or level not in found.texts:
        found = compile_here(request.changed(until=level))
    write_whole(path, found.texts[level])
    return found.texts[level]


def _options(request: CompileRequest) -> dict[str, Any]:
    launch = request.launch
    return {
        "num_warps": launch.num_warps,
        "num_stages": launch.num_stages,
        "enable_fp_fusion": True,
    }


def _small_tensors(request: CompileRequest) -> list[str]:
    """Arguments that are tensors within reach of AMD's buffer instructions."""
    if request.gpu.vendor != "amd":
        return []
    return [a.name for a in request.launch.arguments if 0 < a.nbytes < _BUFFER_LIMIT]


def _ast_source(request: CompileRequest) -> Any:
    from triton.compiler import ASTSource

    launch, small = request.launch, _small_tensors(request)
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for place, argument in enumerate(launch.arguments):
        known: list[list[Any]] = [["tt.divisibility", 16]] if argument.divisible else []
        if argument.name in small:
            known.append(["tt.pointer_range", 32])
        if known:
            attributes[(place,)] = known
    return ASTSource(
        fn=request.source.function,
        signature=launch.signature,
        constexprs=launch.constants,
        attrs=attributes,
    )


def _compile(request: CompileRequest) -> Compiled:
    from triton.backends.compiler import Language
    from triton.compiler.compiler import make_backend

    compiler = make_backend(request.gpu.triton_target())
    options = compiler.parse_options(_options(request))
    stages: dict[str, Stage] = {}
    compiler.add_stages(stages, options, Language.TRITON)
    _replace_passes(stages, request)
    metadata: dict[str, Any] = dict(options.__dict__)
    texts: dict[str, str] = {}
    times: dict[str, float] = {}
    module: Any = None
    logs: list[str] = []
    said = io.StringIO()
    with _quiet_triton(request.gpu):
        for level, stage in [("python", _front_end(request, compiler, options)), *stages.items()]:
            if request.ir is not None and level in _before(request.ir[0]):
                continue
            began = time.perf_counter()
            made = request.ir[0] if request.ir and level == "python" else level
            with _failing_at(made, logs), redirect_stdout(said):
                module = stage(module, metadata)
            times[made] = (time.perf_counter() - began) * 1e3
            if made not in ("python", request.gpu.binary):
                texts[made] = module if isinstance(module, str) else module.str_nodebug()
            if made == request.until:
                break
    return Compiled(
        texts=texts,
        binary=module if isinstance(module, bytes) else b"",
        name=metadata.get("name", ""),
        shared_bytes=metadata.get("shared") or 0,
        tmem_columns=metadata.get("tmem_size") or 0,
        num_warps=metadata["num_warps"],
        stage_ms=times,
        assembler_log=said.getvalue(),
        log="".join(logs),
    )


def _before(level: str) -> tuple[str, ...]:
    """Stages that a start from the text of `level` leaves out; "python" reads that text."""
    order = ("ttir", "ttgir", "llir")
    return order[: order.index(level) + 1]


def _replace_passes(stages: dict[str, Stage], request: CompileRequest) -> None:
    passes, vendor = request.passes, request.gpu.vendor

    def to_ttgir(module: Any, metadata: dict[str, Any]) -> Any:
        run_passes(module, passes.ttgir, vendor, "ttgir")
        if hasattr(module, "get_tensordesc_metadata"):
            metadata["tensordesc_meta"] = module.get_tensordesc_metadata()
        return module

    stages["ttir"] = lambda module, _: run_passes(module, passes.ttir, vendor, "ttir")
    stages["ttgir"] = to_ttgir


def _front_end(request: CompileRequest, compiler: Any, options: Any) -> Stage:
    """The first module: from the Python source, or parsed from the request's text."""
    from triton._C.libtriton import ir

    def make(_: Any, __: dict[str, Any]) -> Any:
        if request.ir is not None and request.ir[0] == "llir":
            return request.ir[1]
        context = ir.context()
        ir.load_dialects(context)
        compiler.load_dialects(context)
        if request.ir is None:
            functions = compiler.get_codegen_implementation(options)
            modules = compiler.get_module_map()
            target = request.gpu.triton_target()
            return _ast_source(request).make_ir(target, options, functions, modules, context)
        return parse_module(request.ir[1], request.ir[0], context)

    return make


def parse_module(text: str, level: str, context: Any) -> Any:
    """The MLIR module of `text`; Triton's parser reads files alone. Raises RuntimeError."""
    from triton._C.libtriton import ir

    with tempfile.NamedTemporaryFile("w", suffix=f".{level}") as file:
        file.write(text)
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context
    return module


@contextmanager
def _failing_at(level: str, logs: list[str]) -> Iterator[None]:
    """Turn what `level` raises into CompileFailedError with what it wrote on stderr."""
    captured = None
    try:
        with captured_stderr() as captured:
            yield
    except TirgymError:
        raise
    except Exception as error:  # the compiler raises anything
        text = captured.text if captured else ""
        raise CompileFailedError(level, _reason(error, text), text) from error
    logs.append(captured.text)


def _reason(error: Exception, written: str) -> str:
    """What the compiler complained about, else what it raised."""
    words = f"{type(error).__name__}: {str(error).strip()}"
    return complaints(written) or complaints(str(error)) or words


@contextmanager
def _quiet_triton(gpu: Gpu) -> Iterator[None]:
    """ptxas -v is printed, and Triton's own dumps and overrides are off."""
    from triton import knobs

    with knobs.nvidia.scope(), knobs.compilation.scope():
        knobs.nvidia.dump_ptxas_log = gpu.vendor == "nvidia"
        yield
