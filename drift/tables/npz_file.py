"""NPZ: arrays by name, each a tensor of (rows, *row shape). Nothing pickled is read.

Rows are unpacked a chunk at a time. Arrays in Fortran order have no rows to read one after
the other: they are unpacked whole, all together up to `_MOST_BYTES`.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

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
_CHUNK_BYTES: Final = 64 << 20
_MOST_BYTES: Final = 256 << 20
_HEADERS: Final = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True, slots=True)
class _Member:
    """An array as its header describes it."""

    entry: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def is_whole(self) -> bool:
        """True if it can only be read whole: it is stored by column (Fortran order)."""
        return self.fortran and len(self.shape) > 1

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


class NpzFile:
    """An NPZ file whose arrays all have the same number of rows.

    Raises:
        DataError: it is damaged, holds pickles, or its arrays do not fit together.
    """

    dialect: None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._members = self._headers()
        if not self._members:
            raise DataError(str(path), "found no arrays; want at least 1")
        shapes = {name: member.shape for name, member in self._members.items()}
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
        times = {n: m for n, m in self._members.items() if m.dtype.kind == "M"}
        self.skipped = tuple(f"{name} ({m.dtype})" for name, m in times.items())
        self.columns = tuple(
            Column(name, self._datatype(name, member.dtype), member.shape[1:])
            for name, member in self._members.items()
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
        row_bytes = sum(member.row_bytes for member in self._members.values())
        size = max(min(size, _CHUNK_BYTES // max(row_bytes, 1)), 1)
        with contextlib.ExitStack() as stack, self._explained():
            archive = stack.enter_context(zipfile.ZipFile(self._path))
            self._check_whole()
            files: dict[str, IO[bytes]] = {}
            whole: dict[str, NDArray[np.generic]] = {}
            for name, member in self._members.items():
                file = stack.enter_context(archive.open(member.entry))
                if member.is_whole:
                    whole[name] = np.lib.format.read_array(file, allow_pickle=False)
                else:
                    _header(file)
                    files[name] = file
            for start in range(0, self.rows, size):
                rows = min(size, self.rows - start)
                read = {
                    name: _rows(file, self._members[name], rows)
                    for name, file in files.items()
                }
                kept = {n: array[start : start + rows] for n, array in whole.items()}
                both = read | kept
                yield {name: _plain(both[name]) for name in self._members}

    def _headers(self) -> dict[str, _Member]:
        found: dict[str, _Member] = {}
        with self._explained(), zipfile.ZipFile(self._path) as archive:
            for entry in archive.namelist():
                with archive.open(entry) as file:
                    shape, fortran, dtype = _header(file)
                if dtype.hasobject:
                    raise DataError(
                        str(self._path),
                        "found pickled objects, which are not supported; save text "
                        "as dtype U or S",
                    )
                name = entry.removesuffix(".npy")
                found[name] = _Member(entry, shape, fortran, dtype)
        return found

    def _check_whole(self) -> None:
        whole = {n: m for n, m in self._members.items() if m.is_whole}
        size = sum(self.rows * member.row_bytes for member in whole.values())
        if size > _MOST_BYTES:
            raise DataError(
                f"{self._path}:{', '.join(whole)}",
                f"found {size >> 20} MiB in Fortran order; want at most "
                f"{_MOST_BYTES >> 20} MiB, or arrays saved with np.ascontiguousarray",
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            raise DataError(
                str(self._path), f"not a readable NPZ file: {error}"
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


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"NPY version {version[0]}.{version[1]} is not supported")
    shape, fortran, dtype = _HEADERS[version](file)
    return shape, fortran, dtype


def _rows(file: IO[bytes], member: _Member, rows: int) -> NDArray[np.generic]:
    wanted = rows * member.row_bytes
    data = file.read(wanted)
    if len(data) != wanted:
        raise ValueError(f"{member.entry} is truncated")
    return np.frombuffer(data, member.dtype).reshape(rows, *member.shape[1:])


def _plain(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return array.astype(object) if array.dtype.kind in "SU" else array
