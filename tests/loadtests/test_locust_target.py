"""The server that Locust's --host, or its web page, names is the one that gets the load."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Locust replaces the sockets of the process that imports it.
PROGRAM = """
import argparse, sys
from types import SimpleNamespace
from loadtests.distributed import locust_hooks as hooks
from loadtests.errors import PlanError

first, second = (host or None for host in sys.argv[1:])
parser = argparse.ArgumentParser()
hooks._add_options(parser)
options = parser.parse_args(["--model", "m"])
options.host = first
runner = SimpleNamespace(client_id="w", send_message=lambda *_: None, stop=lambda: None)
environment = SimpleNamespace(host=first, parsed_options=options, runner=runner)
try:
    hooks.LOAD.scenario = hooks._scenario(environment)
except PlanError as error:
    sys.exit(str(error))
environment.host = options.host = second
hooks._begin(environment)
if hooks.LOAD.coordinator is None:
    print("not begun")
else:
    target = hooks.LOAD.scenario.target.target()
    print(target.protocol, target.address)
"""


def begun(first: str, second: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, first, second],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("", "grpc localhost:8001"),
        ("http://prod:9000/", "http prod:9000"),
        ("GRPC://prod:9001", "grpc prod:9001"),
        ("prod:9001", "grpc prod:9001"),
    ],
)
def test_the_load_goes_to_the_host_that_was_named(host, wanted) -> None:
    assert begun(host, host) == wanted


@pytest.mark.parametrize("host", ["https://prod:8000", "grpcs://prod:8001"])
def test_a_host_with_another_scheme_is_refused(host) -> None:
    found = begun(host, host)
    assert host in found
    assert "--ca-file" in found


def test_the_host_typed_into_the_page_gets_the_next_run() -> None:
    assert begun("grpc://a:8001", "http://b:8000") == "http b:8000"


def test_a_host_on_the_page_that_cannot_be_used_begins_no_run() -> None:
    assert "not begun" in begun("grpc://a:8001", "https://b:8000")
