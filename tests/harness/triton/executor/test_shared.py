"""Shared memory, asynchronous copies, warp-group products: what is read too early shows."""

from __future__ import annotations

import numpy as np
import pytest

from tirgym.harness.status import Status
from tirgym.harness.triton.executor.executable import Executable
from tirgym.harness.triton.executor.faults import Fault

COPY = """#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#shared = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @f(%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %eight = arith.constant dense<8> : tensor<8xi32, #blocked>
    %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32, #blocked>
    %s = tt.splat %arg0 : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>, #blocked>
    %p = tt.addptr %s, %r : tensor<8x!tt.ptr<f32>, #blocked>, tensor<8xi32, #blocked>
    %q = tt.addptr %p, %eight : tensor<8x!tt.ptr<f32>, #blocked>, tensor<8xi32, #blocked>
    %so = tt.splat %arg1 : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>, #blocked>
    %o = tt.addptr %so, %r : tensor<8x!tt.ptr<f32>, #blocked>, tensor<8xi32, #blocked>
    %m = ttg.local_alloc : () -> !ttg.memdesc<2x8xf32, #shared, #smem, mutable>
    %a = ttg.memdesc_index %m[%c0] : !ttg.memdesc<2x8xf32, #shared, #smem, mutable> -> !ttg.memdesc<8xf32, #shared, #smem, mutable>
    %b = ttg.memdesc_index %m[%c1] : !ttg.memdesc<2x8xf32, #shared, #smem, mutable> -> !ttg.memdesc<8xf32, #shared, #smem, mutable>
    %t0 = ttg.async_copy_global_to_local %p, %a : tensor<8x!tt.ptr<f32>, #blocked> -> <8xf32, #shared, #smem, mutable>
    %g0 = ttg.async_commit_group tokens %t0
    %t1 = ttg.async_copy_global_to_local %q, %b : tensor<8x!tt.ptr<f32>, #blocked> -> <8xf32, #shared, #smem, mutable>
    %g1 = ttg.async_commit_group tokens %t1
    %w = ttg.async_wait %g0 {num = NUM : i32}
    %v = ttg.local_load BUFFER token %w : !ttg.memdesc<8xf32, #shared, #smem, mutable> -> tensor<8xf32, #blocked>
    tt.store %o, %v : tensor<8x!tt.ptr<f32>, #blocked>
    TAIL
    tt.return
  }
}
"""


def run_copy(num: int, buffer: str, tail: str = "", text: str = COPY) -> np.ndarray:
    text = text.replace("NUM", str(num)).replace("BUFFER", buffer).replace("TAIL", tail)
    out = np.zeros(8, np.float32)
    Executable.of(text).run((1,), [np.arange(16, dtype=np.float32), out])
    return out


def test_a_copy_arrives_with_the_wait_that_covers_its_group() -> None:
    np.testing.assert_array_equal(run_copy(1, "%a"), np.arange(8))
    np.testing.assert_array_equal(run_copy(0, "%b"), np.arange(8, 16))
    assert np.isnan(run_copy(1, "%b")).all()
    assert np.isnan(run_copy(2, "%a")).all()


def test_copies_that_were_never_committed_never_arrive() -> None:
    text = COPY.replace("%g1 = ttg.async_commit_group tokens %t1", "")
    assert np.isnan(run_copy(0, "%b", text=text)).all()


def test_memory_is_poison_until_it_is_written() -> None:
    text = COPY.replace(
        "%t1 = ttg.async_copy_global_to_local %q, %b", "%t1 = ttg.async_copy_global_to_local %q, %a"
    )
    assert np.isnan(run_copy(0, "%b", text=text)).all()
    np.testing.assert_array_equal(run_copy(0, "%a", text=text), np.arange(8, 16))


@pytest.mark.parametrize(
    ("num", "tail", "problem"),
    [
        (1, "ttg.local_dealloc %m : !ttg.memdesc<2x8xf32, #shared, #smem, mutable>",
         "frees shared memory that a copy still writes"),
        (0, """ttg.local_dealloc %m : !ttg.memdesc<2x8xf32, #shared, #smem, mutable>
    %late = ttg.local_load %a : !ttg.memdesc<8xf32, #shared, #smem, mutable> -> tensor<8xf32, #blocked>""",
         "uses shared memory that was deallocated"),
    ],
)  # fmt: skip
def test_races_at_the_end_of_a_buffers_life(num: int, tail: str, problem: str) -> None:
    with pytest.raises(Fault, match=problem) as caught:
        run_copy(num, "%a", tail)
    assert caught.value.status is Status.WRONG_RESULT


def test_a_ring_index_outside_of_the_ring_is_a_fault() -> None:
    with pytest.raises(Fault, match="index 2 of 2 buffers"):
        run_copy(0, "%a", text=COPY.replace("%c1 = arith.constant 1", "%c1 = arith.constant 2"))


def test_batches_of_programs_have_shared_memory_of_their_own() -> None:
    text = COPY.replace(
        "%p = tt.addptr %s, %r",
        "%pid = tt.get_program_id x : i32\n    %ps = tt.splat %pid : i32 -> tensor<8xi32, #blocked>\n"
        "    %rr = arith.addi %r, %ps : tensor<8xi32, #blocked>\n    %p = tt.addptr %s, %rr",
    ).replace(
        "%o = tt.addptr %so, %r",
        "%c8 = arith.constant dense<8> : tensor<8xi32, #blocked>\n"
        "    %po = arith.muli %ps, %c8 : tensor<8xi32, #blocked>\n"
        "    %ro = arith.addi %r, %po : tensor<8xi32, #blocked>\n    %o = tt.addptr %so, %ro",
    )
    text = text.replace("NUM", "0").replace("BUFFER", "%b").replace("TAIL", "")
    out = np.zeros((3, 8), np.float32)
    Executable.of(text).run((3,), [np.arange(24, dtype=np.float32), out])
    np.testing.assert_array_equal(out, np.arange(8, 16) + np.arange(3)[:, None])


PRODUCT = """#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 16, 16]}>
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @f(%arg0: !tt.ptr<f32>) {
    %zero = arith.constant dense<0.000000e+00> : tensor<4x4xf32, #mma>
    %two = arith.constant dense<2.000000e+00> : tensor<4x4xf16, #mma>
    %m = ttg.local_alloc %two : (tensor<4x4xf16, #mma>) -> !ttg.memdesc<4x4xf16, #shared, #smem, mutable>
    %d = ttng.warp_group_dot %m, %m, %zero {inputPrecision = 0 : i32, isAsync = true} : !ttg.memdesc<4x4xf16, #shared, #smem, mutable> * !ttg.memdesc<4x4xf16, #shared, #smem, mutable> -> tensor<4x4xf32, #mma>
    %e = ttng.warp_group_dot %m, %m, %d {inputPrecision = 0 : i32, isAsync = true} : !ttg.memdesc<4x4xf16, #shared, #smem, mutable> * !ttg.memdesc<4x4xf16, #shared, #smem, mutable> -> tensor<4x4xf32, #mma>
    BEFORE
    %w:2 = ttng.warp_group_dot_wait %e, %m {pendings = PENDING : i32} : tensor<4x4xf32, #mma>, !ttg.memdesc<4x4xf16, #shared, #smem, mutable>
    %s = "tt.reduce"(%w#0) <{axis = 0 : i32}> ({
    ^bb0(%x: f32, %y: f32):
      %z = arith.addf %x, %y : f32
      tt.reduce.return %z : f32
    }) : (tensor<4x4xf32, #mma>) -> tensor<4xf32, #ttg.slice<{dim = 0, parent = #mma}>>
    %p = tt.splat %arg0 : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>, #ttg.slice<{dim = 0, parent = #mma}>>
    tt.store %p, %s : tensor<4x!tt.ptr<f32>, #ttg.slice<{dim = 0, parent = #mma}>>
    tt.return
  }
}
"""


def run_product(pending: int, before: str = "") -> float:
    text = PRODUCT.replace("PENDING", str(pending)).replace("BEFORE", before)
    out = np.zeros(1, np.float32)
    Executable.of(text).run((1,), [out])
    return float(out[0])


def test_products_accumulate_in_order_and_may_be_read_behind_their_wait() -> None:
    assert run_product(0) == 4 * 2 * 16.0


def test_a_product_that_is_read_before_its_wait_is_a_race() -> None:
    with pytest.raises(Fault, match="read before its wait") as caught:
        run_product(1)
    assert caught.value.status is Status.WRONG_RESULT
    assert caught.value.operation == "ttng.warp_group_dot"


def test_what_a_product_reads_must_not_change_before_its_wait() -> None:
    store = "ttg.local_store %two, %m : tensor<4x4xf16, #mma> -> !ttg.memdesc<4x4xf16, #shared, #smem, mutable>"
    with pytest.raises(Fault, match="overwrites shared memory that a warp_group_dot still reads"):
        run_product(0, store)
