"""The number of requests of each sequence so far; asked without a start, it fails."""

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """Keeps a count a sequence."""

    def initialize(self, args):  # noqa: ARG002 - Triton calls it so
        self.totals = {}

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        def given(name):
            return pb.get_input_tensor_by_name(request, name).as_numpy().ravel()[0]

        sequence = int(given("CORRID"))
        if given("START"):
            self.totals[sequence] = 0
        elif sequence not in self.totals:
            error = pb.TritonError(f"sequence {sequence} was not started")
            return pb.InferenceResponse(error=error)
        self.totals[sequence] += 1
        total = np.array([self.totals[sequence]], np.float32)
        return pb.InferenceResponse([pb.Tensor("total", total)])
