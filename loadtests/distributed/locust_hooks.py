"""Locust's events to a coordinator on the master and a run on each worker."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gevent
from locust import LoadTestShape, events
from locust.exception import StopUser
from locust.runners import (
    STATE_MISSING,
    WORKER_REPORT_INTERVAL,
    LocalRunner,
    MasterRunner,
    WorkerRunner,
)

from exporter.errors import TritonwatchError
from loadtests import result_file
from loadtests.announce import sidecars_of
from loadtests.command_options import (
    add_announcers,
    add_objective,
    add_target,
    add_value,
)
from loadtests.distributed.coordinator import Coordinator, status_of
from loadtests.distributed.worker import WorkerRun
from loadtests.errors import EXIT_USAGE, PlanError
from loadtests.json_file import publish
from loadtests.report import run_document
from loadtests.report.run_report import report_of
from loadtests.scenario import ClosedLoop
from loadtests.scenario_options import check_outputs, scenario_of

if TYPE_CHECKING:
    from loadtests.scenario import Scenario

_DONE_SECONDS: Final = 10.0
"""Time for the workers' results, once no answer is waited for any more."""
_WEEK_SECONDS: Final = 7 * 86_400
_POLL_SECONDS: Final = 0.25
log = logging.getLogger("tritonwatch")


class Load:
    """State of the load in this process: master, worker, or both in one."""

    def __init__(self) -> None:
        self.environment: Any = None
        self.coordinator: Coordinator | None = None
        self.run: WorkerRun | None = None
        self.scenario: Scenario | None = None

    @property
    def closed(self) -> bool:
        """True if Locust's users are the load, rather than a schedule."""
        return self.scenario is None or isinstance(self.scenario.profile, ClosedLoop)


LOAD: Final = Load()


class ScheduleShape(LoadTestShape):
    """One user a worker for as long as the schedule takes; users are only shown."""

    def tick(self) -> tuple[int, float] | None:
        """Return the number of users and the spawn rate, or None when all workers are done."""
        coordinator, runner = LOAD.coordinator, LOAD.environment.runner
        if coordinator is not None:
            alive = _alive(runner)
            coordinator.check_workers(alive)
            quiet = 0.0 if isinstance(runner, LocalRunner) else WORKER_REPORT_INTERVAL
            if coordinator.over(quiet + 0.5):
                return None
        workers = max(len(_alive(runner)), 1)
        return workers, float(workers)


def _alive(runner: Any) -> list[str]:
    if isinstance(runner, MasterRunner):
        return [c.id for c in runner.clients.all if c.state != STATE_MISSING]
    return [runner.client_id]


def _add_options(parser: Any) -> None:
    group = parser.add_argument_group("tritonwatch")
    add_target(group)
    add_objective(group)
    add_value(
        group,
        "--load-profile",
        str,
        "KIND",
        "an open loop; without, -u users in a closed",
    )
    add_value(group, "--rate", float, "R", "of the profile")
    add_value(group, "--duration", float, "S", "of the profile")
    add_value(
        group,
        "--result",
        Path,
        "FILE",
        "write the result there as JSON, like `load run --json`",
    )
    group.add_argument("--set", action="append", metavar="KEY=VALUE")
    add_announcers(group)


def _init(environment: Any, **_: object) -> None:
    LOAD.environment = environment
    runner = environment.runner
    if isinstance(runner, MasterRunner | LocalRunner):
        try:
            LOAD.scenario = _scenario(environment)
            check_outputs(environment.parsed_options.result)
        except TritonwatchError as error:
            sys.stderr.write(f"tritonwatch: {error}\n")
            sys.exit(EXIT_USAGE)
        if not LOAD.closed:
            make: Any = ScheduleShape
            environment.shape_class = make()
            environment.shape_class.runner = runner
        for what in ("ready", "done", "failed"):
            runner.register_message(f"tritonwatch_{what}", _receive)
        environment.events.test_start.add_listener(_begin)
        environment.events.test_stop.add_listener(_end)
        environment.events.worker_report.add_listener(_count)
    if isinstance(runner, WorkerRunner | LocalRunner):
        runner.register_message("tritonwatch_prepare", _prepare)
        runner.register_message("tritonwatch_start", _start)
        environment.events.report_to_master.add_listener(_report)
        environment.events.test_stop.add_listener(_stop)
        environment.events.quitting.add_listener(_stop)
    # gevent's timers count from the last time its loop read the clock, and that was
    # before all the imports: --run-time would be seconds too short.
    gevent.get_hub().loop.update_now()


def _scenario(environment: Any) -> Scenario:
    options = argparse.Namespace(**vars(environment.parsed_options))
    options.profile, options.concurrency = options.load_profile, None
    # The web page sets the environment's host, for the runs that follow.
    host = (environment.host or "").removesuffix("/")
    scheme, separator, address = host.rpartition("://")
    if separator and scheme.lower() not in {"grpc", "http"}:
        raise PlanError(
            f"found the host {host!r}; want HOST:PORT, grpc://HOST:PORT or "
            "http://HOST:PORT; for TLS add --ca-file"
        )
    options.protocol = options.protocol or scheme.lower() or None
    options.address = options.address or address or None
    if options.profile is None and options.scenario is None:
        # Locust's users are the concurrency, and its --run-time is the end.
        options.profile, options.duration = "closed", _WEEK_SECONDS
    return scenario_of(options)


# On the master.


def _begin(environment: Any, **_: object) -> None:
    if LOAD.scenario is None:
        return
    runner = environment.runner
    try:
        LOAD.scenario = _scenario(environment)
    except TritonwatchError as error:
        log.error("%s", error)  # noqa: TRY400 - the reason is in the message
        # Not from within the start, which continues after this.
        gevent.spawn_later(0, runner.stop)
        return
    sidecars = sidecars_of(environment.parsed_options)

    def send(what: str, content: dict[str, Any], worker: str) -> None:
        runner.send_message(f"tritonwatch_{what}", content, worker)

    LOAD.coordinator = Coordinator(LOAD.scenario, _alive(runner), send, sidecars)
    LOAD.coordinator.prepare()


def _receive(environment: Any, msg: Any, **_: object) -> None:
    coordinator = LOAD.coordinator
    if coordinator is None:
        return
    coordinator.receive(msg.type.removeprefix("tritonwatch_"), msg.data)
    failed = [share for share in coordinator.shares.values() if share.failed]
    if len(failed) == len(coordinator.shares):
        environment.process_exit_code = 1
        # Not from within the message's own handler, which the stop would wait for.
        gevent.spawn_later(0, environment.runner.quit)


def _count(client_id: str, data: dict[str, Any], **_: object) -> None:
    news = data.pop("tritonwatch", None)
    if news is not None and LOAD.coordinator is not None:
        LOAD.coordinator.count(client_id, news)


def _end(environment: Any, **_: object) -> None:
    if isinstance(environment.runner, LocalRunner):
        _stop(environment)
    timeout = 0.0 if LOAD.scenario is None else LOAD.scenario.timeout_seconds
    seconds = timeout + _DONE_SECONDS
    gevent.spawn(_conclude, environment, seconds).join(seconds + 1.0)


def _conclude(environment: Any, seconds: float) -> None:
    coordinator = LOAD.coordinator
    if coordinator is None:
        return
    last = time.monotonic() + seconds
    while not coordinator.over(0.0) and time.monotonic() < last:
        coordinator.check_workers(_alive(environment.runner))
        gevent.sleep(_POLL_SECONDS)
    LOAD.coordinator = None
    coordinator.close()
    result = coordinator.result()
    if environment.process_exit_code is None:
        environment.process_exit_code = status_of(result)
    named = argparse.Namespace(json=environment.parsed_options.result, html=None)
    written = "" if named.json is None else result_file.text(result)
    sys.stdout.write("\n")
    try:
        publish(named, run_document.document(report_of(result)), written)
    except PlanError as error:
        log.error("%s", error)  # noqa: TRY400 - the reason is in the message
        environment.process_exit_code = EXIT_USAGE
    sys.stdout.flush()


# On each worker.


def _prepare(environment: Any, msg: Any, **_: object) -> None:
    if LOAD.run is not None:
        LOAD.run.stop()
    LOAD.run = WorkerRun(environment, msg.data["scenario"])


def _start(environment: Any, msg: Any, **_: object) -> None:  # noqa: ARG001
    if LOAD.run is not None:
        LOAD.run.start(msg.data)


def _report(client_id: str, data: dict[str, Any], **_: object) -> None:  # noqa: ARG001
    if LOAD.run is not None:
        data["tritonwatch"] = LOAD.run.news()


def _stop(environment: Any, **_: object) -> None:  # noqa: ARG001
    if LOAD.run is not None:
        LOAD.run.stop()


def user_came() -> None:
    """A Locust user starts: in a closed loop, one request more in flight."""
    if LOAD.run is not None:
        LOAD.run.user_came()


def user_left() -> None:
    """A Locust user stops."""
    if LOAD.run is not None:
        LOAD.run.user_left()


def wait() -> None:
    """Wait a moment, as the only act of a Locust user; the sender does the rest."""
    gevent.sleep(_POLL_SECONDS)
    if LOAD.run is None:
        raise StopUser


def install() -> None:
    """Listen to Locust."""
    hooks: Any = events
    hooks.init_command_line_parser.add_listener(_add_options)
    hooks.init.add_listener(_init)
