"""Returns its input after a delay that the request chooses."""

import json
import time

import triton_python_backend_utils as pb

DEFAULT_DELAY_MS = 5.0
MAXIMUM_DELAY_MS = 10_000.0


class TritonPythonModel:
    """One request at a time: its capacity is 1000 / delay_ms requests a second."""

    def execute(self, requests):
        return [respond(request) for request in requests]


def respond(request):
    """Sleep, then echo."""
    try:
        time.sleep(delay_ms(request) / 1000)
    except ValueError as error:
        return pb.InferenceResponse(error=pb.TritonError(str(error)))
    given = pb.get_input_tensor_by_name(request, "input").as_numpy()
    return pb.InferenceResponse([pb.Tensor("output", given)])


def delay_ms(request):
    """The request's own delay, or the default."""
    parameters = json.loads(request.parameters() or "{}")
    value = float(parameters.get("delay_ms", DEFAULT_DELAY_MS))
    if not 0 <= value <= MAXIMUM_DELAY_MS:
        raise ValueError(
            f"found delay_ms={value:g}; 0 to {MAXIMUM_DELAY_MS:g} are possible"
        )
    return value
