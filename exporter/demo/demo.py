"""`tritonwatch demo`: a real Triton, demo models, the sidecar and gentle traffic.

Triton and the sidecar are processes of their own, as in production; this one sends the
traffic and prints what the sidecar says. All of it ends with this process, however that
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from exporter.demo.demo_config import (
    LATER_RATE,
    sidecar_settings,
    trace_arguments,
)
from exporter.demo.demo_readings import Reader, Troubles
from exporter.demo.demo_scenarios import SCENES, Act, Stage
from exporter.demo.demo_screen import Screen, log_text
from exporter.demo.demo_traffic import Mirror, Traffic
from exporter.errors import EmbeddedTritonError, ListenError, TritonError
from exporter.network.addresses import host_port
from exporter.network.held_port import LOOPBACK, hold_port
from exporter.triton.embedded import EmbeddedTriton, Ports
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


DEFAULT_PORTS: Final = Ports(grpc=8001, http=8000, metrics=8002)
DEFAULT_TAP_PORT: Final = 8004

_PERIOD_SECONDS: Final = 1.0
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0


def run(
    *,
    duration_seconds: float | None,
    traffic: bool,
    port: int,
    default_ports: bool = False,
    trace_rate: int | None = None,
    scenario: str,
    scenario_after_seconds: float,
) -> int:
    """Run the demo until Ctrl-C, SIGTERM or the duration ends it; the exit status.

    With traffic, the `scenario` begins after `scenario_after_seconds`. One request in
    `trace_rate` is traced, by default every one at first and few later. With
    `default_ports` Triton and the taps are where every other command looks for them.

    Raises:
        EmbeddedTritonError: the embedded Triton is not installed or does not start.
        ListenError: the port is taken.
    """
    models = demo_models()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        # Taken before the seconds it takes to start a server are spent.
        wanted = port, DEFAULT_TAP_PORT if default_ports else 0
        port, tap_port = (
            _held(stack, each, default_ports=default_ports) for each in wanted
        )
        print(f"starting Triton with {os.path.relpath(models)} …", flush=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        scene = SCENES[scenario](models, folder)
        scene.prepare()
        triton = stack.enter_context(
            EmbeddedTriton(
                scene.repository,
                ports=DEFAULT_PORTS if default_ports else None,
                arguments=(*trace_arguments(folder, trace_rate), *scene.arguments),
                model_control=scene.model_control,
            )
        )
        listen = {"address": LOOPBACK, "port": port, "tap": {"port": tap_port}}
        settings = sidecar_settings(
            models, folder, triton, listen, traced=trace_rate != 0
        )
        settings |= {k: [*settings[k], *v] for k, v in scene.settings().items()}
        config, log = folder / "demo.yaml", folder / "sidecar.log"
        config.write_text(yaml.safe_dump(settings), "utf-8")
        stack.enter_context(_sidecar(config, log))
        client = HttpClient(f"127.0.0.1:{port}")
        stack.callback(client.close)
        _wait_ready(client)
        _announce(triton, port, tap_port, time.monotonic() - started)
        acts = []
        if trace_rate is None:
            acts.append(Act(scene.full_tracing_seconds, lambda: _trace_less(triton)))
        if traffic:
            mirror = stack.enter_context(Mirror(tap_port))
            sent = stack.enter_context(Traffic(triton.grpc, models, mirror))
            stage = Stage(triton, sent, f"http://127.0.0.1:{port}/")
            acts += scene.acts(stage, scenario_after_seconds)
        with contextlib.suppress(KeyboardInterrupt):
            _Watch(triton, client, acts).go_on(log, duration_seconds)
        print("stopping …", flush=True)
    return 0


def _trace_less(triton: EmbeddedTriton) -> str:
    client = HttpClient(triton.http)
    with contextlib.closing(client):
        try:
            body = json.dumps({"trace_rate": str(LATER_RATE)}).encode()
            client.post("/v2/trace/setting", body, timeout_seconds=_PERIOD_SECONDS)
        except TritonError as error:
            return f"the trace rate could not be set: {error}"
    return f"from now on one request in {LATER_RATE} is traced; before, every one was"


def _held(stack: contextlib.ExitStack, port: int, *, default_ports: bool) -> int:
    try:
        return int(stack.enter_context(hold_port(port)).getsockname()[1])
    except OSError as error:
        remedy = 'take a free one: make demo ARGS="--port 0"'
        if default_ports:
            remedy += ", without --default-ports"
        address = host_port(LOOPBACK, port)
        raise ListenError(address, error.strerror or str(error), remedy) from None


def demo_models() -> Path:
    """The demo model repository of this checkout.

    Raises:
        EmbeddedTritonError: there is none.
    """
    for root in (Path.cwd(), *Path(__file__).parents):
        folder = root / "deploy" / "models"
        if folder.is_dir():
            return folder
    raise EmbeddedTritonError(
        "found no deploy/models next to this installation; run the demo from a "
        "checkout of the project: make demo"
    )


@contextlib.contextmanager
def _sidecar(config: Path, log: Path) -> Generator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own program and file
            [sys.executable, "-m", "exporter.cli", "serve", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stderr=output,
            # Pass on a Ctrl-C from the terminal, once the traffic has ended.
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no threads yet
        )
    try:
        yield
    finally:
        if process.poll() is not None:
            print(f"the sidecar ended: {log.read_text('utf-8')}", file=sys.stderr)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _die_with_parent() -> None:
    # PR_SET_PDEATHSIG: a demo that is killed outright must leave nothing running.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _wait_ready(client: HttpClient) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            client.get("/-/ready", timeout_seconds=1)
        except TritonError as error:
            if time.monotonic() > deadline:
                raise EmbeddedTritonError(
                    f"the sidecar was not ready within {_START_SECONDS:g} s: {error}"
                ) from None
            time.sleep(0.05)
        else:
            return


def _announce(triton: EmbeddedTriton, port: int, tap_port: int, seconds: float) -> None:
    print(
        f"ready after {seconds:.1f} s\n"
        f"  status page  http://127.0.0.1:{port}/\n"
        f"  metrics      http://127.0.0.1:{port}/metrics\n"
        f"  Triton       grpc {triton.grpc}  http://{triton.http}  "
        f"metrics http://{triton.metrics}/metrics\n"
        f"  Triton's log {triton.log}\n"
        f"  taps         http://127.0.0.1:{tap_port} for traces and mirrored requests\n"
        "Ctrl-C ends it all. Brackets and ± are 95 % intervals; the tail "
        "is the highest quantile with one.",
        flush=True,
    )


class _Watch:
    """Shows a reading a second, plays the acts that are due, and keeps Triton alive."""

    def __init__(
        self,
        triton: EmbeddedTriton,
        client: HttpClient,
        acts: Sequence[Act],
    ) -> None:
        self._triton = triton
        self._client = client
        self._acts = sorted(acts, key=lambda act: act.after_seconds)
        self._reader = Reader()
        self._screen = Screen(sys.stdout)
        self._troubles: Troubles = {}
        self._was_correct = False

    def go_on(self, log: Path, duration_seconds: float | None) -> None:
        """Run until the duration is over, or an exception ends it."""
        started = due = time.monotonic()
        with log.open(encoding="utf-8", errors="replace") as sidecar:
            while duration_seconds is None or due - started < duration_seconds:
                due += _PERIOD_SECONDS
                time.sleep(max(0.0, due - time.monotonic()))
                self._play(due - started)
                self._revive()
                for line in sidecar:
                    self._screen.event(f"sidecar: {log_text(line)}")
                self._poll()

    def _play(self, elapsed_seconds: float) -> None:
        while self._acts and self._acts[0].is_due(
            elapsed_seconds, golden_was_correct=self._was_correct
        ):
            self._screen.event(self._acts.pop(0).play())

    def _revive(self) -> None:
        """Triton 2.51 occasionally crashes on a traced request (server#7795)."""
        if not self._triton.running:
            self._screen.event(
                "Triton ended (2.51 can die of a trace); it is restarted"
            )
            self._triton.start()

    def _poll(self) -> None:
        try:
            page = self._client.get("/metrics", timeout_seconds=_PERIOD_SECONDS)
            status = self._client.get("/api/v1/status", timeout_seconds=_PERIOD_SECONDS)
        except TritonError as error:
            self._screen.event(f"no answer from the sidecar: {error}")
            return
        now = time.monotonic()
        reading = self._reader.read(page, json.loads(status))
        self._was_correct |= reading.golden_correct
        troubles = reading.troubles
        for key in troubles.keys() - self._troubles.keys():
            self._screen.event(f"! {troubles[key]}")
        for key in self._troubles.keys() - troubles.keys():
            self._screen.event(f"  no longer: {self._troubles[key]}")
        self._troubles = troubles
        self._screen.show(reading, now)
