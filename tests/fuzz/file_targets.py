"""Fuzz targets: files that an operator or a proxy wrote, or that were kept over a restart."""

from __future__ import annotations

import hashlib
import json
from typing import get_args

from drift.codec import MAGIC
from drift.errors import DriftError
from drift.reference import KIND, VERSION, Profile
from exporter.access.client_outcomes import ClientOutcome
from exporter.config.config_problems import validated
from exporter.config.configuration import parse
from exporter.errors import ConfigError
from exporter.features.access_log.access_log_collector import logged_request
from exporter.features.spc.control_charts import Cusum
from exporter.features.spc.signal_monitor import Plan, Signal
from exporter.system.followed_lines import MAX_LINE_BYTES
from exporter.taps.foreign_json import ForeignJsonError
from exporter.web.web_config import WebConfig

_ENVIRONMENT = {"SECRET": "canary"}
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


TARGETS = {
    "access_log": fuzz_access_log,
    "config": fuzz_config,
    "web_config": fuzz_web_config,
    "spc_state": fuzz_spc_state,
    "profile": fuzz_profile,
}
