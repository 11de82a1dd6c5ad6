"""A Python model that fails or answers wrongly: a fault over it in its repository.

`deploy/faults/model.py` takes the place of the model's own file, which stays beside it
as `original.py`: the same file by another name, so that owner, mode and times come back
with it. A model that was written with a fault (`faulty_model`) needs no load:
only its `fault.json` is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

import loadtests
from exporter.system.whole_file import write
from exporter.triton import faulty_model
from loadtests.chaos.faults import needs
from loadtests.chaos.faults.fault import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.primitives import model_control

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

WRAPPER: Final = Path(loadtests.__file__).parents[1] / "deploy" / "faults" / "model.py"
_MODEL, _ORIGINAL, _FAULT = "model.py", "original.py", "fault.json"
_FAULT_DRAFTS: Final = ("fault.new", ".fault.json.new")
_NO_FAULT: Final = b'{"fault": "none"}'


class WrappedModel(Fault):
    """A fault over a Python model."""

    model: str
    """A Python model of the repository."""
    after_requests: int = Field(default=0, ge=0)
    """Requests answered honestly first."""
    seed: int = 0
    """Seed of the affected requests."""

    def over_it(self) -> tuple[str, float]:
        """Return the name of the fault of `faulty_model.Fault`, and its share."""
        raise NotImplementedError

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the path and content of the model's file, and the fault."""
        place = _place(site, self.model)
        name, share = self.over_it()
        return {
            "model": self.model,
            "http": site.http,
            "place": str(place),
            "fault": {
                "fault": name,
                "after_requests": self.after_requests,
                "share": share,
                "seed": self.seed,
            },
            "before": (place / _FAULT).read_text("utf-8") if _prepared(place) else None,
            "digest": _digest(place / _MODEL),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Wrap the model in the fault; it counts from the next request.

        Requests are served all the while.
        """
        place = Path(record["place"])
        fault = faulty_model.Fault(**record["fault"])
        try:
            faulty_model.set_fault(
                place.parents[1], record["model"], fault, version=place.name
            )
            if record["before"] is not None:
                return
            os.link(place / _MODEL, place / _ORIGINAL)
            draft = _draft(place)
            shutil.copyfile(WRAPPER, draft)
            draft.replace(place / _MODEL)
            model_control.load(record["http"], record["model"])
        except (OSError, model_control.ControlError) as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be given a fault: {error}"
            ) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a model whose file is its own, or that has another fault."""
        place = Path(record["place"])
        if record["before"] is None and not _prepared(place):
            return [f"{place / _MODEL} is not the one with a fault"]
        if not record["fault"].items() <= _said(place).items():
            return [f"{place / _FAULT} does not say {record['fault']}"]
        return []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Restore the model's own file and load it, unless there is no server.

        Users get correct answers at once, from the wrapper; a load takes its time.
        """
        place = Path(record["place"])
        if record["before"] is not None:
            if (place / _FAULT).read_text("utf-8") != record["before"]:
                write(place / _FAULT, record["before"].encode(), 0o644)
            _draft(place).unlink(missing_ok=True)
            return
        # While fault.json is there, the server may still have the model with the fault.
        wrapped = (place / _FAULT).exists()
        if wrapped:
            write(place / _FAULT, _NO_FAULT, 0o644)
        _restore(place, record["digest"])
        if wrapped:
            _load(record)
        for name in (_FAULT, *_FAULT_DRAFTS):
            (place / name).unlink(missing_ok=True)
        for compiled in (place / "__pycache__").glob("original.*.pyc"):
            compiled.unlink(missing_ok=True)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report files of the fault in the model's folder."""
        place = Path(record["place"])
        if not place.parents[1].is_dir():
            return []  # with the whole repository, which was the run's own
        if record["before"] is not None:
            same = (place / _FAULT).read_text("utf-8") == record["before"]
            return [] if same else [f"{place / _FAULT} is not as it was"]
        names = (_ORIGINAL, _FAULT, *_FAULT_DRAFTS, _draft(place).name)
        found = [
            f"file {place / name} is left" for name in names if (place / name).exists()
        ]
        own = place / _MODEL
        if not own.is_file() or _digest(own) != record["digest"]:
            found.append(f"{own} is not as it was")
        return found


class ErringModel(WrappedModel):
    """A model that is ready, on a ready server, and fails requests."""

    kind: Literal["erring_model"] = "erring_model"
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the requests that fail."""

    def over_it(self) -> tuple[str, float]:
        """Return the error."""
        return "error", self.share


class LyingModel(WrappedModel):
    """Wrong answers that the server does not report: only known correct answers show them."""

    kind: Literal["lying_model"] = "lying_model"
    lie: Literal[
        "zeros", "nan", "shifted_class", "stale", "int8_overflow", "int8_scale"
    ] = Field(default="shifted_class")
    """Kind of wrong answers; deploy/faults/README.md describes each."""
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the rows that are struck."""

    def over_it(self) -> tuple[str, float]:
        """Return the kind of wrong answers."""
        return self.lie, self.share


def _place(site: Site, model: str) -> Path:
    """The folder of the model's newest version, where a fault can be put over it.

    Raises:
        FaultRefusedError: there is none, or it cannot be.
    """
    folder = needs.model_folder(site, model)
    versions = sorted(
        (int(path.name), path)
        for path in folder.iterdir()
        if path.name.isdigit() and (path / _MODEL).is_file()
    )
    if not versions:
        raise FaultRefusedError(
            f"model {model!r} in {folder} has no {_MODEL}", "use a Python model"
        )
    place = versions[-1][1]
    if _prepared(place):
        return place
    if (place / _ORIGINAL).exists():
        raise FaultRefusedError(
            f"{place / _ORIGINAL} already exists, and the model's file would be "
            "moved there",
            "undo the fault that left it, or rename it",
        )
    if not WRAPPER.is_file():
        raise FaultRefusedError(
            f"found no {WRAPPER}", "run from a checkout, or use kill_stub"
        )
    needs.controlled(site, model)
    policy = model_control.configuration(site.http, model)
    if policy.get("model_transaction_policy", {}).get("decoupled"):
        raise FaultRefusedError(
            f"model {model!r} is decoupled, which the fault does not support",
            "use another model, or kill_stub",
        )
    return place


def _restore(place: Path, digest: str) -> None:
    model, original = place / _MODEL, place / _ORIGINAL
    _draft(place).unlink(missing_ok=True)
    if not original.exists():
        return
    if _digest(original) != digest:
        raise FaultFailedError(
            f"{original} was changed after the fault began; replace {model} with the "
            "correct file by hand and load the model"
        )
    # Renaming a file to another name of itself would leave both.
    if model.exists() and model.samefile(original):
        original.unlink(missing_ok=True)
        return
    # Two may undo at once, and the other have been first.
    if original.exists():
        original.replace(model)


def _load(record: dict[str, Any]) -> None:
    try:
        if model_control.listening(record["http"]):
            model_control.load(record["http"], record["model"])
    except model_control.ControlError as error:
        raise FaultFailedError(
            f"model {record['model']!r} has its own file back and could not be loaded: "
            f"{error}; POST "
            f"http://{record['http']}/v2/repository/models/{record['model']}/load"
        ) from error


def _prepared(place: Path) -> bool:
    return (place / _ORIGINAL).is_file() and (place / _FAULT).is_file()


def _said(place: Path) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads((place / _FAULT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return said


def _draft(place: Path) -> Path:
    return place / f".{_MODEL}.new"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
