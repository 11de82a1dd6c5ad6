"""What `tritonwatch chaos run` prints of an experiment when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtests.chaos.findings import FaultFindings, Findings


def text(name: str, found: Sequence[Findings]) -> str:
    """Lines for each repetition: verdict, what users saw, what speaks against it."""
    return "".join(f"{line}\n" for one in found for line in _lines(name, one))


def _lines(name: str, one: Findings) -> Iterator[str]:
    which = "" if one.strength is None else f" at {one.strength:g}"
    yield f"{name}{which} #{one.repetition + 1}: {one.verdict.upper()}"
    for fault in one.faults:
        yield f"  {_told(fault)}"
    yield from (f"  - {reason}" for reason in one.reasons)
    yield from (f"  ({note})" for note in one.notes)


def _told(fault: FaultFindings) -> str:
    kinds = " and ".join(fault.span.kinds)
    recovery = fault.recovery
    if recovery is None:
        return f"{kinds}: nothing was asked meanwhile"
    return f"{kinds}: {recovery.state.replace('_', ' ')}; {recovery.reason}"
