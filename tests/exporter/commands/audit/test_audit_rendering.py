"""Text, JSON and HTML of one report, also of one full of hostile names."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from fake_triton import HOSTILE_NAMES

from exporter.commands.audit.audit_command import Report, rendered
from exporter.commands.audit.finding import Finding, cut, measure, shown
from exporter.commands.audit.model_seen import TimeShare

SCRIPT = "<script>alert(1)</script>"


PHASES = (
    *("network", "queue", "compute_input", "compute_infer", "compute_output"),
    "other",
)


def share(model="m", **seconds):
    phases = dict.fromkeys(PHASES, 0.0) | {"network": None}
    return TimeShare(model, "1", "window", 1234, **(phases | seconds))


def report(findings=(), shares=(), **changes):
    values = {
        "tritonwatch_version": "0",
        "started_at": "2026-11-21T12:00:00Z",
        "seconds": 9.5,
        "window_seconds": 6.0,
        "grpc": "triton:8001",
        "http": None,
        "metrics": None,
        "server_name": "Triton",
        "server_version": "2.51.0",
        "models": 1,
        "verdict": findings[0].severity if findings else "ok",
        "counts": {"warning": len(findings)},
        "time_shares": tuple(shares),
        "findings": tuple(findings),
    }
    return Report(**(values | changes))


@pytest.fixture
def hostile():
    """Every text that comes from the server is hostile."""
    texts = (
        *HOSTILE_NAMES,
        "\x1b[31mred\x07",
        "\u202egnp",
        '"><img src=x onerror=a()>',
    )
    findings = [
        Finding(
            f"hostile-{chr(ord('a') + place)}",
            "warning",
            f"{shown(name)} is called ready",
            f"Give its inputs under probes[].overrides[{shown(name)!r}].",
            (measure("error", name * 3, "ms", "probe"), measure("ratio", float("nan"))),
            "server#1",
            name,
            "1",
        )
        for place, name in enumerate(texts)
    ]
    shares = [share(name, queue=0.001, compute_infer=0.002) for name in texts]
    return report(findings, shares, server_version=SCRIPT, models=len(texts))


# Text.


def test_no_line_is_wider_than_a_hundred_columns_or_holds_a_control_character(hostile):
    lines = rendered(hostile, "text").splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)


def test_what_is_worst_comes_first_and_many_of_a_kind_are_cut_and_counted():
    findings = [
        Finding("ready-but-failing", "critical", f"m{n} fails") for n in range(500)
    ] + [Finding("headroom", "info", "much")]
    found = rendered(report(findings), "text")
    assert "m0 fails" in found
    assert "m3 fails" not in found
    assert "and 497 more of ready-but-failing" in found
    assert found.index("CRITICAL") < found.index("INFO")
    assert found.count("\n") < 20


def test_evidence_has_its_unit_and_source_and_says_unknown():
    finding = Finding(
        "network-share",
        "info",
        "much",
        evidence=(measure("p50", 1.23456, "ms", "probes"), measure("power", None, "W")),
    )
    found = rendered(report([finding]), "text")
    assert "p50: 1.235 ms (probes); power: unknown" in found


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_is_one_printable_line_of_bounded_length(name):
    assert shown(name).isprintable()
    assert len(shown(name)) <= 48
    assert len(cut(name * 1000)) <= 300


# JSON.


def test_json_comes_back_as_what_it_was(hostile):
    assert Report.model_validate_json(hostile.model_dump_json()) == hostile


def test_what_is_no_number_is_unknown_in_json(hostile):
    (_, ratio) = json.loads(hostile.model_dump_json())["findings"][0]["evidence"]
    assert ratio["value"] is None


# HTML.


class _Page(HTMLParser):
    """Elements, attributes and balance of a page."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, document):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.words = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def test_hostile_names_stay_words(hostile):
    page = _Page(rendered(hostile, "html"))
    assert page.open == []
    assert set(page.tags).isdisjoint({"script", "img", "a", "link", "iframe", "object"})
    assert SCRIPT in page.words
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_the_bars_parts_are_the_shares():
    document = rendered(
        report(shares=[share(queue=0.001, compute_infer=0.003)]), "html"
    )
    widths = re.findall(
        r'class="fill c(\d)" x="[\d.]+" y="0" width="([\d.]+)"', document
    )
    assert [width for _, width in widths] == [
        {"queue": "250.00", "compute_infer": "750.00"}.get(phase, "0.00")
        for phase in PHASES
    ]
    assert "inference 75 %, queue 25 %" in document


def test_findings_that_ask_for_nothing_are_folded():
    findings = [Finding("a-b", "warning", "bad"), Finding("c-d", "info", "good")]
    document = rendered(report(findings), "html")
    assert document.count("<details") == 2
    assert document.count(" open>") == 1
    assert document.index(" open>") < document.index(">bad<") < document.index(">good<")
