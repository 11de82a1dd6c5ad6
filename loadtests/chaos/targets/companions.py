"""Companions of a deployment under experiment: proxy, sidecar, Prometheus, supervisor."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from exporter.errors import TritonwatchError
from exporter.features.slo.objectives import AvailabilityObjective
from exporter.features.slo.slo_rules import rules_file
from exporter.network.held_port import LOOPBACK, hold_port
from loadtests.chaos.measuring.polling import Pace, fetch
from loadtests.chaos.primitives.process_refs import TOKEN_VARIABLE, ProcessRef
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from loadtests.chaos.site import Site
    from loadtests.chaos.targets.chaos_target import Note, Surroundings, Target

_PROMETHEUS: Final = "prometheus"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02
_PROBE_TIMEOUT_SECONDS: Final = 0.5
"""Timeout by which a hanging model is reported within two intervals, jitter included."""
_COLLECTORS: Final = ("server", "statistics", "process", "runs")
_INTERVAL_SECONDS: Final = 1.0
OBJECTIVE: Final = AvailabilityObjective(
    name="probes", source="probes", objective_ratio=0.999
)
"""The objective of the sidecar's probes; its fast burn is the alert that pages."""
_RESTART_SECONDS: Final = 20.0
_SUPERVISE_SECONDS: Final = 0.01


@contextlib.contextmanager
def companions(target: Target, site: Site, around: Surroundings) -> Generator[None]:
    """Start the companions that the target wants, and enter their addresses in the site.

    Raises:
        LoadError: something does not start.
    """
    with contextlib.ExitStack() as stack:
        if target.proxy:
            from loadtests.chaos.network.proxy_client import fault_proxy  # noqa: PLC0415

            proxy = fault_proxy(grpc=site.grpc, http=site.http, seed=around.seed)
            site.proxy = stack.enter_context(proxy)
        if target.sidecar is not None:
            sidecar = Child("sidecar", around)
            sidecar.address, tap = _held_address(stack), _held_address(stack)
            stack.callback(sidecar.stop)
            _start_sidecar(sidecar, tap, target.sidecar, site)
            delay = target.sidecar_restart_seconds
            stack.enter_context(
                Supervisor(
                    "sidecar",
                    lambda: sidecar.running,
                    sidecar.start,
                    delay,
                    around.note,
                )
            )
        if around.alerts and site.sidecar_url is not None:
            _start_prometheus(stack, site, around)
        yield


class Child:
    """A process of the run's own, with an HTTP port that reports readiness.

    It ends with the run, in any case, by the run's token in its environment.
    """

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.folder = around.scratch / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log"
        self.command: list[str] = []
        self.address = ""
        self.environment = {**os.environ, TOKEN_VARIABLE: around.token}
        self._working_folder = around.folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True if its process runs."""
        return self._process is not None and self._process.poll() is None

    def reference(self) -> ProcessRef | None:
        """Its process; None where it does not run."""
        if self._process is None or not self.running:
            return None
        return ProcessRef.of(self._process.pid)

    def start(self) -> None:
        """Start it, and wait until it answers /-/ready.

        Raises:
            LoadError: it does not; quotes its log.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own arguments
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self._working_folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while fetch(self.address, "/-/ready") is None:
            if not self.running or time.monotonic() > deadline:
                said = self.log.read_text("utf-8", "replace")[-1000:]
                raise LoadError(f"the {self.name} did not start:\n{said}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End it."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        # A frozen process does not handle it before it is resumed.
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _held_address(stack: contextlib.ExitStack) -> str:
    """A free address that stays the run's until it ends, over all restarts."""
    return f"{LOOPBACK}:{stack.enter_context(hold_port()).getsockname()[1]}"


def _start_sidecar(child: Child, tap: str, over: Mapping[str, Any], site: Site) -> None:
    file = child.folder / "tritonwatch.yaml"
    config = sidecar_config(site, child.address, tap, over)
    file.write_text(yaml.safe_dump(config), "utf-8")
    child.command = [
        *(sys.executable, "-P", "-m", "exporter.cli"),
        *("serve", "--config", str(file)),
    ]
    child.start()
    site.sidecar_url = f"http://{child.address}"
    site.find_sidecar = child.reference
    site.tap = tap


def sidecar_config(
    site: Site, address: str, tap: str, over: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration that polls every second, with the top-level keys of `over`."""
    port, tap_port = (int(each.rpartition(":")[2]) for each in (address, tap))
    polls = {"interval_seconds": _INTERVAL_SECONDS}
    quick = {"deadline_seconds": 0.9, "timeout_seconds": 0.4}
    base: dict[str, Any] = {
        "target": {
            "grpc": site.loaded("grpc"),
            "http": site.loaded("http"),
            **({} if site.metrics is None else {"metrics": site.metrics}),
        },
        "listen": {"address": LOOPBACK, "port": port, "tap": {"port": tap_port}},
        "log": {"level": "warning"},
        "collectors": [
            {"kind": kind, **polls, **(quick if kind in _COLLECTORS[:2] else {})}
            for kind in _COLLECTORS
        ],
        "probes": [
            {
                "kind": "synthetic",
                **polls,
                "timeout_seconds": _PROBE_TIMEOUT_SECONDS,
                "max_requests_per_second": 20,
            },
        ],
        "slos": [OBJECTIVE.model_dump()],
    }
    return {**base, **over}


def _start_prometheus(
    stack: contextlib.ExitStack, site: Site, around: Surroundings
) -> None:
    if shutil.which(_PROMETHEUS) is None:
        text = (
            "no Prometheus here, so no alert is evaluated: apt-get install prometheus"
        )
        around.note("note", {"text": text})
        return
    assert site.sidecar_url is not None  # noqa: S101 - checked by the caller
    child = Child(_PROMETHEUS, around)
    child.address = _held_address(stack)
    file, burns = child.folder / "prometheus.yml", child.folder / "slos.yaml"
    burns.write_text(rules_file([OBJECTIVE]), "utf-8")
    sidecar = site.sidecar_url.rpartition("//")[2]
    rules = [*shipped_rules(), burns]
    text = "".join(rule.read_text("utf-8") for rule in rules)
    for name in around.alerts:
        if f"alert: {name}\n" not in text:
            raise LoadError(f"found no alert {name} in {', '.join(map(str, rules))}")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rule) for rule in rules],
        "scrape_configs": [
            {"job_name": "tritonwatch", "static_configs": [{"targets": [sidecar]}]}
        ],
    }
    file.write_text(yaml.safe_dump(config), "utf-8")
    child.command = [
        _PROMETHEUS,
        f"--config.file={file}",
        f"--storage.tsdb.path={child.folder / 'data'}",
        f"--web.listen-address={child.address}",
        "--log.level=warn",
    ]
    stack.callback(child.stop)
    child.start()
    site.prometheus_url = f"http://{child.address}"


def shipped_rules() -> list[Path]:
    """The rules of this checkout; none where there is no checkout."""
    for root in (Path.cwd(), *Path(__file__).parents):
        folder = root / "deploy" / "prometheus" / "rules"
        if folder.is_dir():
            return sorted(folder.glob("*.yaml"))
    return []


class Supervisor(Pace):
    """Restarts a process that has ended, as systemd or Kubernetes does in production.

    Args:
        part: what it is, in notes.
        running: whether it is there; a frozen one is.
        start: starts it and waits until it is ready.
        delay_seconds: from its end to its next start; None for never.
        note: records when it ended and when it was ready again.
    """

    def __init__(
        self,
        part: str,
        running: Callable[[], bool],
        start: Callable[[], None],
        delay_seconds: float | None,
        note: Note,
    ) -> None:
        super().__init__(
            _SUPERVISE_SECONDS, self._supervise, end_seconds=_RESTART_SECONDS
        )
        self._part = part
        self._running = running
        self._start = start
        self._delay = delay_seconds
        self._note = note
        self._gone = False

    def _supervise(self) -> None:
        if self._running():
            return
        if not self._gone:
            self._note_state("gone")
            self._gone = True
        if self._delay is None or self._over.wait(self._delay):
            return
        try:
            self._start()
        except (TritonwatchError, OSError) as error:
            self._note("note", {"text": f"the {self._part} did not start: {error}"})
            return
        self._note_state("ready")
        self._gone = False

    def _note_state(self, state: str) -> None:
        if self._part == "server":
            self._note("server_gone" if state == "gone" else "server_ready", {})
        else:
            self._note("note", {"text": f"the {self._part} is {state}"})
