"""`tirgym profile --backend triton`: the static profile of a GPU kernel, which was not run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tirgym.cli.output import counted, note, print_json, print_table, result_console
from tirgym.cli.records import program_record

if TYPE_CHECKING:
    from tirgym.harness.triton.memory_facts import GlobalAccess, SharedAccess
    from tirgym.harness.triton.profile import TritonProfile
    from tirgym.harness.triton.program import TritonProgram

__all__ = ["report_triton"]

_SHOWN = 12
"""Opcodes of the instruction mix that are printed."""


def report_triton(program: TritonProgram, json: bool) -> None:
    """Print the profile, as tables or as JSON."""
    from tirgym.harness.backend import backend
    from tirgym.harness.triton.profile import triton_profile

    profile = triton_profile(program)
    reason = backend(program.target.backend).why_cannot_run(program.target)
    if json:
        record = {**program_record(program), "profile": asdict(profile), "not_run": reason}
        print_json(record)
        return
    console = result_console()
    console.print(
        f"{program.workload.uri} for {program.target.arch} ({profile.product})", soft_wrap=True
    )
    print_table("", ("", ""), _rows(profile))
    if profile.accesses:
        console.print()
        print_table("", _ACCESS_COLUMNS, [_access_row(access) for access in profile.accesses])
    if profile.shared:
        console.print()
        print_table("", _SHARED_COLUMNS, [_shared_row(access) for access in profile.shared])
    if reason:
        note(f"not run: {reason}")


_ACCESS_COLUMNS = (
    "global access", "tensor", ">times", ">bytes a time", ">bytes a thread", ">fetched bytes used",
)  # fmt: skip
_SHARED_COLUMNS = ("shared-memory access", "elements", ">bank conflicts")


def _access_row(access: GlobalAccess) -> tuple[str, ...]:
    used = f"{access.efficiency:.0%}" if access.segments else "depends on data"
    width = str(access.vector_bytes) if access.vector_bytes else ""
    return (
        access.operation, access.tensor, f"{access.times:,}", f"{access.nbytes:,}", width, used,
    )  # fmt: skip


def _shared_row(access: SharedAccess) -> tuple[str, ...]:
    told = "unknown" if access.conflicts is None else str(access.conflicts)
    return access.operation, access.shape, told


def _rows(profile: TritonProfile) -> list[tuple[str, str]]:
    """(what, figure with its unit)."""
    held, occupancy, cost = profile.resources, profile.resources.occupancy, profile.predicted
    registers = f"{held.registers} a thread"
    if held.scalar_registers:
        registers += (
            f" ({held.accumulation_registers} for accumulation), "
            f"{held.scalar_registers} scalar a wavefront"
        )
    unit = "bytes" if not held.scalar_registers else "registers"
    resident = f"{counted(occupancy.blocks, 'block')} of {counted(profile.num_warps, 'warp')}"
    rows = [
        ("launch", f"{counted(profile.programs, 'program')} in {cost.rounds:.2f} rounds"),
        ("registers", registers),
        ("spills", f"{held.spill_stores} {unit} stored, {held.spill_loads} loaded"),
        ("shared memory", f"{held.shared_bytes:,} bytes a block"),
        *(
            [("tensor memory", f"{counted(held.tmem_columns, 'column')} a block")]
            if held.tmem_columns
            else []
        ),
        ("occupancy", f"{occupancy.fraction:.0%}: {resident}; limited by {occupancy.limited_by}"),
        ("machine code", f"{profile.instructions:,} instructions: {_mix(profile.mix)}"),
    ]
    if profile.hot_loop is not None:
        loop = profile.hot_loop
        stalls = f", {loop.stall_cycles} stall cycles" if loop.stall_cycles else ""
        rows.append(("hot loop", f"{loop.instructions} instructions{stalls}: {_mix(loop.mix)}"))
    matrix = sum(profile.work.matrix_flops.values())
    moved = profile.work.read_bytes + profile.work.written_bytes
    roof = profile.roofline
    return [
        *rows,
        ("arithmetic", f"{matrix:,} matrix, {profile.work.vector_flops:,} vector operations"),
        ("asked of memory", f"{moved:,} bytes, before any cache"),
        ("data in and out", f"{profile.compulsory_bytes:,} bytes, inputs and outputs once each"),
        ("intensity", f"{roof.intensity:.2f} operations a byte in and out"),
        ("roofline", f"{roof.floor_us:,.2f} µs at published peaks, bound by {roof.bound}"),
        ("predicted time", f"{cost.total_us:,.2f} µs, bound by {cost.bound} (static cost model)"),
    ]


def _mix(mix: object) -> str:
    assert isinstance(mix, dict)
    return ", ".join(f"{count} {name}" for name, count in list(mix.items())[:_SHOWN])
