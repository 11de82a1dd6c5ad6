"""Progression of diabetes: logistic regression on nine numbers and one category.

A missing number (NaN) is replaced by the training median; a category never seen in
training counts as neither of the known ones. Both are what production pipelines do, and
both are silent: watching for them is the monitoring's business.
"""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """One pass for all requests of a dynamic batch."""

    def initialize(self, args):
        with np.load(Path(__file__).with_name("weights.npz")) as weights:
            self.weights = dict(weights)

    def execute(self, requests):
        w = self.weights
        numbers = [
            np.hstack([column(r, name) for name in w["features"]]) for r in requests
        ]
        sexes = [column(r, "sex") for r in requests]
        probabilities = self.infer(np.concatenate(numbers), np.concatenate(sexes))
        ends = np.cumsum([len(batch) for batch in numbers])[:-1]
        return [
            pb.InferenceResponse([pb.Tensor("probabilities", part)])
            for part in np.split(probabilities, ends)
        ]

    def infer(self, numbers, sexes):
        """[n, 9] floats and [n, 1] categories -> [n, 2]: slow, fast."""
        w = self.weights
        numbers = np.where(np.isnan(numbers), w["median"], numbers)
        standard = (numbers - w["mean"]) / w["deviation"]
        one_hot = sexes == w["vocabulary"].astype(object)
        logits = np.hstack([standard, one_hot]) @ w["weight"] + w["bias"]
        fast = 1 / (1 + np.exp(-logits))
        return np.stack([1 - fast, fast], axis=1).astype(np.float32)


def column(request, name):
    """[n, 1]: one feature of every row of a request."""
    return pb.get_input_tensor_by_name(request, name).as_numpy()
