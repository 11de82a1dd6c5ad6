"""Handwritten digits, in 8-bit integers: the network of digits_fp32 after quantization.

Weights and activations are int8, sums are int32; floats come back at the softmax.
"""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """One pass through the network for all requests of a dynamic batch."""

    def initialize(self, args):
        with np.load(Path(__file__).with_name("weights.npz")) as weights:
            self.weights = dict(weights)
        # numpy adds up products in the type of its operands: int8 would overflow.
        self.hidden_weight = self.weights["hidden_weight"].astype(np.int32)
        self.output_weight = self.weights["output_weight"].astype(np.int32)
        self.rescale = self.weights["hidden_sum_scale"] / self.weights["hidden_scale"]

    def execute(self, requests):
        batches = [
            pb.get_input_tensor_by_name(r, "pixels").as_numpy() for r in requests
        ]
        probabilities = self.infer(np.concatenate(batches))
        ends = np.cumsum([len(batch) for batch in batches])[:-1]
        return [
            pb.InferenceResponse([pb.Tensor("probabilities", part)])
            for part in np.split(probabilities, ends)
        ]

    def infer(self, pixels):
        """[n, 64] -> [n, 10]."""
        w = self.weights
        inputs = to_int8(pixels / w["input_scale"])
        sums = inputs @ self.hidden_weight + w["hidden_bias"]
        hidden = to_int8(sums.astype(np.float32) * self.rescale)
        sums = hidden @ self.output_weight + w["output_bias"]
        return softmax(sums.astype(np.float32) * w["output_sum_scale"])


def to_int8(values):
    """The nearest of 0 to 127, which is also where ReLU happens; held as int32."""
    return np.clip(np.rint(values), 0, 127).astype(np.int32)


def softmax(logits):
    """Rows of probabilities."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
