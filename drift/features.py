"""The watched columns: their tensors, and their names as features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from drift.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["numeric", "categorical"]

MAX_FEATURES = 4096
JOINT = "(joint)"
"""Name of the feature that stands for the correlations between all others."""
RESERVED = JOINT.removesuffix(")")
"""No other feature's name begins with it."""
NUMERIC_DATATYPES = frozenset(("FP16", "FP32", "FP64", "BF16", "BOOL")) | {
    f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)
}
TEXT_DATATYPES = frozenset({"BYTES"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a model declares it: KServe datatype and the shape of one row."""

    name: str
    datatype: str = "FP32"
    row_shape: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Values in one row."""
        return math.prod(self.row_shape)


@dataclass(frozen=True, slots=True)
class Feature:
    """One watched column: its public name, and its position in its tensor."""

    name: str
    tensor: str
    column: int = 0
    kind: Kind = "numeric"


@dataclass(frozen=True, slots=True)
class Schema:
    """All watched columns. Numeric features come first, in the order given.

    Raises:
        SchemaError: names are doubled, a tensor is unknown, a column does not exist,
            text is asked to be numeric, or there are more than `MAX_FEATURES`.
    """

    tensors: tuple[Tensor, ...]
    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        ordered = sorted(self.features, key=lambda feature: feature.kind != "numeric")
        object.__setattr__(self, "features", tuple(ordered))
        problems = list(self._problems())
        if problems:
            raise SchemaError("; ".join(problems))

    def _problems(self) -> list[str]:
        known = {tensor.name: tensor for tensor in self.tensors}
        found: list[str] = []
        if len(known) != len(self.tensors):
            found.append("a tensor is named twice; tensor names must be unique")
        if len(self.names) != len(set(self.names)):
            found.append("a feature is named twice; feature names must be unique")
        if len(self.features) > MAX_FEATURES:
            found.append(
                f"{len(self.features)} features; at most {MAX_FEATURES}, sketch the rest"
            )
        found += [
            f"feature {name!r} has a name that is kept for correlations between features"
            for name in self.names
            if name.startswith(RESERVED)
        ]
        for feature in self.features:
            tensor = known.get(feature.tensor)
            if tensor is None:
                found.append(
                    f"feature {feature.name!r} reads tensor {feature.tensor!r}, "
                    f"which is not one of {sorted(known)}"
                )
            elif not 0 <= feature.column < tensor.width:
                found.append(
                    f"feature {feature.name!r} reads column {feature.column} of "
                    f"{feature.tensor!r}, which has {tensor.width}"
                )
            elif feature.kind == "numeric" and tensor.datatype not in NUMERIC_DATATYPES:
                found.append(
                    f"feature {feature.name!r} is numeric but {feature.tensor!r} "
                    f"contains {tensor.datatype}; make it categorical"
                )
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names in the order of every array about features."""
        return tuple(feature.name for feature in self.features)

    @property
    def numeric(self) -> int:
        """Return how many features are numeric; they are the first ones."""
        return sum(feature.kind == "numeric" for feature in self.features)

    @classmethod
    def from_tensors(cls, tensors: Sequence[Tensor]) -> Schema:
        """Zero configuration: every column is a feature called `tensor[i]`.

        A tensor of one value a row gives the bare name; text and booleans are
        categorical.
        """
        features = [
            Feature(
                tensor.name if tensor.width == 1 else f"{tensor.name}[{column}]",
                tensor.name,
                column,
                "categorical"
                if tensor.datatype in TEXT_DATATYPES or tensor.datatype == "BOOL"
                else "numeric",
            )
            for tensor in tensors
            for column in range(tensor.width)
        ]
        return cls(tuple(tensors), tuple(features))

    def differences(self, other: Schema) -> tuple[str, ...]:
        """Return what `other` lacks, adds or changes, one sentence each; empty if it fits."""
        found = _compare("tensor", _by_name(self.tensors), _by_name(other.tensors))
        found += _compare("feature", _by_name(self.features), _by_name(other.features))
        return tuple(found)


def _by_name(
    items: Sequence[Tensor] | Sequence[Feature],
) -> Mapping[str, Tensor | Feature]:
    return {item.name: item for item in items}


def _compare(
    what: str,
    mine: Mapping[str, Tensor | Feature],
    theirs: Mapping[str, Tensor | Feature],
) -> list[str]:
    found = [f"{what} {name!r} is absent" for name in mine if name not in theirs]
    found += [f"{what} {name!r} is extra" for name in theirs if name not in mine]
    found += [
        f"{what} {name!r} is {theirs[name]} but should be {mine[name]}"
        for name in mine
        if name in theirs and theirs[name] != mine[name]
    ]
    return found
