"""Prometheus, Alertmanager and a webhook as processes of a test's or benchmark's own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import yaml
from receiver import Asked, Receiver
from waiting import PATIENCE_SECONDS, patience, wait_until

from exporter.network.held_port import hold_port

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence
    from pathlib import Path


_held: list[socket.socket] = []


def free_port() -> int:
    """A free port, held for as long as this process runs: no other test is given it."""
    _held.append(hold_port())
    return _held[-1].getsockname()[1]


class _Server:
    """A process with an HTTP port and a /-/ready; its log is kept beside its data."""

    def __init__(self, name: str, folder: Path) -> None:
        self.port = free_port()
        self.log = folder / f"{name}.log"
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self, *flags: str) -> None:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._name, *flags, "--log.level=warn"], stdout=log, stderr=log
            )
        wait_until(self._ready, self.log.read_text)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):
            url = f"http://127.0.0.1:{self.port}/-/ready"
            urllib.request.urlopen(url, timeout=patience(10)).close()
            return True
        return False

    def stop(self) -> None:
        """End it; may be called twice."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(patience(10))
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(frozen=True)
class Job:
    """What Prometheus scrapes: ports of this machine."""

    ports: Sequence[int]
    name: str = "tritonwatch"
    labels: Mapping[str, str] | None = None

    def as_config(self) -> dict[str, Any]:
        targets = [f"127.0.0.1:{port}" for port in self.ports]
        static = {"targets": targets, "labels": dict(self.labels or {})}
        return {"job_name": self.name, "static_configs": [static]}


class Prometheus(_Server):
    """A real Prometheus that scrapes `jobs`, runs from construction to `stop`."""

    def __init__(
        self,
        folder: Path,
        *jobs: Job,
        scrape_interval: str = "1s",
        evaluation_interval: str = "1s",
        rules: Mapping[str, str] | None = None,
        alertmanager: Alertmanager | None = None,
        features: Sequence[str] = (),
    ) -> None:
        super().__init__("prometheus", folder)
        folder = folder / f"prometheus-{self.port}"
        folder.mkdir(parents=True)
        for name, text in (rules or {}).items():
            (folder / name).write_text(text)
        config: dict[str, Any] = {
            "global": {
                "scrape_interval": scrape_interval,
                "evaluation_interval": evaluation_interval,
            },
            "rule_files": list(rules or ()),
            "scrape_configs": [job.as_config() for job in jobs],
        }
        if alertmanager is not None:
            target = {"targets": [f"127.0.0.1:{alertmanager.port}"]}
            config["alerting"] = {"alertmanagers": [{"static_configs": [target]}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._start(
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            *([f"--enable-feature={','.join(features)}"] if features else []),
        )

    @property
    def url(self) -> str:
        """Where it is to be reached."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an API answer."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=patience(10)) as reply:
            return json.load(reply)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query's result."""
        return self.get("query", query=expression)["result"]

    def values(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant query's labels and numbers."""
        return [(i["metric"], float(i["value"][1])) for i in self.query(expression)]

    def wait(
        self, expression: str, seconds: float = PATIENCE_SECONDS
    ) -> list[dict[str, Any]]:
        """The result of `expression` as soon as it has one."""
        what = f"{expression} is not empty"
        return wait_until(lambda: self.query(expression), what, seconds)


class Alertmanager(_Server):
    """A real Alertmanager that tells one webhook at once; or with a config of its own."""

    def __init__(
        self, folder: Path, webhook: Webhook, config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__("prometheus-alertmanager", folder)
        folder = folder / f"alertmanager-{self.port}"
        folder.mkdir(parents=True)
        hook = {"url": webhook.url, "send_resolved": True}
        config = config or {
            "route": {
                "receiver": "hook",
                "group_by": ["..."],
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [{"name": "hook", "webhook_configs": [hook]}],
        }
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
        self._start(
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        )

    def alerts(self) -> list[dict[str, Any]]:
        """Every alert it has, with the alerts that inhibit it in `status`."""
        url = f"http://127.0.0.1:{self.port}/api/v2/alerts"
        with urllib.request.urlopen(url, timeout=patience(10)) as reply:
            return json.load(reply)

    def take(self, *alerts: Mapping[str, str]) -> None:
        """Tell it of alerts with these labels that fire now."""
        url = f"http://127.0.0.1:{self.port}/api/v2/alerts"
        body = json.dumps([{"labels": dict(labels)} for labels in alerts]).encode()
        request = urllib.request.Request(
            url, body, {"content-type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=patience(10)).close()


class Webhook(Receiver):
    """Receives what Alertmanager sends."""

    def __init__(self) -> None:
        self.alerts: deque[dict[str, Any]] = deque(maxlen=1000)
        self.messages: deque[dict[str, Any]] = deque(maxlen=1000)
        super().__init__()

    def answer(self, asked: Asked) -> tuple[bytes, dict[str, str]]:
        """Keep the alerts of what came."""
        message = json.loads(asked.body)
        self.messages.append(message)
        now = {"received": time.time()}
        self.alerts.extend(alert | now for alert in message["alerts"])
        return super().answer(asked)

    def wait(self, status: str, seconds: float, **labels: str) -> dict[str, Any]:
        """The first alert with that status ("firing", "resolved") and these labels."""

        def found() -> dict[str, Any] | None:
            for alert in list(self.alerts):
                fits = labels.items() <= alert["labels"].items()
                if alert["status"] == status and fits:
                    return alert
            return None

        alert = wait_until(found, f"an alert {labels} becomes {status}", seconds)
        assert alert is not None
        return alert
