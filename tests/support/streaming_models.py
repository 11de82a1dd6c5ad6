"""Decoupled models, and clients that note when the responses of the scripted one came."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import urllib3
from small_models import write_model
from waiting import patience

from exporter.features.synthetic.synthetic_settings import SyntheticSettings
from exporter.network.grpc_core import grpc
from exporter.triton.kserve import service_pb2, service_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.collector_base import Access
    from exporter.access.probe_base import Verdict

TEXT: Final = "the cat sat on the mat"
STREAM: Final = Path(__file__).parents[1] / "data" / "models_streaming" / "stream"
"""Answers with a running mean: a response for each of the request's numbers."""
CONFIG: Final = """
backend: "python"
max_batch_size: 0
input [{ name: "sleeps" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "n" data_type: TYPE_INT32 dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
model_transaction_policy { decoupled: true }
"""
SCRIPTED: Final = """
import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb

FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sleeps = pb.get_input_tensor_by_name(request, "sleeps").as_numpy()
            asked = json.loads(request.parameters() or "{}")
            if asked.get("within"):
                answer(sender, sleeps.ravel(), asked)
            else:
                arguments = (sender, sleeps.ravel(), asked)
                threading.Thread(target=answer, args=arguments).start()


def answer(sender, sleeps, asked):
    last = len(sleeps) - 1
    for number, milliseconds in enumerate(sleeps):
        if milliseconds < 0:
            continue
        time.sleep(milliseconds / 1000)
        if asked.get("fails_at") == number:
            found = pb.InferenceResponse(error=pb.TritonError("asked to"))
        else:
            n = pb.Tensor("n", np.array([number], np.int32))
            found = pb.InferenceResponse([n])
        if number == last and asked.get("flagged"):
            sender.send(found, flags=FINAL)
            return
        sender.send(found)
    time.sleep(asked.get("final_ms", 0) / 1000)
    sender.send(flags=FINAL)
"""
"""Sends a response after each sleep of `sleeps`, milliseconds, then an empty final one.

It answers from a thread after `execute` returned, or with the parameter `within` inside
of it. `flagged` puts the final flag on the last response, `final_ms` delays an empty one,
`fails_at` makes that response an error. Negative sleeps are no responses.
"""
ENSEMBLE: Final = """
platform: "ensemble"
input [{ name: "sleeps" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "n" data_type: TYPE_INT32 dims: [1] }]
ensemble_scheduling { step [{ model_name: "scripted" model_version: -1
  input_map { key: "sleeps" value: "sleeps" } output_map { key: "n" value: "n" } }] }
"""

SPEAKER_CONFIG: Final = """
backend: "python"
max_batch_size: 0
input [{ name: "text" data_type: TYPE_STRING dims: [1] }]
output [
  { name: "word" data_type: TYPE_STRING dims: [1] },
  { name: "score" data_type: TYPE_FP32 dims: [1] },
  { name: "reason" data_type: TYPE_STRING dims: [1] },
  { name: "optional" data_type: TYPE_STRING dims: [1] }
]
instance_group [{ kind: KIND_CPU count: 1 }]
model_transaction_policy { decoupled: true }
"""
SPEAKER: Final = """
import json
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


def spoken(word):
    return bytes.fromhex(word[4:]) if word.startswith("hex:") else f"{word} ".encode()


class TritonPythonModel:
    def execute(self, requests):
        fault = json.loads(Path(__file__).with_name("fault.json").read_text("utf-8"))
        for request in requests:
            sender = request.get_response_sender()
            given = pb.get_input_tensor_by_name(request, "text").as_numpy().ravel()[0]
            words = given.decode("utf-8").split()
            for number, word in enumerate(words):
                score = float(len(word))
                if number == fault.get("at"):
                    word = fault.get("word", word)
                    score = float(fault.get("score", score))
                    time.sleep(fault.get("seconds", 0))
                time.sleep(fault.get("pause", 0))
                outputs = [
                    pb.Tensor("word", np.array([spoken(word)], np.object_)),
                    pb.Tensor("score", np.array([score], np.float32)),
                ]
                if number == len(words) - 1:
                    reason = np.array([b"stop"], np.object_)
                    outputs.append(pb.Tensor("reason", reason))
                sender.send(pb.InferenceResponse(outputs))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
"""Says the words of its text again, a response each: the word, its length as the score,
and with the last one a reason; `hex:c3` is the byte C3 alone. It never sends `optional`, as vLLM's backend leaves out
what was not asked for. `set_speaker_fault` changes one of its responses.
"""


EMBEDDER_CONFIG: Final = """
backend: "python"
max_batch_size: 8
input [{ name: "text" data_type: TYPE_STRING dims: [1] }]
output [{ name: "vector" data_type: TYPE_FP32 dims: [64] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
EMBEDDER: Final = """
import zlib

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb.get_input_tensor_by_name(request, "text").as_numpy()
        texts = given.ravel()
        if any(b"unspeakable" in text for text in texts):
            return pb.InferenceResponse(error=pb.TritonError("too sad"))
        vectors = np.zeros((len(texts), 64), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                vectors[row, zlib.crc32(word) % 64] += 1
        if given.ndim == 1:
            vectors = vectors[0]
        return pb.InferenceResponse([pb.Tensor("vector", vectors)])
"""
"""Counts the words of each text by their hash: texts of the same words are alike."""


def write_embedder(repository: Path) -> None:
    """`embedder`, a model of text without streams, and `one_embedder` without batches."""
    write_model(repository, "embedder", EMBEDDER_CONFIG, EMBEDDER)
    alone = EMBEDDER_CONFIG.replace("max_batch_size: 8", "max_batch_size: 0")
    write_model(repository, "one_embedder", alone, EMBEDDER)


ECHO_CONFIG: Final = """
backend: "python"
max_batch_size: 64
input [{ name: "said" data_type: TYPE_STRING dims: [1] }]
output [{ name: "text" data_type: TYPE_STRING dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
ECHO: Final = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        given = [pb.get_input_tensor_by_name(r, "said").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("text", texts)]) for texts in given]
"""


def write_echo(repository: Path) -> None:
    """`echo`, which answers a batch of texts with them."""
    write_model(repository, "echo", ECHO_CONFIG, ECHO)


def write_speaker(repository: Path) -> None:
    """`speaker`, without a fault."""
    write_model(repository, "speaker", SPEAKER_CONFIG, SPEAKER)
    set_speaker_fault(repository)


def set_speaker_fault(repository: Path, **fault: Any) -> None:
    """Have the response number `at` be another `word`, another `score` or `seconds` late.

    `pause` are seconds before each response.
    """
    file = repository / "speaker" / "1" / "fault.json"
    new = file.with_suffix(".new")
    new.write_text(json.dumps(fault), "utf-8")
    new.replace(file)


def write_streaming_models(repository: Path) -> None:
    """`scripted`, and `around`, an ensemble of it alone."""
    write_model(repository, "scripted", CONFIG, SCRIPTED)
    write_model(repository, "around", ENSEMBLE)


class Streams:
    """Asks a Triton, and returns the monotonic times of sending and of each response."""

    def __init__(self, server: Any) -> None:
        self._grpc = server.grpc
        self._http = f"http://{server.http}"
        self._pool = urllib3.PoolManager(1)

    def over_grpc(
        self,
        sleeps: Sequence[float],
        *,
        model: str = "scripted",
        request_id: str = "",
        empty_final: bool = False,
        leave_after: int = 0,
        **asked: Any,
    ) -> list[float]:
        """One request on a stream of its own, cancelled after `leave_after` responses."""
        message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        tensor = message.inputs.add(name="sleeps", datatype="FP32", shape=[len(sleeps)])
        tensor.contents.fp32_contents.extend(sleeps)
        if empty_final:
            message.parameters["triton_enable_empty_final_response"].bool_param = True
        for name, value in asked.items():
            message.parameters[name].int64_param = int(value)
        with grpc.insecure_channel(self._grpc) as channel:
            grpc.channel_ready_future(channel).result(patience(10))
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            times = [time.monotonic()]
            call = stub.ModelStreamInfer(iter((message,)), timeout=patience(30))
            for number, _ in enumerate(call, start=1):
                times.append(time.monotonic())
                if number == leave_after:
                    call.cancel()
                    break
        return times

    def over_http(
        self,
        sleeps: Sequence[float],
        *,
        model: str = "scripted",
        request_id: str = "",
        how: str = "generate_stream",
        **asked: Any,
    ) -> list[float]:
        """One request; of chunks that are read together each event has their time."""
        body = {"id": request_id, "sleeps": list(sleeps), **asked}
        times = [time.monotonic()]
        answer = self._pool.request(
            "POST",
            f"{self._http}/v2/models/{model}/{how}",
            body=json.dumps(body),
            preload_content=False,
            timeout=patience(30),
        )
        for part in answer.stream():
            events = max(part.count(b"data:"), 1)
            times += [time.monotonic()] * events
        return times


def synthetic(access: Access, model: str = "speaker", **settings: Any) -> Verdict:
    """The verdict of one synthetic probe."""
    settings = {
        "models": {"include": [model]},
        "timeout_seconds": 10,
        "protocols": ["grpc"],
        "overrides": {"speaker": {"inputs": {"text": {"values": [TEXT]}}}},
        **settings,
    }
    probe = SyntheticSettings.model_validate(settings).build(access)
    (target,) = probe.targets(access.board.current)
    verdict = probe.attempt(target)
    assert verdict is not None
    return verdict
