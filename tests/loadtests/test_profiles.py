"""Every profile: seeded, ordered, at its rate; and the distributions each promises."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from loadtests import plan
from loadtests.errors import PlanError
from loadtests.execute import execute
from loadtests.plan import MAX_REQUESTS, checked
from loadtests.profiles import AnyProfile
from loadtests.profiles.profile import Curve, arrivals_of
from loadtests.result import Outcome
from loadtests.scenario import Scenario

if TYPE_CHECKING:
    from loadtests.profiles.profile import Profile

PROFILES = get_args(get_args(AnyProfile)[0])
ADAPTER = TypeAdapter(AnyProfile)
# Enough arrivals that a rate within 1 % is at least four standard deviations away.
BUSY = {
    "constant": {"requests_per_second": 1000.0},
    "poisson": {"duration_seconds": 400.0, "requests_per_second": 500.0},
    "gamma": {"duration_seconds": 4000.0, "requests_per_second": 500.0},
    "on_off": {"duration_seconds": 400.0, "on_requests_per_second": 1000.0},
    "steps": {
        "first_requests_per_second": 1000.0,
        "last_requests_per_second": 3000.0,
    },
    "spike": {
        "duration_seconds": 100.0,
        "base_requests_per_second": 1000.0,
        "peak_requests_per_second": 9000.0,
    },
    "diurnal": {"duration_seconds": 120.0, "mean_requests_per_second": 2000.0},
    "growth": {"first_requests_per_second": 2000.0},
    "soak": {"requests_per_second": 100.0},
    "specpower": {"maximum_requests_per_second": 200.0},
}
DETERMINISTIC = {"constant", "replay"}
KINDS = sorted(profile.model_fields["kind"].default for profile in PROFILES)


@pytest.fixture
def recording(tmp_path):
    file = tmp_path / "times.txt"
    times = np.cumsum(np.random.default_rng(5).exponential(0.01, 20_000))
    file.write_text("# recorded\n" + "\n".join(map(repr, times.tolist())))
    return file


def made(kind: str, recording, **values) -> Profile:
    extra = {"file": recording} if kind == "replay" else {}
    return ADAPTER.validate_python({"kind": kind, **extra, **values})


@pytest.mark.parametrize("kind", KINDS)
def test_arrivals_are_a_schedule_within_the_length(kind, recording) -> None:
    profile = made(kind, recording, **BUSY.get(kind, {}))
    times = arrivals_of(profile, 7)
    assert times.dtype == np.float64
    assert np.array_equal(checked(times), times)
    assert times[-1] < profile.length_seconds


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_schedule_and_another_seed_another(kind, recording) -> None:
    profile = made(kind, recording)
    first, again, other = (arrivals_of(profile, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert np.array_equal(first, other) == (kind in DETERMINISTIC)


@pytest.mark.parametrize("kind", sorted(set(KINDS) & BUSY.keys()))
def test_the_rate_is_within_one_percent_as_a_whole_and_by_phase(
    kind, recording
) -> None:
    profile = made(kind, recording, **BUSY[kind])
    times = arrivals_of(profile, 3)
    assert times.size == pytest.approx(profile.curve().expected, rel=0.01)
    for phase in profile.phases():
        if phase.requests_per_second is None:
            continue
        seconds = phase.end_seconds - phase.start_seconds
        inside = np.diff(
            np.searchsorted(times, (phase.start_seconds, phase.end_seconds))
        )[0]
        expected = phase.requests_per_second * seconds
        spread = BUSY[kind].get("variation", 3.0 if kind == "gamma" else 1.0)
        room = max(0.01 * expected, 5 * spread * np.sqrt(expected))
        assert inside == pytest.approx(expected, abs=room), phase


@pytest.mark.parametrize("kind", KINDS)
def test_phases_cover_the_run_without_gaps(kind, recording) -> None:
    profile = made(kind, recording)
    phases = profile.phases()
    assert phases[0].start_seconds == 0
    assert phases[-1].end_seconds == pytest.approx(profile.length_seconds)
    for before, after in itertools.pairwise(phases):
        assert after.start_seconds == pytest.approx(before.end_seconds)


@pytest.mark.parametrize("variation", [0.3, 1.0, 3.0])
def test_gamma_gaps_have_the_variation_asked_for(variation, recording) -> None:
    profile = made("gamma", recording, variation=variation, **BUSY["gamma"])
    gaps = np.diff(arrivals_of(profile, 12))
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03)
    shape = variation**-2
    drawn = stats.gamma(shape, scale=1 / (shape * 500))
    # Below a nanosecond the difference of two times has no digits left.
    seen, least = gaps[:20_000][gaps[:20_000] > 1e-9], drawn.cdf(1e-9)
    test = stats.kstest(seen, lambda gap: (drawn.cdf(gap) - least) / (1 - least))
    assert test.pvalue > 0.01


def test_gamma_starts_at_its_rate_and_not_with_a_gap(recording) -> None:
    profile = made(
        "gamma", recording, duration_seconds=0.5, requests_per_second=10, variation=4.0
    )
    counts = [arrivals_of(profile, seed).size for seed in range(4000)]
    error = np.std(counts) / np.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(5.0, abs=4 * error)


@pytest.mark.parametrize(
    "kind", ["poisson", "diurnal", "growth", "spike", "on_off", "soak"]
)
def test_a_shape_taken_through_its_integral_is_a_poisson_process_of_rate_one(
    kind, recording
) -> None:
    profile = made(kind, recording, **BUSY[kind])
    times, curve = arrivals_of(profile, 4), profile.curve()
    fine = np.linspace(0, profile.length_seconds, 400_001)
    middle = (fine[1:] + fine[:-1]) / 2
    integral = np.concatenate(([0], np.cumsum(curve.at(middle) * np.diff(fine))))
    gaps = np.diff(np.interp(times, fine, integral))[:40_000]
    assert stats.kstest(gaps, stats.expon.cdf).pvalue > 0.01


def test_even_spacing_takes_whole_numbers_back_through_the_integral() -> None:
    ramp = Curve.of((0.0, 0.0), (10.0, 20.0))
    times = ramp.arrivals("even", np.random.default_rng(0))
    assert times == pytest.approx(np.sqrt(np.arange(100.0)))


def test_diurnal_keeps_its_mean_and_reaches_its_peak(recording) -> None:
    curve = made("diurnal", recording, **BUSY["diurnal"], peak_to_mean=1.9).curve()
    assert curve.expected / 120 == pytest.approx(2000, rel=1e-3)
    assert curve.rates.max() / 2000 == pytest.approx(1.9, rel=1e-3)
    assert curve.rates.min() >= 0


def test_growth_doubles_and_ends_at_its_ceiling(recording) -> None:
    free = made("growth", recording, duration_seconds=40).curve()
    assert free.at(np.array([20.0, 40.0])) == pytest.approx([10.0, 20.0], rel=1e-6)
    capped = made(
        "growth", recording, duration_seconds=1000, ceiling_requests_per_second=80
    ).curve()
    assert capped.rates[-1] == pytest.approx(80.0)


def test_specpower_has_ten_levels_and_idle(recording) -> None:
    phases = made("specpower", recording, maximum_requests_per_second=200).phases()
    assert [p.requests_per_second for p in phases] == pytest.approx(
        [200, 180, 160, 140, 120, 100, 80, 60, 40, 20, 0]
    )


def test_replay_sends_the_recording_faster(recording) -> None:
    plain, fast = (made("replay", recording, speed=s) for s in (1.0, 4.0))
    assert arrivals_of(fast, 0) == pytest.approx(arrivals_of(plain, 0) / 4)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "azure.csv",
            (
                "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                "2023-11-16 18:15:59.5000000,374,44\r\n2023-11-16 18:16:00.7500000,9,1\r\n"
            ),
        ),
        (
            "azure_2024.csv",
            (
                "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                "2024-05-10 00:00:00.500000+00:00,3,4\n2024-05-10 00:00:01.750000+00:00,9,1\n"
            ),
        ),
        (
            "mooncake.jsonl",
            (
                '{"timestamp": 3000, "input_length": 9, "output_length": 1, "hash_ids": [0]}\n'
                '{"timestamp": 4250, "input_length": 9, "output_length": 1, "hash_ids": [0]}\n'
            ),
        ),
    ],
)
def test_replay_reads_the_times_of_published_traces(tmp_path, name, content) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode())
    assert arrivals_of(
        ADAPTER.validate_python({"kind": "replay", "file": file}), 0
    ) == pytest.approx([0.0, 1.25])
    with pytest.raises(
        ValidationError, match=r"cannot be read: .*leave out holds and unit"
    ):
        ADAPTER.validate_python({"kind": "replay", "file": file, "unit": "ms"})


def test_replay_takes_gaps_in_microseconds_as_perf_analyzer_writes_them(
    tmp_path,
) -> None:
    file = tmp_path / "gaps"
    file.write_text("1000\n2000\n3000\n")
    replay = ADAPTER.validate_python(
        {"kind": "replay", "file": file, "holds": "gaps", "unit": "us"}
    )
    assert arrivals_of(replay, 0) == pytest.approx([0.001, 0.003, 0.006])


def test_a_recording_without_gaps_is_a_burst_within_one_second(tmp_path) -> None:
    file = tmp_path / "times.txt"
    file.write_text("5\n" * 40)
    [phase] = ADAPTER.validate_python({"kind": "replay", "file": file}).phases()
    assert (phase.end_seconds, phase.requests_per_second) == (1.0, 40.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "poisson", "requests_per_second": 0}, "greater than 0"),
        ({"kind": "walk"}, "'poisson'"),
        ({"kind": "poisson", "rate": 3}, "Extra inputs are not permitted"),
        (
            {"kind": "poisson", "requests_per_second": 1e6, "duration_seconds": 3600},
            f"want at most {MAX_REQUESTS:,}",
        ),
        (
            {"kind": "spike", "duration_seconds": 10},
            "want a peak that ends within the run",
        ),
        ({"kind": "replay", "file": "/nowhere/times"}, "No such file"),
        ({"kind": "on_off", "on_seconds": 1e-6, "off_seconds": 1e-6}, "want at most"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_profile_that_cannot_be_says_what_would_be_right(values, said) -> None:
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python(values)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("times.txt", "1\n3\n2\n", "after entry 2"),
        ("times.txt", "1\nnan\n", "after entry 1"),
        ("times.txt", "1e400\n", "not finite"),
        ("times.txt", "", "shape (0,)"),
        ("times.txt", "one\n", "which cannot be read"),
        ("times.npy", "", "which cannot be read"),
        ("times.npy", "PK\x03\x04 no archive", "which cannot be read"),
        ("times.json", '[{"a": 1}]', "which cannot be read"),
        ("times.json", "[1, [2]]", "which cannot be read"),
        ("times.json", f"[1{'0' * 400}]", "which cannot be read"),
        ("times.json", "[" * 100_000, "which cannot be read"),
    ],
)
def test_a_recording_that_is_none_is_refused(tmp_path, name, content, said) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ValidationError, match="found") as caught:
        ADAPTER.validate_python({"kind": "replay", "file": file})
    assert said in str(caught.value)


def test_a_recording_without_a_request_within_the_limit_is_refused(tmp_path) -> None:
    file = tmp_path / "gaps.txt"
    file.write_text("5\n6\n")
    given = {"kind": "replay", "file": file, "holds": "gaps", "limit_seconds": 1}
    with pytest.raises(ValidationError, match="found no request within 1 s"):
        ADAPTER.validate_python(given)


@pytest.mark.parametrize(
    ("arrivals", "told"),
    [
        ([], "found no arrivals"),
        ([[0.0, 1.0]], "found no arrivals"),
        ([0.0, 2.0, 1.0], "go backwards after number [1]"),
        ([-1.0, 0.0], "from -1 s to 0 s"),
        ([0.0, np.nan], "want finite times"),
        ([0.0, 1e9], "to 1e+09 s"),
        (np.zeros(plan.MAX_REQUESTS + 1), "at most 5000000"),
    ],
)
def test_what_is_no_schedule_is_refused_with_what_was_found(arrivals, told) -> None:
    with pytest.raises(PlanError) as refused:
        plan.checked(arrivals)
    assert told in str(refused.value)


@given(st.integers(1, 7), st.integers(1, 500), st.integers(0, 2**32))
def test_the_shares_of_all_workers_are_the_schedule(workers, count, seed) -> None:
    arrivals = np.arange(count) / 10
    shares = [plan.share(arrivals, w, workers, seed=seed) for w in range(workers)]
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(count))


def test_a_share_of_a_poisson_process_is_one_of_a_part_of_the_rate() -> None:
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(1e-3, size=200_000))
    for worker in range(4):
        mine = arrivals[plan.share(arrivals, worker, 4, seed=11)]
        gaps = np.diff(mine)
        assert gaps.mean() == pytest.approx(4e-3, rel=0.02)
        assert 0.98 <= gaps.std() / gaps.mean() <= 1.02


def test_a_worker_that_there_is_not_has_no_share() -> None:
    with pytest.raises(PlanError, match="worker 2 of 2"):
        plan.share(np.arange(3.0), 2, 2, seed=1)


def test_the_mix_is_drawn_by_weight_and_the_same_for_the_same_seed() -> None:
    drawn = plan.entries(100_000, [3, 1], seed=3)
    assert np.mean(drawn == 0) == pytest.approx(0.75, abs=0.01)
    assert np.array_equal(drawn, plan.entries(100_000, [3, 1], seed=3))
    assert not np.array_equal(drawn, plan.entries(100_000, [3, 1], seed=4))


@pytest.mark.triton
def test_a_scenario_sends_the_schedule_of_its_profile_and_seed(
    loaded, mix_of, target_of
) -> None:
    target = target_of(loaded, "grpc")
    scenario = Scenario.model_validate(
        {
            "target": {"address": target.address},
            "models": [{"model": "double"}],
            "profile": {"kind": "steps", "steps": 3, "step_seconds": 0.2},
            "seed": 5,
        }
    )
    requests = execute(scenario, mix_of(target, "double")).requests
    assert np.array_equal(requests.intended, arrivals_of(scenario.profile, 5))
    assert requests.count(Outcome.OK) == len(requests) > 0
