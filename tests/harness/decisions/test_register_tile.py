"""Tiles that fit the registers: vectors, rows, and what divides the loops."""

from __future__ import annotations

from tirgym.harness.decisions.register_tile import best_lanes, more_rows, vectors_of


def test_vectors_are_powers_of_two() -> None:
    assert [vectors_of(n, 16) for n in (16, 32, 48, 24, 28, 7)] == [1, 2, 3, 3, 7, 7]


def test_a_large_matrix_gets_two_vectors_by_about_ten_rows() -> None:
    cycles, factor = best_lanes(512, 16, (512,))
    assert factor == 32
    assert cycles == 0.5 / 16  # two multiply-adds of 16 elements a cycle
    assert more_rows(2, 1, [1, 2, 4, 8, 16]) == 8
    assert more_rows(2, 1, [1, 2, 5, 10, 25]) == 10


def test_accumulators_fit_the_registers() -> None:
    for vectors in (1, 2, 3, 4):
        assert vectors * more_rows(vectors, 1, list(range(1, 65))) <= 26


def test_a_loop_without_whole_vectors_costs_more() -> None:
    whole, _ = best_lanes(272, 16, (250,))
    half, _ = best_lanes(264, 16, (250,))
    assert half > 1.8 * whole


def test_rows_of_two_loops_make_up_for_short_ones() -> None:
    short, _ = best_lanes(32, 16, (3,))
    both, _ = best_lanes(32, 16, (3, 28))
    assert both < short
    assert more_rows(2, 3, [1, 2, 4, 7, 14, 28]) == 4
