"""The columns of a file: which tensors they make up, and which are watched.

Without a word from the user a column is a tensor of its own name, columns `x[0]` to
`x[3]` are the four values of the tensor `x`, and every column is a feature.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drift.errors import DataError, SchemaError
from drift.features import (
    NUMERIC_DATATYPES,
    TEXT_DATATYPES,
    Feature,
    Kind,
    Schema,
    Tensor,
)
from drift.text_features import text_features, text_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INDEXED = re.compile(r"(?P<tensor>.+)\[(?P<column>0|[1-9][0-9]{0,4})\]")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a file; `row_shape` is not empty for lists and arrays."""

    name: str
    datatype: str
    row_shape: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Values in one row."""
        return math.prod(self.row_shape)


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorLayout(_Settings):
    """A tensor as the model declares it, and the columns that hold its values."""

    name: str = Field(min_length=1)
    datatype: str = "FP32"
    shape: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()


class FeatureLayout(_Settings):
    """A watched column of a tensor: the form that the sidecar's `drift:` has too."""

    name: str = Field(min_length=1)
    tensor: str = Field(min_length=1)
    column: int = Field(default=0, ge=0)
    type: Literal["numeric", "categorical"] | None = None


class Layout(_Settings):
    """The content of a `--features` file; empty for zero configuration."""

    tensors: tuple[TensorLayout, ...] = ()
    features: tuple[FeatureLayout, ...] = ()

    @classmethod
    def parse(cls, content: object, where: str) -> Layout:
        """Check the values of a YAML or JSON file.

        Raises:
            DataError: they do not have this form; every problem with its path.
        """
        try:
            return cls.model_validate({} if content is None else content)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}"
                for problem in error.errors()
            )
            raise DataError(where, problems) from error

    def watched(
        self, tensors: Sequence[Tensor], *, categorical: frozenset[str] = frozenset()
    ) -> Schema:
        """Return the watched features of `tensors`; `categorical` names tensors or features.

        Raises:
            SchemaError: a feature cannot be had from them.
        """
        features = self._features(tensors, categorical)
        names = {feature.name for feature in features} | {t.name for t in tensors}
        unknown = sorted(categorical - names)
        if unknown:
            raise SchemaError(
                f"--categorical names {', '.join(unknown)}; there are "
                f"{', '.join(sorted(names)[:20])}"
            )
        watched = {feature.tensor for feature in features}
        kept = tuple(t for t in tensors if not self.features or t.name in watched)
        return Schema(kept, features)

    def _features(
        self, tensors: Sequence[Tensor], categorical: frozenset[str]
    ) -> tuple[Feature, ...]:
        datatypes = {tensor.name: tensor.datatype for tensor in tensors}

        def kind(name: str, tensor: str) -> Kind:
            text = datatypes.get(tensor) in TEXT_DATATYPES | {"BOOL"}
            return (
                "categorical"
                if text or name in categorical or tensor in categorical
                else "numeric"
            )

        if self.features:
            return tuple(
                Feature(f.name, f.tensor, f.column, f.type or kind(f.name, f.tensor))
                for f in self.features
            )
        texts = {t.name: text_source(t) for t in tensors}
        every = Schema.from_tensors([t for t in tensors if texts[t.name] is None])
        return (
            *(
                Feature(f.name, f.tensor, f.column, kind(f.name, f.tensor))
                for f in every.features
            ),
            *(f for source in texts.values() if source for f in text_features(source)),
        )


def tensors_of(
    columns: Sequence[Column], layout: Layout, where: str
) -> tuple[tuple[Tensor, ...], Mapping[str, tuple[str, ...]]]:
    """Tensors of a file's columns, and the columns of each in order.

    Raises:
        DataError: the layout names columns that are not there, or too few or many.
    """
    by_name = {column.name: column for column in columns}
    tensors, sources = [], {}
    for wanted in layout.tensors:
        tensor = Tensor(wanted.name, _known(wanted.datatype, where), wanted.shape)
        sources[tensor.name] = columns_of(tensor, by_name, where, wanted.columns)
        tensors.append(tensor)
    used = {name for names in sources.values() for name in names}
    for tensor, names in _by_convention([c for c in columns if c.name not in used]):
        if tensor.name not in sources:
            tensors.append(tensor)
            sources[tensor.name] = names
    return tuple(tensors), sources


def columns_of(
    tensor: Tensor,
    by_name: Mapping[str, Column],
    where: str,
    named: Sequence[str] = (),
) -> tuple[str, ...]:
    """The columns that hold a tensor's values.

    Raises:
        DataError: they are not in the file.
    """
    candidates = (
        [tuple(named)]
        if named
        else [
            (tensor.name,),
            tuple(f"{tensor.name}[{i}]" for i in range(tensor.width)),
        ]
    )
    for names in candidates:
        if all(name in by_name for name in names):
            width = sum(by_name[name].width for name in names)
            if width == tensor.width:
                return names
    usual = candidates[-1] if tensor.width > 1 else candidates[0]
    wanted = next((n for n in candidates if by_name.keys() >= set(n)), usual)
    absent = [name for name in wanted if name not in by_name]
    what = (
        f"columns {', '.join(map(repr, absent[:5]))} of tensor {tensor.name!r} are absent"
        if absent
        else f"the columns of tensor {tensor.name!r} do not hold {tensor.width} values a row"
    )
    raise DataError(where, f"{what}; the file has {', '.join(list(by_name)[:20])}")


def _by_convention(
    columns: Sequence[Column],
) -> list[tuple[Tensor, tuple[str, ...]]]:
    """`x[0]`, `x[1]`, ... are one tensor if they are complete; all else stands alone."""
    groups: dict[str, dict[int, Column]] = {}
    for column in columns:
        match = _INDEXED.fullmatch(column.name)
        if match and column.width == 1:
            groups.setdefault(match["tensor"], {})[int(match["column"])] = column
    whole = {
        name: [found[i] for i in range(len(found))]
        for name, found in groups.items()
        if set(found) == set(range(len(found)))
        and len({column.datatype in TEXT_DATATYPES for column in found.values()}) == 1
    }
    grouped = {column.name: name for name, found in whole.items() for column in found}
    result: list[tuple[Tensor, tuple[str, ...]]] = []
    done: set[str] = set()
    for column in columns:
        name = grouped.get(column.name)
        if name is None:
            tensor = Tensor(column.name, column.datatype, column.row_shape)
            result.append((tensor, (column.name,)))
        elif name not in done:
            done.add(name)
            found = whole[name]
            kinds = {each.datatype for each in found}
            datatype = kinds.pop() if len(kinds) == 1 else "FP64"
            names = tuple(each.name for each in found)
            result.append((Tensor(name, datatype, (len(found),)), names))
    return result


def _known(datatype: str, where: str) -> str:
    known = NUMERIC_DATATYPES | TEXT_DATATYPES
    if datatype not in known:
        raise DataError(
            where,
            f"found datatype {datatype!r}; want one of {', '.join(sorted(known))}",
        )
    return datatype
