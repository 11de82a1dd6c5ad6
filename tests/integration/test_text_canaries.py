"""The text of a prompt and of an answer that taps receive is nowhere but in their numbers."""

from __future__ import annotations

import http.client
import json

from fake_triton import FakeModel, FakeTensor, FakeTriton
from mirror_bodies import RESPONSE, request, response, tensor
from monitoring import free_port

CANARY = "canary-4711"
PAGES = ("/", "/api/v1/status", "/metrics")
LLM = FakeModel(
    "llm",
    inputs=(FakeTensor("text_input", "BYTES", (1,)),),
    outputs=(
        FakeTensor("text_output", "BYTES", (1,)),
        FakeTensor("finish_reason", "BYTES", (1,)),
    ),
    max_batch_size=0,
    responses=2,
)


def bodies(number: int):
    """Each road of a text to the taps: path, headers and body."""
    text = f"{CANARY} {number}"
    event = {"ce-specversion": "1.0", "ce-id": "e", "ce-source": "/"}
    event["ce-inferenceservicename"] = "llm"
    asked = event | {"ce-type": "org.kubeflow.serving.inference.request"}
    answered = event | {"ce-type": RESPONSE}
    chat = {"model": "llm", "messages": [{"role": "user", "content": text}]}
    prompt = json.dumps({"model": "llm", "prompt": text}).encode()
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    answer = json.dumps({"model": "llm", "choices": [choice]}).encode()
    chunk = json.dumps({"model": "llm", "choices": [delta]}).encode()
    inputs = request(tensor("text_input", (1,), "BYTES", [text]))
    outputs = response(
        tensor("text_output", (1,), "BYTES", [text]),
        tensor("finish_reason", (1,), "BYTES", ["stop"]),
    )
    yield "/v1/chat/completions", {}, json.dumps(chat).encode()
    yield "/v1/completions", {}, prompt
    yield "/v2/models/llm/infer", {}, inputs
    generate = json.dumps({"text_input": text, "stream": True}).encode()
    generated = json.dumps({"text_output": text, "finish_reason": "stop"}).encode()
    yield "/v2/models/llm/generate", {}, generate
    yield "/v2/models/llm/versions/1/generate_stream", {}, generate
    yield "/", asked, generate
    yield "/", answered, generated
    yield "/", answered, b"data: " + generated + b"\n\n"
    yield "/", asked, json.dumps(chat).encode()
    yield "/", answered, answer
    yield "/", answered, b"data: " + chunk + b"\n\ndata: [DONE]\n\n"
    yield "/", answered, outputs
    # What cannot be read is not quoted either.
    yield (
        "/v2/models/llm/generate",
        {},
        json.dumps({"text_input": [{text: 1}]}).encode(),
    )
    yield "/v2/models/llm/generate_stream", {}, json.dumps({text: text}).encode()
    yield "/", answered, b"data: " + generated[:-1] + b"\n\n"
    yield "/v1/chat/completions", {}, json.dumps({**chat, "model": text}).encode()
    yield "/v1/completions", {}, prompt.replace(b'"prompt"', b'"proompt"')
    yield "/v1/chat/completions", {}, prompt[:-1]
    yield "/", answered, b"data: " + chunk + b"\n\n" + b"data: " + chunk[:-1]
    yield "/", answered, b"data: " + chunk.replace(b"{", CANARY.encode()) + b"\n\n"


def test_no_text_of_the_taps_is_shown_logged_or_kept(settings, start_sidecar, tmp_path):
    state, tap = tmp_path / "state", free_port()
    learn = {"learn": {"rows": 500, "seconds": 1}, "state": str(state)}
    learn["window"] = {"rows": 1, "seconds": 1}
    reason = {"name": "finish_reason", "tensor": "finish_reason"}
    unlimited = {"samples_per_second": 1e5, "max_samples_per_second": 1e5}
    with FakeTriton([LLM]) as fake:
        sidecar = start_sidecar(
            settings(
                fake,
                listen={"address": "127.0.0.1", "port": 0, "tap": {"port": tap}},
                collectors=[
                    {"kind": "server", "interval_seconds": 0.5},
                    {"kind": "mirror", "interval_seconds": 0.2, **unlimited},
                ],
                drift=[
                    {**learn, "text": ["text_input"], "export_bins": ["*"]},
                    {
                        **learn,
                        "side": "outputs",
                        "text": ["text_output"],
                        "features": [reason],
                    },
                ],
                probes=[],
                log={"level": "debug"},
            )
        )
        number = 0

        def watched(page):
            nonlocal number
            for _ in range(100):
                for path, headers, body in bodies(number):
                    post(tap, path, headers, body)
                number += 1
            states = page.label("triton_drift_state_info", "state")
            return states == {"watching"} and page.all("triton_drift_rows_total")

        page = sidecar.wait(watched, 60)
        for source in ("openai", "http", "cloudevents"):
            assert page.sum("tritonwatch_tap_samples_total", source=source) > 0
        for path in PAGES:
            assert CANARY not in sidecar.get(path).text, path
        assert sidecar.end()[0] == 0
    assert CANARY not in sidecar.log
    kept = [path for path in state.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if CANARY.encode() in path.read_bytes()]


def post(port: int, path: str, headers: dict[str, str], body: bytes) -> None:
    """Send one body to the tap; what cannot be read is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"content-type": "application/json", **headers}
    connection.request("POST", path, body, headers)
    assert CANARY.encode() not in connection.getresponse().read()
    connection.close()
