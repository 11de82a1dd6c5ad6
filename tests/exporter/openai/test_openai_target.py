"""A sidecar beside an OpenAI-compatible server: state, models, probes, its metrics, objectives."""

from __future__ import annotations

import json
import ssl

import numpy as np
import pytest
from openai_server import DONE, OpenAiServer, Scripted, Write, delta
from scripted_vllm import PAGE, ScriptedVllm
from surfaces import config_of, serving
from tls_terminator import Authority

from exporter.cli import main

PROBE = {
    "kind": "synthetic",
    "interval_seconds": 0.3,
    "timeout_seconds": 2,
    "max_first_response_seconds": 1,
    "max_gap_seconds": 0.2,
}
COLLECTORS = [
    {"kind": "server", "interval_seconds": 0.2},
    {"kind": "backend_page", "interval_seconds": 0.2},
]
KEY = {"model": "chatty"}


def watching(llm, **settings):
    """A sidecar beside it."""
    known = {"collectors": COLLECTORS, "probes": [PROBE], "power": None}
    return serving(target=llm.target(), **known | settings)


@pytest.fixture
def llm():
    with ScriptedVllm() as llm:
        llm.serve_others(50)
        yield llm


def probes(answer, outcome):
    [number] = answer.values("triton_probe_total", outcome=outcome, **KEY)
    return number


def is_probed(answer, number=3):
    found = answer.values("triton_probe_total", outcome="ok", **KEY)
    return found and found[0] >= number


async def test_it_is_up_and_its_model_serves(llm):
    async with watching(llm) as served:
        page = await served.until(is_probed)
    assert page.values("triton_up") == page.values("triton_ready") == [1]
    assert page.values("triton_server_info", server="vllm", version="0.11.2") == [1]
    assert page.values("triton_model_ready", **KEY) == [1]
    assert page.values("triton_model_serving", **KEY) == [1]
    [ok] = page.values("triton_probe_total", outcome="ok", protocol="http", **KEY)
    first = page.values("triton_probe_first_response_seconds_count", **KEY)
    assert (
        first == page.values("triton_probe_response_gap_seconds_count", **KEY) == [ok]
    )
    assert page.values("tritonwatch_collector_success") == [1] * 4
    assert page.values("triton_requests_total") == []


async def test_its_own_metrics_are_passed_on_and_tokens_of_probes_are_not_productions(
    llm,
):
    async with watching(llm) as served:
        await served.until(is_probed)
        llm.serve_others(10)
        page = await served.until(
            lambda a: a.values("triton_tokens_total", direction="output", **KEY) == [20]
        )
        page = await served.until(lambda a: is_probed(a, 8))
        assert page.values("triton_tokens_total", direction="output", **KEY) == [20]
        assert page.values("triton_tokens_total", direction="input", **KEY) == [90]
    expected = {
        "triton_backend_requests_running": 4,
        "triton_backend_requests_waiting": 2,
        "triton_backend_kv_cache_usage_ratio": 0.75,
        "triton_backend_preemptions_total": 7,
        "triton_backend_prefix_cache_queries_total": 100,
        "triton_backend_prefix_cache_hits_total": 60,
    }
    for name, value in expected.items():
        assert page.values(name) == [value], name
    assert page.values("triton_own_requests_tokens_unknown_total") == [0, 0]


async def test_tokens_of_probes_of_adapters_are_those_of_the_one_name_on_the_page(llm):
    listed = {"data": [{"id": "chatty"}, {"id": "adapter"}]}
    llm.server.pages["/v1/models"] = 200, json.dumps(listed).encode()

    def output(answer):
        return answer.values("triton_tokens_total", direction="output")

    async with watching(llm) as served:
        await served.until(is_probed)
        llm.serve_others(10)
        await served.until(lambda a: output(a) == [20])
        # The adapter is removed; what our probes of it took stays ours.
        listed["data"].pop()
        llm.server.pages["/v1/models"] = 200, json.dumps(listed).encode()
        await served.until(lambda a: len(a.values("triton_model_ready")) == 1)
        before = llm.answered
        page = await served.until(lambda _: llm.answered > before + 4)
    assert output(page) == [20]
    assert page.values("triton_tokens_total", model="adapter") == []


async def test_a_stream_that_stalls_is_slow_and_serves(llm):
    llm.pause = 0.4
    async with watching(llm) as served:
        page = await served.until(lambda a: a.values("triton_model_serving", **KEY))
        assert page.values("triton_model_serving", **KEY) == [1]
        status = json.loads((await served.ask("/api/v1/status")).text)
    assert probes(page, "stalled") >= 1
    assert probes(page, "ok") == 0
    [model] = status["models"]
    assert (model["state"], status["server"]["name"]) == ("SLOW", "vllm")
    assert status["target"]["url"] == f"http://{llm.server.address}"


async def test_a_server_that_refuses_with_429_is_busy_and_serves(llm):
    llm.status = 429
    async with watching(llm) as served:
        page = await served.until(lambda a: a.values("triton_model_serving", **KEY))
    assert page.values("triton_model_serving", **KEY) == [1]
    assert page.values("triton_probe_success", **KEY) == []
    assert probes(page, "backlog") >= 1
    # It did not begin: nobody is to wait for its tokens.
    assert set(page.values("triton_own_requests_tokens_unknown_total")) <= {0}


@pytest.mark.parametrize(
    ("status", "outcome", "serving", "state"),
    [(401, "configuration", [], "UNKNOWN"), (500, "model_error", [0], "DOWN")],
)
async def test_a_refusal_is_a_failure_unless_our_key_is_what_it_refuses(
    llm, status, outcome, serving, state
):
    llm.status = status
    async with watching(llm) as served:
        page = await served.until(
            lambda a: max(a.values("triton_probe_total", outcome=outcome), default=0)
        )
        document = json.loads((await served.ask("/api/v1/status")).text)
    assert page.values("triton_model_serving", **KEY) == serving
    assert document["models"][0]["state"] == state
    told = [f["text"] for f in document["findings"]]
    assert any("target.headers" in text for text in told) == (not serving)


async def test_a_server_that_loads_is_up_and_not_ready(llm):
    async with watching(llm) as served:
        await served.until(is_probed)
        llm.status = 503
        llm.server.pages |= {"/health": (503, b""), "/v1/models": (503, b"")}
        page = await served.until(lambda a: a.values("triton_ready") == [0])
        assert page.values("triton_up") == [1]
        page = await served.until(lambda a: a.values("triton_model_serving") == [0])
        assert probes(page, "unavailable") >= 1


async def test_a_server_that_is_gone_is_down(llm):
    async with watching(llm) as served:
        await served.until(is_probed)
        llm.server.__exit__()
        page = await served.until(lambda a: a.values("triton_up") == [0])
        status = json.loads((await served.ask("/api/v1/status")).text)
    assert page.values("triton_ready") == [0]
    [finding] = status["findings"]
    assert (finding["subject"], finding["text"]) == ("vllm", "does not answer")


async def test_objectives_judge_probes_and_what_its_page_reports(llm):
    llm.pause = 0.15
    slos = [
        {"kind": "preset", "name": "chat", "preset": "chat", "source": "probes"},
        {
            "name": "up",
            "kind": "availability",
            "source": "probes",
            "objective_ratio": 0.9,
        },
        {
            "name": "cache",
            "kind": "signal",
            "metric": "triton_backend_kv_cache_usage_ratio",
            "at_most": 0.5,
            "objective_ratio": 0.9,
        },
    ]
    async with watching(llm, slos=slos) as served:

        def is_judged(answer):
            late = answer.values(
                "triton_slo_events_total", slo="chat-response-gap", outcome="bad"
            )
            return late and late[0] > 2

        page = await served.until(is_judged)

    def events(slo, outcome):
        return page.values("triton_slo_events_total", slo=slo, outcome=outcome)[0]

    assert (events("up", "good") > 2, events("up", "bad")) == (True, 0)
    # The gaps are 0.15 s, three times as long as the preset allows; the first comes at once.
    # A busy machine reads some later than they came.
    for slo, more, fewer in (
        ("first-response", "good", "bad"),
        ("response-gap", "bad", "good"),
    ):
        assert events(f"chat-{slo}", more) > 2 * events(f"chat-{slo}", fewer)
    assert events("cache", "bad") >= 1


async def test_a_control_chart_watches_what_its_page_reports(llm):
    signal = {
        "name": "cache",
        "metric": "triton_backend_kv_cache_usage_ratio",
        "every_seconds": 1,
        "baseline": {"mean": 0.1, "sigma": 0.01},
    }
    spc = {"kind": "spc", "interval_seconds": 0.5, "signals": [signal]}
    async with watching(llm, collectors=[*COLLECTORS, spc]) as served:
        await served.until(lambda a: 1 in a.values("triton_spc_alarm", signal="cache"))


@pytest.mark.parametrize(
    ("checks", "score"),
    [
        ([], 0.5),
        ([{"kind": "regex", "output": "text", "pattern": "^Guten (Tag|Morgen)$"}], 1),
        ([{"kind": "json_schema", "output": "text", "definition": {}}], 0),
    ],
)
async def test_golden_prompts_are_compared_with_the_answers(
    llm, tmp_path, checks, score
):
    rows = 2
    columns = {
        "prompt": np.array([["hello"], ["bye"]], object),
        "max_tokens": np.full((rows, 1), 32, np.int32),
    }
    np.savez(
        tmp_path / "prompts.npz",
        prompt=columns["prompt"].astype(str),
        max_tokens=columns["max_tokens"],
        **{"expected:text": np.array([["Guten Tag"], ["Auf Wiedersehen"]])},
    )
    golden = {
        "kind": "golden",
        "data": {"file": str(tmp_path / "prompts.npz"), "checks": checks},
        "interval_seconds": 0.1,
        "idle_requests_per_second": 20,
        "idle_busy_ratio": 1,
    }
    async with watching(llm, probes=[golden]) as served:
        page = await served.until(
            lambda a: a.values("triton_golden_score_ratio", metric="match")
        )
    assert page.values("triton_golden_score_ratio", metric="match") == [score]
    asked = [b for _, b in llm.server.asked if b["max_tokens"] == 32]
    assert {b["messages"][0]["content"] for b in asked} == {"hello", "bye"}


async def test_headers_go_to_the_server_and_to_no_other(llm):
    key = "Bearer canary"
    with OpenAiServer(lambda *_: Scripted([])) as other:
        other.pages["/metrics"] = 200, PAGE % (0, 0)
        target = llm.target(
            headers={"Authorization": key}, metrics=f"http://{other.address}/metrics"
        )
        async with serving(
            target=target, collectors=COLLECTORS, probes=[PROBE], power=None
        ) as served:
            page = await served.until(
                lambda a: is_probed(a) and a.values("triton_backend_requests_running")
            )
    assert page.values("triton_backend_requests_running") == [4]
    assert {h.get("authorization") for h in llm.server.headers} == {key.lower()}
    assert {h.get("authorization") for h in other.headers} == {None}


async def test_a_page_of_the_same_server_gets_the_headers(llm):
    key = "bearer canary"
    target = llm.target(headers={"Authorization": key})
    async with serving(
        target=target, collectors=COLLECTORS, probes=[], power=None
    ) as served:
        await served.until(lambda a: a.values("triton_backend_requests_running"))
    assert {h.get("authorization") for h in llm.server.headers} == {key}


async def test_a_server_with_tls_is_watched_by_those_who_trust_its_authority(tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate = authority.sign("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    words = b"".join((delta(content="Guten"), DONE))
    with OpenAiServer(lambda *_: Scripted([Write(words)]), tls=tls) as server:
        url = f"https://localhost:{server.address.rpartition(':')[2]}"
        target = {"kind": "openai", "url": url}
        for files, is_up in (({"ca_file": str(authority.file)}, 1), ({}, 0)):
            async with serving(
                target={**target, "tls": files}, collectors=COLLECTORS, probes=[PROBE]
            ) as served:
                page = await served.until(lambda a: a.values("triton_up"))
                assert page.values("triton_up") == [is_up]
                if is_up:
                    await served.until(is_probed)


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "--duration", "1"),
        ("compare", "--champion", "a:1", "--challenger", "b:1"),
        ("coldstart", "--model", "a"),
    ],
    ids=lambda command: command[0],
)
def test_commands_that_need_triton_say_so(tmp_path, command, capsys):
    file = tmp_path / "config.yaml"
    file.write_text("target: {kind: openai, url: http://localhost:1}")
    assert main([*command, "--config", str(file)]) == 2
    wanted = f"target.kind: found 'openai'; `{command[0]}` needs a Triton"
    assert wanted in capsys.readouterr().err


def test_golden_answers_are_recorded(llm, tmp_path):
    config, prompts = tmp_path / "config.yaml", tmp_path / "prompts.npz"
    config.write_text(f"target: {{kind: openai, url: http://{llm.server.address}}}")
    np.savez(prompts, prompt=np.array([["hello"]]))
    output = tmp_path / "recorded.npz"
    arguments = ["--config", str(config), "--model", "chatty", "--output", str(output)]
    assert main(["golden", "record", "--data", str(prompts), *arguments]) == 0
    with np.load(output, allow_pickle=True) as recorded:
        assert recorded["expected:text"].tolist() == [[b"Guten Tag"]]


def test_defaults_of_probes_and_collectors():
    config = config_of(
        {"kind": "openai", "url": "https://llm"},
        collectors=[],
        probes=[{"kind": "synthetic"}],
    )
    [probe] = config.all_probes()
    assert (probe.timeout_seconds, probe.interval_seconds) == (10, 15)
    kinds = {c.kind for c in config.all_collectors()}
    assert kinds == {"server", "backend_page", "process"}
