"""A faulty model: another Python model with a fault applied to its answers.

`original.py` beside it is the model itself, `fault.json` beside it says what is wrong
with it and may change at any time; README.md has the faults and the settings.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import original
import triton_python_backend_utils as pb

HERE = Path(__file__).parent
DEFAULTS = {
    "fault": "none",
    "after_requests": 0,
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
        self.model = original.TritonPythonModel()
        if hasattr(self.model, "initialize"):
            self.model.initialize(args)
        self.quantize = getattr(original, "to_int8", None)
        self.settings, self.stamp, self.requests = dict(DEFAULTS), None, 0
        self.kept = {}
        self.read_settings()
        self.rng = np.random.default_rng(self.settings["seed"])

    def execute(self, requests):
        self.read_settings()
        return [self.answer(request) for request in requests]

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

    def answer(self, request):
        """Answer one request, with the current fault."""
        asked = json.loads(request.parameters() or "{}").get("fault")
        if asked is not None and asked not in FAULTS:
            told = f"found fault={asked!r}; want one of {sorted(FAULTS)}"
            return pb.InferenceResponse(error=pb.TritonError(told))
        self.requests += 1
        due = self.requests > self.settings["after_requests"]
        fault = asked or (self.settings["fault"] if due else "none")
        return FAULTS[fault](self, request)

    def honest(self, request):
        """Return the original's answer."""
        (response,) = self.model.execute([request])
        return response

    def corrupted(self, request, corrupt):
        """Return the original's answer with `corrupt` applied to the affected rows."""
        response = self.honest(request)
        if response.has_error():
            return response
        tensors = []
        for tensor in response.output_tensors():
            array = tensor.as_numpy()
            wrong = corrupt(tensor.name(), array)
            struck = self.rng.random(len(array)) < self.settings["share"]
            shape = (len(array),) + (1,) * (array.ndim - 1)
            mixed = np.where(struck.reshape(shape), wrong, array).astype(array.dtype)
            tensors.append(pb.Tensor(tensor.name(), mixed))
        return pb.InferenceResponse(tensors)

    def zeros(self, request):
        """Answer zeros only."""
        return self.corrupted(request, lambda _, array: np.zeros_like(array))

    def nan(self, request):
        """Answer NaN only."""
        return self.corrupted(request, lambda _, array: np.full_like(array, np.nan))

    def shifted_class(self, request):
        """Shift every class's score to its neighbour."""
        shift = self.settings["shift"]
        return self.corrupted(request, lambda _, array: np.roll(array, shift, axis=-1))

    def stale(self, request):
        """Repeat the first answer after the fault began, for every request."""

        def kept(name, array):
            first = self.kept.setdefault(name, array[:1].copy())
            return np.broadcast_to(first, array.shape)

        return self.corrupted(request, kept)

    def int8_overflow(self, request):
        """Cast where the quantizer should saturate: negative values become large."""
        return self.requantized(request, wrap_int8)

    def int8_scale(self, request):
        """Halve the quantizer's scale; most digits are still correct."""
        return self.requantized(request, lambda values: self.quantize(2 * values))

    def requantized(self, request, quantize):
        """Return the answer of digits_int8 with another quantizer."""
        if self.quantize is None:
            told = "found a model without to_int8; this fault is one of digits_int8"
            return pb.InferenceResponse(error=pb.TritonError(told))
        original.to_int8 = quantize
        try:
            return self.honest(request)
        finally:
            original.to_int8 = self.quantize

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
        return pb.InferenceResponse(error=pb.TritonError("asked to fail"))


def wrap_int8(values):
    """Round to the nearest, then keep the lower eight bits without a sign, as int32."""
    return np.rint(values).astype(np.int64).astype(np.uint8).astype(np.int32)


FAULTS = {
    "none": TritonPythonModel.honest,
    "zeros": TritonPythonModel.zeros,
    "nan": TritonPythonModel.nan,
    "shifted_class": TritonPythonModel.shifted_class,
    "stale": TritonPythonModel.stale,
    "int8_overflow": TritonPythonModel.int8_overflow,
    "int8_scale": TritonPythonModel.int8_scale,
    "slow": TritonPythonModel.slow,
    "hang": TritonPythonModel.hang,
    "crash": TritonPythonModel.crash,
    "error": TritonPythonModel.error,
}
