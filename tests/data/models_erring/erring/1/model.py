"""1 raises, 2 answers with an error, anything else is doubled."""

import triton_python_backend_utils as pb

RAISE, ANSWER = 1, 2


class TritonPythonModel:
    """Two ways to fail, which Triton books differently."""

    def execute(self, requests):
        return [respond(request) for request in requests]


def respond(request):
    """One response."""
    x = pb.get_input_tensor_by_name(request, "x").as_numpy()
    if x.flat[0] == RAISE:
        raise ValueError("asked to raise")
    if x.flat[0] == ANSWER:
        return pb.InferenceResponse(error=pb.TritonError("asked to answer so"))
    return pb.InferenceResponse([pb.Tensor("y", x * 2)])
