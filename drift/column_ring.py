"""From a request's tensors to the columns of a bounded ring, and what did not fit.

Violations are counted a request and tensor at a time, under these kinds:

    absent   a tensor of the schema did not come; its values count as missing
    extra    a tensor came that is not in the schema (all under the name "")
    dtype    numbers of another type; they are converted and counted
    type     no numbers where numbers belong, or the reverse; they count as missing
    shape    another row shape or row count; its values count as missing

`LEFT_OUT` in the place of a tensor is none: it may be absent, and its values are missing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.categories import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from drift.features import Schema, Tensor

DTYPES: Final = {
    "FP16": "f2",
    "FP32": "f4",
    "FP64": "f8",
    "BF16": "f4",
    "BOOL": "b1",
    "BYTES": "O",
    **{f"INT{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
}
VIOLATIONS: Final = ("absent", "extra", "dtype", "type", "shape")
"""The kinds of violations."""
LEFT_OUT: Final = np.empty((), object)
_NUMBERS: Final = "fiub"
_TEXTS: Final = "OSU"
TEXT_ROWS: Final = 64
"""Texts of a category that are held before they are counted."""
_COUNTED: Final = frozenset({"", "dtype"})
"""Problems of a tensor whose values are counted all the same."""
_LONG: Final = 64
_WIDE: Final = 4


class Intake:
    """A ring of rows: one float matrix, and one list or integer column a category.

    With `count` a category's texts are handed to it (the category, its texts) as soon as
    there are `TEXT_ROWS` of them, and the column then holds only what came since.
    """

    def __init__(
        self,
        schema: Schema,
        dtype: np.dtype[np.floating],
        capacity: int,
        *,
        count: Callable[[int, list[object]], None] | None = None,
    ) -> None:
        self.capacity = capacity
        self._count = count
        self.filled = 0
        self.numeric = np.zeros((capacity, schema.numeric), dtype)
        self.violations: Counter[tuple[str, str]] = Counter()
        self._plans = tuple(
            _Plan(tensor, schema)
            for tensor in schema.tensors
            if any(feature.tensor == tensor.name for feature in schema.features)
        )
        self._known = {tensor.name for tensor in schema.tensors}
        self._whole = self._plans[0] if self._takes_all() else None
        self._integers = np.zeros(
            (capacity, len(schema.features) - schema.numeric), np.int32, order="F"
        )
        columns = range(self._integers.shape[1])
        # None while a column is of integers that fit.
        self._texts: list[list[object] | None] = [None for _ in columns]
        self._known_texts: list[dict[object, object]] = [{} for _ in columns]

    def _takes_all(self) -> bool:
        if len(self._plans) != 1 or len(self._known) != 1:
            return False
        plan = self._plans[0]
        return plan.is_whole and np.can_cast(plan.dtype, self.numeric.dtype, "safe")

    def rows_of(self, request: Mapping[str, NDArray[np.generic]]) -> int:
        """Return the rows of a request: the number on which most of its tensors agree."""
        lengths = Counter(
            tensor.shape[0]
            for plan in self._plans
            if (tensor := request.get(plan.name)) is not None and tensor.ndim
        )
        return max(lengths, key=lambda n: (lengths[n], n)) if lengths else 0

    def fits(self, request: Mapping[str, NDArray[np.generic]]) -> bool:
        """Return whether every tensor of the schema came as declared, or was left out."""
        rows = self.rows_of(request)
        return all(
            plan.problem(request.get(plan.name), rows) in _COUNTED
            for plan in self._plans
        )

    def copy_whole(self, request: Mapping[str, NDArray[np.generic]]) -> int:
        """Copy a request that is one matrix, as declared, if there is room; its rows.

        It is 0 if the request is not of that kind; `copy` accepts any.
        """
        whole = self._whole
        if whole is None or len(request) != 1:
            return 0
        tensor = request.get(whole.name)
        if tensor is None or tensor.dtype != whole.dtype:
            return 0
        first = self.filled
        if tensor.shape == whole.one_row and first < self.capacity:
            # The requests of many models; a slice would take longer.
            self.numeric[first] = tensor
            self.filled = first + 1
            return 1
        last = first + len(tensor) if tensor.ndim else 0
        if tensor.shape[1:] != whole.row_shape or last > self.capacity:
            return 0
        self.numeric[first:last] = tensor
        self.filled = last
        return last - first

    def copy(
        self, request: Mapping[str, NDArray[np.generic]], drain: Callable[[], None]
    ) -> int:
        """Copy a request; return its rows. `drain` empties the ring when it is full."""
        rows = self.rows_of(request)
        start = 0
        while start < rows:
            if self.filled == self.capacity:
                drain()
            stop = min(rows, start + self.capacity - self.filled)
            self._copy_rows(request, start, stop)
            start = stop
        return rows

    def _copy_rows(
        self, request: Mapping[str, NDArray[np.generic]], start: int, stop: int
    ) -> None:
        """Copy rows `start:stop`; they must fit into the free part of the ring."""
        last = self.filled + stop - start
        rows = self.rows_of(request)
        if start == 0 and any(name not in self._known for name in request):
            self.violations["extra", ""] += 1
        with np.errstate(over="ignore"):
            for plan in self._plans:
                columns = self._columns(plan, request, rows, report=start == 0)
                self._place(plan, columns, (start, stop), (self.filled, last))
        self.filled = last

    def _columns(
        self,
        plan: _Plan,
        request: Mapping[str, NDArray[np.generic]],
        rows: int,
        *,
        report: bool,
    ) -> NDArray[np.generic] | None:
        tensor = request.get(plan.name)
        problem = plan.problem(tensor, rows)
        if problem and report:
            self.violations[problem, plan.name] += 1
        if tensor is None or tensor is LEFT_OUT or problem not in _COUNTED:
            return None
        return tensor.reshape(rows, plan.width)

    def _place(
        self,
        plan: _Plan,
        columns: NDArray[np.generic] | None,
        source: tuple[int, int],
        target: tuple[int, int],
    ) -> None:
        first, last = target
        if columns is not None:
            columns = columns[source[0] : source[1]]
        if plan.has_numbers:
            self.numeric[first:last, plan.numeric_to] = (
                np.nan if columns is None else columns[:, plan.numeric_from]
            )
        if self._place_integers(plan, columns, first, last):
            return
        for to, column in zip(plan.category_to, plan.category_from, strict=True):
            values = None if columns is None else columns[:, column]
            self._place_category(to, values, first, last)

    def _place_integers(
        self,
        plan: _Plan,
        columns: NDArray[np.generic] | None,
        first: int,
        last: int,
    ) -> bool:
        """Place all categories of a tensor at once, if they are integers that fit."""
        if columns is None or columns.dtype.kind not in "iub" or not plan.side_by_side:
            return False
        to, source = plan.side_by_side
        if any(texts is not None for texts in self._texts[to]):
            return False
        values, held = columns[:, source], self._integers[first:last, to]
        held[:] = values
        return values.dtype.itemsize < _WIDE or bool((held == values).all())

    def _place_category(
        self, to: int, values: NDArray[np.generic] | None, first: int, last: int
    ) -> None:
        texts = self._texts[to]
        if texts is None and values is not None and values.dtype.kind in "iub":
            held = self._integers[first:last, to]
            held[:] = values
            if values.dtype.itemsize < _WIDE or bool((held == values).all()):
                return
        if texts is None:
            texts = self._texts[to] = self._integers[:first, to].tolist()
        for start in range(0, last - first, TEXT_ROWS):
            number = min(TEXT_ROWS, last - first - start)
            if values is None:
                texts.extend([None] * number)
            else:
                self._hold(to, texts, values[start : start + number].tolist())
            if self._count is not None and len(texts) >= TEXT_ROWS:
                self._count(to, texts)
                texts.clear()
                self._known_texts[to].clear()

    def _hold(self, to: int, texts: list[object], values: list[object]) -> None:
        # Every request brings its own objects; equal ones are kept once.
        known = self._known_texts[to]
        kept = map(_bounded, values)
        texts.extend([known.setdefault(value, value) for value in kept])

    @property
    def categories(self) -> int:
        """Return how many categorical columns there are."""
        return len(self._texts)

    def category(self, index: int) -> NDArray[np.int32] | list[object]:
        """The filled part of one category's column: integers, or a list of anything."""
        texts = self._texts[index]
        return self._integers[: self.filled, index] if texts is None else texts

    def clear(self) -> None:
        """Forget the rows."""
        self.filled = 0
        for index, known in enumerate(self._known_texts):
            self._texts[index] = None
            known.clear()


def _bounded(value: object) -> object:
    """Return the value, or a shorter equivalent of it."""
    if isinstance(value, bytes | str) and len(value) > _LONG:
        return canonical(value)
    return value


def _places(found: list[int]) -> slice | list[int]:
    """Return places as a slice where they are consecutive, which is copied faster."""
    if found and found == list(range(found[0], found[-1] + 1)):
        return slice(found[0], found[-1] + 1)
    return found


class _Plan:
    """Positions in the ring for the columns of one tensor."""

    def __init__(self, tensor: Tensor, schema: Schema) -> None:
        self.name = tensor.name
        self.row_shape = tensor.row_shape
        self.width = tensor.width
        self.dtype = np.dtype(DTYPES.get(tensor.datatype, "f4"))
        mine = [
            (place, feature)
            for place, feature in enumerate(schema.features)
            if feature.tensor == tensor.name
        ]
        numeric = [(p, f.column) for p, f in mine if f.kind == "numeric"]
        categories = [(p, f.column) for p, f in mine if f.kind != "numeric"]
        self.has_numbers = bool(numeric)
        self.numeric_to = _places([p for p, _ in numeric])
        self.numeric_from = _places([c for _, c in numeric])
        self.category_to = [p - schema.numeric for p, _ in categories]
        self.category_from = [c for _, c in categories]
        to, source = _places(self.category_to), _places(self.category_from)
        self.side_by_side = (
            (to, source)
            if isinstance(to, slice) and isinstance(source, slice)
            else None
        )
        self.one_row = (1, *tensor.row_shape)
        everything = slice(0, self.width)
        self.is_whole = (
            len(tensor.row_shape) == 1
            and not categories
            and self.numeric_to == everything
            and self.numeric_from == everything
        )

    def problem(self, tensor: NDArray[np.generic] | None, rows: int) -> str:
        """The kind of violation, or nothing."""
        if tensor is None or tensor is LEFT_OUT:
            return "absent" if tensor is None else ""
        if tensor.ndim == 0 or tensor.shape[0] != rows:
            return "shape"
        fits = tensor.shape[1:] == self.row_shape
        if not fits and not (self.width == 1 and tensor.size == rows):
            return "shape"
        if tensor.dtype == self.dtype:
            return "" if not self.has_numbers or tensor.dtype != object else "type"
        if self.dtype.kind in _TEXTS and tensor.dtype.kind in _TEXTS:
            return ""
        numbers = tensor.dtype.kind in _NUMBERS and self.dtype.kind in _NUMBERS
        return "dtype" if numbers else "type"
