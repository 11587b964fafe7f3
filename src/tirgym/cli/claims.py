"""`tirgym explain TRANSCRIPT`: what a language model claimed, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from tirgym.cli.output import counted, note, print_json, print_table, result_console
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.baselines.llm.claims import Claim

__all__ = ["explain_transcript", "names_transcript"]


def names_transcript(subject: str) -> bool:
    """Whether `subject` is the file of a transcript."""
    if not subject.endswith("l"):
        return False
    from tirgym.baselines.llm.transcript import is_transcript

    return is_transcript(subject)


def explain_transcript(path: str, options: Mapping[str, object], json: bool) -> None:
    """Claims beside effects, what was refused, and what was spent; raises for options of traces."""
    from tirgym.baselines.llm.claims import saved_claims, summary
    from tirgym.baselines.llm.transcript import Saved

    for name, value in options.items():
        if value is not None:
            raise InvalidValueError(name, value, "nothing: a transcript is shown as it is")
    saved = Saved(path)
    claims, refused, end = saved_claims(saved), saved.of("refused"), saved.end
    found = summary(saved.of("measured"))
    if end is None:
        note(f"{path} breaks off: its run was killed")
    if json:
        rows = [{**asdict(claim), "verdict": claim.verdict} for claim in claims]
        told = {key: value for key, value in found.items() if key != "text"}
        header = {key: saved.header.get(key) for key in ("model", "workload", "target", "made")}
        print_json({**header, "claims": rows, "summary": told, "refused": refused, "end": end})
        return
    header = saved.header
    title = f"{header.get('model')} on {header.get('workload')} for {header.get('target')}"
    columns = (">#", ">from", "changes", ">predicted", ">measured", ">gain", "claim")
    print_table(title, columns, [_row(claim) for claim in claims])
    console = result_console()
    for claim in claims:
        if claim.why:
            console.print(f"#{claim.number}: {claim.why}", soft_wrap=True)
    for line in refused:
        changes = "; ".join(map(str, line.get("actions", ())))
        console.print(
            f"refused: {f'{changes}: ' if changes else ''}{line.get('message')}", soft_wrap=True
        )
    console.print(f"\npredictions: {found['text']}")
    console.print(f"{counted(len(saved.of('exchange')), 'exchange')}, {saved.tokens:,} tokens")
    if end is not None:
        console.print(f"ended: {end.get('stopped')}", soft_wrap=True)


def _row(claim: Claim) -> tuple[str, ...]:
    base = "" if claim.base is None else f"#{claim.base}"
    return (
        str(claim.number),
        base,
        "; ".join(claim.actions),
        _times(claim.predicted_speedup),
        _times(claim.measured_speedup) or claim.status,
        _times(claim.measured_gain),
        claim.verdict,
    )


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
