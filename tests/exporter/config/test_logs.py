"""The log: one event a line, whatever is in it, at the level asked for."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from exporter.config import logs
from exporter.config.configuration import LogSettings

PATIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FORMATS = ["logfmt", "json"]
# key=bare or key="quoted, with \\ before what is escaped"
FIELD = re.compile(r'([^ ="]+)=("(?:[^"\\]|\\.)*"|[^ "]*)(?: |$)')


@pytest.fixture(autouse=True)
def _as_it_was():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def lines(capfd):
    """Configure, then read what was written since, as lines."""

    def configure(level="info", **options):
        logs.configure(LogSettings(level=level, **options))

    def read():
        text = capfd.readouterr().err
        assert text == "" or text.endswith("\n")
        return text.split("\n")[:-1]

    read.configure = configure  # type: ignore[attr-defined]
    return read


def fields(line):
    """The fields of a logfmt line; the whole line has to be fields."""
    assert "".join(m[0] for m in FIELD.finditer(line)) == line
    found = {}
    for key, value in FIELD.findall(line):
        quoted = value.startswith('"')
        found[key] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return found


def read_event(line, form):
    return json.loads(line) if form == "json" else fields(line)


@pytest.mark.parametrize("form", FORMATS)
def test_an_event_is_one_line_with_its_fields(lines, form):
    lines.configure(format=form)
    structlog.get_logger().info("serving", address="0.0.0.0:8003", models=3, tls=None)
    (line,) = lines()
    event = read_event(line, form)
    assert event["event"] == "serving"
    assert event["level"] == "info"
    assert event["address"] == "0.0.0.0:8003"
    assert str(event["models"]) == "3"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", event["ts"])


@pytest.mark.parametrize("form", FORMATS)
@PATIENT
@example(value='\n level=error event=fake\n{"event": "fake"}', event="%s %(x)s {}")
@example(value="\x1b[31m\ud800\x00\x7f\x85\u2028\u2029", event="a=b c=d")
@given(value=st.text(), event=st.text(min_size=1))
def test_any_text_is_one_line_and_one_event(lines, form, value, event):
    lines.configure(format=form)
    structlog.get_logger().warning(event, value=value, other="x")
    (line,) = lines()
    assert line.splitlines() == [line]
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", line)
    found = read_event(line, form)
    assert set(found) == {"ts", "level", "event", "value", "other"}
    assert (found["level"], found["other"]) == ("warning", "x")
    if form == "json":
        assert (found["event"], found["value"]) == (event, value)


@pytest.mark.parametrize("form", FORMATS)
def test_a_traceback_is_part_of_its_line(lines, form):
    lines.configure(format=form)
    try:
        int("first line\nsecond line")
    except ValueError:
        structlog.get_logger().exception("collector_broken", collector="c")
    (line,) = lines()
    event = read_event(line, form)
    assert event["level"] == "error"
    assert "ValueError: invalid literal" in event["exception"]
    assert "Traceback" in event["exception"]


@pytest.mark.parametrize(
    ("value", "logfmt"), [(True, "true"), (False, "false"), (None, ""), (1.5, "1.5")]
)
def test_values_that_are_no_text_have_a_value(lines, value, logfmt):
    lines.configure()
    structlog.get_logger().info("e", value=value)
    assert fields(lines()[0])["value"] == logfmt
    lines.configure(format="json")
    structlog.get_logger().info("e", value=value)
    assert json.loads(lines()[0])["value"] == value


@pytest.mark.parametrize("form", FORMATS)
def test_a_value_of_any_type_can_be_logged(lines, form):
    lines.configure(format=form)
    structlog.get_logger().info(
        "e", value=object(), error=ValueError("a\nb"), raw=b"\n"
    )
    (line,) = lines()
    assert "object object at" in read_event(line, form)["value"]


# Levels.

LEVELS = ["debug", "info", "warning", "error"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("least", LEVELS)
def test_what_is_below_the_level_is_not_written(lines, form, least):
    lines.configure(level=least, format=form)
    log = structlog.get_logger()
    for level in LEVELS:
        getattr(log, level)(f"event_{level}")
    written = [read_event(line, form)["level"] for line in lines()]
    assert written == LEVELS[LEVELS.index(least) :]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("least", LEVELS)
def test_libraries_speak_from_warning_on_in_the_same_form(lines, form, least):
    lines.configure(level=least, format=form)
    library = logging.getLogger("some.library")
    for level in LEVELS:
        getattr(library, level)("line one\nof %s", level)
    events = [read_event(line, form) for line in lines()]
    expected = [
        level for level in LEVELS[2:] if LEVELS.index(level) >= LEVELS.index(least)
    ]
    assert [event["level"] for event in events] == expected
    assert all("line one" in event["event"] for event in events)
    assert all("ts" in event for event in events)


@pytest.mark.parametrize("form", FORMATS)
def test_a_librarys_traceback_is_part_of_its_line(lines, form):
    lines.configure(format=form)
    try:
        int("in\nside")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    (line,) = lines()
    assert "ValueError" in read_event(line, form)["exception"]


def test_a_second_configuration_takes_the_place_of_the_first(lines):
    lines.configure(level="debug", format="json")
    lines.configure(level="warning", format="logfmt")
    structlog.get_logger().info("unheard")
    structlog.get_logger().warning("ours")
    logging.getLogger("library").warning("theirs")
    assert [fields(line)["event"] for line in lines()] == ["ours", "theirs"]


def test_a_logger_taken_before_follows_the_configuration(lines):
    log = structlog.get_logger()
    lines.configure(format="json")
    log.info("one")
    lines.configure(format="logfmt")
    log.info("two")
    first, second = lines()
    assert json.loads(first)["event"] == "one"
    assert fields(second)["event"] == "two"


def test_nothing_is_written_to_standard_output(capfd):
    logs.configure(LogSettings())
    structlog.get_logger().error("e")
    logging.getLogger("library").error("e")
    assert capfd.readouterr().out == ""


# Standard error that cannot be written.


@contextlib.contextmanager
def pipe_as_standard_error():
    """A pipe that is read only when what this gives is called."""
    kept = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)

    def read():
        content = b""
        while select.select([reader], [], [], 0)[0]:
            content += os.read(reader, 1 << 16)
        return content.split(b"\n")

    try:
        yield read
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(reader)


def test_lines_that_nobody_reads_are_lost_and_counted_in_the_next_one():
    logs.configure(LogSettings(format="json"))
    log = structlog.get_logger()
    with pipe_as_standard_error() as pipe:
        for number in range(1000):
            log.info("filler", number=number, text="x" * 9000)
        *whole, cut = pipe()
        log.info("read again")
        log.info("and on")
        rest, again, on, _ = pipe()
    assert [json.loads(line)["number"] for line in whole] == list(range(len(whole)))
    assert cut
    assert rest == b""  # the end of the line that was cut
    assert json.loads(again)["lines_lost"] == 1000 - len(whole)
    assert "lines_lost" not in json.loads(on)


def test_a_library_logs_to_a_full_disk_without_an_error():
    logs.configure(LogSettings())
    with pipe_as_standard_error(), Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), 2)
        logging.getLogger("library").error("one")
        structlog.get_logger().error("two")
    assert logs.recent()[0]["event"] == "two"


def test_a_recent_event_has_its_model_and_only_what_is_known():
    logs.configure(LogSettings())
    structlog.get_logger().warning(
        "drift_alarm", model="m", features="age", correlations="", since_seconds=0.5
    )
    event = logs.recent()[0]
    assert event["model"] == "m"
    assert event["detail"] == "model m, features age, since 0.5 s"


def test_a_recent_event_reads_as_a_sentence_about_what_its_name_says():
    logs.configure(LogSettings())
    log = structlog.get_logger()
    log.warning("collector_failed", collector="golden", reason="no answer in 2 s")
    log.error("models_not_serving", number=2, models="bert 1, ocr 3")
    log.warning(
        "few_file_descriptors",
        remedy="raise the limit of open files",
        limit=64,
        wanted=400,
        effect="10 connections at a time",
    )
    log.warning("comparison_restarted", comparison="c", dropped={"success": "worse"})
    log.info("spc_acknowledged", signal="s", alarms=["a", "b"], relearn=False)
    assert [event["detail"] for event in logs.recent()[:5]] == [
        "signal s, alarms a and b, relearn no",
        "c, dropped success worse",
        "limit 64, wanted 400; 10 connections at a time; raise the limit of open files",
        "bert 1, ocr 3",
        "golden; no answer in 2 s",
    ]


def test_lines_of_one_kind_are_limited_and_those_left_out_are_counted(lines):
    now = [0.0]
    logs.configure(LogSettings(format="json"), clock=lambda: now[0])
    log = structlog.get_logger()
    for number in range(5000):
        log.warning("refused", number=number)
    log.warning("something_else")
    now[0] = 1.0
    log.warning("refused", number=-1)
    found = [json.loads(line) for line in lines()]
    assert [line["number"] for line in found[:-2]] == list(range(1000))
    assert found[-2]["event"] == "something_else"
    assert (found[-1]["number"], found[-1]["lines_omitted"]) == (-1, 4000)


def test_lines_of_libraries_are_limited_by_logger(lines):
    lines.configure()
    for number in range(1000):
        logging.getLogger("asyncio").error("socket.accept() failed %d", number)
    logging.getLogger("uvicorn.error").error("once")
    found = lines()
    assert 20 <= len(found) <= 200
    assert "once" in found[-1]


def test_lines_of_ever_new_kinds_are_limited_together(lines):
    lines.configure()
    log = structlog.get_logger()
    for number in range(5000):
        event = f"event {number}"
        log.warning(event)
    assert 1000 <= len(lines()) < 2000
