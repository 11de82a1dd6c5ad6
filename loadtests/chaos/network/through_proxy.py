"""The TCP fault proxy before the server: every effect, and no root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.network.proxy_control import ProxyFailedError, ProxyGoneError, ask

if TYPE_CHECKING:
    from loadtests.chaos.network.effect import Effect
    from loadtests.chaos.network.mechanism import Wanted
    from loadtests.chaos.site import Site


class ThroughProxy:
    """Only what goes by the proxy is hit: whoever asks the server itself is not."""

    def refusal(self, site: Site, effect: Effect) -> str | None:  # noqa: ARG002 - it has all of them
        """A proxy that answers."""
        if site.proxy is None:
            return "no fault proxy stands before the server"
        try:
            ask(site.proxy.control, {"do": "state"})
        except (ProxyGoneError, ProxyFailedError) as error:
            return str(error)
        return None

    def prepare(self, site: Site, wanted: Wanted) -> dict[str, Any]:
        """Where the proxy is told, and what."""
        assert site.proxy is not None  # noqa: S101 - seen by refusal
        return {
            "token": wanted.token,
            "control": str(site.proxy.control),
            "effect": wanted.effect.to_record(),
            "protocols": list(wanted.protocols),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Set it."""
        command = {key: record[key] for key in ("token", "effect", "protocols")}
        try:
            ask(Path(record["control"]), {"do": "set", **command})
        except (ProxyGoneError, ProxyFailedError) as error:
            raise FaultFailedError(str(error)) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """The proxy, or the fault on it."""
        try:
            faults = ask(Path(record["control"]), {"do": "state"})["faults"]
        except (ProxyGoneError, ProxyFailedError) as error:
            return [str(error)]
        if faults.get(record["token"], {}).get("effect") != record["effect"]:
            return [f"the fault proxy at {record['control']} has it not set"]
        return []

    def revert(self, record: dict[str, Any]) -> None:
        """Clear it; a proxy that is gone has taken it along."""
        try:
            ask(
                Path(record["control"]),
                {"do": "clear", "token": record["token"]},
            )
        except ProxyGoneError:
            return
        except ProxyFailedError as error:
            raise FaultFailedError(f"{error}; end that proxy") from error

    def residue(self, record: dict[str, Any]) -> list[str]:
        """The fault on the proxy."""
        try:
            faults = ask(Path(record["control"]), {"do": "state"})["faults"]
        except ProxyGoneError:
            return []
        except ProxyFailedError as error:
            return [str(error)]
        if record["token"] in faults:
            return [f"the fault proxy at {record['control']} has it set"]
        return []
