"""Transforms of Triton programs: what each does, what is refused, masks against their definition."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

from triton_envs import MATMUL, SOFTMAX, started

from tirgym.errors import IllegalTransformError, InvalidValueError
from tirgym.harness.transforms import default_vocabulary, load_transform, parse_transform
from tirgym.harness.triton.pass_rules import FIRST, LEVELS, MANDATORY, MAX_PASSES, TAIL
from tirgym.harness.triton.pipeline import Pipeline
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.recipe import follows
from tirgym.harness.vocabulary import Vocabulary

VOCABULARY = default_vocabulary("triton")


def applied(text: str, kernel: str = MATMUL, arch: str = "sm_90") -> tuple[list[str], list[str]]:
    """The passes of TTGIR before and after, as texts."""
    before = started(kernel, arch)
    after = before.apply(parse_transform(text))
    return [list(map(str, program.recipe.calls("ttgir"))) for program in (before, after)]  # type: ignore[return-value]


def why(text: str, program: TritonProgram | None = None) -> str:
    error = (program or started(MATMUL)).why_illegal(parse_transform(text))
    assert error is not None
    return error.rule


def test_each_transform_does_what_it_says() -> None:
    before, after = applied("DropPass(level='ttgir', pass_name='ttgpuir.coalesce', nth=0)")
    assert after == [call for call in before if call != "ttgpuir.coalesce()"]
    name = "ttgpuir.remove_layout_conversions"
    before, after = applied(f"RepeatPass(level='ttgir', pass_name='{name}', nth=1)")
    place = [i for i, call in enumerate(before) if call == f"{name}()"][1]
    assert after == [*before[:place], before[place], *before[place:]]
    before, after = applied("MovePass(level='ttgir', pass_name='ttgpuir.pipeline', nth=0, by=-1)")
    place = before.index("ttgpuir.pipeline(3, False)")
    assert after[place - 1 : place + 1] == before[place - 1 : place + 1][::-1]
    before, after = applied(
        "InsertPass(level='ttgir', pass_name='ttgpuir.prefetch', before='ttgpuir.coalesce')"
    )
    assert after == [before[0], "ttgpuir.prefetch()", *before[1:]]
    before, after = applied("InsertPass(level='ttgir', pass_name='ttgpuir.prefetch', before='')")
    place = before.index("nvidia.fence_insertion(90)")
    assert after == [*before[:place], "ttgpuir.prefetch()", *before[place:]]
    before, after = applied(
        "SetPassArgument(level='ttgir', pass_name='ttgpuir.pipeline', nth=0, argument=0, value=5)"
    )
    changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert changed == [("ttgpuir.pipeline(3, False)", "ttgpuir.pipeline(5, False)")]
    before, after = applied(
        "SetPassArgument(level='ttgir', pass_name='ttgpuir.f32_dot_tc', nth=0, argument=0, value=0)"
    )
    assert "ttgpuir.f32_dot_tc(False)" in after


def test_stages_and_warps_reach_the_passes_unless_these_were_set() -> None:
    edit = parse_transform(
        "SetPassArgument(level='ttgir', pass_name='ttgpuir.pipeline', nth=0, argument=0, value=5)"
    )
    stages = parse_transform("SetMeta(parameter='num_stages', value=2)")
    program = started(MATMUL).apply(edit).apply(stages)
    calls = list(map(str, program.recipe.calls("ttgir")))
    assert "ttgpuir.pipeline(5, False)" in calls
    assert "ttgpuir.assign_latencies(2)" in calls
    warps = parse_transform("SetMeta(parameter='num_warps', value=8)")
    assert str(program.apply(warps).recipe.calls("ttgir")[0]) == f"{FIRST}('cuda:90', 8, 32, 1)"
    back = (
        started(MATMUL)
        .apply(stages)
        .apply(parse_transform("SetMeta(parameter='num_stages', value=3)"))
    )
    assert back.ir_key == started(MATMUL).ir_key
    assert back.pipeline is None


def test_edits_do_not_follow_to_other_passes() -> None:
    """One stage on gfx942 has another stock pipeline."""
    drop = parse_transform("DropPass(level='ttgir', pass_name='ttgpuir.coalesce', nth=0)")
    one = "SetMeta(parameter='num_stages', value=1)"
    program = started(MATMUL, "gfx942")
    stock = program.apply(parse_transform(one))
    if follows(program.apply(drop).recipe.pipeline, program.recipe.stock, stock.recipe.stock):
        pytest.skip("this Triton runs the same passes for one stage")
    assert why(one, program.apply(drop)) == "passes"


def test_what_is_refused_and_by_which_rule() -> None:
    for text, rule in (
        ("SetMeta(parameter='ROWS', value=2)", "parameter"),
        ("SetMeta(parameter='BLOCK_M', value=8)", "value"),
        ("SetMeta(parameter='BLOCK_M', value=128)", "nothing"),
        ("DropPass(level='llir', pass_name='common.cse', nth=0)", "level"),
        ("DropPass(level='ttgir', pass_name='ttgpuir.coalesce', nth=1)", "pass"),
        ("DropPass(level='ttgir', pass_name='ttgpuir.coalesce', nth=-1)", "pass"),
        ("DropPass(level='ttgir', pass_name='nvidia.tma_lowering', nth=0)", "mandatory"),
        (f"DropPass(level='ttgir', pass_name='{FIRST}', nth=0)", "mandatory"),
        ("DropPass(level='ttgir', pass_name='nvidia.fence_insertion', nth=0)", "tail"),
        ("RepeatPass(level='ttgir', pass_name='common.sccp', nth=0)", "tail"),
        ("MovePass(level='ttgir', pass_name='ttgpuir.coalesce', nth=0, by=-1)", "place"),
        ("MovePass(level='ttgir', pass_name='common.symbol_dce', nth=0, by=1)", "place"),
        ("MovePass(level='ttir', pass_name='common.inliner', nth=0, by=-1)", "place"),
        ("InsertPass(level='ttgir', pass_name='ttgpuir.pipeline', before='')", "pass"),
        ("InsertPass(level='ttgir', pass_name='amd.optimize_epilogue', before='')", "vendor"),
        ("InsertPass(level='ttgir', pass_name='common.cse', before='common.sccp')", "place"),
        (f"InsertPass(level='ttgir', pass_name='common.cse', before='{FIRST}')", "place"),
        ("SetPassArgument(level='ttgir', pass_name='ttgpuir.pipeline', nth=0, argument=1, value=1)",
         "argument"),
        ("SetPassArgument(level='ttgir', pass_name='ttgpuir.pipeline', nth=0, argument=0, value=3)",
         "nothing"),
        ("Split(loop=0, factor=2)", "dialect"),
    ):  # fmt: skip
        assert why(text) == rule, text
    with pytest.raises(IllegalTransformError, match=r"level|place|ttgir"):
        started().apply(parse_transform(f"RepeatPass(level='ttgir', pass_name='{FIRST}', nth=0)"))


def test_a_grid_that_cannot_be_launched_is_refused() -> None:
    wide = "tirgym://triton-v0/transpose?m=64&n=4194240&dtype=float32"
    assert why("SetMeta(parameter='BLOCK_N', value=32)", started(wide)) == "grid"


def test_threads_beyond_a_block_are_refused() -> None:
    """16 warps of 64 lanes are 1024 threads, which fit; as many as there are in the sources."""
    from tirgym.harness.triton.transforms import set_meta

    assert started(SOFTMAX, "gfx942").why_illegal(
        parse_transform("SetMeta(parameter='num_warps', value=16)")
    ) is None  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_meta, "MAX_THREADS", 512)
        text = "SetMeta(parameter='num_warps', value=16)"
        assert why(text, started(SOFTMAX, "gfx942")) == "threads"


@pytest.mark.parametrize(("kernel", "arch"), [(MATMUL, "sm_90"), (SOFTMAX, "gfx942")])
def test_masks_are_exact(kernel: str, arch: str) -> None:
    program = started(kernel, arch)
    for edit in (None, "RepeatPass(level='ttir', pass_name='common.cse', nth=0)"):
        program = program if edit is None else program.apply(parse_transform(edit))
        mask = program.legal_mask(VOCABULARY)
        assert mask.any()
        assert not mask.all()
        for legal, transform in zip(mask, VOCABULARY, strict=True):
            if legal:
                after = program.apply(transform)
                assert after.steps == (*program.steps, transform)
                assert (after.recipe.config, after.recipe.pipeline) != (
                    program.recipe.config,
                    program.recipe.pipeline,
                )
            else:
                with pytest.raises(IllegalTransformError):
                    program.apply(transform)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942"])
def test_no_walk_touches_mandatory_passes_or_the_tail(arch: str) -> None:
    start, rng = started(MATMUL, arch), np.random.default_rng(7)
    vendor = start.recipe.gpu.vendor
    first, last = VOCABULARY.spans[load_transform("DropPass")][0], len(VOCABULARY)
    program = start
    for _ in range(60):
        legal = first + np.flatnonzero(program.legal_mask(VOCABULARY)[first:last])
        program = program.apply(VOCABULARY[int(rng.choice(legal))])
        names, stock = program.recipe.names["ttgir"], start.recipe.names["ttgir"]
        assert names[0] == FIRST
        assert names[names.index(TAIL[vendor]) :] == stock[stock.index(TAIL[vendor]) :]
        for name in MANDATORY:
            assert names.count(name) == stock.count(name)
        assert all(len(program.recipe.calls(level)) <= MAX_PASSES[level] for level in LEVELS)


def test_pipelines_do_not_outgrow_their_limit() -> None:
    program = started()
    repeat = parse_transform("RepeatPass(level='ttir', pass_name='common.cse', nth=0)")
    while program.why_illegal(repeat) is None:
        program = program.apply(repeat)
    assert len(program.recipe.calls("ttir")) == MAX_PASSES["ttir"]
    assert why(str(repeat), program) == "length"
    insert = "InsertPass(level='ttir', pass_name='common.licm', before='')"
    assert why(insert, program) == "length"


def test_keys_have_the_pipeline_and_not_the_way() -> None:
    drop = "DropPass(level='ttgir', pass_name='ttgpuir.coalesce', nth=0)"
    warps = "SetMeta(parameter='num_warps', value=8)"
    one, other = started(MATMUL), started(MATMUL)
    for text in (drop, warps):
        one = one.apply(parse_transform(text))
    for text in (warps, drop):
        other = other.apply(parse_transform(text))
    assert one.ir_key == other.ir_key
    assert len({one.ir_key, started(MATMUL).ir_key, one.with_pipeline(None).ir_key}) == 3
    assert "#   ttgpuir.f32_dot_tc(True)" in one.text()
    assert "# passes of" not in started(MATMUL).text()


def test_the_table_is_a_function_of_the_installed_triton_alone() -> None:
    assert VOCABULARY.dialect == "triton"
    assert default_vocabulary("triton").digest == VOCABULARY.digest
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    for transform in VOCABULARY[:: len(VOCABULARY) // 97]:
        assert parse_transform(str(transform)) == transform
    with pytest.raises(InvalidValueError, match="dialects of a vocabulary"):
        Vocabulary([load_transform("Split"), load_transform("SetMeta")])


def test_tensorir_refuses_them_too() -> None:
    from small import SMALL, make

    program = make(SMALL["add"])
    error = program.why_illegal(parse_transform("SetMeta(parameter='BLOCK', value=256)"))
    assert error is not None
    assert error.rule == "dialect"
    assert not program.legal_mask(VOCABULARY).any()


def test_follows_keeps_what_an_agent_set() -> None:
    stock = started(MATMUL).recipe.pipeline
    assert follows(stock, stock, stock) == stock
    cut = stock.without("ttgpuir.coalesce")
    assert follows(cut, stock, stock) == cut
    assert follows(cut, stock, Pipeline(stock.ttir, stock.ttgir[:-1])) is None
