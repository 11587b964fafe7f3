"""The graph of TensorIR programs: content, invariances, determinism."""

from __future__ import annotations

import numpy as np
import pytest
from hash_seeds import Alike
from small import SMALL, TARGET, make

from tirgym.errors import UnknownNameError
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.spaces.graph import (
    BOUND,
    COLUMNS,
    EDGE_FEATURES,
    FEATURES,
    NODE_FEATURES,
    EdgeType,
    IRGraph,
    NodeType,
    encoder_for,
)

MATMUL = SMALL["matmul"]


def encode(program: TensorIRProgram) -> IRGraph:
    return encoder_for("tensorir").encode(program)


def column(graph: IRGraph, kind: NodeType, name: str) -> np.ndarray:
    start = graph.offsets[kind]
    rows = graph.nodes[start : start + graph.counts[kind], COLUMNS[kind]]
    return rows[:, FEATURES[kind].index(name)]


def edges(graph: IRGraph, kind: EdgeType) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in graph.links[:, graph.edge_types == kind].T.tolist()]


def test_matmul_has_the_loops_blocks_buffers_and_strides_of_its_definition() -> None:
    graph = encode(make(MATMUL))
    assert graph.counts == (1, 3, 1, 3)  # hardware; i, j, k; one block; a, b, c
    loop_extents = column(graph, NodeType.LOOP, "log_extent") * 16
    np.testing.assert_allclose(loop_extents, np.log2([17, 25, 33]), rtol=1e-6)
    np.testing.assert_array_equal(column(graph, NodeType.LOOP, "spatial"), [1, 1, 0])
    np.testing.assert_array_equal(column(graph, NodeType.LOOP, "reduce"), [0, 0, 1])
    assert edges(graph, EdgeType.NESTING) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert edges(graph, EdgeType.ORDER) == []
    reads, writes = edges(graph, EdgeType.READ), edges(graph, EdgeType.WRITE)
    (c,) = {target for _, target in writes}
    a, b = (source for source, _ in reads if source != c)
    strides = {
        (source, target): 2.0 ** (row[EDGE_FEATURES.index("log_stride")] * 16) - 1
        for kind, (source, target), row in zip(
            graph.edge_types, graph.links.T.tolist(), graph.edges, strict=True
        )
        if kind in (EdgeType.READ_STRIDE, EdgeType.WRITE_STRIDE)
    }
    rounded = {pair: round(float(stride)) for pair, stride in strides.items()}
    assert rounded == {(1, a): 32, (3, a): 1, (3, b): 24, (2, b): 1, (1, c): 24, (2, c): 1}
    np.testing.assert_array_equal(column(graph, NodeType.BUFFER, "parameter"), [1, 1, 1])
    assert column(graph, NodeType.BUFFER, "output")[c - graph.offsets[NodeType.BUFFER]] == 1
    assert column(graph, NodeType.BLOCK, "multiplies") == 1 / 8


def test_transforms_show_in_the_graph() -> None:
    program = make(MATMUL, "Split(loop=1, factor=8)", "CacheRead(block=0, read=0)")
    graph = encode(program)
    assert graph.counts == (1, 6, 2, 4)
    assert column(graph, NodeType.BUFFER, "parameter").sum() == 3
    assert len(edges(graph, EdgeType.ORDER)) == 1  # the copy comes before the product
    vectorized = make(MATMUL, "Split(loop=1, factor=8)", "Reorder(loop=2)", "Vectorize(loop=3)")
    assert column(encode(vectorized), NodeType.LOOP, "vectorized").tolist() == [0, 0, 0, 1]


def test_all_values_are_bounded_and_every_name_is_used() -> None:
    graph = encode(make("tirgym://core-v0/softmax?m=250&n=500&dtype=float32"))
    for array in (graph.nodes, graph.edges):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        assert np.abs(array).max() <= BOUND
        assert not array.flags.writeable
    assert graph.nodes.shape[1] == len(NODE_FEATURES) == len(set(NODE_FEATURES))
    assert graph.edges.shape[1] == len(EDGE_FEATURES)
    np.testing.assert_array_equal(graph.nodes[:, :4].argmax(axis=1), graph.node_types)
    assert graph.links.max() < len(graph.nodes)


def test_names_never_reach_the_graph() -> None:
    """The same computation under other names of loops, blocks and buffers is the same graph."""
    program = make(MATMUL)
    text = program.text()
    renamed = text
    for old, new in (("v_i", "zz_i"), ("for i,", "for other,"), ("[i,", "[other,")):
        renamed = renamed.replace(old, new)
    renamed = renamed.replace('T.sblock("c")', 'T.sblock("elsewhere")')
    assert renamed != text
    import tvm
    from tvm.s_tir import Schedule

    schedule = Schedule(tvm.script.from_source(renamed), debug_mask="none")
    other = TensorIRProgram(program.workload, TARGET, (), schedule)
    assert other.text() != text
    assert same(encode(program), encode(other))


def same(one: IRGraph, two: IRGraph) -> bool:
    return one.counts == two.counts and all(
        np.array_equal(getattr(one, name), getattr(two, name))
        for name in ("nodes", "edges", "edge_types", "links")
    )


def test_independent_transforms_commute_in_the_graph() -> None:
    first = make(MATMUL, "Split(loop=0, factor=2)", "Split(loop=3, factor=4)")
    second = make(MATMUL, "Split(loop=2, factor=4)", "Split(loop=0, factor=2)")
    assert first.ir_key == second.ir_key
    assert same(encode(first), encode(second))


def test_the_target_changes_the_hardware_node_alone() -> None:
    program = make(MATMUL)
    other = TensorIRProgram.start(program.workload, Target("llvm", "haswell", 2))
    one, two = encode(program), encode(other)
    assert not np.array_equal(one.nodes[0], two.nodes[0])
    np.testing.assert_array_equal(one.nodes[1:], two.nodes[1:])


def test_encoding_again_gives_the_same_bytes_in_every_process(alike: Alike) -> None:
    code = (
        "import hashlib\n"
        "from tirgym.harness.target import Target\n"
        "from tirgym.harness.tensorir.program import TensorIRProgram\n"
        "from tirgym.harness.transforms import parse_transform\n"
        "from tirgym.kernels_suite.registry import load_workload\n"
        "from tirgym.spaces.graph import encoder_for\n"
        "p = TensorIRProgram.start(load_workload('softmax'), Target('llvm', 'haswell', 1))\n"
        "for s in ('Split(loop=0, factor=2)', 'CacheRead(block=1, read=0)'):\n"
        "    p = p.apply(parse_transform(s))\n"
        "g = encoder_for('tensorir').encode(p)\n"
        "parts = (g.nodes, g.edges, g.edge_types, g.links)\n"
        "print(hashlib.sha256(b''.join(a.tobytes() for a in parts)).hexdigest())\n"
    )
    assert len(alike(code).strip()) == 64


def test_the_tree_numbers_loops_and_blocks_as_transforms_do() -> None:
    tree = encoder_for("tensorir").tree(make(MATMUL, "CacheRead(block=0, read=0)"))
    assert [line.strip().split(":")[0] for line in tree] == [
        "loop 0", "loop 1", "block 0", "loop 2", "loop 3", "loop 4", "block 1",
    ]  # fmt: skip
    assert tree[2].startswith("    block 0")


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(UnknownNameError, match="IR dialect 'mlir'"):
        encoder_for("mlir")
