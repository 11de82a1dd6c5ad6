"""Inputs of a shadow comparison: from the tap, from a file, or synthetic."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from pydantic import ValidationError

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.errors import GoldenDataError
from exporter.features.golden import golden_data, golden_signature
from exporter.features.golden.golden_settings import GoldenData
from exporter.own_requests.payload import make_payload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from exporter.access.mirror_hub import Mirrored
    from exporter.features.golden.golden_signature import Prepared
    from exporter.own_requests.payload import InputSettings
    from exporter.triton.protocol_types import Array, ModelSpec

MAX_HELD_BYTES: Final = 16 << 20
"""Limit of mirrored requests that wait to be sent."""
_MOST_HELD: Final = 256


@dataclass(frozen=True, slots=True)
class Input:
    """Tensors of one request, and the right class where it is known."""

    arrays: Mapping[str, Array]
    label: int | None = None


class Inputs(Protocol):
    """A source of inputs."""

    name: str

    def next(self, spec: ModelSpec) -> Input | None:
        """Return the inputs of the next request, or None if none are available now.

        Raises:
            TritonError: the inputs cannot be made to fit the model.
            GoldenDataError: the file's columns are not the model's inputs.
        """
        ...


class MirroredInputs:
    """The latest mirrored requests, each given out once. Thread-safe."""

    name = "mirror"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: deque[tuple[int, Mapping[str, Array]]] = deque()
        self._bytes = 0

    def add(self, requests: Sequence[Mirrored]) -> None:
        """Keep mirrored requests; drop the oldest if there are too many."""
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
    """Rows of a golden file in random order, repeated without end.

    Raises:
        GoldenDataError: it cannot be read, or its labels are not classes.
    """

    name = "golden"

    def __init__(self, path: Path, label: str, seed: int) -> None:
        settings = _golden_settings(path)
        self._golden = golden_data.read(settings)
        self._labels = self._golden.columns.get(label)
        self._label = label
        self._rng = np.random.default_rng(seed)
        self._order: list[int] = []
        self._prepared: tuple[ModelSpec, Prepared] | None = None

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return self._golden.sha256

    @property
    def labelled(self) -> bool:
        """Return whether the right classes are known."""
        return self._labels is not None

    def next(self, spec: ModelSpec) -> Input:
        """One row as a request of one.

        Raises:
            GoldenDataError: the file's columns are not those that the model takes.
        """
        if self._prepared is None or self._prepared[0] != spec:
            self._prepared = spec, golden_signature.prepare(self._golden, spec)
        if not self._order:
            self._order = self._rng.permutation(self._golden.rows).tolist()
        row = self._order.pop()
        request = self._prepared[1].request(np.array([row]))
        return Input(request, self._right(row))

    def _right(self, row: int) -> int | None:
        if self._labels is None:
            return None
        value = self._labels[row]
        try:
            return int(value)
        except (TypeError, ValueError):
            raise self._golden.problem(
                f"is {value!r}; want a class as an integer",
                name=self._label,
                row=row,
            ) from None


def _golden_settings(path: Path) -> GoldenData:
    try:
        return GoldenData(file=path)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise GoldenDataError(str(path), reason) from None


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
    """Takes the first of several sources that has an input."""

    def __init__(self, sources: Sequence[Inputs]) -> None:
        self._sources = sources
        self.name = sources[0].name

    def next(self, spec: ModelSpec) -> Input | None:
        """Return an input from the first source that has one."""
        for source in self._sources:
            found = source.next(spec)
            if found is not None:
                self.name = source.name
                return found
        return None
