"""/probe: which targets, how many at once, by what deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import numpy as np
import pytest
from fake_triton import INTERNAL, FakeModel, FakeTriton, Filled, Hung, Slow
from monitoring import free_port
from surfaces import serving
from waiting import patience

ALLOWED = {"allow": ["127.0.0.1:*", "[::1]:1"], "max_concurrent": 2}


async def test_a_target_on_the_list_is_looked_at():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(multi_target=ALLOWED) as served:
            answer = await served.ask(f"/probe?target={fake.grpc}&http={fake.http}")
            # What is probed there is not what is watched here.
            await served.until(lambda a: a.values("triton_up") == [0])
    assert answer.status == 200
    assert answer.values("probe_success") == [1]
    assert answer.values("probe_models_judged") == [1]
    assert answer.values("probe_models_unjudged") == [0]
    assert answer.values("triton_probe_success", protocol="grpc", model="m") == [1]
    assert answer.values("triton_probe_success", protocol="http", model="m") == [1]
    assert answer.values("probe_duration_seconds")[0] > 0
    assert {r.protocol for r in fake.requests if r.operation == "infer"} == {
        "grpc",
        "http",
    }
    assert not any("authorization" in r.headers for r in fake.requests)


async def test_debug_shows_the_log_the_samples_and_the_settings():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Filled(0))
        probes = [{"kind": "synthetic", "name": "strict", "checks": ["all_zero"]}]
        async with serving(multi_target=ALLOWED, probes=probes) as served:
            path = f"/probe?target={fake.grpc}&module=strict&debug=true"
            answer = await served.ask(path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert f"server {fake.grpc}: up, 1 ready models" in answer.text
    assert "model m version 1 over grpc: bad_output" in answer.text
    assert "over http" not in answer.text
    assert "probe_success 0.0" in answer.text
    assert '"all_zero"' in answer.text


async def test_a_target_is_asked_golden_samples(tmp_path):
    file = tmp_path / "set.npz"
    np.savez(file, input=np.zeros((2, 4), np.float32), label=np.zeros(2, int))
    data = {"file": str(file), "label": "label"}
    with FakeTriton([FakeModel("m")]) as fake:
        probes = [{"kind": "golden", "name": "right", "data": data}]
        async with serving(multi_target=ALLOWED, probes=probes) as served:
            path = f"/probe?target={fake.grpc}&module=right&debug=true"
            answer = await served.ask(path)
    assert answer.status == 200
    assert "model m version 1 over grpc: " in answer.text


async def test_a_target_that_is_away_is_no_success():
    async with serving(multi_target=ALLOWED) as served:
        answer = await served.ask(f"/probe?target=127.0.0.1:{free_port()}")
    assert answer.status == 200
    assert answer.values("probe_success") == answer.values("triton_up") == [0]


@pytest.mark.parametrize("operation", ["server_ready", "repository_index"])
async def test_a_target_that_answers_and_does_not_tell_its_models_is_no_success(
    operation,
):
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on(operation).reply(INTERNAL)
        async with serving(start=False, multi_target=ALLOWED) as served:
            answer = await served.ask(f"/probe?target={fake.grpc}")
            told = await served.ask(f"/probe?target={fake.grpc}&debug=true")
    assert (answer.status, answer.values("probe_success")) == (200, [0])
    assert answer.values("triton_up") == [1]
    assert "INTERNAL" in told.text


REFUSED = [
    ("", 400, "found target=''; want \"host:port\""),
    ("target=", 400, "found target=''"),
    ("target=localhost", 400, "found target='localhost'"),
    ("target=http://127.0.0.1:1", 400, 'want "host:port", like triton-0:8001'),
    ("target=127.0.0.1:0", 400, "found target='127.0.0.1:0'"),
    ("target=127.0.0.1:1%0a", 400, "found target='127.0.0.1:1\\n'"),
    ("target=evil%23127.0.0.1:1", 400, "found target='evil#127.0.0.1:1'"),
    ("target=x@127.0.0.1:1", 400, "found target='x@127.0.0.1:1'"),
    ("target=%ff:1", 400, "found target='\ufffd:1'"),
    ("target=10.0.0.1:8001", 403, "which multi_target.allow does not allow"),
    ("target=[::1]:2", 403, "which multi_target.allow does not allow"),
    ("target=127.0.0.1:1&http=10.0.0.1:1", 403, "found http='10.0.0.1:1'"),
    ("target=127.0.0.1:1&http=no", 400, "found http='no'"),
    ("target=127.0.0.1:1&target=10.0.0.1:1", 403, "found target='10.0.0.1:1'"),
    ("target=127.0.0.1:1&module=no", 400, "configured probes are synthetic"),
]


async def test_a_probe_that_is_not_carried_out_says_why():
    async with serving(start=False, multi_target=ALLOWED) as served:
        for query, status, told in REFUSED:
            answer = await served.ask(f"/probe?{query}")
            assert (query, answer.status) == (query, status)
            assert told in answer.text
            assert answer.text.count("\n") == 1


async def test_nothing_is_probed_where_nothing_is_allowed():
    async with serving(start=False) as served:
        assert (await served.ask("/probe?target=127.0.0.1:8001")).status == 403


async def test_an_open_list_allows_any_address():
    settings = {"open": True}
    async with serving(start=False, multi_target=settings) as served:
        answer = await served.ask(f"/probe?target=127.0.0.1:{free_port()}")
    assert (answer.status, answer.values("probe_success")) == (200, [0])


async def test_an_ipv6_address_can_be_allowed_as_it_is_written():
    async with serving(start=False, multi_target=ALLOWED) as served:
        answer = await served.ask("/probe?target=[::1]:1")
    assert (answer.status, answer.values("probe_success")) == (200, [0])


async def test_a_pattern_of_an_ipv6_address_is_no_choice_of_characters():
    async with serving(start=False, multi_target={"allow": ["[::1]:*"]}) as served:
        answer = await served.ask("/probe?target=[::1]:1")
        refused = [await served.ask(f"/probe?target={host}:1") for host in ("1", "::1")]
    assert (answer.status, answer.values("probe_success")) == (200, [0])
    assert [each.status for each in refused] == [403, 400]


async def test_without_any_probe_there_is_no_module():
    async with serving(start=False, multi_target=ALLOWED, probes=[]) as served:
        answer = await served.ask("/probe?target=127.0.0.1:1")
    assert (answer.status, "configured probes are none" in answer.text) == (400, True)


async def test_slow_probes_of_one_address_keep_no_other_out():
    other = "127.0.0.2"
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Slow(1.5))
        async with serving(start=False, multi_target=ALLOWED) as served:
            path = f"/probe?target={fake.grpc}"
            slow = [asyncio.create_task(served.ask(path)) for _ in range(9)]
            await asyncio.to_thread(fake.wait_for, "infer", count=2)
            honest = await served.ask(path, source=other)
            found = sorted([each.status for each in await asyncio.gather(*slow)])
    assert honest.status == 200
    assert found == [200] * 2 + [503] * 7


async def test_more_probes_at_once_than_allowed_are_refused_and_others_go_on():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Slow(1.5))
        async with serving(start=False, multi_target=ALLOWED) as served:
            path = f"/probe?target={fake.grpc}"
            under_way = [asyncio.create_task(served.ask(path)) for _ in range(2)]
            await asyncio.to_thread(fake.wait_for, "infer", count=2)
            refused = await served.ask(path)
            assert (await served.ask("/-/healthy")).status == 200
            assert [answer.status for answer in await asyncio.gather(*under_way)] == [
                200
            ] * 2
            assert (await served.ask(path)).status == 200
            assert served.sidecar.admission.web.refused["probes"] == 1
    assert refused.status == 503
    assert "the maximum of multi_target.max_concurrent" in refused.text


@pytest.mark.parametrize("seconds", ["1", "0.5", "1e-9"])
async def test_a_hung_target_is_answered_within_the_scrapes_own_timeout(seconds):
    header = {"x_prometheus_scrape_timeout_seconds": seconds}
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Hung())
        async with serving(start=False, multi_target=ALLOWED) as served:
            started = time.monotonic()
            answer = await served.ask(f"/probe?target={fake.grpc}", **header)
            assert time.monotonic() - started < patience(8)
    assert (answer.status, answer.values("probe_success")) == (200, [0])


@pytest.mark.parametrize("seconds", ["x", "-1", "0", "nan", "inf", "", "9" * 400])
async def test_a_scrape_timeout_that_is_none_is_not_used(seconds):
    header = {"x_prometheus_scrape_timeout_seconds": seconds}
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(start=False, multi_target=ALLOWED) as served:
            answer = await served.ask(f"/probe?target={fake.grpc}", **header)
    assert answer.values("probe_success") == [1]


@pytest.mark.parametrize("protocols", [["grpc", "http"], ["http"]])
async def test_a_model_with_an_unanswered_request_gets_no_second_one(protocols):
    """Triton executes both: each scrape of a slow model would make its queue longer."""
    header = {"x_prometheus_scrape_timeout_seconds": "9"}
    models = [FakeModel(name) for name in ("slow", "then_fails", "well")]
    probes = [{"kind": "synthetic", "protocols": protocols}]
    with FakeTriton(models) as fake:
        fake.on("infer", model="slow").reply(Hung())
        fake.on("infer", model="then_fails").reply(INTERNAL)
        async with serving(start=False, multi_target=ALLOWED, probes=probes) as served:
            path = f"/probe?target={fake.grpc}&http={fake.http}"
            for _ in range(3):
                answer = await served.ask(path, **header)
                assert answer.values("triton_probe_success", model="slow") == [0]
                assert answer.values("probe_success") == [0]
    asked = [r.model for r in fake.requests if r.operation == "infer"]
    number = len(protocols)
    assert Counter(asked) == {"slow": 1, "then_fails": 3 * number, "well": 3 * number}


async def test_a_model_that_answers_over_grpc_is_asked_again_over_http():
    header = {"x_prometheus_scrape_timeout_seconds": "9"}
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer", protocol="http").reply(Hung(), times=1)
        async with serving(start=False, multi_target=ALLOWED) as served:
            path = f"/probe?target={fake.grpc}&http={fake.http}"
            found = [
                (await served.ask(path, **header)).values("probe_success")
                for _ in range(2)
            ]
    assert found == [[0], [1]]


async def test_no_probe_under_way_holds_the_process_at_its_end():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("any").reply(Hung())
        async with serving(start=False, multi_target=ALLOWED) as served:
            task = asyncio.create_task(served.ask(f"/probe?target={fake.grpc}"))
            await asyncio.to_thread(fake.wait_for, "server_live")
            asking = [t for t in threading.enumerate() if "multi-target" in t.name]
            assert asking
            assert all(thread.daemon for thread in asking)
            task.cancel()
            await asyncio.wait({task})


async def test_a_model_that_was_not_judged_is_no_success():
    names = [f"m{number:02}" for number in range(20)]
    with FakeTriton([FakeModel(name) for name in names]) as fake:
        fake.on("model_metadata").reply(Slow(0.5))
        for name in names[3:]:
            fake.on("infer", model=name).reply(Hung())
        async with serving(multi_target=ALLOWED) as served:
            path = f"/probe?target={fake.grpc}"
            scrape = {"x_prometheus_scrape_timeout_seconds": "3"}
            answer = await served.ask(path, **scrape)
            log = await served.ask(f"{path}&debug=true", **scrape)
    assert answer.values("probe_success") == [0]
    [judged] = answer.values("probe_models_judged")
    [unjudged] = answer.values("probe_models_unjudged")
    assert judged + unjudged == 20
    assert unjudged > 0
    assert "not probed: its metadata could not be read in time" in log.text
