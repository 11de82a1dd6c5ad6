"""Where a shadow comparison's inputs come from: the tap, a file, or made up."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from exporter.errors import InvalidRequestError, TritonwatchError
from exporter.own_traffic import REQUEST_ID_PREFIX
from exporter.probes.payload import make_payload
from exporter.triton.tensors import array_dtype, shown_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from exporter.mirror import Mirrored
    from exporter.probes.payload import InputSettings
    from exporter.triton.model import Array, ModelSpec, TensorSpec

MAX_HELD_BYTES: Final = 16 << 20
"""Most of mirrored requests that wait to be asked."""
_MOST_HELD: Final = 256
_MOST_FILE_BYTES: Final = 1 << 30


class InputFileError(TritonwatchError):
    """A file of inputs does not fit; names the file, and the row and field if any."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True, slots=True)
class Input:
    """Tensors of one request, and the right class where it is known."""

    arrays: Mapping[str, Array]
    label: int | None = None


class Inputs(Protocol):
    """A source of inputs."""

    name: str

    def next(self, spec: ModelSpec) -> Input | None:
        """The next request's, None where there is none just now.

        Raises:
            InvalidRequestError: what there is does not fit the model.
        """
        ...


class MirroredInputs:
    """The latest mirrored requests, each given out once. Thread-safe."""

    name = "mirror"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: deque[tuple[int, Mapping[str, Array]]] = deque()
        self._bytes = 0

    def take(self, requests: Sequence[Mirrored]) -> None:
        """Keep what was mirrored; the oldest give way."""
        with self._lock:
            for request in requests:
                ours = request.request_id.startswith(REQUEST_ID_PREFIX)
                size = sum(array.nbytes for array in request.inputs.values())
                if ours or not request.inputs or size > MAX_HELD_BYTES:
                    continue
                self._held.append((size, request.inputs))
                self._bytes += size
                while self._bytes > MAX_HELD_BYTES or len(self._held) > _MOST_HELD:
                    self._bytes -= self._held.popleft()[0]

    def next(self, spec: ModelSpec) -> Input | None:
        """The latest one."""
        with self._lock:
            if not self._held:
                return None
            size, arrays = self._held.pop()
            self._bytes -= size
        known = {tensor.name for tensor in spec.inputs}
        return Input({name: array for name, array in arrays.items() if name in known})


class GoldenInputs:
    """Rows of a file in an order of their own, over and over.

    Raises:
        InputFileError: it is no .npz, or its arrays do not have one row a sample.
    """

    name = "golden"

    def __init__(self, path: Path, label: str, seed: int) -> None:
        self.path = path
        self._columns = _read(path)
        self._labels = self._columns.pop(label, None)
        self._label = label
        self.rows = len(next(iter(self._columns.values())))
        self._rng = np.random.default_rng(seed)
        self._order: list[int] = []
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    @property
    def labelled(self) -> bool:
        """Whether the right classes are known."""
        return self._labels is not None

    def next(self, spec: ModelSpec) -> Input:
        """One row as a request of one."""
        if not self._order:
            self._order = self._rng.permutation(self.rows).tolist()
        row = self._order.pop()
        missing = [
            tensor.name
            for tensor in spec.inputs
            if tensor.name not in self._columns and not tensor.optional
        ]
        if missing:
            raise InvalidRequestError(
                f"{self.path}: found no array for {missing} of {spec.name}; it has "
                f"{sorted(self._columns)}"
            )
        return Input(
            {
                tensor.name: self._tensor(tensor, row)
                for tensor in spec.inputs
                if tensor.name in self._columns
            },
            self._right(row),
        )

    def _tensor(self, tensor: TensorSpec, row: int) -> Array:
        values = self._columns[tensor.name][row]
        shape = _filled(tensor.shape, values.size)
        if shape is None:
            raise InvalidRequestError(
                f"{self.path}: row {row} of {tensor.name!r} has {values.size} values; "
                f"the model takes {shown_shape(tensor.shape)}"
            )
        if tensor.datatype == "BYTES":
            texts = [str(v).encode() for v in np.atleast_1d(values).ravel().tolist()]
            array = np.empty(len(texts), dtype=np.object_)
            array[:] = texts
            return array.reshape(shape)
        try:
            return (
                np.asarray(values).astype(array_dtype(tensor.datatype)).reshape(shape)
            )
        except ValueError:
            raise InvalidRequestError(
                f"{self.path}: row {row} of {tensor.name!r} is no {tensor.datatype}"
            ) from None

    def _right(self, row: int) -> int | None:
        if self._labels is None:
            return None
        value = self._labels[row]
        try:
            return int(value)
        except (TypeError, ValueError):
            raise InvalidRequestError(
                f"{self.path}: row {row} of {self._label!r} is {value!r}; want a class "
                "as a whole number"
            ) from None


class SyntheticInputs:
    """Tensors made up from the model's signature."""

    name = "synthetic"

    def __init__(self, overrides: dict[str, InputSettings], seed: int) -> None:
        self._overrides = overrides
        self._rng = np.random.default_rng(seed)

    def next(self, spec: ModelSpec) -> Input:
        """New ones every time."""
        return Input(make_payload(spec, self._overrides, self._rng).inputs)


class FirstInputs:
    """Of several sources the first that has something."""

    def __init__(self, sources: Sequence[Inputs]) -> None:
        self._sources = sources
        self.name = sources[0].name

    def next(self, spec: ModelSpec) -> Input | None:
        """From the first that has one."""
        for source in self._sources:
            found = source.next(spec)
            if found is not None:
                self.name = source.name
                return found
        return None


def _read(path: Path) -> dict[str, Array]:
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise InputFileError(path, f"is larger than {_MOST_FILE_BYTES} bytes")
        with np.load(path, allow_pickle=False) as loaded:
            columns: dict[str, Array] = {name: loaded[name] for name in loaded.files}
    except OSError as error:
        raise InputFileError(
            path, f"cannot be read: {error.strerror or error}"
        ) from None
    except (ValueError, AttributeError, TypeError, EOFError) as error:
        raise InputFileError(path, f"is no .npz of plain arrays: {error}") from None
    if not columns:
        raise InputFileError(path, "holds no array")
    lengths = {name: len(c) if c.ndim else 0 for name, c in columns.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        raise InputFileError(
            path, f"has arrays of {lengths} rows; want as many of each, and some"
        )
    return columns


def _filled(shape: Sequence[int], size: int) -> tuple[int, ...] | None:
    """The shape with its open dimensions set to hold `size` values: batch first, 1."""
    fixed = [dim for dim in shape if dim >= 0]
    opened = [place for place, dim in enumerate(shape) if dim < 0]
    known = math.prod(fixed)
    if not opened:
        return tuple(shape) if known == size else None
    if known == 0 or size % known:
        return None
    filled = [1 if dim < 0 else dim for dim in shape]
    filled[opened[-1]] = size // known
    return tuple(filled)
