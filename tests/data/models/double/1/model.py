"""y = 2 x, as fast as a Python model can be."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", x * 2)])
