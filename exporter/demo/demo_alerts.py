"""A Prometheus of the demo's own, so that its alerts are seen to fire."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from exporter.errors import TritonError
from exporter.network.held_port import LOOPBACK, hold_port
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_TIMEOUT_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 5.0


def installed() -> bool:
    """Return whether this machine has one."""
    return shutil.which("prometheus") is not None


class Alerts:
    """Scrapes the sidecar once a second and evaluates one file of rules."""

    def __init__(
        self, folder: Path, rules: Path, sidecar: str, die_with: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._rules = rules
        self._sidecar = sidecar
        self._die_with = die_with
        self._process: subprocess.Popen[bytes] | None = None
        self._client: HttpClient | None = None

    def __enter__(self) -> Self:
        """Start it; it is ready after a second or two."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._port = hold_port()
        address = f"{LOOPBACK}:{self._port.getsockname()[1]}"
        file = self._folder / "prometheus.yml"
        rules = self._folder / self._rules.name
        text = self._rules.read_text("utf-8")
        served = f": http://{self._sidecar}/runbooks/"
        rules.write_text(text.replace(": deploy/runbooks/", served), "utf-8")
        file.write_text(
            yaml.safe_dump(prometheus_config(self._sidecar, [rules])), "utf-8"
        )
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own file
                [  # noqa: S607 - wherever it is installed
                    "prometheus",
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._die_with,  # noqa: PLW1509 - no lock is held here
            )
        self._client = HttpClient(address, connections=1)
        self.address = address
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._client is not None:
            self._client.close()
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
            self._process.kill()
            self._process.wait()
        self._port.close()

    def firing(self) -> list[str]:
        """Return the firing alerts with their subjects; none while it starts."""
        if self._client is None:
            return []
        try:
            body = self._client.get("/api/v1/alerts", timeout_seconds=_TIMEOUT_SECONDS)
            found = json.loads(body)["data"]["alerts"]
        except (TritonError, ValueError, KeyError):
            return []
        return sorted(_named(a) for a in found if a["state"] == "firing")


def prometheus_config(sidecar: str, rules: Sequence[Path]) -> dict[str, Any]:
    """Scrapes the sidecar once a second, with the rules of these files."""
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in rules],
        "scrape_configs": [
            {"job_name": "tritonwatch", "static_configs": [{"targets": [sidecar]}]}
        ],
    }


def _named(alert: dict[str, Any]) -> str:
    labels = alert["labels"]
    return f"{labels['alertname']} {labels.get('model') or labels.get('signal', '')}"
