"""The schedule of probes, in virtual time: spread, jitter, rate."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from virtual_time import lasting, names, play

from exporter import catalogue

# The even course.


def test_every_target_is_probed_once_an_interval():
    scene = play(names(5), lasting(1000), jitter_ratio=0)
    for name in names(5):
        assert scene.gaps(name) == pytest.approx([10] * len(scene.gaps(name)))
        assert len(scene.gaps(name)) >= 98


@pytest.mark.parametrize(
    ("answer_seconds", "settings", "gap"),
    [
        (4, {}, 10),  # part of the interval
        (7, {"interval_seconds": 3}, 7),  # not overtaken
        (0.01, {"interval_seconds": 0.02, "max_requests_per_second": 1000}, 0.02),
    ],
)
def test_a_target_is_probed_at_the_interval_or_when_its_answer_is_there(
    answer_seconds, settings, gap
):
    async def script(scene):
        scene.probe.slow["m"] = answer_seconds
        await asyncio.sleep(100 * gap)

    scene = play(["m"], script, jitter_ratio=0, **settings)
    gaps = scene.gaps("m")
    assert gaps == pytest.approx([gap] * len(gaps), abs=0.05 * gap)
    assert len(gaps) >= 98


def test_new_targets_begin_at_once_but_not_together():
    scene = play(names(100), lasting(9), jitter_ratio=0)
    first = sorted(starts[0] - 1000 for starts in scene.starts.values())
    assert len(first) == 100
    assert 0 <= first[0] < 0.5
    assert 4 < first[-1] <= 5.1
    busiest = max(sum(t <= u < t + 1 for u in first) for t in first)
    assert busiest < 40


def test_one_target_alone_does_not_wait():
    scene = play(["m"], lasting(1))
    assert scene.starts["m"][0] - 1000 <= 0.05


@pytest.mark.parametrize("jitter_ratio", [0.1, 0.5])
def test_jitter_moves_each_start_within_its_bounds(jitter_ratio):
    scene = play(["m"], lasting(3000), jitter_ratio=jitter_ratio)
    gaps = scene.gaps("m")
    least, most = 10 * (1 - jitter_ratio), 10 * (1 + jitter_ratio)
    assert least <= min(gaps) < least + 10 * jitter_ratio / 5
    assert most - 10 * jitter_ratio / 5 < max(gaps) <= most + 0.01
    assert sum(gaps) / len(gaps) == pytest.approx(10, rel=0.05)


def test_two_replicas_do_not_march_in_step():
    one, two = (play(["m"], lasting(500), seed=seed).starts["m"] for seed in (1, 2))
    assert len({round(a - b, 3) for a, b in zip(one, two, strict=False)}) > 40


# The rate.


@pytest.mark.parametrize("rate", [2, 10, 50])
def test_the_rate_is_never_exceeded_with_however_many_targets(rate):
    scene = play(names(200), lasting(60), max_requests_per_second=rate)
    gaps = [b - a for a, b in pairwise(scene.probe.order)]
    assert min(gaps) >= 1 / rate - 1e-9
    assert len(scene.probe.order) <= 60 * rate + 1
    assert len(scene.probe.order) >= min(60 * rate, 200 * 6) * 0.9


def test_the_interval_stretches_until_every_target_has_its_turn():
    scene = play(names(100), lasting(300), max_requests_per_second=2, jitter_ratio=0)
    assert scene.runner.interval_seconds == 50
    assert scene.metered(catalogue.PROBE_INTERVAL) == 50
    turns = {name: len(starts) for name, starts in scene.starts.items()}
    assert len(turns) == 100
    assert set(turns.values()) <= {5, 6, 7}


def test_the_interval_is_as_configured_while_the_rate_allows_it():
    scene = play(names(20), lasting(1), max_requests_per_second=2)
    assert scene.runner.interval_seconds == 10
    scene = play(names(21), lasting(1), max_requests_per_second=2)
    assert scene.runner.interval_seconds == 10.5
