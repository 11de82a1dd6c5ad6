"""What texts are about, by a real model that embeds them: new topics of the same form alarm."""

from __future__ import annotations

import http.client
import json
from contextlib import closing

import numpy as np
import pytest
from monitoring import free_port
from small_models import write_model
from streaming_models import ECHO, ECHO_CONFIG, write_embedder

from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton

RNG = np.random.default_rng(11)
OLD = [f"w{number:03}" for number in range(40)]
NEW = [f"k{number:03}" for number in range(40)]
CANARY = "canary-4711"


@pytest.fixture(scope="module")
def server(triton_environment, tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    # With the name that texts of OpenAI's bodies have.
    echo = (text.replace("said", "text_input") for text in (ECHO_CONFIG, ECHO))
    write_model(repository, "echo", *echo)
    write_embedder(repository)
    with EmbeddedTriton(repository, environment=triton_environment) as started:
        yield started


class Chats:
    """Prompts of eight words, mirrored in OpenAI's form."""

    def __init__(self, port: int) -> None:
        self._port = port

    def send(self, number: int, words: list[str]) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port)) as sending:
            for _ in range(number):
                said = " ".join([CANARY, *RNG.choice(words, 8)])
                chat = {
                    "model": "echo",
                    "messages": [{"role": "user", "content": said}],
                }
                sending.request("POST", "/v1/chat/completions", json.dumps(chat))
                sending.getresponse().read()


def config(settings, server, port):
    unlimited = {"samples_per_second": 1e5, "max_samples_per_second": 1e5}
    return settings(
        server,
        listen={"address": "127.0.0.1", "port": 0, "tap": {"port": port}},
        collectors=[
            {"kind": "server", "interval_seconds": 0.5},
            {"kind": "statistics", "interval_seconds": 0.5},
            {"kind": "mirror", "interval_seconds": 0.2, **unlimited},
        ],
        drift=[
            {
                "models": "echo",
                "learn": {"rows": 500, "seconds": 1},
                "window": {"rows": 50, "seconds": 1},
                "embedding": {
                    "model": "embedder",
                    "tensor": "text_input",
                    "texts_per_second": 100,
                },
            }
        ],
        probes=[],
    )


def state(page):
    return page.label("triton_drift_state_info", "state", side="input_embeddings")


def test_new_topics_alarm_and_no_text_is_shown(server, settings, start_sidecar):
    chats = Chats(port := free_port())
    sidecar = start_sidecar(config(settings, server, port))
    sidecar.wait(lambda page: state(page) == {"learning"})

    def learnt(page):
        chats.send(50, OLD)
        return state(page) == {"watching"}

    sidecar.wait(learnt, 120)

    def judged(page, words, alarm):
        chats.send(50, words)
        found = page.values("triton_model_drift_alarm", model="echo")
        rows = page.sum("triton_drift_rows_total", model="echo")
        return found == [alarm] and rows >= 100

    sidecar.wait(lambda page: judged(page, OLD, 0), 60)
    page = sidecar.wait(lambda page: judged(page, NEW, 1), 60)
    # They are our own requests.
    assert page.value("triton_own_requests_total", model="embedder", outcome="success")
    assert page.sum("triton_requests_total", model="embedder") == 0
    for path in ("/", "/metrics", "/api/v1/status"):
        assert CANARY not in sidecar.get(path).text
    assert sidecar.end()[0] == 0
    assert CANARY not in sidecar.log
