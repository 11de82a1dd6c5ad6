"""Answers after the request's parameter `delay_ms`."""

import json
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        parameters = json.loads(request.parameters() or "{}")
        time.sleep(float(parameters.get("delay_ms", 0)) / 1000)
        x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", x)])
