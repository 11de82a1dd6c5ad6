"""A Triton that traces under load until it dies, and again: how often, and how."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import itertools
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import figures
import numpy as np
from processes import MODEL, MODELS

from exporter.errors import TritonError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest
from loadtests.engine import Options, run_closed, run_open
from loadtests.errors import LoadError
from loadtests.prepare import prepared
from loadtests.profiles.poisson import Poisson
from loadtests.profiles.seeding import arrivals_of
from loadtests.result import Outcome
from loadtests.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loadtests.result import RunResult

Mode = Literal["otel", "eager", "files", "off"]
Face = Literal["crash", "hang"]
IN_FLIGHT = 8
REQUESTS_PER_SECOND = 300.0
LOOK_SECONDS = 0.5
ANSWER_SECONDS = 2.0
# The server prints its stack before it ends, if it comes to that.
GIVEN_UP_SECONDS = 10.0
TIMEOUT_SECONDS = 3.0
LEAST_SECONDS = 1.0
EVERY_SECOND = "bsp_schedule_delay=1000"
READY = "/v2/health/ready"


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to trace, under one load."""

    mode: Mode
    rate: int
    load: Literal["closed", "poisson"]
    seconds: float

    @property
    def name(self) -> str:
        """As in the name of its figure."""
        rate = "" if self.mode == "off" else f"_rate_{self.rate}"
        return f"trace_deaths_{self.mode}_{self.load}{rate}"

    @property
    def measured(self) -> str:
        """What is measured and how, in a sentence."""
        load = {
            "closed": f"{IN_FLIGHT} clients in a closed loop",
            "poisson": f"{REQUESTS_PER_SECOND:g} Poisson requests a second",
        }[self.load]
        one = f"one request in {self.rate} traced"
        counted = {
            "otel": f"{one} by OpenTelemetry",
            "eager": f"{one} by OpenTelemetry with {EVERY_SECOND}",
            "files": f"{one} to files",
            "off": "nothing traced, every request counted as if it were",
        }[self.mode]
        return (
            f"deaths of a server by its answered requests, {counted}, {load}, started"
            f" anew after each for {self.seconds:g} s in all: a crash when the process"
            " ended, a hang when it is there and answers no inference for"
            f" {GIVEN_UP_SECONDS:g} s; exact Poisson interval"
        )


# In order of how much is learnt in a minute. A hundredth of the traces takes longer.
CELLS = (
    Cell("otel", 1, "closed", 90.0),
    Cell("otel", 10, "closed", 120.0),
    Cell("otel", 100, "closed", 210.0),
    Cell("otel", 1, "poisson", 150.0),
    Cell("files", 1, "closed", 120.0),
    Cell("files", 1, "poisson", 150.0),
    Cell("off", 1, "closed", 60.0),
)
EAGER = Cell("eager", 1, "closed", 150.0)
SAMPLED = Cell("otel", 10, "closed", 450.0)


@dataclass(slots=True)
class Tally:
    """What came of a cell."""

    answered: int = 0
    """Requests with the right answer; of these one in `rate` was traced."""
    delivered: int = 0
    """Traces that arrived: fewer, since Triton drops spans that it cannot keep up with."""
    loaded_seconds: float = 0.0
    version: str = ""
    faces: list[Face] = field(default_factory=list)
    live_while_hung: int = 0
    """Of the hangs: those in which gRPC went on to call the server live."""
    ready_while_hung: int = 0
    """Of the hangs: those in which HTTP went on to call the server ready."""
    last_words: list[str] = field(default_factory=list)
    """The last `Signal (N) received.` or the like of the log, of each death."""


def measured(cell: Cell, seconds: float) -> Tally:
    """Load for so long on servers one after the other, each until it dies.

    Raises:
        LoadError, TritonError: the load fails and the server is well.
    """
    tally = Tally()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arguments, collect = stack.enter_context(_tracing(cell, folder))
        log = folder / "log"
        triton = stack.enter_context(
            EmbeddedTriton(MODELS, arguments=arguments, log=log)
        )
        tally.version = triton.version
        deadline = time.monotonic() + seconds
        for life in itertools.count():
            left = deadline - time.monotonic()
            if left < LEAST_SECONDS:
                break
            triton.start()
            _live(triton, cell, left, life, tally)
            if len(tally.faces) > len(tally.last_words):
                triton.kill()
                tally.last_words.append(_last_words(log))
            tally.delivered += collect()
        triton.stop()
        tally.delivered += collect()
    return tally


def _live(
    triton: EmbeddedTriton, cell: Cell, seconds: float, life: int, tally: Tally
) -> None:
    """One server's life, or what is left of the time."""
    watch = _Watch(triton)
    began = time.monotonic()
    broken: Exception | None = None
    try:
        result = _run(triton, cell, seconds, life, watch.suspicious.is_set)
        tally.answered += result.requests.count(Outcome.OK)
    except (LoadError, TritonError) as error:
        broken = error
    tally.loaded_seconds += time.monotonic() - began
    face = watch.close()
    tally.answered += watch.answered
    if face is None:
        if broken is not None:
            raise broken
        return
    tally.faces.append(face)
    tally.live_while_hung += watch.live_while_hung
    tally.ready_while_hung += watch.ready_while_hung


def _run(
    triton: EmbeddedTriton,
    cell: Cell,
    seconds: float,
    life: int,
    stop: Callable[[], bool],
) -> RunResult:
    scenario = Scenario.model_validate(
        {
            "target": {"address": triton.grpc},
            "models": [{"model": MODEL}],
            "profile": {"kind": "closed", "concurrency": IN_FLIGHT},
        }
    )
    options = Options(timeout_seconds=TIMEOUT_SECONDS, stop=stop)
    target = scenario.target.target()
    with prepared(scenario) as mix:
        if cell.load == "closed":
            return run_closed(
                target,
                mix,
                concurrency=IN_FLIGHT,
                duration_seconds=seconds,
                options=options,
            )
        profile = Poisson(
            requests_per_second=REQUESTS_PER_SECOND, duration_seconds=seconds
        )
        due = arrivals_of(profile, figures.SEED + life)
        return run_open(target, mix, due, options=options)


class _Watch:
    """Asks over a connection of its own, again and again, until nothing answers."""

    def __init__(self, triton: EmbeddedTriton) -> None:
        self._triton = triton
        self._over = threading.Event()
        self._face: Face | None = None
        self.suspicious = threading.Event()
        """Set once it did not answer; what then comes of it, `close` tells."""
        self.answered = 0
        self.live_while_hung = self.ready_while_hung = False
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> Face | None:
        """How it died, after one more look; None if it lives."""
        self._over.set()
        self._thread.join()
        return self._face

    def _look(self) -> None:
        last = False
        while self._face is None and not last:
            last = self._over.wait(LOOK_SECONDS)
            if not self._answers():
                self.suspicious.set()
                self._face = self._end()

    def _end(self) -> Face | None:
        deadline = time.monotonic() + GIVEN_UP_SECONDS
        while time.monotonic() < deadline:
            if not self._triton.running:
                return "crash"
            if self._answers():
                return None
            time.sleep(0.1)
        self.live_while_hung = self._called_live()
        self.ready_while_hung = self._called_ready()
        return "hang"

    def _answers(self) -> bool:
        """A real tensor, over a connection of its own."""
        pixels = np.zeros((1, 64), np.float32)
        request = InferRequest(MODEL, "", "", {"pixels": pixels}, {"pixels": "FP32"})
        told = self._told(
            lambda client: client.infer(request, timeout_seconds=ANSWER_SECONDS)
        )
        self.answered += told
        return told

    def _called_live(self) -> bool:
        return self._told(lambda client: client.live(timeout_seconds=ANSWER_SECONDS))

    def _told(self, ask: Callable[[GrpcClient], object]) -> bool:
        with contextlib.closing(GrpcClient(self._triton.grpc)) as client:
            try:
                ask(client)
            except TritonError:
                return False
        return True

    def _called_ready(self) -> bool:
        connection = http.client.HTTPConnection(self._triton.http, timeout=2.0)
        with contextlib.closing(connection):
            try:
                connection.request("GET", READY)
                return connection.getresponse().status == http.client.OK
            except (OSError, http.client.HTTPException):
                return False


@contextlib.contextmanager
def _tracing(
    cell: Cell, folder: Path
) -> Generator[tuple[list[str], Callable[[], int]]]:
    """Triton's arguments, and what has arrived since it was last asked."""
    common = [f"rate={cell.rate}", "level=TIMESTAMPS"]
    with contextlib.ExitStack() as stack:
        options: list[str] = []
        collect: Callable[[], int] = int
        if cell.mode in {"otel", "eager"}:
            spans = stack.enter_context(contextlib.closing(_Spans()))
            url = f"opentelemetry,url={spans.url}/v1/traces"
            options, collect = ["mode=opentelemetry", url, *common], spans.collect
            if cell.mode == "eager":
                options.append(f"opentelemetry,{EVERY_SECOND}")
        elif cell.mode == "files":
            files = stack.enter_context(contextlib.closing(_Files(folder)))
            file = f"triton,file={folder / 'trace'}"
            options = [file, "triton,log-frequency=50", *common]
            collect = files.collect
        yield [f"--trace-config={option}" for option in options], collect


class _Spans:
    """Counts the traces among the spans that are posted, and forgets them."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30.0

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with outer._lock:
                    outer._count += body.count(b'"InferRequest"')
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object, **__: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                # A Triton that dies breaks its connection off.
                if not isinstance(sys.exception(), ConnectionError):
                    super().handle_error(request, client_address)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def collect(self) -> int:
        with self._lock:
            count, self._count = self._count, 0
        return count

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Files:
    """Counts the traces of finished files and deletes them, as the sidecar would."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._clean, daemon=True)
        self._thread.start()

    def collect(self) -> int:
        """For when nobody writes."""
        self._take(0)
        with self._lock:
            count, self._count = self._count, 0
        return count

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _clean(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._take(2)

    def _take(self, unfinished: int) -> None:
        """All but so many of the newest."""
        with self._lock:
            files = self._folder.glob("trace.*")
            oldest = sorted(files, key=lambda file: int(file.suffix[1:]))
            for file in oldest[: len(oldest) - unfinished]:
                self._count += file.read_bytes().count(b'"model_name"')
                file.unlink()


def _last_words(log: Path) -> str:
    """The last line that a signal wrote before the server was gone, or "" for none."""
    lines = log.read_text("utf-8", "replace").splitlines()
    start = max((n for n, ln in enumerate(lines) if "Started Metrics" in ln), default=0)
    said = [line for line in lines[start:] if line.startswith("Signal (")]
    return said[-1] if said else ""
