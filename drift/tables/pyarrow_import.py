"""pyarrow, which comes with the extra `tables` and is imported only where it is needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from drift.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def import_pyarrow(path: Path, module: str) -> tuple[Any, Any]:
    """Return pyarrow and one of its modules.

    Raises:
        DataError: it is not installed; how to install it.
    """
    try:
        return importlib.import_module("pyarrow"), importlib.import_module(
            f"pyarrow.{module}"
        )
    except ImportError as error:
        raise DataError(
            str(path),
            f"reading {path.suffix or 'this'} needs pyarrow, which is not installed: "
            "pip install 'tritonwatch[tables]'",
        ) from error
