"""Twice its input, for MLServer: a KServe-v2 server that is no Triton."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Double(MLModel):
    """FP32[-1, 8] to FP32[-1, 8]."""

    async def predict(self, payload):
        """Double it."""
        x = NumpyCodec.decode_input(payload.inputs[0])
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("y", 2 * x)]
        )
