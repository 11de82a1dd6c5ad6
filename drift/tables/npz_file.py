"""NPZ: arrays by name, each a tensor of (rows, *row shape). Nothing pickled is read."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.errors import DataError
from drift.features import Tensor

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
    OSError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


class NpzFile:
    """An NPZ file whose arrays all have the same number of rows.

    Raises:
        DataError: it is damaged, holds pickles, or its arrays do not fit together.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrays = self._load()
        if not self._arrays:
            raise DataError(str(path), "found no arrays; want at least 1")
        lengths = {n: len(a) if a.ndim else -1 for n, a in self._arrays.items()}
        if len(set(lengths.values())) > 1 or -1 in lengths.values():
            found = ", ".join(f"{n} {a.shape}" for n, a in self._arrays.items())
            raise DataError(
                str(path), f"found arrays {found}; want as many rows first in each"
            )
        self.rows = next(iter(lengths.values()))
        self.skipped: tuple[str, ...] = ()
        if self.rows == 0:
            raise DataError(str(path), "found arrays of 0 rows; want at least 1")

    def _load(self) -> dict[str, NDArray[np.generic]]:
        try:
            with np.load(self._path, allow_pickle=False) as archive:
                if not isinstance(archive, np.lib.npyio.NpzFile):
                    raise DataError(str(self._path), "found one array; want an NPZ")
                return {name: archive[name] for name in archive.files}
        except _UNREADABLE as error:
            pickled = "allow_pickle" in str(error) or "Object arrays" in str(error)
            what = (
                "found pickled objects, which are not read; save text as dtype U or S"
                if pickled
                else f"not an NPZ that can be read: {error}"
            )
            raise DataError(str(self._path), what) from error

    def array(self, name: str) -> NDArray[np.generic] | None:
        """An array as it is stored."""
        return self._arrays.get(name)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every array of numbers or text."""
        return tuple(
            Tensor(name, self._datatype(name, array), array.shape[1:])
            for name, array in self._arrays.items()
            if array.dtype.kind != "M"
        )

    def _datatype(self, name: str, array: NDArray[np.generic]) -> str:
        if array.dtype.kind in "SU":
            return "BYTES"
        datatype = DATATYPES.get(array.dtype.str[1:])
        if datatype is None:
            raise DataError(
                f"{self._path}:{name}",
                f"found dtype {array.dtype}; want numbers, booleans or text",
            )
        return datatype

    def chunks(self, size: int) -> Iterator[dict[str, NDArray[np.generic]]]:
        """Rows of every array, `size` at a time; text as objects."""
        for start in range(0, self.rows, size):
            yield {
                name: _plain(array[start : start + size])
                for name, array in self._arrays.items()
            }


def _plain(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return array.astype(object) if array.dtype.kind in "SU" else array
