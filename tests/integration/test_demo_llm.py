"""The demo's language model on the real Triton: its times are those its formulas give."""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import urllib3
from slow_llm import (
    CACHE,
    DECODE,
    DECODE_REQUEST,
    PLACES,
    PREFILL,
    PREFILL_TOKEN,
    metric,
    slow_llm,
)

from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton

TRIES = 40
"""A busy machine can only be slower than the formula: one of these is as fast as it."""


@pytest.fixture(scope="module")
def server(triton_environment, tmp_path_factory):
    folder = slow_llm(tmp_path_factory.mktemp("models"))
    with EmbeddedTriton(folder, environment=triton_environment) as started:
        yield started


class Answer:
    """One streamed answer: when it was asked for, when its events came, and their data."""

    def __init__(self, server, prompt, *, leave_after=0, **sampling):
        self.times = [time.monotonic()]
        self.events = []
        body = {
            "text_input": prompt,
            "stream": True,
            "sampling_parameters": json.dumps(sampling),
        }
        with urllib3.PoolManager() as pool:
            self.reply = pool.request(
                "POST",
                f"http://{server.http}/v2/models/llm/generate_stream",
                json=body,
                preload_content=False,
                timeout=60,
            )
            # Events that are read together have the same time.
            for part in self.reply.stream():
                for line in part.split(b"\n\n"):
                    if line.strip():
                        self.events.append(json.loads(line.removeprefix(b"data: ")))
                        self.times.append(time.monotonic())
                if len(self.events) == leave_after > 0:
                    self.reply.close()
                    break

    @property
    def first(self):
        return self.times[1] - self.times[0]

    @property
    def gaps(self):
        return [after - before for before, after in pairwise(self.times[1:])]

    @property
    def text(self):
        return "".join(event["text_output"] for event in self.events)


def prompt_of(tokens):
    return " ".join(["word"] * tokens)


def burst(server, number, *, prompt_tokens, tokens):
    """Answers to requests that are sent at once, in the order of their first tokens."""
    with ThreadPoolExecutor(number) as pool:
        asked = [
            pool.submit(
                Answer,
                server,
                prompt_of(prompt_tokens),
                max_tokens=tokens,
                ignore_eos=True,
            )
            for _ in range(number)
        ]
        return sorted((one.result() for one in asked), key=lambda one: one.first)


def assert_takes(measured, least, most):
    """`measured` is a function: never faster than `least` seconds, once as fast as `most`.

    Only times since a request was sent are held to a least one: a busy client reads late,
    which makes the times between two readings shorter.
    """
    found = []
    while len(found) < TRIES and not any(one <= 1.1 * most for one in found):
        found.append(measured())
    assert min(found) >= 0.97 * least, found
    assert min(found) <= 1.1 * most, found


def test_who_finds_no_place_waits_for_one_and_is_counted_as_waiting(server):
    tokens = 40

    def measured():
        answers = burst(server, 2 * PLACES, prompt_tokens=100, tokens=tokens)
        # From the first request on: a busy client sends the last ones later.
        began = min(answer.times[0] for answer in answers)
        return statistics.mean(answer.times[1] - began for answer in answers[PLACES:])

    prefill = PREFILL + PLACES * 100 * PREFILL_TOKEN
    least = 2 * prefill + (tokens - 1) * (DECODE + PLACES * DECODE_REQUEST)
    assert_takes(measured, least, least + PREFILL + DECODE + DECODE_REQUEST)


def test_a_full_cache_lets_only_so_many_run(server):
    prompt, tokens = 900, 100
    running = CACHE // (prompt + tokens)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(burst, server, PLACES, prompt_tokens=prompt, tokens=tokens)
        seen = []
        while not asked.done():
            seen.append(
                tuple(
                    metric(server, name)
                    for name in (
                        "num_requests_running",
                        "num_requests_waiting",
                        "kv_cache_usage_perc",
                    )
                )
            )
        answers = asked.result()
    assert (running, PLACES - running, 1.0) in seen
    assert max(row[0] for row in seen) == running
    assert all(len(answer.events) == tokens for answer in answers)
    assert answers[running].first > answers[0].times[-1] - answers[0].times[0]


def test_beginnings_that_came_before_are_hits_of_the_prefix_cache(server):
    names = "prefix_cache_queries_total", "prefix_cache_hits_total"
    before = [metric(server, name) for name in names]
    system = " ".join(f"rule{number}" for number in range(35))
    for question in ("why so", "when it ends"):
        Answer(server, f"{system} {question}", max_tokens=1)
    after = [metric(server, name) for name in names]
    # Of 35 tokens in common two blocks of 16 are whole.
    assert [new - old for old, new in zip(before, after, strict=True)] == [75, 32]
    assert metric(server, "num_preemptions_total") == 0


def test_an_answer_ends_with_a_sentence_or_where_it_must(server):
    whole = Answer(server, "why is it slow", max_tokens=60)
    assert whole.text.endswith(".")
    assert [event["finish_reason"] for event in whole.events][-2:] == ["", "stop"]
    again = Answer(server, "why is it slow", max_tokens=60)
    assert again.text == whole.text
    cut = Answer(server, "why is it slow", max_tokens=2)
    assert whole.text.startswith(cut.text)
    assert [event["finish_reason"] for event in cut.events] == ["", "length"]


def test_without_a_stream_the_whole_answer_is_one_response(server):
    whole = Answer(server, "why is it slow", max_tokens=60)
    reply = urllib3.request(
        "POST",
        f"http://{server.http}/v2/models/llm/generate",
        json={
            "text_input": "why is it slow",
            "sampling_parameters": json.dumps({"max_tokens": 60}),
        },
        timeout=20,
    )
    assert reply.json()["text_output"] == whole.text
    assert reply.json()["num_output_tokens"] == len(whole.events)


def test_who_leaves_gives_his_place_to_the_next(server):
    counted = metric(server, "generation_tokens_total")
    left = Answer(server, "word", leave_after=3, max_tokens=CACHE - 1, ignore_eos=True)
    assert len(left.events) == 3
    # It held the whole cache: the next one is admitted once it has gone.
    assert len(Answer(server, "word", max_tokens=2, ignore_eos=True).events) == 2
    assert metric(server, "generation_tokens_total") - counted < 100


def test_a_request_that_never_fits_is_refused_with_the_reason(server):
    for sampling in ({"max_tokens": CACHE}, {"max_tokens": 0}):
        answer = Answer(server, "word", **sampling)
        assert answer.reply.status == 400
        assert f"a cache of {CACHE}" in answer.events[0]["error"]
    assert metric(server, "num_requests_running") == 0
