"""Readers of data files: each returns tensors, chunk by chunk.

These modules and `drift.cli` do I/O; the rest of the library does none. pyarrow, the extra
`tables`, reads all but NPZ.

    layout.py         which columns make up which tensors, and which of them are watched
    reading.py        a path to a table, by what the file is
    arrow_file.py     Parquet, alone or a folder of it, and Feather; columns of Arrow as numpy arrays
    csv_source.py     CSV as Arrow columns, its delimiter and decimal mark detected
    npz_file.py       NPZ
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from drift.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def import_pyarrow(path: Path, module: str) -> tuple[Any, Any]:
    """Return pyarrow, which comes with the extra `tables`, and one of its modules.

    Raises:
        DataError: it is not installed; how to install it.
    """
    try:
        arrow = importlib.import_module("pyarrow")
        return arrow, importlib.import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise DataError(
            str(path),
            f"reading {path.suffix or 'this'} needs pyarrow, which is not installed: "
            f"run `{sys.executable} -m pip install pyarrow`",
        ) from error
