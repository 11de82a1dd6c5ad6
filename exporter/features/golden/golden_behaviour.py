"""Checks that need no correct answers: metamorphic relations and invalid inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter import errors
from exporter.access.probe_base import Verdict
from exporter.features.golden.answer_quality import agree, shown
from exporter.own_requests.payload import LARGEST, make_payload
from exporter.triton.tensors import FLOATS, array_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporter.features.golden.golden_request import Answer, Asker
    from exporter.features.golden.golden_settings import Corruption, Metamorphic
    from exporter.numerics.normal import Ints
    from exporter.own_requests.payload import InputSettings
    from exporter.triton.model import Array, ModelSpec

ROWS: Final = 4
"""Rows of the batches of metamorphic checks."""
_HUGE: Final = 1e30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `passed` is None where it proves nothing."""

    verdict: Verdict
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Sample:
    """A batch to check with: arrays and datatypes, rows first where there is a batch."""

    inputs: Mapping[str, Array]
    datatypes: Mapping[str, str]

    def rows(self, places: Ints) -> Sample:
        """These rows of the batch."""
        return Sample({n: a[places] for n, a in self.inputs.items()}, self.datatypes)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest difference allowed between two answers to the same request."""

    relative: float
    absolute: float


def made_up(
    spec: ModelSpec,
    settings: Mapping[str, InputSettings],
    rows: int,
    rng: np.random.Generator,
) -> Sample:
    """Return `rows` rows of made-up inputs; those of one request if there is no batch."""
    made = [make_payload(spec, dict(settings), rng) for _ in range(rows)]
    batched = spec.max_batch_size > 1
    inputs = {
        name: np.concatenate([payload.inputs[name] for payload in made])
        if batched
        else made[0].inputs[name]
        for name in made[0].inputs
    }
    return Sample(inputs, made[0].datatypes)


def metamorphic(
    kind: Metamorphic,
    asker: Asker,
    sample: Sample,
    other: Sample,
    tolerance: Tolerance,
    rng: np.random.Generator,
) -> Finding:
    """Send two requests that must get equal answers; or `other`, which must not."""
    batched = asker.spec.max_batch_size > 1
    first = asker.ask(sample.inputs, sample.datatypes)
    if first.error is not None or first.cached:
        return Finding(first.verdict(), None)
    rows = len(next(iter(sample.inputs.values()))) if batched else 1
    if kind == "distinct":
        return _distinct(first, asker, other)
    if kind == "repeat":
        # Not varied: it is the very same question.
        second = asker.ask(sample.inputs, sample.datatypes, vary=False)
        return _compared(first, second, tolerance, "asked twice, the model answers")
    order = np.roll(rng.permutation(rows), 1) if kind == "permutation" else np.arange(1)
    if kind == "permutation" and (order == np.arange(rows)).all():
        order = np.roll(order, 1)
    part = sample.rows(order)
    second = asker.ask(part.inputs, part.datatypes)
    alike = {name: array[order] for name, array in first.outputs.items()}
    what = (
        "permuted, the batch is answered"
        if kind == "permutation"
        else "alone, a row is answered"
    )
    return _compared(first, second, tolerance, what, alike)


def _distinct(first: Answer, asker: Asker, other: Sample) -> Finding:
    """Detect a model that returns the same answer to different requests."""
    second = asker.ask(other.inputs, other.datatypes)
    if second.error is not None or second.cached:
        return Finding(second.verdict(), None)
    for name, one in first.outputs.items():
        two = second.outputs.get(name)
        if two is None or one.dtype.kind != "f" or one.shape != two.shape:
            continue
        together = np.stack([one, two])
        rows = together.reshape(-1, one.shape[-1] if one.ndim > 1 else one.size)
        if (rows == rows[0]).all():
            fault = f"{len(rows)} different inputs are all answered {name!r} = "
            return Finding(second.verdict(fault + shown(rows[0])), passed=False)
    return Finding(second.verdict(), passed=True)


def _compared(
    first: Answer,
    second: Answer,
    tolerance: Tolerance,
    what: str,
    wanted: Mapping[str, Array] | None = None,
) -> Finding:
    if second.error is not None or second.cached:
        return Finding(second.verdict(), None)
    for name, one in (wanted or first.outputs).items():
        other = second.outputs.get(name)
        if other is None:
            continue
        if other.ndim == 0 or one.ndim == 0:
            one, other = np.atleast_1d(one), np.atleast_1d(other)  # noqa: PLW2901
        same = agree(other, one, tolerance.relative, tolerance.absolute)
        if not same.all():
            row = int(np.argmin(same))
            found = shown(other[row]) if len(other) == len(one) else "of another shape"
            fault = f"{what} {name!r} = {found} where it was {shown(one[row])}"
            return Finding(second.verdict(fault), passed=False)
    return Finding(second.verdict(), passed=True)


def corrupted(kind: Corruption, asker: Asker, sample: Sample) -> Finding | None:
    """Send an invalid request: the answer must be a clean error or a sane value.

    None where this model takes nothing that could be so wrong.
    """
    bad = _CORRUPTIONS[kind](asker, sample)
    if bad is None:
        return None
    answer = asker.ask(bad.inputs, bad.datatypes)
    error = answer.error
    if isinstance(error, errors.InvalidRequestError | errors.ModelError):
        return Finding(_well(answer), passed=True)
    if error is not None:
        # No answer, half an answer, or a server that is down: not clean.
        return Finding(answer.verdict(), passed=False)
    if kind == "out_of_range":
        for name, array in answer.outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                fault = f"values far out of range are answered with {name!r} = {shown(array)}"
                return Finding(answer.verdict(fault), passed=False)
    return Finding(answer.verdict(), passed=True)


def _well(answer: Answer) -> Verdict:
    """Return the verdict of an answer; an expected error is no fault of the model."""
    return Verdict("ok", answer.seconds, answer.request_id)


def _missing(asker: Asker, sample: Sample) -> Sample | None:
    needed = [t.name for t in asker.spec.inputs if not t.optional]
    if not needed or needed[0] not in sample.inputs:
        return None
    return Sample(_without(sample.inputs, needed[0]), sample.datatypes)


def _without(inputs: Mapping[str, Array], name: str) -> dict[str, Array]:
    return {key: array for key, array in inputs.items() if key != name}


def _filled(sample: Sample, value: float) -> Sample | None:
    floats = [
        n
        for n, kind in sample.datatypes.items()
        if kind in FLOATS and n in sample.inputs
    ]
    if not floats:
        return None
    name = floats[0]
    kind = sample.datatypes[name]
    most = LARGEST[kind] if np.isfinite(value) else value
    array = np.full_like(sample.inputs[name], min(value, most))
    return Sample({**sample.inputs, name: array}, sample.datatypes)


def _wrong_shape(asker: Asker, sample: Sample) -> Sample | None:
    """One column more than declared, where the model declares how many."""
    for tensor in asker.spec.inputs:
        array = sample.inputs.get(tensor.name)
        if array is not None and array.ndim and tensor.shape[-1] > 0:
            wider = np.concatenate([array, array[..., :1]], axis=-1)
            return Sample({**sample.inputs, tensor.name: wider}, sample.datatypes)
    return None


def _wrong_dtype(asker: Asker, sample: Sample) -> Sample | None:
    for tensor in asker.spec.inputs:
        array = sample.inputs.get(tensor.name)
        if array is None:
            continue
        other = "INT64" if tensor.datatype != "INT64" else "FP32"
        changed = np.zeros(array.shape, array_dtype(other))
        return Sample(
            {**sample.inputs, tensor.name: changed},
            {**sample.datatypes, tensor.name: other},
        )
    return None


_CORRUPTIONS: Final[dict[Corruption, Callable[[Asker, Sample], Sample | None]]] = {
    "missing": _missing,
    "nan": lambda _, sample: _filled(sample, np.nan),
    "out_of_range": lambda _, sample: _filled(sample, _HUGE),
    "shape": _wrong_shape,
    "dtype": _wrong_dtype,
}
