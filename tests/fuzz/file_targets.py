"""Fuzz targets: files of operators, proxies and earlier runs, and reports of load runs."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from pathlib import Path
from typing import get_args

from drift.codec import MAGIC
from drift.errors import DriftError
from drift.reference import KIND, VERSION, Profile
from exporter.access.client_outcomes import ClientOutcome
from exporter.access.collector_base import Access
from exporter.config.config_problems import validated
from exporter.config.configuration import parse
from exporter.errors import ConfigError, GoldenDataError
from exporter.features.access_log.access_log_collector import logged_request
from exporter.features.golden import golden_formats
from exporter.features.runs.runs_collector import RunsCollector, RunsSettings
from exporter.features.spc.control_charts import Cusum
from exporter.features.spc.signal_monitor import Plan, Signal
from exporter.system.followed_lines import MAX_LINE_BYTES
from exporter.taps.foreign_json import ForeignJsonError
from exporter.taps.tap_route import TapRequest
from exporter.triton.grpc import GrpcClient
from exporter.web.web_config import WebConfig
from loadtests import json_file, result_file
from loadtests.chaos.undoing import undo_journal
from loadtests.errors import PlanError

_ENVIRONMENT = {"SECRET": "canary"}
_RUNS = RunsCollector(RunsSettings(), Access.detached(GrpcClient("127.0.0.1:1")))
_PLAN = Plan(charts=(Cusum(),), in_control_arl=1000.0, learn_samples=20)


def check(error: ConfigError) -> None:
    """It says what is wrong, a line each."""
    assert error.problems
    assert all("\n" not in problem for problem in error.problems)


def fuzz_config(data: bytes) -> None:
    try:
        parse(data, "FILE", _ENVIRONMENT)
    except ConfigError as error:
        check(error)


def fuzz_web_config(data: bytes) -> None:
    """Files that it names are not read."""
    try:
        validated(WebConfig, data, "FILE", {})
    except ConfigError as error:
        check(error)


def fuzz_spc_state(data: bytes) -> None:
    """What is taken up can be used and kept again."""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(state, dict):
        return
    signal = Signal(_PLAN)
    # The plan's text is no work for a fuzzer.
    state["plan"] = signal.to_state()["plan"]
    try:
        signal.restore(state)
    except ValueError:
        signal = Signal(_PLAN)
    for value in (1.0, 2.0, -1.0):
        signal.add(value)
    json.dumps(signal.to_state())


def fuzz_profile(data: bytes) -> None:
    """In an envelope that is whole: the fuzzer finds no checksums."""
    digest = hashlib.sha256(data).hexdigest()
    head = f"{MAGIC} {KIND} {VERSION} {digest}\n".encode()
    try:
        found = Profile.from_bytes(head + data)
    except DriftError:
        return
    found.to_bytes()


def fuzz_access_log(data: bytes) -> None:
    """A line is refused, of another request, or has one outcome."""
    try:
        found = logged_request(data, MAX_LINE_BYTES)
    except ForeignJsonError:
        return
    assert found is None or found.outcome in get_args(ClientOutcome)


def fuzz_golden_file(data: bytes) -> None:
    """The first byte says which format; every column has a row or more."""
    form = ("csv", "json", "npz")[data[0] % 3] if data else "csv"
    try:
        columns, _ = golden_formats.read(data[1:], form, "FILE")
    except GoldenDataError:
        return
    assert all(isinstance(name, str) and array.ndim for name, array in columns.items())


def fuzz_run_notice(data: bytes) -> None:
    """Reports of a run or a search are refused with a reason, or exposed."""
    for route in _RUNS.routes():
        answer = route.answer(TapRequest(data, {}, route.path))
        assert bool(answer.body) == (answer.outcome == "malformed")
    assert all(math.isfinite(sample.value) for sample in _RUNS.collect())


def fuzz_undo_journal(data: bytes) -> None:
    """Every line is an entry, the end of one, the head, or a problem."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        found = undo_journal.read(Path(file.name))
    assert len(found.entries) + len(found.problems) <= data.count(b"\n")


def fuzz_load_result(data: bytes) -> None:
    """A result that can be read can be written and read again."""
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(data)
        try:
            result = result_file.from_document(json_file.read(path))
        except PlanError:
            return
    document = json.dumps(result_file.to_document(result))
    result_file.from_document(json.loads(document))


TARGETS = {
    "access_log": fuzz_access_log,
    "config": fuzz_config,
    "web_config": fuzz_web_config,
    "spc_state": fuzz_spc_state,
    "profile": fuzz_profile,
    "golden_file": fuzz_golden_file,
    "run_notice": fuzz_run_notice,
    "undo_journal": fuzz_undo_journal,
    "load_result": fuzz_load_result,
}
