"""A faulty model: another Python model with a fault applied to its answers.

`original.py` beside it is the model itself, `fault.json` beside it says what is wrong
with it and may change at any time; README.md has the faults and the settings.
"""

# The modules of the server are not here.
# pyright: reportMissingImports=false, reportOptionalIterable=false

import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import original
import triton_python_backend_utils as pb

HERE = Path(__file__).parent
FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
LETTERS = np.frombuffer(b"bcdfghjklmnpqrstvwxz", np.uint8)
POLL_SECONDS = 0.05
DEFAULTS = {
    "fault": "none",
    "after_requests": 0,
    "after_responses": 0,
    "share": 1.0,
    "shift": 1,
    "factor": 2.0,
    "delay_ms": 0.0,
    "hang_seconds": 60.0,
    "seed": 0,
}


class TritonPythonModel:
    """The original's answers until the fault begins, then faulty ones."""

    def initialize(self, args):
        policy = json.loads(args["model_config"]).get("model_transaction_policy", {})
        self.is_decoupled = policy.get("decoupled", False)
        self.model = original.TritonPythonModel()
        if hasattr(self.model, "initialize"):
            self.model.initialize(args)
        self.settings, self.stamp, self.requests = dict(DEFAULTS), None, 0
        self.kept = {}
        self.read_settings()
        self.rng = np.random.default_rng(self.settings["seed"])

    def finalize(self):
        if hasattr(self.model, "finalize"):
            self.model.finalize()

    def execute(self, requests):
        self.read_settings()
        if not self.is_decoupled:
            return [self.answer(request) for request in requests]
        kept = [self.streamed(request) for request in requests]
        self.model.execute([request for request in kept if request is not None])
        return None

    def read_settings(self):
        """Read fault.json if it has changed; keep the settings where it is unreadable."""
        try:
            status = (HERE / "fault.json").stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp == self.stamp:
                return
            found = json.loads((HERE / "fault.json").read_text("utf-8"))
        except (OSError, ValueError):
            return
        unknown = found.keys() - DEFAULTS.keys()
        if unknown or found.get("fault", "none") not in FAULTS:
            raise ValueError(
                f"found {found}; fault.json takes {sorted(DEFAULTS)}, and as fault one "
                f"of {sorted(FAULTS)}"
            )
        # Requests before the fault was set do not count towards after_requests.
        self.settings, self.stamp, self.requests = {**DEFAULTS, **found}, stamp, 0
        self.kept = {}

    def fault_of(self, request):
        """Return the current fault, or the one that a request names itself."""
        self.requests += 1
        due = self.requests > self.settings["after_requests"]
        asked = json.loads(request.parameters() or "{}").get("fault")
        return asked or (self.settings["fault"] if due else "none")

    def answer(self, request):
        """Answer one request, with the current fault."""
        fault = self.fault_of(request)
        if fault in LIES:
            return self.corrupted(self.honest(request), fault)
        if fault not in FAULTS:
            return failed(f"found fault={fault!r}; want one of {sorted(FAULTS)}")
        return FAULTS[fault](self, request)

    def streamed(self, request):
        """Return the request with the current fault over its responses; None if refused."""
        fault = self.fault_of(request)
        if fault == "crash":
            os._exit(1)
        if fault in STREAM_FAULTS and self.rng.random() >= self.settings["share"]:
            fault = "none"
        if fault == "none":
            return request
        sender = request.get_response_sender()
        if fault in LIES or fault in STREAM_FAULTS:
            return FaultyStream(request, Sender(sender, self, fault))
        names = sorted({"none", "crash", *LIES, *STREAM_FAULTS})
        sender.send(failed(f"found fault={fault!r}; streams take {names}"), flags=FINAL)
        return None

    def honest(self, request):
        """Return the original's answer."""
        (response,) = self.model.execute([request])
        return response

    def corrupted(self, response, lie):
        """Return a response with a lie in the affected rows."""
        if response.has_error():
            return response
        tensors = []
        for tensor in response.output_tensors():
            array = tensor.as_numpy()
            wrong = LIES[lie](self, tensor.name(), array)
            struck = self.rng.random(len(array)) < self.settings["share"]
            shape = (len(array),) + (1,) * (array.ndim - 1)
            mixed = np.where(struck.reshape(shape), wrong, array).astype(array.dtype)
            tensors.append(pb.Tensor(tensor.name(), mixed))
        return pb.InferenceResponse(tensors)

    def zeros(self, name, array):
        """Answer zeros only."""
        return array if array.dtype == object else np.zeros_like(array)

    def nan(self, name, array):
        """Answer NaN only, where there are floats."""
        return np.full_like(array, np.nan) if array.dtype.kind == "f" else array

    def shifted_class(self, name, array):
        """Shift every class's score to its neighbour."""
        return np.roll(array, self.settings["shift"], axis=-1)

    def stale(self, name, array):
        """Repeat the first answer after the fault began, for every request."""
        first = self.kept.setdefault(name, array[:1].copy())
        return np.broadcast_to(first, array.shape)

    def garbage_text(self, name, array):
        """Replace texts by random letters, as many."""
        if array.dtype != object:
            return array
        texts = [self.rng.choice(LETTERS, len(text)).tobytes() for text in array.flat]
        return np.array(texts, object).reshape(array.shape)

    def slow(self, request):
        """Take `factor` times the original's own time, plus `delay_ms`."""
        started = time.perf_counter()
        response = self.honest(request)
        taken = time.perf_counter() - started
        time.sleep(
            (self.settings["factor"] - 1) * taken + self.settings["delay_ms"] / 1e3
        )
        return response

    def hang(self, request):
        """Hang for `hang_seconds`; the Python backend answers no request meanwhile."""
        time.sleep(self.settings["hang_seconds"])
        return self.honest(request)

    def crash(self, request):
        """End the process; the server keeps running without it."""
        os._exit(1)

    def error(self, request):
        """Return an error instead of an answer, for `share` of the requests."""
        if self.rng.random() >= self.settings["share"]:
            return self.honest(request)
        return failed("asked to fail")

    def stall(self, request):
        """Refuse: an answer in one response has no middle."""
        return failed("found fault='stall'; it is one of streams, take hang")


class FaultyStream:
    """A request of a decoupled model, whose responses pass through a fault."""

    def __init__(self, request, sender):
        self.request, self.sender = request, sender

    def __getattr__(self, name):
        return getattr(self.request, name)

    def get_response_sender(self):
        return self.sender


class Sender:
    """A sender of responses with a fault: a lie, or what befalls after `after_responses`."""

    def __init__(self, sender, model, fault):
        self.sender, self.model, self.fault = sender, model, fault
        self.due = model.settings["after_responses"] if fault in STREAM_FAULTS else None
        self.stamp = model.stamp
        self.sent, self.is_broken, self.held = 0, False, None
        self.lock = threading.Lock()

    def is_cancelled(self):
        return self.is_broken or self.sender.is_cancelled()

    def send(self, response=None, flags=0):
        with self.lock:
            if self.is_broken:
                return
            if self.held is not None:
                self.held.append((response, flags))
            elif response is not None and self.sent == self.due:
                self.due = None
                self.strike(response, flags)
            else:
                self.sent += response is not None
                self.forward(response, flags)

    def strike(self, response, flags):
        """Break the stream, or begin to hold its responses back."""
        if self.fault == "error":
            self.is_broken = True
            self.sender.send(failed("asked to fail"), flags=FINAL)
            return
        self.held = [(response, flags)]
        threading.Thread(target=self.release, daemon=True).start()

    def release(self):
        """Send what is held after `hang_seconds`, or once the fault was changed."""
        until = time.monotonic() + self.model.settings["hang_seconds"]
        while time.monotonic() < until and self.model.stamp == self.stamp:
            time.sleep(POLL_SECONDS)
            self.model.read_settings()
        with self.lock:
            for response, flags in self.held:
                self.forward(response, flags)
            self.held = None

    def forward(self, response, flags):
        if response is None:
            self.sender.send(flags=flags)
            return
        if self.fault in LIES:
            response = self.model.corrupted(response, self.fault)
        self.sender.send(response, flags=flags)


def failed(reason):
    """Return a response that is an error."""
    return pb.InferenceResponse(error=pb.TritonError(reason))


LIES = {
    "zeros": TritonPythonModel.zeros,
    "nan": TritonPythonModel.nan,
    "shifted_class": TritonPythonModel.shifted_class,
    "stale": TritonPythonModel.stale,
    "garbage_text": TritonPythonModel.garbage_text,
}
"""Faults of the values of a response: arrays to arrays."""
STREAM_FAULTS = {"error", "stall"}
"""Faults of a stream, after some of its responses."""
FAULTS = {
    **LIES,
    "none": TritonPythonModel.honest,
    "slow": TritonPythonModel.slow,
    "hang": TritonPythonModel.hang,
    "crash": TritonPythonModel.crash,
    "error": TritonPythonModel.error,
    "stall": TritonPythonModel.stall,
}
