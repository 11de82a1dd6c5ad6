"""What can go wrong in the demo on request: a model that starts to lie."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from exporter.commands import golden_command
from exporter.commands.golden_command import Wanted
from exporter.triton.faulty_model import Fault, set_fault, write_faulty_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from exporter.triton.embedded import EmbeddedTriton

LIAR: Final = "digits_fp32"
_COLUMN: Final = "label"


HEALTHY_WITHIN_SECONDS: Final = 30.0
"""How long a scenario waits, once it is due, for a line that shows correct answers."""


@dataclass(frozen=True, slots=True)
class Act:
    """What goes wrong, and when: after some seconds, and not before it was seen to be right."""

    after_seconds: float
    play: Callable[[], str]
    """Do it; returns what to print."""

    def is_due(self, elapsed_seconds: float, *, golden_was_correct: bool) -> bool:
        """Whether to play it now."""
        beyond = elapsed_seconds - self.after_seconds
        return beyond >= (0.0 if golden_was_correct else HEALTHY_WITHIN_SECONDS)


@dataclass(frozen=True, slots=True)
class SilentFailure:
    """A repository in which one model can be made to lie, and the sidecar's eyes for it.

    `models` is the demo's own repository, `folder` a place for a copy of it.
    """

    models: Path
    folder: Path

    @property
    def repository(self) -> Path:
        """What Triton serves."""
        return self.folder / "models"

    @property
    def rules(self) -> Path:
        """The alerts that tell of it."""
        return self.models.parent / "prometheus" / "rules" / "golden.yaml"

    def prepare(self) -> None:
        """Copy the models; the one that is to lie is honest at first."""
        shutil.copytree(
            self.models, self.repository, ignore=lambda _, names: {LIAR} & set(names)
        )
        write_faulty_model(self.repository, LIAR, source=self.models / LIAR)

    def config(
        self, triton: EmbeddedTriton, tell: Callable[[str], None]
    ) -> dict[str, Any]:
        """What is added to the sidecar's configuration, the golden set recorded first."""
        golden = self.folder / "golden.npz"
        held_out = self.models / LIAR / "data" / "held_out.npz"
        data = golden_command.settings_of(held_out, label=_COLUMN)
        wanted = Wanted(None, triton.grpc, LIAR, "", data)
        asked = golden_command.record(wanted, golden, lambda _: None)
        tell(f"recorded what {LIAR} answers to {asked.golden.rows} held-out digits")
        file = self.models.parent / "demo-silent-failure.yaml"
        added: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
        for probe in added["probes"]:
            probe["data"]["file"] = str(golden)
        return added

    def act(self, after_seconds: float) -> Act:
        """The model starts to lie."""
        return Act(after_seconds, self.lie)

    def lie(self) -> str:
        """Make the model answer each class's score at its neighbour's place."""
        set_fault(self.repository, LIAR, Fault("shifted_class"))
        return (
            f"--- from now on {LIAR} answers each digit's score at the next digit's place:"
            " ready, quick, confident and wrong"
        )
