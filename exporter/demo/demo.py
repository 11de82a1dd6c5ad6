"""`tritonwatch demo`: a real Triton, demo models, the sidecar and gentle traffic.

Triton and the sidecar are processes of their own, as in production; this one sends the
traffic and prints what the sidecar says. All of it ends with this process, however that
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from exporter.demo.demo_line import Line
from exporter.demo.demo_mirror import Mirror
from exporter.demo.demo_traffic import Traffic
from exporter.errors import EmbeddedTritonError, ListenError, TritonError
from exporter.network.listening import bind
from exporter.triton.embedded import EmbeddedTriton, Ports, exit_on_sigterm
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from exporter.demo.demo_scenarios import Act, SilentFailure

MOVES_AFTER_SECONDS: Final = 60.0
DEFAULT_PORTS: Final = Ports(grpc=8001, http=8000, metrics=8002)
DEFAULT_TAP_PORT: Final = 8004

_TRACE_FILES: Final = "trace"
_PERIOD_SECONDS: Final = 1.0
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0


def run(
    *,
    duration_seconds: float | None,
    traffic: bool,
    port: int,
    default_ports: bool = False,
    trace_rate: int = 2,
    moves_after_seconds: float = MOVES_AFTER_SECONDS,
    scenario: str | None = None,
    scenario_after_seconds: float = 20.0,
) -> int:
    """Run the demo until Ctrl-C, SIGTERM or the duration ends it; the exit status.

    The traffic's patients become older ones after `moves_after_seconds`; a `scenario`
    has something else go wrong after `scenario_after_seconds`, once a line has shown it
    correct. With `default_ports`
    Triton and the taps are where every other command looks for them.

    Raises:
        EmbeddedTritonError: the embedded Triton is not installed or does not start.
        ListenError: the port is taken.
    """
    models = demo_models()
    started = time.monotonic()
    # Taken before the seconds it takes to start a server are spent.
    port, tap_port = _free_ports(port, DEFAULT_TAP_PORT if default_ports else 0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(exit_on_sigterm())
        print(f"starting Triton with {_as_seen_from_here(models)} …", flush=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chosen = _scenario(scenario, models, folder)
        repository = models if chosen is None else chosen.repository
        triton = stack.enter_context(
            EmbeddedTriton(
                repository,
                ports=DEFAULT_PORTS if default_ports else None,
                arguments=_tracing(folder, trace_rate),
            )
        )
        settings = _config(models, triton, port, tap_port)
        _follow(settings, folder, trace_rate)
        if chosen is not None:
            _extend(settings, chosen.config(triton, print))
        config = folder / "demo.yaml"
        config.write_text(yaml.safe_dump(settings), "utf-8")
        stack.enter_context(_sidecar(config))
        client = HttpClient(f"127.0.0.1:{port}")
        stack.callback(client.close)
        _wait_ready(client)
        _announce(triton, port, tap_port, time.monotonic() - started)
        if traffic:
            mirror = stack.enter_context(Mirror(tap_port))
            stack.enter_context(
                Traffic(
                    triton.grpc,
                    models,
                    mirror=mirror,
                    moves_after_seconds=moves_after_seconds,
                )
            )
        line, act = Line(), None
        if chosen is not None:
            act = chosen.act(scenario_after_seconds)
            line = Line(_alerts(stack, chosen, folder, port))
        with contextlib.suppress(KeyboardInterrupt):
            _watch(client, duration_seconds, line, act)
        print("stopping …", flush=True)
    return 0


def _free_ports(port: int, tap_port: int) -> tuple[int, int]:
    try:
        with bind("127.0.0.1", port) as listener, bind("127.0.0.1", tap_port) as tap:
            return listener.getsockname()[1], tap.getsockname()[1]
    except ListenError as error:
        remedy = 'take a free one: make demo ARGS="--port 0"'
        if tap_port:
            remedy += ", without --default-ports"
        raise ListenError(error.address, error.reason, remedy) from None


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
        "found no deploy/models beside this installation; "
        "the demo runs from a checkout of the project: make demo"
    )


def _as_seen_from_here(folder: Path) -> Path:
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _tracing(folder: Path, rate: int) -> tuple[str, ...]:
    """To files: Triton 2.51 dies of so many traced requests, and sooner of spans sent."""
    if not rate:
        return ()
    return (
        f"--trace-config=triton,file={folder / _TRACE_FILES}",
        "--trace-config=triton,log-frequency=1",
        f"--trace-config=rate={rate}",
        "--trace-config=level=TIMESTAMPS",
    )


def _follow(settings: dict[str, Any], folder: Path, rate: int) -> None:
    files = {"path": str(folder / _TRACE_FILES), "owner": True}
    settings["collectors"] = [
        {**one, "otlp": None, "files": files} if one["kind"] == "traces" else one
        for one in settings["collectors"]
        if rate or one["kind"] != "traces"
    ]


def _config(
    models: Path, triton: EmbeddedTriton, port: int, tap_port: int
) -> dict[str, Any]:
    base = yaml.safe_load((models.parent / "demo.yaml").read_text("utf-8"))
    return {
        **base,
        "target": {"grpc": triton.grpc, "http": triton.http, "metrics": triton.metrics},
        "listen": {"address": "127.0.0.1", "port": port, "tap": {"port": tap_port}},
        "log": {"level": "warning"},
        "drift": [
            # The file speaks of its own folder, the demo runs in any.
            {**entry, "reference": str(models.parent / entry["reference"])}
            for entry in base["drift"]
        ],
        "cost": {
            **base["cost"],
            "storage": {**base["cost"]["storage"], "repository": str(models)},
        },
    }


@contextlib.contextmanager
def _sidecar(config: Path) -> Generator[None]:
    process = subprocess.Popen(  # noqa: S603 - our own program and file
        [sys.executable, "-m", "exporter.cli", "serve", "--config", str(config)],
        stdin=subprocess.DEVNULL,
        # A Ctrl-C in the terminal is ours to pass on, once the traffic has ended.
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no threads yet
    )
    try:
        yield
    finally:
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
        f"  taps         http://127.0.0.1:{tap_port}\n"
        'Ctrl-C ends all of it. A "?" is what the requests so far cannot support.',
        flush=True,
    )


def _scenario(name: str | None, models: Path, folder: Path) -> SilentFailure | None:
    if name is None:
        return None
    from exporter.demo.demo_scenarios import SilentFailure  # noqa: PLC0415 - only on request

    scenario = SilentFailure(models, folder)
    scenario.prepare()
    return scenario


def _extend(settings: dict[str, Any], added: dict[str, Any]) -> None:
    """Lists are joined: a scenario adds collectors and probes."""
    for key, value in added.items():
        settings[key] = [*settings.get(key, ()), *value]


def _alerts(
    stack: contextlib.ExitStack, chosen: SilentFailure, folder: Path, port: int
) -> Callable[[], Sequence[str]] | None:
    from exporter.demo import demo_alerts  # noqa: PLC0415 - only on request

    if not demo_alerts.installed():
        print(
            "no Prometheus here, so no alert is evaluated: apt-get install prometheus; "
            f"the rules are in {chosen.rules}",
            flush=True,
        )
        return None
    sidecar = f"127.0.0.1:{port}"
    place = folder / "prometheus"
    alerts = demo_alerts.Alerts(place, chosen.rules, sidecar, _die_with_parent)
    stack.enter_context(alerts)
    print(f"  alerts       http://{alerts.address}/alerts", flush=True)
    return alerts.firing


def _watch(
    client: HttpClient,
    duration_seconds: float | None,
    line: Line,
    act: Act | None,
) -> None:
    """Print a line a second, and play the act when it is due."""
    started = time.monotonic()
    due = started
    while duration_seconds is None or due - started < duration_seconds:
        due += _PERIOD_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))
        if act is not None and act.is_due(
            due - started, golden_was_correct=line.golden_was_correct
        ):
            print(act.play(), flush=True)
            act = None
        try:
            page = client.get("/metrics", timeout_seconds=_PERIOD_SECONDS)
        except TritonError as error:
            print(f"no answer from the sidecar: {error}", flush=True)
            continue
        print(line.of(page, time.monotonic()), flush=True)
