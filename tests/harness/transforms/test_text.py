"""Text forms parse back; bad text is answered with what would be accepted; tables are literal."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness import transforms
from tirgym.harness.transforms import (
    TRANSFORMS,
    default_vocabulary,
    load_transform,
    parse_transform,
)
from tirgym.harness.transforms.base import SlotLimits, Transform

NUMBERS = st.integers(0, 10**6)
WORDS = st.text("abcdefghijklmnopqrstuvwxyz_0123456789. '\"\\", max_size=12)


@st.composite
def any_transform(draw: st.DrawFn) -> Transform:
    kind = load_transform(draw(st.sampled_from(sorted(TRANSFORMS))))
    values = {f.name: draw(WORDS if f.type == "str" else NUMBERS) for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**values)


@given(any_transform())
def test_text_round_trips(transform: Transform) -> None:
    assert parse_transform(str(transform)) == transform
    assert parse_transform(f"  {transform} ") == transform


def test_the_whole_table_round_trips() -> None:
    vocabulary = default_vocabulary()
    for action, transform in enumerate(vocabulary):
        assert vocabulary.index(parse_transform(str(transform))) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Split",
        "Split(",
        "Split(2, 8)",
        "Split(loop=2)",
        "Split(loop=2, factor=8, extra=1)",
        "Split(loop=2, factor='8')",
        "Split(loop=2, factor=True)",
        "Split(loop=2.0, factor=8)",
        "Split(loop=2, factor=8); Fuse(loop=1)",
        "SetScope(block=0, scope=1)",
        "__import__('os')(loop=1)",
        "Split(loop=2, loop=3)",
        "\0",
        f"Split(loop=2, factor={'-' * 4000}8)",
        f"Split(loop=2, factor={'(' * 2000}8{')' * 2000})",
        f"a.{'b.' * 2000}Split(loop=2)",
        f"Split(loop=2, factor={'9' * 5000})",
        f"Split(loop=2, factor=8{' ' * 100_000})",
    ],
)
def test_bad_text_names_what_would_be_accepted(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_transform(text)
    assert "Split(loop=" in str(caught.value) or "SetScope(block=" in str(caught.value)
    assert len(str(caught.value)) < 5000
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'Split'") as caught:
        parse_transform("Spilt(loop=2, factor=8)")
    assert set(TRANSFORMS) <= set(caught.value.accepted)
    with pytest.raises(UnknownNameError, match="llvm"):
        default_vocabulary("fortran")
    with pytest.raises(UnknownNameError, match="Split"):
        default_vocabulary(extra=("NoSuch",))


def test_a_transform_named_twice_raises() -> None:
    with pytest.raises(InvalidValueError, match="once"):
        default_vocabulary(extra=("Split",))
    with pytest.raises(InvalidValueError, match="once"):
        transforms._lazy_table([("A", "x:A"), ("A", "y:A")])


def test_entry_points_join_a_vocabulary_only_when_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EntryPoint("Mine", "tirgym.harness.transforms.bind:Bind", "tirgym.transforms")
    plain = default_vocabulary()
    monkeypatch.setattr(transforms, "entry_points", lambda group: [found])
    transforms._installed.cache_clear()
    load_transform.cache_clear()
    try:
        assert default_vocabulary().digest == plain.digest
        extended = default_vocabulary(extra=("Mine",))
        assert len(extended) > len(plain)
        assert [str(t) for t in extended][: len(plain)] == [str(t) for t in plain]
    finally:
        monkeypatch.undo()
        transforms._installed.cache_clear()
        load_transform.cache_clear()


def test_every_transform_states_effect_and_refusal() -> None:
    for name in TRANSFORMS:
        kind = load_transform(name)
        assert kind.name == name
        text = kind.__doc__ or ""
        assert "→" in text, name
        assert "Refused" in text, name
        first = text.split("\n\n")[0]
        assert first.endswith("."), name


def test_the_table_imports_no_compiler() -> None:
    code = "import sys, tirgym.harness.transforms; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_action_table_depends_on_backend_names_and_limits_alone() -> None:
    one, same = default_vocabulary(), default_vocabulary()
    assert one.digest == same.digest
    assert 1000 < len(one) < 3000
    assert not any(t.name in ("Bind", "StorePrecision") for t in one)
    device = default_vocabulary("opencl")
    assert device.digest == default_vocabulary("rocm").digest != one.digest
    cuda = default_vocabulary("cuda")
    assert list(cuda)[: len(device)] == list(device)
    assert {str(t) for t in cuda} >= {
        "Tensorize(loop=0, intrinsic='wmma_mma')",
        "SoftwarePipeline(loop=0, stages=2)",
    }
    assert {str(t) for t in device} >= {
        "Bind(loop=0, thread='blockIdx.x')",
        "SetScope(block=0, scope='shared')",
    }
    assert not any(t.name in ("Parallel", "Tensorize") for t in device)
    small = default_vocabulary(limits=SlotLimits(max_loops=4, max_blocks=2, factors=(2,)))
    assert len(small) < len(one)
    assert small.digest != one.digest


def test_groups_hold_every_action_once_under_its_node() -> None:
    vocabulary = default_vocabulary()
    seen = []
    for group in vocabulary.groups:
        for row in group.rows:
            for node, action in row.actions.items():
                assert getattr(vocabulary[action], group.node_field) == node
                assert vocabulary[action].name == group.name
                seen.append(action)
    assert sorted(seen) == list(range(len(vocabulary)))
