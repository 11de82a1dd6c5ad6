"""A worker's sender: `python -m loadtests.distributed.sender`, its orders on stdin.

First a scenario as JSON; when its requests are ready it reports that, and waits for
{"start_at", "worker", "workers"}. {"concurrency": n} resizes a closed loop, {"stop":
true} ends the run, and so does the end of stdin: no sender outlives its worker. It
answers in frames: JSON lines, some with requests that ended.
"""

from __future__ import annotations

import io
import json
import queue
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from exporter.errors import TritonwatchError
from loadtests import surroundings
from loadtests.engine import Options, Progress
from loadtests.execute import execute, prepared
from loadtests.result_file import packed, unpacked
from loadtests.scenario import Scenario

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from loadtests.engine.loops import ClosedLoop as Loop
    from loadtests.plan import Mix
    from loadtests.result import Requests, RunResult

_PROGRESS_SECONDS: Final = 0.1
_STOP: Final = '{"stop": true}'
_TOO_SOON: Final = "the run was stopped before anything was sent"


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `kind` is ready, batch, result or failed."""

    kind: str
    content: Mapping[str, Any]
    requests: Requests | None = None


def write(out: IO[bytes], frame: Frame) -> None:
    """Write it, and flush."""
    head = {"kind": frame.kind, **frame.content}
    if frame.requests is not None:
        head["requests"] = packed(frame.requests)
    out.write(json.dumps(head, separators=(",", ":")).encode() + b"\n")
    out.flush()


def read(source: IO[bytes]) -> Frame | None:
    """The next frame; None at the end.

    Raises:
        ValueError: it ends in the middle, or is no frame.
    """
    line = source.readline()
    if not line:
        return None
    content = json.loads(line)
    kind, columns = content.pop("kind"), content.pop("requests", None)
    return Frame(kind, content, None if columns is None else unpacked(columns))


def main() -> int:
    """Run one load for one worker."""
    # Ctrl-C goes to the whole terminal; the worker sends the order to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Unbuffered: a thread that waits in a buffered reader holds its lock at the exit.
    orders = io.FileIO(sys.stdin.fileno(), closefd=False)
    out = _Writer(sys.stdout.buffer)
    first = orders.readline()
    if not first:
        return 0
    scenario = Scenario.model_validate_json(first)
    try:
        mix = prepared(scenario)
        described = {
            "entries": [entry.name for entry in mix.entries],
            "payload_sha256": mix.sha256,
            "versions": surroundings.versions(),
            "hardware": surroundings.hardware(),
        }
        out.write(Frame("ready", described))
        start = json.loads(orders.readline() or _STOP)
        if start.get("stop"):
            out.write(Frame("failed", {"message": _TOO_SOON}))
            return 0
        run = _Run(scenario, mix, orders, out)
        out.write(run.ended(run.run(start)))
    except TritonwatchError as error:
        out.write(Frame("failed", {"message": str(error)}))
    finally:
        out.close()
    return 0


class _Run:
    """One run, and the orders that come meanwhile."""

    def __init__(
        self, scenario: Scenario, mix: Mix, orders: io.FileIO, out: _Writer
    ) -> None:
        self._scenario = scenario
        self._mix = mix
        self._out = out
        self._stopped = threading.Event()
        self._loop: tuple[asyncio.AbstractEventLoop, Loop] | None = None
        self._concurrency = self._most = 0
        self._reported: list[NDArray[np.int64]] = []
        """Indexes of the requests in batches that were written."""
        self._thread = threading.Thread(
            target=self._follow_orders, args=(orders,), daemon=True
        )

    def run(self, start: dict[str, Any]) -> RunResult:
        """Send this worker's share."""
        self._thread.start()
        worker, workers = int(start["worker"]), int(start["workers"])
        return execute(
            self._scenario,
            self._mix.begun_at(worker / workers),
            Options(
                start_at=float(start["start_at"]),
                progress=self._report_progress,
                progress_seconds=_PROGRESS_SECONDS,
                stop=self._stopped.is_set,
                share=(worker, workers),
                control=self._control,
            ),
        )

    def _report_progress(self, progress: Progress) -> None:
        if progress.finished.size:
            self._reported.append(progress.finished)
            ended = progress.requests.where(progress.finished)
            self._out.write(Frame("batch", {"in_flight": progress.in_flight}, ended))

    def ended(self, result: RunResult) -> Frame:
        """Return the result, with the requests that were in no batch."""
        left = np.ones(len(result.requests), bool)
        for indexes in self._reported:
            left[indexes] = False
        content = {
            "duration_seconds": result.duration_seconds,
            "sender_cpu_seconds": result.sender_cpu_seconds,
            "in_flight": self._most or result.about.in_flight,
            "reasons": list(result.verdict.reasons),
            "warnings": list(result.verdict.warnings),
            "errors": dict(result.errors),
            "unanswered": asdict(result.unanswered),
            "between_responses": result.between_responses.to_state(),
        }
        return Frame("result", content, result.requests.where(left))

    def _control(self, loop: Loop) -> None:
        import asyncio  # noqa: PLC0415

        self._loop = (asyncio.get_running_loop(), loop)
        loop.start_with(self._concurrency)

    def _follow_orders(self, orders: io.FileIO) -> None:
        for line in orders:
            order = json.loads(line)
            if order.get("stop"):
                break
            self._concurrency = int(order["concurrency"])
            self._most = max(self._most, self._concurrency)
            if self._loop is not None:
                events, loop = self._loop
                events.call_soon_threadsafe(loop.resize, self._concurrency)
        if self._loop is None:
            self._stopped.set()
        else:
            # A closed loop has no other end: it is over, and not interrupted.
            events, loop = self._loop
            events.call_soon_threadsafe(loop.stop)


class _Writer:
    """Writes frames from a thread of its own: a slow reader must not delay a send."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._waiting: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def write(self, frame: Frame) -> None:
        """Write it soon."""
        self._waiting.put(frame)

    def close(self) -> None:
        """Write all that waits."""
        self._waiting.put(None)
        self._thread.join(10.0)

    def _write(self) -> None:
        while True:
            frame = self._waiting.get()
            if frame is None:
                return
            try:
                write(self._out, frame)
            except (BrokenPipeError, ValueError):
                return  # the worker has ended


if __name__ == "__main__":
    sys.exit(main())
