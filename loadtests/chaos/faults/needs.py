"""Requirements of faults: reads what a site has, and refuses with the reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loadtests.chaos.primitives import model_control
from loadtests.errors import FaultRefusedError

if TYPE_CHECKING:
    from pathlib import Path

    from loadtests.chaos.primitives.process_refs import ProcessRef
    from loadtests.chaos.site import Site


def server_of(site: Site) -> ProcessRef:
    """Return its tritonserver, checking that signals to it are allowed.

    Raises:
        FaultRefusedError: it does not run here, or is another user's.
    """
    server = site.server()
    if server is None:
        raise FaultRefusedError(
            f"{site.name} has no server process on this host",
            "start it, or use a network fault",
        )
    return signalled(server, "tritonserver")


def stubs_of(site: Site, model: str) -> list[ProcessRef]:
    """Return the backend processes of a model, checking that signals are allowed.

    Raises:
        FaultRefusedError: it has none, or one is another user's.
    """
    server_of(site)
    found = list(site.stubs(model))
    if not found:
        raise FaultRefusedError(
            f"{site.name} has no Python backend process of model {model!r} on this host",
            "use a loaded model of the Python backend, or the whole server",
        )
    return [signalled(stub, "the backend process") for stub in found]


def sidecar_of(site: Site) -> ProcessRef:
    """Return its sidecar's process, checking that signals to it are allowed.

    Raises:
        FaultRefusedError: it has none here, or it is another user's.
    """
    sidecar = site.sidecar()
    if sidecar is None:
        raise FaultRefusedError(
            f"{site.name} has no sidecar process on this host",
            "let the experiment's target start one (setting `sidecar`)",
        )
    return signalled(sidecar, "the sidecar")


def signalled(process: ProcessRef, what: str) -> ProcessRef:
    """Return the process, checking that signals to it are allowed.

    Raises:
        FaultRefusedError: it may not.
    """
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        raise FaultRefusedError(
            f"{what} ({process.pid}) has just ended", "wait until it runs again"
        ) from None
    except PermissionError:
        raise FaultRefusedError(
            f"{what} ({process.pid}) belongs to another user",
            "run as that user or as root, or use a network fault",
        ) from None
    return process


def model_folder(site: Site, model: str) -> Path:
    """Return the folder of a model in a repository that may be written to.

    Raises:
        FaultRefusedError: there is no such folder, or it cannot be written to.
    """
    if site.repository is None:
        raise FaultRefusedError(
            f"{site.name} has no model repository on this host",
            "give its target a repository that may be changed, or use kill_stub",
        )
    folder = site.repository / model
    try:
        known = sorted(path.name for path in site.repository.iterdir() if path.is_dir())
        writable = os.access(folder, os.W_OK, effective_ids=True)
    except OSError as error:
        raise FaultRefusedError(
            f"{site.repository} cannot be read: {error.strerror}",
            "run as its owner, or give the target a copy of the repository",
        ) from None
    if model not in known:
        raise FaultRefusedError(
            f"found no model {model!r} in {site.repository}", f"it has {known}"
        )
    if not writable:
        raise FaultRefusedError(
            f"{folder} cannot be written to",
            "run as its owner, or give the target a copy of the repository",
        )
    return folder


def controlled(site: Site, model: str) -> None:
    """Require that the server has this model loaded and lets it be unloaded and loaded.

    Raises:
        FaultRefusedError: it does not, or it does not answer.
    """
    try:
        states = model_control.states(site.http)
    except model_control.ControlError as error:
        raise FaultRefusedError(
            f"{site.name} does not list its models: {error}",
            "start the server",
        ) from None
    if states.get(model) != model_control.READY:
        known = sorted(n for n, state in states.items() if state == model_control.READY)
        raise FaultRefusedError(
            f"model {model!r} is not loaded in {site.name}", f"it has {known}"
        )
    if not model_control.allowed(site.http):
        raise FaultRefusedError(
            f"{site.name} does not allow models to be loaded and unloaded",
            "start it with --model-control-mode=explicit and --load-model",
        )
