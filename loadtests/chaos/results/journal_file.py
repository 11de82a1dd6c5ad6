"""The journal of an experiment: the experiment, and all observations of each repetition."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field

from exporter.settings import Settings
from exporter.system import whole_file
from loadtests import json_file
from loadtests.chaos.measuring.findings import Findings, findings
from loadtests.chaos.measuring.observations import Evidence
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FORMAT: Final = "tritonwatch-chaos-journal"
VERSION: Final = 3
MAX_FILE_BYTES: Final = 1 << 28


class Judged(Evidence):
    """One repetition: evidence and findings."""

    findings: Findings


class Block(Settings):
    """Our block of a journal."""

    format: Literal["tritonwatch-chaos-journal"] = FORMAT
    version: Literal[3] = VERSION
    repetitions: tuple[Judged, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Journal:
    """The repetitions of an experiment, in their order; at least one."""

    repetitions: tuple[Judged, ...]

    @classmethod
    def of(cls, evidence: Iterable[Evidence]) -> Self:
        """Judge each repetition."""
        return cls(
            tuple(
                Judged(
                    **{name: getattr(one, name) for name in Evidence.model_fields},
                    findings=findings(one),
                )
                for one in evidence
            )
        )

    @property
    def title(self) -> str:
        """Title of the experiment."""
        return self.repetitions[0].title


def to_document(journal: Journal) -> dict[str, Any]:
    """The journal as JSON."""
    return {
        "experiment": journal.repetitions[0].experiment,
        "tritonwatch": Block(repetitions=journal.repetitions).model_dump(mode="json"),
    }


def write(path: Path, journal: Journal) -> None:
    """Write the file, in full or not at all.

    Raises:
        PlanError: it cannot be written.
    """
    document = to_document(journal)
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    try:
        whole_file.write(path, data, 0o644)
    except OSError as error:
        raise PlanError(f"cannot be written: {error.strerror}", str(path)) from None


def read(path: Path) -> Journal:
    """The journal that a file holds.

    Raises:
        PlanError: it cannot be read, or is no journal of ours.
    """
    return from_document(json_file.read(path, MAX_FILE_BYTES), str(path))


def is_journal(document: Any) -> bool:
    """Return whether the document declares our journal format."""
    block = document.get("tritonwatch") if isinstance(document, dict) else None
    return isinstance(block, dict) and block.get("format") == FORMAT


def from_document(document: Any, source: str = "the journal") -> Journal:
    """The journal that `to_document` made.

    Raises:
        PlanError: it is no journal, or contradicts itself.
    """
    if not is_journal(document):
        raise PlanError(
            "is not a journal of `tritonwatch chaos run`; want one with a block "
            f'"tritonwatch": {{"format": "{FORMAT}"}}',
            source,
        )
    json_file.require_version(document["tritonwatch"], VERSION, source)
    block = json_file.validated(Block, document["tritonwatch"], source)
    experiment = document.get("experiment")
    if not isinstance(experiment, dict):
        raise PlanError("is an incomplete journal: it has no experiment", source)
    return Journal(
        tuple(
            one.model_copy(update={"experiment": experiment})
            for one in block.repetitions
        )
    )
