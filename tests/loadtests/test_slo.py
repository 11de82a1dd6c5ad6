"""Objectives as people write them, and which requests miss them."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.cli import main
from loadtests.errors import PlanError
from loadtests.load_objective import parse, parse_limits
from loadtests.report.objective_report import judged
from loadtests.result import Outcome, Requests


def made(*ended: tuple[Outcome, float]) -> Requests:
    requests = Requests.empty(len(ended))
    requests.intended[:] = np.arange(len(ended))
    requests.sent[:] = requests.intended
    for index, (outcome, seconds) in enumerate(ended):
        requests.outcome[index] = outcome
        requests.done[index] = requests.intended[index] + seconds
    return requests


def test_terms_have_shares_and_limits() -> None:
    slo = parse("p99<20ms, p99.9 <= 0.5s,errors<0.1%")
    assert slo.text == "p99<20ms,p99.9<0.5s,errors<0.1%"
    assert slo.allowed == pytest.approx([0.01, 0.001, 0.001])
    assert [term.limit_seconds for term in slo.terms] == [0.02, 0.5, None]
    assert slo.limit_seconds == 0.02
    assert parse("errors<0.002").allowed == pytest.approx([0.002])
    assert parse("P95<500us").limit_seconds == pytest.approx(5e-4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "want terms like p99<20ms"),
        ("fast", "want terms like p99<20ms"),
        ("p99<20", "no unit; want one of us, µs, ms, s, min"),
        ("p99<20parsecs", "unit 'parsecs'"),
        ("p100<20ms", "percentile between 0 and 100"),
        ("p0<20ms", "percentile between 0 and 100"),
        ("p99.9999999999999<1s", "percentile between 0 and 100"),
        ("p99<0ms", "limit above 0"),
        ("p99>20ms", "want terms like"),
        ("errors<100%", "between 0 % and 100 %"),
        ("errors<0", "between 0 % and 100 %"),
        ("p99<20ms,", "found ''"),
        ("p99<20ms,p99<20ms", "'p99<20ms' twice"),
    ],
)
def test_what_is_no_objective_says_what_would_be(text, said) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text)
    assert said in str(caught.value)
    assert "--slo" in str(caught.value)


def test_shed_lost_late_and_wrong_requests_all_miss() -> None:
    requests = made(
        (Outcome.OK, 0.010),
        (Outcome.OK, 0.020),
        (Outcome.OK, 0.021),
        (Outcome.ERROR, 0.001),
        (Outcome.WRONG, 0.001),
        (Outcome.TIMEOUT, 1.0),
        (Outcome.REJECTED, np.nan),
        (Outcome.UNSENT, np.nan),
    )
    misses = parse("p99<20.5ms,errors<0.1%").misses(requests)
    assert misses[:, 0].tolist() == [False, False, True, *[True] * 5]
    assert misses[:, 1].tolist() == [False, False, False, *[True] * 5]


def streamed(*rows: tuple[float, float, int, int, float]) -> Requests:
    """Right answers: seconds to the first and to the last response, how many responses,
    tokens, and the longest gap in seconds."""
    requests = made(*((Outcome.OK, last) for _, last, *_ in rows))
    for index, (first, _, responses, tokens, longest) in enumerate(rows):
        requests.first[index] = index + first
        requests.responses[index] = responses
        requests.tokens[index] = tokens
        requests.longest_gap[index] = longest
    return requests


def test_terms_of_streams_are_about_first_responses_tokens_and_stalls() -> None:
    slo = parse("TTFT_p99<500ms, itl_p95<50ms,stall_p50<=0.2s,p99<5s")
    assert slo.text == "ttft_p99<500ms,itl_p95<50ms,stall_p50<0.2s,p99<5s"
    # The sender's own delay is compared with limits that count from the intended send.
    assert slo.limit_seconds == 0.5
    assert parse("itl_p95<50ms").limit_seconds is None
    requests = streamed(
        (0.4, 0.8, 9, 0, 0.1),  # 50 ms a response
        (0.6, 0.8, 9, 0, 0.1),  # a late first response
        (0.4, 0.85, 9, 0, 0.1),  # 56 ms a response
        (0.4, 0.85, 9, 18, 0.3),  # two tokens a response: 26 ms a token; one stall
        (0.4, 0.4, 1, 1, np.nan),  # one token: no gap that could be long
        (np.nan, 0.3, 0, 0, np.nan),  # not streamed: unknown, and so a miss
    )
    assert slo.misses(requests).T.tolist() == [
        [False, True, False, False, False, True],
        [False, False, True, False, False, True],
        [False, False, False, True, False, True],
        [False] * 6,
    ]


def test_an_answer_is_awaited_until_it_misses_the_longest_limit() -> None:
    def seconds(slo: str) -> float | None:
        return parse(slo).whole_answer_seconds

    assert seconds("p50<20ms,p99.9<5s,errors<1%") == 5.0
    assert seconds("errors<1%") is None
    # A stream may go on for long after its first response.
    assert seconds("ttft_p99<500ms,itl_p95<50ms") is None
    assert seconds("ttft_p99<500ms,p99<20ms") is None


def test_a_failed_stream_misses_whatever_it_began_with() -> None:
    requests = streamed((0.1, 0.2, 3, 3, 0.01), (0.1, 0.2, 3, 3, 0.01))
    requests.outcome[0] = Outcome.TIMEOUT
    assert parse("ttft_p99<1s,itl_p9<1s").misses(requests).tolist() == [
        [True] * 2,
        [False] * 2,
    ]


def test_goodput_is_what_is_within_all_limits_at_once() -> None:
    limits = parse_limits("ttft<500ms, itl<=50ms,latency<1s")
    assert limits.text == "ttft<500ms,itl<50ms,latency<1s"
    requests = streamed(
        (0.4, 0.8, 9, 0, 0.1),
        (0.6, 0.8, 9, 0, 0.1),
        (0.4, 0.9, 9, 0, 0.1),
        (0.1, 1.2, 99, 0, 0.1),
    )
    assert limits.good(requests).sum() == 1
    requests.outcome[0] = Outcome.WRONG
    assert limits.good(requests).sum() == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "want limits like ttft<500ms of latency, ttft, itl, stall"),
        ("p99<20ms", "want limits like"),
        ("ttft<500", "no unit"),
        ("itl<0ms", "limit above 0"),
    ],
)
def test_what_is_no_limit_says_what_would_be(text, said) -> None:
    with pytest.raises(PlanError, match=said) as caught:
        parse_limits(text)
    assert "--goodput" in str(caught.value)


SINGLE = (0.1, 0.1, 1, 1, np.nan)
NOT_STREAMED = (np.nan, 0.1, 0, 0, np.nan)
STREAMED = (0.1, 0.2, 3, 3, 0.05)


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        ([SINGLE, SINGLE], ["", *["every answer had a single response or token"] * 2]),
        ([NOT_STREAMED] * 2, ["no answer was streamed"] * 3),
        ([SINGLE, STREAMED], [""] * 3),
        ([], ["no request was sent"] * 3),
    ],
    ids=["single", "not streamed", "streamed", "none"],
)
def test_what_no_answer_shows_is_not_measured_and_neither_met_nor_missed(
    rows, reasons
) -> None:
    slo = parse("ttft_p99<500ms,itl_p95<50ms,stall_p50<0.2s")
    results = [judged(term, streamed(*rows)) for term in slo.terms]
    assert [found.unmeasured for found in results] == reasons
    assert [found.passed for found in results] == [
        None if reason else True for reason in reasons
    ]
    assert [found.missed_ratio for found in results] == [
        None if reason else 0.0 for reason in reasons
    ]
    assert all(
        text in slo.unmeasured(streamed(*rows))
        for text, reason in zip(
            ("ttft_p99", "itl_p95", "stall_p50"), reasons, strict=True
        )
        if reason
    )


def test_failures_miss_a_term_that_no_answer_measured() -> None:
    requests = streamed(SINGLE, SINGLE, SINGLE)
    requests.outcome[0] = Outcome.TIMEOUT
    missed, unmeasured = (
        judged(term, requests) for term in parse("itl_p95<50ms,itl_p50<50ms").terms
    )
    assert missed.passed is False
    assert missed.missed_ratio == pytest.approx(1 / 3)
    assert unmeasured.passed is None
    requests.outcome[:] = Outcome.ERROR
    assert [
        judged(term, requests).passed for term in parse("itl_p95<50ms,p99<1s").terms
    ] == [False, False]


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("capacity", "goodput", "ttft<1s"),
        ("efficiency", "goodput", "ttft<1s"),
        ("efficiency", "slo", "p99<1s"),
        ("pair", "slo", "p99<1s"),
    ],
)
def test_limits_are_refused_where_nothing_judges_them(
    command, option, value, tmp_path, capfd
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["load", command, "--model", "m", f"--{option}", value])
    assert ended.value.code == 2
    assert f"unrecognized arguments: --{option}" in capfd.readouterr().err
    file = tmp_path / "scenario.yaml"
    file.write_text(f"models: [{{model: m}}]\n{option}: {value}\n", "utf-8")
    assert main(["load", command, "--scenario", str(file)]) == 2
    assert f"{option}: only `tritonwatch load run`" in capfd.readouterr().err
