"""Rules, dashboards, experiments and runbooks take outcomes as the catalogue has them."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.catalogue.probe_outcomes import (
    GOOD,
    MEANINGS,
    NOT_FAILED,
    OUTCOMES,
    SERVED,
    UNJUDGED,
)

ROOT = Path(__file__).parents[2]
FOLDERS = ("deploy", "grafana/dashboards", "loadtests", "docs")
SUFFIXES = {".yaml", ".yml", ".json", ".md"}
SELECTOR = re.compile(r"triton_probe_total\{([^}]*)\}")
NEGATED = re.compile(r'outcome!(~?)\\?"([^"\\]*(?:\\\|[^"\\]*)*)\\?"')


def negated(text):
    """Each `outcome!=` and `outcome!~` of probes in a file, as sets of outcomes."""
    for selector in SELECTOR.findall(text):
        for _, outcomes in NEGATED.findall(selector):
            yield set(outcomes.replace("\\|", "|").split("|"))


def test_every_outcome_has_a_meaning_in_its_order() -> None:
    assert tuple(MEANINGS) == OUTCOMES
    assert {"ok", "stalled"} == GOOD == SERVED - {"backlog"} != SERVED


def test_outcomes_that_are_left_out_are_those_of_the_catalogue() -> None:
    allowed = set(NOT_FAILED.split("|")), set(UNJUDGED)
    found = {
        (str(file.relative_to(ROOT)), *sorted(outcomes))
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.suffix in SUFFIXES
        for outcomes in negated(file.read_text("utf-8"))
        if outcomes
    }
    assert len(found) >= 6
    assert not [place for place in found if set(place[1:]) not in allowed]
