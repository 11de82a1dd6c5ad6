"""A Python model that fails or answers wrongly: a fault over it in its repository.

`deploy/faults/model.py` replaces the model's own file, which is kept next to it
as `original.py`: a hard link, so that owner, mode and times are restored with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

import loadtests
from exporter.system.whole_file import write
from exporter.triton import faulty_model
from loadtests.chaos.faults import needs
from loadtests.chaos.faults.fault import Fault
from loadtests.chaos.primitives import model_control
from loadtests.chaos.primitives.model_control import ControlError
from loadtests.errors import FaultFailedError, FaultRefusedError

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

    def fault_fields(self) -> dict[str, Any]:
        """Return the fields of its `faulty_model.Fault`, but those of every one."""
        raise NotImplementedError

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the path and content of the model's file, and the fault."""
        place = _place(site, self.model)
        return {
            "model": self.model,
            "http": site.http,
            "place": str(place),
            "fault": self.fault_fields(),
            "digest": _digest(place / _MODEL),
            "wrapper": _digest(WRAPPER),
            "scratch": site.owns_repository,
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
        if not ((place / _ORIGINAL).is_file() and (place / _FAULT).is_file()):
            return [f"{place / _MODEL} is not the one with a fault"]
        if not record["fault"].items() <= _fault_of(place).items():
            return [f"{place / _FAULT} does not contain {record['fault']}"]
        return []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Restore the model's own file and load it, unless there is no server.

        The wrapper gives correct answers at once; loading the model takes longer.
        """
        place = Path(record["place"])
        # While fault.json is there, the server may still have the model with the fault.
        wrapped = (place / _FAULT).exists()
        if wrapped:
            write(place / _FAULT, _NO_FAULT, 0o644)
        _restore(place, record)
        if wrapped:
            model, http = record["model"], record["http"]
            problem = f"model {model!r} has its own file back and could not be loaded"
            model_control.load_again(http, model, problem)
        for name in (_FAULT, *_FAULT_DRAFTS):
            (place / name).unlink(missing_ok=True)
        for compiled in (place / "__pycache__").glob("original.*.pyc"):
            compiled.unlink(missing_ok=True)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report files of the fault in the model's folder."""
        place = Path(record["place"])
        if not place.parents[1].is_dir():
            if record.get("scratch"):
                return []  # with the whole repository, which was the run's own
            return [f"{place.parents[1]} is not there; mount it and undo again"]
        names = (_ORIGINAL, _FAULT, *_FAULT_DRAFTS, _draft(place).name)
        found = [
            f"file {place / name} is left" for name in names if (place / name).exists()
        ]
        own = place / _MODEL
        if not own.is_file() or _is_wrapped(own, record):
            found.append(f"{own} is not as it was")
        return found


class ErringModel(WrappedModel):
    """A model that is ready, on a ready server, and fails requests."""

    kind: Literal["erring_model"] = "erring_model"
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the requests that fail."""
    after_responses: int = Field(default=0, ge=0)
    """Responses that a stream has sent when it breaks off."""

    def fault_fields(self) -> dict[str, Any]:
        """Return the error."""
        return {
            "fault": "error",
            "share": self.share,
            "after_responses": self.after_responses,
        }


class StalledStream(WrappedModel):
    """A decoupled model whose answers stop in the middle and continue later."""

    kind: Literal["stalled_stream"] = "stalled_stream"
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the requests whose answers stall."""
    after_responses: int = Field(default=1, ge=0)
    """Responses that a stream has sent when it stalls."""
    stall_seconds: float = Field(default=60.0, gt=0, le=3600)
    """Length of a stall; all end with the fault."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return what `WrappedModel.prepare` does, for a model that streams."""
        needs.model_folder(site, self.model)
        if not _is_decoupled(site, self.model):
            raise FaultRefusedError(
                f"model {self.model!r} answers in one response", "take freeze_stub"
            )
        return super().prepare(site)

    def fault_fields(self) -> dict[str, Any]:
        """Return the stall."""
        return {
            "fault": "stall",
            "share": self.share,
            "after_responses": self.after_responses,
            "hang_seconds": self.stall_seconds,
        }


class LyingModel(WrappedModel):
    """Wrong answers that the server does not report: only known correct answers show them."""

    kind: Literal["lying_model"] = "lying_model"
    lie: Literal[
        "zeros",
        "nan",
        "shifted_class",
        "stale",
        "garbage_text",
    ] = Field(default="shifted_class")
    """Kind of wrong answers; deploy/faults/README.md describes each."""
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the affected rows."""

    def fault_fields(self) -> dict[str, Any]:
        """Return the kind of wrong answers."""
        return {"fault": self.lie, "share": self.share}


def _place(site: Site, model: str) -> Path:
    """The folder of the model's newest version, where a fault can be put over it.

    Raises:
        FaultRefusedError: there is no such folder, or a fault cannot be put over it.
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
    return place


def _is_decoupled(site: Site, model: str) -> bool:
    policy = model_control.configuration(site.http, model).get(
        "model_transaction_policy", {}
    )
    return bool(policy.get("decoupled"))


def _is_wrapped(model: Path, record: dict[str, Any]) -> bool:
    """Return whether it is the file with the fault: not the model's own, nor a later one."""
    return bool(_digest(model) == record["wrapper"])


def _restore(place: Path, record: dict[str, Any]) -> None:
    """Put the model's own file back, unless another one was deployed meanwhile."""
    digest = record["digest"]
    model, original = place / _MODEL, place / _ORIGINAL
    _draft(place).unlink(missing_ok=True)
    if not original.exists():
        return
    if _digest(original) != digest:
        raise FaultFailedError(
            f"{original} was changed after the fault began; replace {model} with the "
            "correct file by hand and load the model"
        )
    deployed = model.exists() and not _is_wrapped(model, record)
    # Renaming a file to another name of itself would leave both.
    if deployed or (model.exists() and model.samefile(original)):
        original.unlink(missing_ok=True)
        return
    # Two may undo at once, and the other have been first.
    if original.exists():
        original.replace(model)


def _fault_of(place: Path) -> dict[str, Any]:
    try:
        fault: dict[str, Any] = json.loads((place / _FAULT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return fault


def _draft(place: Path) -> Path:
    return place / f".{_MODEL}.new"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class UnloadModel(Fault):
    """An unloaded model: its requests are refused, while the server is live and ready.

    Triton serves what is under way, then refuses; a load takes as long as the model's
    start.
    """

    after_undo: ClassVar[str] = "; if its server has ended, load it after its restart"
    kind: Literal["unload_model"] = "unload_model"
    model: str
    """One that is loaded."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the server of the model."""
        needs.controlled(site, self.model)
        return {"http": site.http, "model": self.model}

    def inject(self, record: dict[str, Any]) -> None:
        """Unload it; requests are refused when this returns."""
        try:
            model_control.unload(record["http"], record["model"])
        except ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be unloaded: {error}"
            ) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a model that is loaded."""
        try:
            ready = _state(record) == model_control.READY
        except ControlError as error:
            return [f"the server does not list its loaded models: {error}"]
        return [f"model {record['model']!r} is ready"] if ready else []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Load it, unless the server has ended."""
        if cls.residue(record):
            model = record["model"]
            problem = f"model {model!r} could not be loaded again"
            model_control.load_again(record["http"], model, problem)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a model missing on a live server; the next server loads its own."""
        try:
            if model_control.listening(record["http"]):
                state = _state(record)
                if state != model_control.READY:
                    return [f"model {record['model']!r} is {state or 'not loaded'}"]
        except ControlError as error:
            return [f"the server does not list its loaded models: {error}"]
        return []


def _state(record: dict[str, Any]) -> str:
    return model_control.states(record["http"]).get(record["model"], "")
