"""Train the demo models: `python deploy/models/train.py [FOLDER]`, a few seconds.

`--patients FILE` in place of a folder trains nothing and writes what the demo's clients
ask `diabetes`: the demo's drift reference is made of it.

Everything is seeded and made from data that ships inside scikit-learn. The same versions
give the same bytes, on any processor: both trainings go downhill on all the data at once
until they no longer move much, and weights are rounded far above what the order of a
sum can change. README.md says what each file holds.
"""

# scikit-learn has no types, and those of its defaults are no types of arguments.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from __future__ import annotations

import io
import sys
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

SEED = 20_261_121
HELD_OUT_SHARE = 0.25
DECIMALS = 4  # of every committed weight and figure
HIDDEN = 32
PIXEL_MAXIMUM = 16.0
INT8_MAXIMUM = 127
FAST = 140.0  # a progression above it counts as fast; the median is 140.5
DRIFT_AGE = 60.0  # patients of this age or older are kept from training
PATIENTS_SEED = 20_261_123
PATIENTS = 5000  # six minutes of the demo's traffic
FEATURES = ("age", "sex", "bmi", "bp", "tc", "ldl", "hdl", "tch", "ltg", "glu")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to judge by, shuffled with the seed."""

    train: Array
    held_out: Array

    @classmethod
    def of(cls, rows: Array) -> Split:
        shuffled = np.random.default_rng(SEED).permutation(rows)
        held_out = round(HELD_OUT_SHARE * len(rows))
        return cls(
            train=np.sort(shuffled[held_out:]), held_out=np.sort(shuffled[:held_out])
        )


def rounded(array: Array) -> Array:
    """Round as committed: few decimals, float32, and no negative zero."""
    return (np.round(array, DECIMALS) + 0.0).astype(np.float32)


def save(path: Path, **arrays: Any) -> None:
    """Write an uncompressed .npz: its bytes depend on the arrays alone.

    Not by np.savez, whose headers differ between patch releases of Python.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array))
            # The earliest date the format knows; ZipInfo's own default.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())


def train_digits(pixels: Array, labels: Array) -> dict[str, Array]:
    """A network with one hidden layer, on pixels scaled to 0…1."""
    network = MLPClassifier(
        (HIDDEN,),
        activation="relu",
        alpha=1e-3,
        batch_size=len(pixels),
        learning_rate_init=1e-2,
        max_iter=400,
        tol=0.0,
        n_iter_no_change=400,
        random_state=SEED,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(pixels / PIXEL_MAXIMUM, labels)
    first, second = map(rounded, network.coefs_)
    first_bias, second_bias = map(rounded, network.intercepts_)
    alive = first.any(axis=0)
    return {
        # The scale of the pixels goes into the weights: the model takes them raw.
        "hidden_weight": first[:, alive] / np.float32(PIXEL_MAXIMUM),
        "hidden_bias": first_bias[alive],
        "output_weight": second[alive],
        "output_bias": second_bias,
    }


def hidden(weights: dict[str, Array], pixels: Array) -> Array:
    """Activations of the hidden layer."""
    before: Array = pixels @ weights["hidden_weight"] + weights["hidden_bias"]
    return np.maximum(before, 0.0)


def quantize(weights: dict[str, Array], pixels: Array) -> dict[str, Array]:
    """The same network in 8-bit integers, calibrated on the training pixels.

    Weights: symmetric, one scale for each neuron. Activations: one scale for each
    layer, so that the largest value seen in training becomes 127. Biases are int32 in
    the scale of the sums they join, and sums are int32.
    """
    largest = np.round(hidden(weights, pixels).max(), DECIMALS)
    input_scale = np.array(PIXEL_MAXIMUM / INT8_MAXIMUM, np.float32)
    hidden_scale = np.array(largest / INT8_MAXIMUM, np.float32)
    result: dict[str, Array] = {
        "input_scale": input_scale,
        "hidden_scale": hidden_scale,
    }
    for layer, scale in (("hidden", input_scale), ("output", hidden_scale)):
        weight, bias = weights[f"{layer}_weight"], weights[f"{layer}_bias"]
        weight_scale = np.abs(weight).max(axis=0) / np.float32(INT8_MAXIMUM)
        sum_scale = scale * weight_scale
        result[f"{layer}_weight"] = np.rint(weight / weight_scale).astype(np.int8)
        result[f"{layer}_bias"] = np.rint(bias / sum_scale).astype(np.int32)
        result[f"{layer}_sum_scale"] = sum_scale
    return result


def digits(folder: Path) -> None:
    """Write both digit models and their held-out data."""
    bundle = load_digits()
    pixels, labels = bundle.data.astype(np.uint8), bundle.target.astype(np.int64)
    split = Split.of(np.arange(len(pixels)))
    weights = train_digits(pixels[split.train].astype(np.float64), labels[split.train])
    integers = quantize(weights, pixels[split.train].astype(np.float32))
    save(folder / "digits_fp32/1/weights.npz", **weights)
    save(folder / "digits_int8/1/weights.npz", **integers)
    held_out = {"pixels": pixels[split.held_out], "label": labels[split.held_out]}
    save(folder / "digits_fp32/data/held_out.npz", **held_out)


def diabetes(folder: Path) -> None:
    """Write the tabular model and its three data sets."""
    bundle = load_diabetes(scaled=False)
    table = dict(zip(FEATURES, bundle.data.T.astype(np.float32), strict=True))
    # The source codes sex as 1 and 2 and does not say which is which.
    table["sex"] = table["sex"].astype(np.int64).astype("S1")
    table["label"] = (bundle.target > FAST).astype(np.int64)
    rows = np.arange(len(bundle.target))
    older = table["age"] >= DRIFT_AGE
    split = Split.of(rows[~older])
    parts = {"train": split.train, "held_out": split.held_out, "drift": rows[older]}
    data = {name: {k: v[at] for k, v in table.items()} for name, at in parts.items()}
    for name, columns in data.items():
        save(folder / f"diabetes/data/{name}.npz", **columns)
    weights = train_diabetes(data["train"])
    save(folder / "diabetes/1/weights.npz", **weights)


def numeric() -> tuple[str, ...]:
    """The features that are numbers, in the model's order."""
    return tuple(name for name in FEATURES if name != "sex")


def train_diabetes(columns: dict[str, Array]) -> dict[str, Array]:
    """Logistic regression on standardized numbers and one-hot sex."""
    numbers = np.stack([columns[name] for name in numeric()], axis=1).astype(np.float64)
    mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
    vocabulary = np.unique(columns["sex"])
    one_hot = (columns["sex"][:, None] == vocabulary).astype(np.float64)
    inputs = np.hstack([(numbers - mean) / deviation, one_hot])
    model = LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000)
    model.fit(inputs, columns["label"])
    return {
        "features": np.array(numeric()),
        "vocabulary": vocabulary,
        "mean": rounded(mean),
        "deviation": rounded(deviation),
        "median": rounded(np.median(numbers, axis=0)),
        "weight": rounded(model.coef_[0]),
        "bias": rounded(model.intercept_[0]),
    }


def record_patients(output: Path) -> None:
    """Write held-out patients without labels, drawn as the demo's traffic draws them.

    The rows are in the order of time.
    """
    source = Path(__file__).parent / "diabetes" / "data" / "held_out.npz"
    with np.load(source) as held_out:
        columns = {name: held_out[name] for name in held_out.files if name != "label"}
    draw = np.random.default_rng(PATIENTS_SEED).integers
    drawn = draw(len(columns["age"]), size=PATIENTS)
    save(output, **{name: column[drawn] for name, column in columns.items()})


def main(folder: Path) -> None:
    """Write every weight and data file below the folder."""
    digits(folder)
    diabetes(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--patients"]:
        record_patients(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
