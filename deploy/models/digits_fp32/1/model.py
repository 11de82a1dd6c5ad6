"""Handwritten digits, in 32-bit floats: 64 pixels -> hidden layer -> 10 probabilities."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """One pass through the network for all requests of a dynamic batch."""

    def initialize(self, args):
        with np.load(Path(__file__).with_name("weights.npz")) as weights:
            self.weights = dict(weights)

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
        hidden = np.maximum(pixels @ w["hidden_weight"] + w["hidden_bias"], 0)
        return softmax(hidden @ w["output_weight"] + w["output_bias"])


def softmax(logits):
    """Rows of probabilities."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
