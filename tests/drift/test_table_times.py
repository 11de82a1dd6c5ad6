"""Times of a table: the hour of the week, in order, whatever they are written in."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from drift.errors import DataError
from drift.tables.reading import Choices, Table

MONDAY = 1_700_438_400
"""2023-11-20T00:00:00Z, in seconds since 1970."""


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**9])
def test_numbers_are_seconds_or_parts_of_them_by_their_size(tmp_path, per_second):
    path = tmp_path / "t.parquet"
    times = [(MONDAY + hour * 3600) * per_second for hour in range(3)]
    parquet.write_table(pa.table({"at": times, "x": [1.0, 2.0, 3.0]}), path)
    table = Table(path, Choices(time="at"))
    assert [hour for _, hour in table.chunks()] == [0, 1, 2]


def test_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    columns = [pa.array([1.0, 2.0]), pa.array([3.0, 4.0]), pa.array([5.0, 6.0])]
    parquet.write_table(pa.Table.from_arrays(columns, ["x", "y", "x"]), path)
    with pytest.raises(DataError, match="'x' twice"):
        Table(path)
