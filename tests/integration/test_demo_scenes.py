"""The demo on a real Triton: healthy at first, then each scene shows what it promises.

test_quickstarts.py runs the scene of a model that starts to return wrong answers.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import COMMAND
from documents import blocks
from waiting import patience

from exporter.output.exposition import parse_text

if TYPE_CHECKING:
    from collections.abc import Generator

WIDTH = 100
DEMO_MODELS = Path(__file__).parents[2] / "deploy" / "models"
MODELS = sorted(path.parent.name for path in DEMO_MODELS.glob("*/config.pbtxt"))

pytestmark = [pytest.mark.triton, pytest.mark.timeout(1800)]


class Demo:
    """A running demo: its lines so far, and its metrics page."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[str] = []

    def until(self, pattern: str, *more: str) -> list[str]:
        """The lines up to where all patterns were printed."""
        missing, read = [pattern, *more], []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            read.append(line)
            missing = [one for one in missing if not re.search(one, line)]
            if not missing:
                return read
        pytest.fail(f"never printed {missing}: {''.join(self.lines[-40:])}")

    def page(self) -> dict[tuple[str, ...], float]:
        """Every series: its name and the values of its labels, sorted."""
        address = re.search(r"metrics +(http\S+)", "".join(self.lines))
        assert address is not None
        with urllib.request.urlopen(address[1], timeout=patience(10)) as reply:
            page = reply.read()
        return {
            (name, *sorted(labels.values())): value
            for name, labels, value in parse_text(page)
        }


@contextlib.contextmanager
def demo(*arguments: str, seconds: float = 150) -> Generator[Demo]:
    duration = f"{patience(seconds):.0f}"
    process = subprocess.Popen(
        [COMMAND, "demo", "--port", "0", "--duration", duration, *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Demo(process)
    finally:
        process.terminate()
        process.communicate(timeout=patience(30))


@pytest.fixture
def scene(triton_environment):
    """Start a scene that begins early."""
    return lambda name: demo("--scenario", name, "--scenario-after", "6", seconds=240)


def test_a_healthy_demo_prints_what_the_readme_shows_and_knows_every_tail_within_a_minute(
    triton_environment,
) -> None:
    with demo("--scenario-after", "1000") as one:
        one.until("^Ctrl-C")
        began = time.monotonic()
        tail = r"p9[059] \S+ \[\S+, \S+\] ms"
        known = [rf"{model} +SERVING .*{tail}" for model in MODELS]
        one.until("one request in 7 is traced", *known)
        assert time.monotonic() - began < patience(75)
        page = one.page()
        kept = [v for key, v in page.items() if key[0] == "triton_drift_promise_kept"]
        assert kept == [1]
        estimated = [k for k in page if k[0] == "triton_estimated_accuracy_ratio"]
        assert {key[2] for key in estimated} == {
            "diabetes",
            "digits_fp32",
            "digits_int8",
        }
        text = "".join(one.lines)
        assert not re.search(r"!|sidecar:|\?", text), text
        assert max(len(line.rstrip("\n")) for line in one.lines) <= WIDTH
    shown = next(b.text for b in blocks("README.md") if "ready after" in b.text)
    known = {form(line) for line in shown.splitlines()}
    # The README ends before fewer requests are traced.
    for line in itertools.takewhile(lambda line: "from now on" not in line, one.lines):
        # A busy machine may be late with an answer.
        if not re.search("no answer from the sidecar|no result within", line):
            assert form(line) in known, line


def form(line: str) -> str:
    """Return the form of a line: numbers, quantiles, energy and folders left out."""
    line = re.sub(r"/\S*(?:models|\.log)", "PATH", line.rstrip("\n"))
    line = re.sub(r"deploy/models", "PATH", line)
    line = re.sub(r"tail not yet: \d+ traces|p9\d \S+ \[\S+, \S+\] ms", "TAIL", line)
    line = re.sub(r"energy: .*", "ENERGY", line)
    line = re.sub(r"(?<=tokens/s), .* per 1,000 tokens", "", line)
    line = re.sub(
        r"  accuracy [\d.]+ %|  drift none| +\d+/s|(?<=first response).*", "", line
    )
    line = re.sub(r" \d+ requests/s,", "", line)
    return re.sub(r" +", " ", re.sub(r"\b\d[\d.:]*", "N", line))


def test_drifted_data_are_detected_within_seconds(scene) -> None:
    with scene("drift") as one:
        one.until("--- from now on diabetes gets patients of 60")
        one.until(
            "! diabetes: its data drifted: age",
            r"diabetes +DRIFTED .* drift age",
        )
        assert one.page()["triton_feature_drift_alarm", "age", "diabetes"] == 1


def test_an_overloaded_model_is_slow_and_the_others_are_not(scene) -> None:
    with scene("overload") as one:
        one.until("eight more clients ask slow")
        one.until(
            r"^\S+  ! slow-latency: objective spends its error budget", r"slow +SLOW "
        )
        others = one.until("--- the crowd has left")
        assert not [
            line for line in others if re.search(r"(digits|diab)\S+ +SLOW", line)
        ]


def test_a_dead_backend_is_down_while_triton_calls_it_ready_and_is_repaired(
    scene,
) -> None:
    with scene("dead-backend") as one:
        one.until("--- the backend process of digits_int8 was killed")
        one.until("! digits_int8: is ready, but does not answer correctly in time")
        page = one.page()
        assert page["triton_model_ready", "1", "digits_int8"] == 1
        assert page["triton_model_serving", "1", "digits_int8"] == 0
        one.until("--- digits_int8 is unloaded and loaded again")
        one.until(r"digits_int8 +SERVING")


def test_a_slow_version_is_worse_than_the_one_before(scene) -> None:
    with scene("slow-rollout") as one:
        one.until("--- version 2 of digits_fp32 takes half of the requests")
        told = one.until(
            "! rollout: digits_fp32:2 is worse in latency",
            r"digits_fp32:2 +SLOW",
        )
        assert not [line for line in told if re.search("digits_fp32:1 +SLOW", line)]
