"""A model's tensors and a reference's features: the schema to learn, and whether they fit.

Of a model with more than `MAX_COLUMNS` values in a row the tensors that do not fit are
watched by their sketch: norm, moments and random projections, under the name
`TENSOR.sketch`, see `drift.embeddings`. How sure a classifier's answers are is the
tensor `TENSOR.confidence`, if they are probabilities. Free text is the tensor of numbers
`TENSOR.text`, see `drift.text_features`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drift.embeddings import MAX_WIDTH, VectorSketch
from drift.errors import ProfileError
from drift.features import TEXT_DATATYPES, Feature, Kind, Schema, Tensor
from drift.numerics.answer_distribution import MAX_CLASSES
from drift.text_features import (
    require_text,
    text_features,
    text_source,
    text_tensor,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporter.features.drift.drift_settings import DriftFeatureSettings, Side
    from exporter.triton.protocol_types import ModelSpec, TensorSpec


TEXTS: Final[dict[Side, tuple[str, ...]]] = {
    "inputs": ("text_input",),
    "outputs": ("text_output", "finish_reason"),
}
"""Tensors of OpenAI's bodies, as the taps call them."""
MAX_COLUMNS: Final = 256
MAX_LEARNT: Final = 512
SKETCH: Final = ".sketch"
CONFIDENCE: Final = ".confidence"

MOMENTS: Final = 3
_FLOATS: Final = frozenset({"FP16", "BF16", "FP32", "FP64"})
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Declared:
    """One tensor as the model declares it, without the batch dimension.

    `row_shape` is None where a dimension is left open. `whole` says that a request is
    one row, because the model does not batch.
    """

    name: str
    datatype: str
    row_shape: tuple[int, ...] | None
    whole: bool
    optional: bool = False

    @property
    def width(self) -> int:
        """Values in a row; 0 where that is open."""
        return 0 if self.row_shape is None else math.prod(self.row_shape)


def declared(spec: ModelSpec, side: Side) -> dict[str, Declared]:
    """Return the inputs or outputs of the model, by name."""
    if spec.backend == "openai":
        return {
            name: Declared(name, "BYTES", (1,), whole=False) for name in TEXTS[side]
        }
    tensors = spec.inputs if side == "inputs" else spec.outputs
    return {tensor.name: _declared(tensor, spec) for tensor in tensors}


def _declared(tensor: TensorSpec, spec: ModelSpec) -> Declared:
    batched = spec.max_batch_size > 0 or tensor.shape[:1] == (-1,)
    shape = tensor.shape[1:] if batched else tensor.shape
    closed = shape if all(size > 0 for size in shape) else None
    return Declared(tensor.name, tensor.datatype, closed, not batched, tensor.optional)


def schema_of(
    tensors: Mapping[str, Declared],
    features: Sequence[DriftFeatureSettings],
    text: Sequence[str] = (),
) -> Schema:
    """Return the schema to learn: the named features, or all that can be watched.

    Args:
        tensors: as the model declares them.
        features: the named ones; none for all.
        text: tensors of free text, watched besides.

    Raises:
        DriftError: the features do not fit the model, or there is nothing to watch.
    """
    problems = [problem for name in text for problem in _no_text(name, tensors)]
    if problems:
        raise ProfileError(problems)
    if features:
        base = _named(tensors, features)
    else:
        others = {n: t for n, t in tensors.items() if n not in text}
        # A request may lack them: all of its tensors are watched together.
        required = {n: t for n, t in others.items() if not t.optional}
        base = Schema((), ()) if text and not required else _all(required or others)
    return Schema(
        (*base.tensors, *map(text_tensor, text)),
        (*base.features, *(f for name in text for f in text_features(name))),
    )


def _all(tensors: Mapping[str, Declared]) -> Schema:
    """Return a schema of every tensor that can be watched."""
    plain: list[Tensor] = []
    wide: list[VectorSketch] = []
    room = MAX_COLUMNS
    for tensor in tensors.values():
        if tensor.row_shape is None or not tensor.width:
            continue
        if tensor.width <= room:
            room -= tensor.width
            plain.append(Tensor(tensor.name, tensor.datatype, tensor.row_shape))
        elif tensor.datatype not in TEXT_DATATYPES and tensor.width <= MAX_WIDTH:
            wide.append(VectorSketch(tensor.name, tensor.width))
    base = Schema.from_tensors(plain)
    schema = Schema(
        (*base.tensors, *(sketch.tensor for sketch in wide)),
        (*base.features, *(f for sketch in wide for f in sketch.features)),
    )
    if len(schema.features) > MAX_LEARNT:
        raise _too_many(len(schema.features))
    if not schema.features:
        shapes = _listed(
            [f"{t.name} of {_shape(t.row_shape)}" for t in tensors.values()]
        )
        raise ProfileError(
            [f"no tensor can be watched: found {shapes}; dimensions must be fixed"]
        )
    return schema


def _no_text(name: str, tensors: Mapping[str, Declared]) -> Iterator[str]:
    """Return why a tensor cannot be watched as text."""
    tensor = tensors.get(name)
    if tensor is None:
        yield f"tensor {name!r} is absent: the model has {_listed(tensors)}"
    elif problem := require_text(
        Tensor(
            name,
            tensor.datatype,
            (0,) if tensor.row_shape is None else tensor.row_shape,
        )
    ):
        yield problem


def _too_many(features: int) -> ProfileError:
    found = f"{features} features; at most {MAX_LEARNT} can be learnt from live traffic"
    return ProfileError([f"{found}: name some, or make the reference of a file"])


def _named(
    tensors: Mapping[str, Declared], features: Sequence[DriftFeatureSettings]
) -> Schema:
    if len(features) > MAX_LEARNT:
        raise _too_many(len(features))
    wanted = list(dict.fromkeys(feature.tensor for feature in features))
    found = [tensors[name] for name in wanted if name in tensors]
    opened = [
        f"tensor {t.name!r} has a dimension left open" for t in found if not t.width
    ]
    if opened:
        raise ProfileError(opened)
    unsure = [problem for f in features for problem in _unsure(f, tensors)]
    if unsure:
        raise ProfileError(unsure)
    by_column = {feature.tensor for feature in features if feature.of == "column"}
    by_confidence = dict.fromkeys(f.tensor for f in features if f.of == "confidence")
    known = [
        *(
            Tensor(t.name, t.datatype, t.row_shape or ())
            for t in found
            if t.name in by_column
        ),
        *(Tensor(name + CONFIDENCE) for name in by_confidence),
    ]
    datatypes = {tensor.name: tensor.datatype for tensor in known}

    def watched(feature: DriftFeatureSettings) -> Feature:
        if feature.of == "confidence":
            return Feature(feature.name, feature.tensor + CONFIDENCE)
        text = datatypes.get(feature.tensor) in TEXT_DATATYPES | {"BOOL"}
        kind: Kind = feature.type or ("categorical" if text else "numeric")
        return Feature(feature.name, feature.tensor, feature.column, kind)

    return Schema(tuple(known), tuple(watched(feature) for feature in features))


def _unsure(
    feature: DriftFeatureSettings, tensors: Mapping[str, Declared]
) -> Iterator[str]:
    """Return why the requested confidence cannot be given."""
    if feature.of != "confidence":
        return
    tensor = tensors.get(feature.tensor)
    if tensor is None:
        found = f"tensor {feature.tensor!r} is absent: the model has {_listed(tensors)}"
        yield found
    elif (problem := _no_classes(tensor)) is not None:
        yield problem


def _no_classes(tensor: Declared) -> str | None:
    if tensor.datatype in _FLOATS and 1 < tensor.width <= MAX_CLASSES:
        return None
    return (
        f"tensor {tensor.name!r} has rows of {_shape(tensor.row_shape)} {tensor.datatype}; "
        f"a confidence is of the probabilities of 2 to {MAX_CLASSES} classes"
    )


def require(schema: Schema, tensors: Mapping[str, Declared]) -> None:
    """Check that a reference's tensors are those of the model.

    Floats of another width are the same quantity; a tensor may be watched by its
    sketch. Tensors of the model that the reference leaves out are not watched.

    Raises:
        ProfileError: they are not; every difference is listed.
    """
    used = {feature.tensor for feature in schema.features}
    found = [
        difference
        for tensor in schema.tensors
        if tensor.name in used
        for difference in _differences(tensor, tensors)
    ]
    if found:
        raise ProfileError(found)


def _differences(tensor: Tensor, tensors: Mapping[str, Declared]) -> list[str]:
    model = tensors.get(tensor.name)
    if model is None and (scores := scored(tensor, tensors)) is not None:
        problem = _no_classes(scores)
        return [] if problem is None else [problem]
    if model is None and (source := sketched(tensor, tensors)) is not None:
        return _sketch_differences(tensor, source)
    if model is None and (name := text_source(tensor)) is not None:
        return list(_no_text(name, tensors))
    if model is None:
        return [f"tensor {tensor.name!r} is absent: the model has {_listed(tensors)}"]
    found = []
    if _family(tensor.datatype) != _family(model.datatype):
        found.append(
            f"tensor {tensor.name!r} is {tensor.datatype} in the reference and "
            f"{model.datatype} in the model"
        )
    same = tensor.row_shape == model.row_shape
    if not same and not tensor.width == model.width == 1:
        found.append(
            f"tensor {tensor.name!r} has rows of {_shape(tensor.row_shape)} in the "
            f"reference and of {_shape(model.row_shape)} in the model"
        )
    return found


def _sketch_differences(tensor: Tensor, source: Declared) -> list[str]:
    if source.row_shape is None or not 0 < source.width <= MAX_WIDTH:
        found = f"tensor {tensor.name!r} sketches {source.name!r}, whose rows are of "
        wanted = f"{_shape(source.row_shape)}; 1 to {MAX_WIDTH} values are possible"
        return [found + wanted]
    if tensor.width <= MOMENTS or source.datatype in TEXT_DATATYPES:
        return [f"tensor {tensor.name!r} cannot be sketched: it has no numbers"]
    return []


def sketched(tensor: Tensor, tensors: Mapping[str, Declared]) -> Declared | None:
    """Return the tensor that this one is a sketch of; None if it is none."""
    if not tensor.name.endswith(SKETCH):
        return None
    return tensors.get(tensor.name.removesuffix(SKETCH))


def scored(tensor: Tensor, tensors: Mapping[str, Declared]) -> Declared | None:
    """Return the tensor whose confidence this one is; None if it is none."""
    if not tensor.name.endswith(CONFIDENCE) or tensor.width != 1:
        return None
    return tensors.get(tensor.name.removesuffix(CONFIDENCE))


def source_of(tensor: Tensor, tensors: Mapping[str, Declared]) -> Declared | None:
    """Return the model's tensor from which this one is made; None if there is none."""
    return (
        tensors.get(tensor.name)
        or scored(tensor, tensors)
        or sketched(tensor, tensors)
        or tensors.get(text_source(tensor) or "")
    )


def _family(datatype: str) -> str:
    return "float" if datatype in _FLOATS else datatype


def _shape(shape: tuple[int, ...] | None) -> str:
    return "open shape" if shape is None else f"shape {list(shape)}"


def _listed(names: Mapping[str, object] | Sequence[str]) -> str:
    shown = list(names)[:_SHOWN]
    more = len(names) - len(shown)
    return (", ".join(shown) or "nothing") + (f" and {more} more" if more else "")
