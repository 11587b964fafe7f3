"""Each macro: golden IR, transforms alone in the trace, masks in both directions, same results.

`python tests/harness/macros/test_macros.py` writes the golden files anew; read the diff.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm
import tvm_ffi

sys.path.insert(0, str(Path(__file__).parents[2]))

from schedules import apply_all, begin

from tirgym.errors import IllegalTransformError, InvalidValueError, UnknownNameError
from tirgym.harness.backends.llvm import tvm_target
from tirgym.harness.macros import MACROS, VOCABULARY_NAMES, load_macro, named_vocabulary
from tirgym.harness.macros.base import Macro
from tirgym.harness.target import Target
from tirgym.harness.tensorir import legality
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.trace import Trace
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.kernels_suite.registry import kernel_names

GOLDEN = Path(__file__).parent / "golden"
VOCABULARY = named_vocabulary("macro")
BOTH = named_vocabulary("both")


class Case(NamedTuple):
    """A kernel, transforms that prepare it, the macro, and what it must expand to."""

    kernel: str
    before: str
    parameters: tuple[int, ...]
    steps: str
    shape: Mapping[str, int] = MappingProxyType({})
    num_threads: int = 1


MATMUL = {"m": 16, "n": 24, "k": 32}
SOFTMAX = {"m": 8, "n": 16}
CASES = {
    "MultiLevelTile": Case(
        "matmul",
        "",
        (0, 4, 8, 8),
        "Split(loop=1, factor=8); Reorder(loop=2); Split(loop=0, factor=4); Reorder(loop=1); "
        "Reorder(loop=2); Split(loop=2, factor=8); Reorder(loop=0); Reorder(loop=1)",
        MATMUL,
    ),
    "CacheWriteAt": Case(
        "matmul",
        "Split(loop=1, factor=8); Reorder(loop=2)",
        (0, 1),
        "CacheWrite(block=0); ReverseComputeAt(block=1, loop=1)",
        MATMUL,
    ),
    "CacheReadAt": Case(
        "matmul", "", (0, 0, 1), "CacheRead(block=0, read=0); ComputeAt(block=0, loop=3)", MATMUL
    ),
    "PackRead": Case(
        "matmul",
        "",
        (0, 1, 8),
        "CacheRead(block=0, read=1); TransformLayout(block=0, axis=0, factor=1); "
        "TransformLayout(block=0, axis=0, factor=8)",
        MATMUL,
    ),
    "PartialSums": Case(
        "row_sum", "", (0, 8), "Split(loop=1, factor=8); RFactor(loop=2)", {"m": 4, "n": 32}
    ),
    "FuseProducers": Case("softmax", "", (3, 1), "", SOFTMAX),
    "InlineAll": Case("chain", "", (), "ComputeInline(block=0)"),
    "FuseParallel": Case("matmul", "", (0, 2), "Fuse(loop=0); Parallel(loop=0)", MATMUL, 2),
    "VectorizeInner": Case("chain", "", (1, 8), "Split(loop=3, factor=8); Vectorize(loop=4)"),
    "UnrollBudget": Case("chain", "", (600,), ""),
    "DecomposeAll": Case("softmax", "", (), "", SOFTMAX),
}


def _before(name: str) -> TensorIRProgram:
    case = CASES[name]
    return apply_all(begin(case.kernel, case.num_threads, **case.shape), case.before)


def _made(name: str, *parameters: int) -> Macro:
    kind: Any = load_macro(name)
    return kind(*parameters)  # type: ignore[no-any-return]


def _macro(name: str) -> Macro:
    return _made(name, *CASES[name].parameters)


def _text(name: str) -> str:
    before = _before(name)
    after = before.apply(_macro(name))
    made = "; ".join(map(str, after.steps[len(before.steps) :]))
    return (
        f"# {CASES[name].kernel}: {CASES[name].before or 'unscheduled'}\n# {_macro(name)}\n"
        f"# = {made}\n{after.mod.script()}\n"
    )


def test_every_macro_has_a_case_and_a_place_in_the_vocabulary() -> None:
    assert set(CASES) == set(MACROS) == {kind.name for kind in VOCABULARY.kinds}


@pytest.mark.parametrize("name", CASES)
def test_golden_ir(name: str) -> None:
    assert _text(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.steps])
def test_what_it_expands_to(name: str) -> None:
    before = _before(name)
    made = before.apply(_macro(name)).steps[len(before.steps) :]
    assert "; ".join(map(str, made)) == CASES[name].steps


@pytest.mark.parametrize("name", CASES)
def test_traces_hold_transforms_alone_and_replay(name: str) -> None:
    case = CASES[name]
    before = _before(name)
    original = before.mod.script()
    after = before.apply(_macro(name))
    assert before.mod.script() == original
    assert len(after.steps) > len(before.steps)
    assert not any(isinstance(step, Macro) for step in after.steps)
    texts = tuple(str(step) for step in after.steps)
    trace = Trace.from_json(Trace(after.workload.uri, after.target, texts).to_json())
    replayed = begin(case.kernel, case.num_threads, **case.shape)
    for text in trace.transforms:
        replayed = replayed.apply(parse_transform(text))
    assert tvm_ffi.structural_equal(replayed.mod, after.mod)
    assert replayed.ir_key == after.ir_key != before.ir_key


@pytest.mark.parametrize("name", sorted(set(CASES) - {"FuseParallel"}))
def test_results_stay(name: str) -> None:
    """`FuseParallel` would start the thread pool in the test process."""
    before = _before(name)
    expected, found = _run(before), _run(before.apply(_macro(name)))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def _run(program: TensorIRProgram) -> Any:
    """What a build writes, for fixed inputs."""
    call = tvm.compile(program.mod, target=tvm_target(Target("llvm", "x86-64", 1)))["main"]
    rng = np.random.default_rng(0)
    tensors = []
    for buffer in program.mod["main"].params:
        shape = tuple(int(extent) for extent in buffer.shape)
        tensors.append(tvm.runtime.tensor(rng.random(shape).astype(str(buffer.dtype))))
    call(*tensors)
    return tensors[-1].numpy()


@pytest.mark.parametrize("name", CASES)
def test_text_forms_are_unique_calls(name: str) -> None:
    instances = list(load_macro(name).slots(VOCABULARY.limits))
    assert len({str(macro) for macro in instances}) == len(instances)
    assert str(instances[0]).startswith(f"{name}(")
    nodes = {"block": VOCABULARY.limits.max_blocks, "program": 1}
    assert all(0 <= m.node.index < nodes[m.node.kind] for m in instances)


# -- legality -------------------------------------------------------------------------------

KERNELS: tuple[tuple[str, dict[str, int]], ...] = (
    ("matmul_bias_gelu", {"m": 16, "n": 24, "k": 32}),
    ("softmax", {"m": 8, "n": 32}),
    ("conv2d_padded", {}),
    ("attention", {}),
    ("concat", {}),
    ("gather", {}),
    ("argmax", {"m": 8, "n": 32}),
    ("cumsum", {}),
    ("int8_gemm", {"m": 16, "n": 16, "k": 32}),
    ("prefix", {}),
    ("rewritten", {}),
    ("recomputed", {}),
    ("reversed", {}),
    ("total", {}),
)


def _check(program: TensorIRProgram, rng: np.random.Generator, most: int) -> None:
    """At most `most` of the macros that the mask allows apply, and as many others do not."""
    found = program.legal_mask(VOCABULARY)
    for legal in (True, False):
        actions = np.flatnonzero(found == legal)
        for action in rng.permutation(actions)[:most]:
            error = program.why_illegal(VOCABULARY[int(action)])
            place = (program.workload.uri, [str(s) for s in program.steps])
            assert (error is None) == legal, (*place, str(VOCABULARY[int(action)]), str(error))


@pytest.mark.parametrize(("kernel", "shape"), KERNELS, ids=[k for k, _ in KERNELS])
def test_masks_agree_with_trying_macros(kernel: str, shape: dict[str, int]) -> None:
    """After macros and after single transforms, on one thread and on two."""
    rng = np.random.default_rng(len(kernel))
    for threads, vocabulary in ((1, VOCABULARY), (2, BOTH)):
        program = begin(kernel, threads, **shape)
        for _ in range(4):
            _check(program, rng, 12)
            step = draw_transform(vocabulary, program.legal_mask(vocabulary), rng)
            if step is None:
                break
            program = program.apply(step)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", kernel_names())
def test_masks_equal_trying_every_macro_on_many_states(kernel: str) -> None:
    """Over the suite of 49 kernels more than 1,000 states."""
    rng = np.random.default_rng(7 + len(kernel))
    for number in range(4):
        program = begin(kernel, 1 + number % 2)
        vocabulary = (VOCABULARY, BOTH)[number // 2]
        for _ in range(7):
            wanted = legality.defined_mask(program, VOCABULARY)
            wrong = np.flatnonzero(program.legal_mask(VOCABULARY) != wanted)
            assert not len(wrong), (kernel, program.steps, [str(VOCABULARY[i]) for i in wrong])
            step = draw_transform(vocabulary, program.legal_mask(vocabulary), rng)
            if step is None:
                break
            program = program.apply(step)


def test_an_illegal_macro_names_the_step_and_changes_nothing() -> None:
    program = begin("matmul", **MATMUL)
    macro = _made("CacheWriteAt", 0, 2)
    strided = apply_all(program, "Split(loop=1, factor=8); Reorder(loop=1)")
    key, error = strided.ir_key, strided.why_illegal(macro)
    assert error is not None
    assert error.transform == "CacheWriteAt(block=0, level=2)"
    assert "its step ReverseComputeAt(block=1, loop=1) is refused" in error.reason
    with pytest.raises(IllegalTransformError, match="dense region"):
        strided.apply(macro)
    assert (strided.ir_key, len(strided.steps)) == (key, 2)


@pytest.mark.parametrize(
    ("macro", "parameters", "reason"),
    [
        ("MultiLevelTile", (9, 4, 16, 8), "no such block"),
        ("MultiLevelTile", (-1, 4, 16, 8), "no such block"),
        ("CacheWriteAt", (0, 7), "no loop of its own"),
        ("CacheReadAt", (0, 5, 0), "no such read region"),
        ("PackRead", (0, 5, 8), "moves one dimension"),
        ("PartialSums", (0, 64), "does not divide"),
        ("FuseParallel", (0, 2), "one thread"),
        ("FuseProducers", (0, 1), "nothing that the block depends on"),
        ("InlineAll", (), "no block can be inlined"),
        ("UnrollBudget", (1,), "within the budget"),
        ("VectorizeInner", (0, 64), "does not divide"),
    ],
)
def test_refusals_say_why(macro: str, parameters: tuple[int, ...], reason: str) -> None:
    error = begin("matmul", **MATMUL).why_illegal(_made(macro, *parameters))
    assert error is not None
    assert reason in str(error)
    assert "\n" not in str(error)


def test_the_same_macro_is_the_same_transforms_whatever_the_names() -> None:
    """Two ways to one program give blocks other names; legality and expansion are blind to them."""
    one = apply_all(
        begin("matmul", **MATMUL), "CacheRead(block=0, read=0); CacheRead(block=1, read=1)"
    )
    other = apply_all(
        begin("matmul", **MATMUL), "CacheRead(block=0, read=1); CacheRead(block=1, read=0)"
    )
    macro = _made("MultiLevelTile", 2, 4, 16, 8)
    assert one.apply(macro).steps[2:] == other.apply(macro).steps[2:]


# -- vocabularies ---------------------------------------------------------------------------


def test_vocabularies_by_name() -> None:
    tables = {name: named_vocabulary(name) for name in VOCABULARY_NAMES}
    assert tables["primitive"].digest == default_vocabulary().digest
    assert list(tables["both"]) == [*tables["primitive"], *tables["macro"]]
    assert list(tables["primitive+options"]) == [*tables["primitive"], *tables["options"]]
    assert len({table.digest for table in tables.values()}) == len(VOCABULARY_NAMES) == 5


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match="primitive, macro, both"):
        named_vocabulary("macros")
    with pytest.raises(UnknownNameError, match="abacus"):
        named_vocabulary("macro", "abacus")
    with pytest.raises(UnknownNameError, match="did you mean 'InlineAll'"):
        load_macro("InlineAl")
    with pytest.raises((UnknownNameError, InvalidValueError), match="InlineAll"):
        parse_transform("InlineAll()")  # a trace is made of transforms alone


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for written in CASES:
        (GOLDEN / f"{written}.txt").write_text(_text(written), encoding="utf-8")
