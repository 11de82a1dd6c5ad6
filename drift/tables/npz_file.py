"""NPZ: arrays by name, each a tensor of (rows, *row shape). Nothing pickled is read."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.errors import DataError
from drift.tables.layout import Column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

DATATYPES: Final = {
    "f2": "FP16",
    "f4": "FP32",
    "f8": "FP64",
    "b1": "BOOL",
    **{f"i{bits // 8}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits // 8}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
}
# Encrypted is a RuntimeError; a header may claim more rows than memory holds.
_UNREADABLE: Final = (
    EOFError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
_MOST_BYTES: Final = 1 << 30
"""Limit of all arrays, which are read whole."""


class NpzFile:
    """An NPZ file whose arrays all have the same number of rows.

    Raises:
        DataError: it is damaged, holds pickles, or its arrays do not fit together.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrays = self._read()
        if not self._arrays:
            raise DataError(str(path), "found no arrays; want at least 1")
        shapes = {name: array.shape for name, array in self._arrays.items()}
        lengths = {shape[0] if shape else -1 for shape in shapes.values()}
        if len(lengths) > 1 or -1 in lengths:
            found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise DataError(
                str(path),
                f"found arrays {found}; want the same number of rows, as "
                "the first dimension, in each",
            )
        self.rows = next(iter(lengths))
        if self.rows == 0:
            raise DataError(str(path), "found arrays of 0 rows; want at least 1")
        times = {n: a.dtype for n, a in self._arrays.items() if a.dtype.kind == "M"}
        self.skipped = tuple(f"{name} ({dtype})" for name, dtype in times.items())
        self.columns = tuple(
            Column(name, self._datatype(name, array.dtype), array.shape[1:])
            for name, array in self._arrays.items()
            if name not in times
        )

    def read_as(self, datatypes: dict[str, str]) -> None:
        """Check that arrays are of text where a reference has text, and only there.

        Raises:
            DataError: one of them is not.
        """
        for column in self.columns:
            wanted = datatypes.get(column.name, column.datatype)
            if (wanted == "BYTES") != (column.datatype == "BYTES"):
                raise DataError(
                    f"{self._path}:{column.name}",
                    f"found {column.datatype}; the reference has {wanted}",
                )

    def chunks(self, size: int) -> Iterator[dict[str, NDArray[np.generic]]]:
        """Yield rows of every array, at most `size` at a time; text as objects."""
        for start in range(0, self.rows, size):
            yield {
                name: _plain(array[start : start + size])
                for name, array in self._arrays.items()
            }

    def _read(self) -> dict[str, NDArray[np.generic]]:
        try:
            with zipfile.ZipFile(self._path) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > _MOST_BYTES:
                raise DataError(
                    str(self._path),
                    f"unpacks to {unpacked >> 20} MiB; at most {_MOST_BYTES >> 20} are "
                    "read: write Parquet, which is read in parts",
                )
            with np.load(self._path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except _UNREADABLE as error:
            raise DataError(
                str(self._path),
                f"not a readable NPZ file (text is saved as dtype U or S): {error}",
            ) from error

    def _datatype(self, name: str, dtype: np.dtype[Any]) -> str:
        if dtype.kind in "SU":
            return "BYTES"
        datatype = DATATYPES.get(dtype.str[1:])
        if datatype is None:
            raise DataError(
                f"{self._path}:{name}",
                f"found dtype {dtype}; want numbers, booleans or text",
            )
        return datatype


def _plain(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return array.astype(object) if array.dtype.kind in "SU" else array
