"""A running mean as a stream: as many responses as the request has numbers."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb

MAXIMUM_RESPONSES = 1000
MAXIMUM_DELAY_MS = 1000.0


class TritonPythonModel:
    """Decoupled: responses leave one by one, the final flag comes after the last."""

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                stream(request, sender)
            except ValueError as error:
                sender.send(pb.InferenceResponse(error=pb.TritonError(str(error))))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def stream(request, sender):
    """Send the responses of one request, until done or until the caller has gone."""
    values = pb.get_input_tensor_by_name(request, "values").as_numpy()
    if len(values) > MAXIMUM_RESPONSES:
        raise ValueError(f"found {len(values)} values; at most {MAXIMUM_RESPONSES}")
    delay_seconds = parameter(request, "delay_ms", 0.0, MAXIMUM_DELAY_MS) / 1000
    means = np.cumsum(values, dtype=np.float64) / np.arange(1, len(values) + 1)
    for count, mean in enumerate(means, start=1):
        time.sleep(delay_seconds)
        if sender.is_cancelled():
            return
        outputs = [
            pb.Tensor("mean", np.array([mean], np.float32)),
            pb.Tensor("count", np.array([count], np.int32)),
        ]
        sender.send(pb.InferenceResponse(outputs))


def parameter(request, name, default, maximum):
    """A number among the request's parameters."""
    value = float(json.loads(request.parameters() or "{}").get(name, default))
    if not 0 <= value <= maximum:
        raise ValueError(f"found {name}={value:g}; 0 to {maximum:g} are possible")
    return value
