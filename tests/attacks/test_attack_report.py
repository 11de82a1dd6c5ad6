"""When the report of `make attack` has a fault."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from honest_clients import Seen, Tally
from run_all import QUIET, Spell, report

from pages import page_text

NAN = math.nan


def spell(
    name,
    *,
    scrapes=40,
    slowest=0.1,
    failures=(),
    probe=0.004,
    resident=100e6,
    not_serving=0,
    through=0,
):
    tally = Tally([0.1] * (scrapes - 1) + [slowest], Counter(failures))
    seen = Seen({"scrape": tally}, not_serving, probe, resident)
    return Spell(name, 0 if name == QUIET else 100, through, seen)


def shown(*spells):
    return " ".join(page_text.render(report({"plain HTTP": spells}, ())).split())


BEFORE = spell(QUIET, scrapes=20)
AFTER = spell(QUIET, scrapes=20, resident=119e6, probe=0.01)


@pytest.mark.parametrize(
    "attack",
    [
        {},
        {"scrapes": 30},
        {"slowest": 1.0},
        {"probe": 0.0079},
        {"resident": 299e6},
    ],
)
def test_within_the_limits_every_honest_client_was_served(attack):
    text = shown(BEFORE, spell("flood", **attack), AFTER)
    assert "Every honest client was served." in text


@pytest.mark.parametrize(
    ("attack", "fault"),
    [
        ({"scrapes": 29}, "plain HTTP, flood: 29 scrapes were tried; want 30"),
        ({"slowest": 1.01}, "plain HTTP, flood: 1 of 40 scrapes took over a second"),
        ({"failures": ["no"]}, "plain HTTP, flood: scrapes failed {'no': 1}"),
        (
            {"probe": 0.0081},
            "plain HTTP, flood: probes took 2.0 times as long as before",
        ),
        ({"probe": NAN}, "plain HTTP, flood: no probe ended"),
        (
            {"resident": 301e6},
            "plain HTTP, flood: 301 MB were resident; want at most 300",
        ),
        ({"not_serving": 1}, "plain HTTP, flood: triton_model_serving was 0"),
        ({"through": 1}, "plain HTTP, flood: attempts were let through"),
    ],
)
def test_each_limit_that_an_attack_exceeds_is_a_fault(attack, fault):
    text = shown(BEFORE, spell("flood", **attack), AFTER)
    assert fault in text
    assert "Every honest client was served." not in text


def test_memory_that_is_not_given_back_is_a_fault():
    text = shown(BEFORE, spell("flood"), spell(QUIET, resident=121e6))
    assert (
        "plain HTTP, quiet: 21 MB more were resident than before; want at most 20"
        in (text)
    )


def test_a_sidecar_without_probes_has_none_to_be_slow():
    before = spell(QUIET, probe=NAN)
    text = shown(before, spell("flood", probe=NAN), spell(QUIET, probe=NAN))
    assert "Every honest client was served." in text
