"""The graph of TTIR and TTGIR: content, invariances, determinism, and its padded and free forms."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from triton_ir import fixture

from tirgym.errors import DamagedFileError
from tirgym.harness.target import Target
from tirgym.spaces.graph import BOUND, NODE_FEATURES, TENSORIR, IRGraph, encoder_for
from tirgym.spaces.graph_space import GraphSpace, to_instance
from tirgym.spaces.padded import PaddedGraph, Room
from tirgym.spaces.triton import triton_graph, triton_tree
from tirgym.spaces.triton_tables import TRITON, TRITON_FEATURES, TritonEdge, TritonNode

TARGET = Target("triton", "sm_90")
TEXTS = [
    (kernel, arch) for kernel in ("matmul", "attention", "softmax") for arch in ("sm_80", "sm_90")
]


def encode(kernel: str, arch: str = "sm_90", level: str = "ttgir") -> IRGraph:
    return triton_graph(fixture(kernel, arch, level).text, TARGET)


def column(graph: IRGraph, kind: TritonNode, name: str) -> np.ndarray:
    start = graph.offsets[kind]
    rows = graph.nodes[start : start + graph.counts[kind], TRITON.columns[kind]]
    return rows[:, TRITON_FEATURES[kind].index(name)]


def edges(graph: IRGraph, kind: TritonEdge) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in graph.links[:, graph.edge_types == kind].T.tolist()]


@pytest.mark.parametrize(("kernel", "arch"), TEXTS)
def test_every_operation_value_and_use_is_in_the_graph(kernel: str, arch: str) -> None:
    module = fixture(kernel, arch, "ttgir").module
    graph = triton_graph(module, TARGET)
    operations = list(module.walk())
    assert graph.counts[TritonNode.OPERATION] == len(operations)
    assert graph.counts[TritonNode.HARDWARE] == 1
    uses = sum(len(o.operands) for o in operations)
    assert len(edges(graph, TritonEdge.OPERAND)) == uses
    results = sum(len(o.results) for o in operations)
    arguments = len(edges(graph, TritonEdge.ARGUMENT))
    assert len(edges(graph, TritonEdge.RESULT)) == results
    assert graph.counts[TritonNode.VALUE] == results + arguments == module.values
    assert len(edges(graph, TritonEdge.TYPED)) == graph.counts[TritonNode.VALUE]
    nested = edges(graph, TritonEdge.NESTING)
    children = graph.counts[TritonNode.OPERATION] + graph.counts[TritonNode.REGION]
    assert len(nested) == len({child for _, child in nested}) == children


@pytest.mark.parametrize("level", ["ttir", "ttgir"])
@pytest.mark.parametrize(("kernel", "arch"), TEXTS)
def test_all_values_are_bounded_and_read_only(kernel: str, arch: str, level: str) -> None:
    graph = encode(kernel, arch, level)
    for array in (graph.nodes, graph.edges):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        assert np.abs(array).max() <= BOUND
        assert not array.flags.writeable
    assert graph.nodes.shape[1] == len(TRITON.node_features) == len(set(TRITON.node_features))
    assert graph.edges.shape[1] == len(TRITON.edge_features)
    np.testing.assert_array_equal(graph.nodes[:, : len(TritonNode)].argmax(1), graph.node_types)
    assert graph.links.max() < len(graph.nodes)


def test_a_pipelined_matmul_shows_its_copies_waits_and_layouts() -> None:
    ttir, sm_80, sm_90 = encode("matmul", level="ttir"), encode("matmul", "sm_80"), encode("matmul")
    assert ttir.counts[TritonNode.LAYOUT] == 0
    for graph in (sm_80, sm_90):
        assert column(graph, TritonNode.OPERATION, "copy").sum() == 6  # two, three times
        assert column(graph, TritonNode.OPERATION, "asynchronous").sum() >= 12
        assert column(graph, TritonNode.LAYOUT, "mma").sum() == 1
        assert column(graph, TritonNode.REGION, "loop").sum() == 1
        assert len(edges(graph, TritonEdge.CARRIED)) % 3 == 0
    versions = [column(g, TritonNode.LAYOUT, "version").max() * 8 for g in (sm_80, sm_90)]
    assert versions == [2, 3]
    assert column(ttir, TritonNode.HARDWARE, "ttgir").tolist() == [0]
    assert column(sm_80, TritonNode.HARDWARE, "ttgir").tolist() == [1]
    accumulators = sm_80.edges[:, TRITON.edge_features.index("accumulator")]
    assert accumulators.sum() == column(sm_80, TritonNode.OPERATION, "dot").sum()


def test_constants_say_their_value() -> None:
    text = fixture("matmul", "", "ttir").text
    graph = triton_graph(text, TARGET)
    magnitudes = column(graph, TritonNode.VALUE, "log_magnitude") * 16
    assert np.isclose(magnitudes, np.log2(1 + 32)).any()
    other = triton_graph(text.replace("arith.constant 32 : i32", "arith.constant 48 : i32"), TARGET)
    assert not np.array_equal(graph.nodes, other.nodes)
    np.testing.assert_array_equal(graph.links, other.links)


def same(one: IRGraph, two: IRGraph) -> bool:
    return one.counts == two.counts and all(
        np.array_equal(getattr(one, name), getattr(two, name))
        for name in ("nodes", "edges", "edge_types", "links")
    )


def test_names_never_reach_the_graph() -> None:
    text = fixture("attention", "sm_90", "ttgir").text
    renamed = re.sub(r"%(\d+)", r"%v_\1", text)
    renamed = renamed.replace("#blocked", "#layout").replace("@attention", "@kernel")
    assert renamed != text
    assert same(triton_graph(text, TARGET), triton_graph(renamed, TARGET))


def test_locations_never_reach_the_graph() -> None:
    text = fixture("softmax", "sm_90", "ttgir").text
    located = re.sub(r"(?m)^(    %\d+ = .*[^{])$", r"\1 loc(#loc7)", text)
    located += '\n#loc7 = loc("file.py":3:4)\n'
    assert located.count("loc(#loc7)") > 10
    assert same(triton_graph(text, TARGET), triton_graph(located, TARGET))


def test_the_target_changes_the_hardware_node_alone() -> None:
    text = fixture("softmax", "sm_90", "ttgir").text
    one, two = triton_graph(text, TARGET), triton_graph(text, Target("triton", "sm_80"))
    assert not np.array_equal(one.nodes[0], two.nodes[0])
    np.testing.assert_array_equal(one.nodes[1:], two.nodes[1:])


def test_the_padded_form_takes_it() -> None:
    room = Room((1, 8, 256, 256, 64, 16), 1536, TRITON)
    padded = PaddedGraph(room)
    for kernel, arch in TEXTS:
        graph = encode(kernel, arch)
        arrays = padded.arrays(graph)
        assert padded.overflow(graph) == 0
        assert all(space.contains(arrays[name]) for name, space in padded.spaces.items())
        assert arrays["node_mask"].sum() == sum(graph.counts)
        kept = arrays["nodes"][arrays["node_mask"] == 1]
        np.testing.assert_array_equal(kept, graph.nodes)
    small = PaddedGraph(Room((1, 2, 50, 50, 8, 2), 100, TRITON))
    graph = encode("attention")
    arrays = small.arrays(graph)
    assert small.overflow(graph) == arrays["overflow"].sum() > 0
    assert arrays["edge_mask"].sum() == 100 - max(0, 100 - graph.links.shape[1])
    assert small.spaces["overflow"].contains(arrays["overflow"])
    with pytest.raises(TypeError, match="other types of nodes"):
        PaddedGraph(Room((1, 48, 12, 24), 384)).arrays(graph)


def test_the_free_form_takes_it() -> None:
    instance = to_instance(encode("softmax"))
    assert GraphSpace(tables=TRITON).contains(instance)
    assert not GraphSpace().contains(instance)
    assert GraphSpace().node_space.shape == (len(NODE_FEATURES),)


def test_graphs_pickle_with_their_tables() -> None:
    graph = encode("softmax")
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.tables is TRITON
    assert same(graph, copy)
    assert pickle.loads(pickle.dumps(TENSORIR)) is TENSORIR


def test_the_tree_numbers_operations_as_the_graph_does() -> None:
    module = fixture("matmul", "sm_90", "ttgir").module
    tree = triton_tree(module)
    assert len(tree) == triton_graph(module, TARGET).counts[TritonNode.OPERATION]
    assert tree[0].startswith("op 0: arith.constant -> ")
    assert any(line.startswith("  op ") for line in tree)


def test_text_that_does_not_parse_is_refused() -> None:
    with pytest.raises(DamagedFileError, match="line 1, column 1"):
        triton_graph("nothing", TARGET)


def test_the_encoder_compiles_what_it_shows() -> None:
    pytest.importorskip("triton")
    from tirgym.harness.triton.program import TritonProgram

    stock = fixture("softmax", "", "ttir")
    encoder = encoder_for("triton")
    program = TritonProgram.start(stock.workload, TARGET)
    graph = encoder.encode(program)
    assert graph.tables is TRITON
    assert graph.counts[TritonNode.LAYOUT] > 0
    assert len(encoder.tree(program)) == graph.counts[TritonNode.OPERATION]
    with pytest.raises(TypeError, match="expected a TritonProgram"):
        encoder.encode(object())  # type: ignore[arg-type]
