"""Small data files, and tables read from them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from drift.tables.reading import Choices, Table


def csv_file(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def parquet_file(tmp_path, columns):
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def npz_file(tmp_path, **arrays):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    return path


def read(path, **choices):
    table = Table(path, Choices(**choices))
    chunks = [tensors for tensors, _ in table.chunks()]
    whole = {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
    return table, whole
