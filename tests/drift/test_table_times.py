"""Times of a table: the hour of the week, in order, whatever they are written in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from table_files import csv_file, parquet_file

from drift.errors import DataError
from drift.tables.reading import Choices, Table

MONDAY = 1_700_438_400
"""2023-11-20T00:00:00Z, in seconds since 1970."""


def test_times_give_the_hour_of_the_week(tmp_path):
    text = "t,a\n2026-11-16T00:10:00Z,1\n2026-11-16T00:50:00,2\n2026-11-16T02:00:00+01:00,3\n"
    table = Table(csv_file(tmp_path, text), Choices(time="t"))
    parts = [(tensors["a"].tolist(), hour) for tensors, hour in table.chunks()]
    # 16 November 2026 is a Monday.
    assert parts == [([1.0, 2.0], 0), ([3.0], 1)]
    assert [tensor.name for tensor in table.tensors] == ["a"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("t,a\n10,1\n5,2\n", "row 2 is missing or older"),
        ("t,a\n10,1\n,2\n", "row 2 is missing or older"),
        ("t,a\nyesterday,1\n", "found 'yesterday'; want a time"),
        ("u,a\n1,1\n", "--time names 't'; the file has u, a"),
    ],
)
def test_times_that_are_none_or_out_of_order_are_refused(tmp_path, text, problem):
    table = Table(csv_file(tmp_path, text), Choices(time="t"))
    with pytest.raises(DataError, match=problem):
        list(table.chunks())


def test_parquet_times_and_numbers_agree_with_csv(tmp_path):
    # 18 November 2026, a Wednesday, 5 and 7 o'clock.
    seconds = np.array([1_794_978_000, 1_794_985_200])
    moments = pa.array(seconds * 10**6, pa.timestamp("us"))
    path = parquet_file(tmp_path, {"t": moments, "a": [1.0, 2.0]})
    hours = [hour for _, hour in Table(path, Choices(time="t")).chunks()]
    assert hours == [53, 55]


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**9])
def test_numbers_are_seconds_or_parts_of_them_by_their_size(tmp_path, per_second):
    path = tmp_path / "t.parquet"
    # An unknown time is often written as 0, which is a Thursday.
    times = [0, *((MONDAY + hour * 3600) * per_second for hour in range(2))]
    parquet.write_table(pa.table({"at": times, "x": [1.0, 2.0, 3.0]}), path)
    table = Table(path, Choices(time="at"))
    assert [hour for _, hour in table.chunks()] == [72, 0, 1]
