"""Data files as tensors: what is read, and what is refused with its place."""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import pyarrow as pa
import pytest
from commands import python
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet
from table_files import csv_file, npz_file, parquet_file, read

from drift.errors import DataError, SchemaError
from drift.tables import npz_file as npz_file_module
from drift.tables.layout import Layout
from drift.tables.npz_file import NpzFile
from drift.tables.reading import Choices, Table, digest


def test_feather_and_folders_of_parquet_are_read(tmp_path):
    table = pa.table({"x": [1.0, 2.0, 3.0], "c": ["a", None, "b"]})
    feather.write_feather(table, tmp_path / "data.feather")
    folder = tmp_path / "days" / "november"
    folder.mkdir(parents=True)
    (folder / "_SUCCESS").write_text("")
    parquet.write_table(table.slice(0, 2), folder / "1.parquet")
    parquet.write_table(table.slice(2), folder / "2.parquet")
    for path in (tmp_path / "data.feather", tmp_path / "days"):
        found, rows = read(path)
        assert found.rows == 3
        assert rows["x"].tolist() == [1, 2, 3]
        assert rows["c"].tolist() == ["a", None, "b"]
    assert digest(tmp_path / "days") != digest(tmp_path / "data.feather")
    parquet.write_table(pa.table({"y": [1]}), folder / "3.parquet")
    with pytest.raises(
        DataError, match=r"3\.parquet: its columns differ from those of 1\.parquet"
    ):
        read(tmp_path / "days")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="a folder without parquet files"):
        read(empty)


_PEAK = """
import resource, sys
from pathlib import Path
from drift.cli import EXIT_OK
from exporter.cli import main
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = main(["drift", "fit", "--data", sys.argv[1], "--output", sys.argv[1] + ".json"])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print("peak", (after - before) // 1024)
sys.exit(code)
"""


def test_an_npz_that_unpacks_to_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npz_file_module, "_MOST_BYTES", 1 << 20)
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros(1 << 18))
    with pytest.raises(DataError, match="unpacks to 2 MiB; at most 1 are read"):
        NpzFile(path)


def test_arrays_in_fortran_order_have_their_rows(tmp_path):
    small = tmp_path / "small.npz"
    np.savez(small, x=np.asfortranarray(np.arange(6.0).reshape(3, 2)))
    assert next(NpzFile(small).chunks(2))["x"].tolist() == [[0, 1], [2, 3]]


def long_texts(path):
    """65,536 rows that share one text of 20 kB: 1.3 GB, were each to have its own."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(65_536, np.int32), ["x" * 20_000])
    parquet.write_table(pa.table({"x": texts}), path)


def test_a_small_file_that_unpacks_to_much_is_fitted_in_little_memory(tmp_path):
    path = tmp_path / "data.parquet"
    long_texts(path)
    assert path.stat().st_size < 1_000_000
    peak = int(python(_PEAK, path).split("peak ")[1])
    assert peak < 250, "MB more than before"


def test_a_feather_file_of_one_huge_batch_is_refused(tmp_path):
    path = tmp_path / "data.feather"
    table = pa.table({"x": pa.array(np.zeros(70_000_000, np.int8))})
    feather.write_feather(table, path, compression="zstd", chunksize=70_000_000)
    with pytest.raises(DataError, match="smaller chunksize, like 65536"):
        Table(path)


@settings(max_examples=200)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_table_or_a_data_error(content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    for ending in ("csv", "tsv", "npz", "parquet", "feather"):
        path = csv_file(folder, content, f"data.{ending}")
        with contextlib.suppress(DataError):
            read(path)


def test_parquet_types_become_datatypes(tmp_path):
    times = pa.array([0, 86_400], pa.timestamp("us"))
    path = parquet_file(
        tmp_path,
        {
            "f4": pa.array([1.5, None], pa.float32()),
            "i8": pa.array([1, 2], pa.int8()),
            "holes": pa.array([1, None], pa.int64()),
            "flag": [True, False],
            "text": ["a", None],
            "words": pa.array(["x", "y"]).dictionary_encode(),
            "list": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "loose": [[1, 2, 3], [4, 5, 6]],
            "when": times,
        },
    )
    table, rows = read(path)
    found = {t.name: (t.datatype, t.row_shape) for t in table.tensors}
    assert found == {
        "f4": ("FP32", ()),
        "i8": ("INT8", ()),
        "holes": ("FP64", ()),
        "flag": ("BOOL", ()),
        "text": ("BYTES", ()),
        "words": ("BYTES", ()),
        "list": ("FP32", (2,)),
        "loose": ("INT64", (3,)),
    }
    assert table.skipped == ("when (timestamp[us])",)
    assert np.array_equal(rows["holes"], [1, np.nan], equal_nan=True)
    assert rows["text"].tolist() == ["a", None]
    assert rows["loose"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_missing_parquet_list_of_fixed_length_is_refused(tmp_path):
    rows = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    path = parquet_file(tmp_path, {"x": rows})
    # pyarrow 18 refuses to read what it wrote.
    known = "data.parquet:x: .*row 2: found no list; want 2|damaged: Expected all lists"
    with pytest.raises(DataError, match=known):
        read(path)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([[1, 2], [3]], "row 2: found a list of 1; want 2"),
        ([[1, 2], [3], [4, 5, 6]], "row 2: found a list of 1; want 2"),
        ([[1], [2, 3]], "row 2: found a list of 2; want 1"),
        ([[1, 2], None, [3, 4]], "row 2: found no list; want 2"),
        ([[1, 2], None, [3, 4, 5, 6]], "row 2: found no list; want 2"),
        ([None, [1, 2]], "row 1: found no list"),
        ([[], [1, 2]], "row 1: found a list of 0"),
        ([[1, 2]] * 70_000 + [[3]], "row 70001: found a list of 1; want 2"),
    ],
)
def test_parquet_lists_of_different_lengths_are_refused(tmp_path, rows, problem):
    path = parquet_file(tmp_path, {"x": rows})
    with pytest.raises(DataError, match=problem) as caught:
        read(path)
    assert "data.parquet:x: " in str(caught.value)


def test_parquet_lists_of_one_are_numbers(tmp_path):
    table, rows = read(parquet_file(tmp_path, {"x": [[1], [2]]}))
    assert table.tensors[0].row_shape == ()
    assert rows["x"].tolist() == [1, 2]


def test_without_pyarrow_the_error_has_the_command_that_installs_it(
    tmp_path, monkeypatch
):
    path = parquet_file(tmp_path, {"x": [1.0]})
    others = [csv_file(tmp_path, "a\n1\n"), csv_file(tmp_path, "a\n1\n", "data.tsv")]
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    for each in (path, *others):
        with pytest.raises(
            DataError, match=f"run `{sys.executable} -m pip install pyarrow`"
        ):
            Table(each)
    assert Table(npz_file(tmp_path, x=np.zeros(3))).rows == 3


def test_npz_arrays_are_tensors(tmp_path):
    path = npz_file(
        tmp_path, x=np.zeros((5, 2, 3), np.float32), c=np.array(list("abcde"))
    )
    table, rows = read(path)
    found = {t.name: (t.datatype, t.row_shape) for t in table.tensors}
    assert found == {"x": ("FP32", (2, 3)), "c": ("BYTES", ())}
    assert rows["c"].tolist() == list("abcde")


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x": np.zeros(3), "y": np.zeros(4)}, "the same number of rows"),
        ({"x": np.float64(1.0)}, "the same number of rows"),
        ({"x": np.zeros((0, 2))}, "0 rows"),
        ({"x": np.zeros(3, complex)}, "complex"),
        ({"x": np.array([{}, {}], object)}, "text is saved as dtype U or S"),
        ({}, "no arrays"),
    ],
)
def test_an_npz_that_is_no_table_is_refused(tmp_path, arrays, problem):
    with pytest.raises(DataError, match=problem):
        read(npz_file(tmp_path, **arrays))


def test_columns_by_their_names_become_one_tensor(tmp_path):
    table, rows = read(csv_file(tmp_path, "x[1],x[0],y[1]\n1,2,3\n"))
    assert [(t.name, t.row_shape) for t in table.tensors] == [("x", (2,)), ("y[1]", ())]
    assert rows["x"].tolist() == [[2.0, 1.0]]
    assert table.schema().names == ("x[0]", "x[1]", "y[1]")


def test_a_layout_names_tensors_and_features(tmp_path):
    layout = Layout.parse(
        {
            "tensors": [
                {"name": "in", "datatype": "FP32", "shape": [2], "columns": ["b", "a"]}
            ],
            "features": [
                {"name": "age", "tensor": "in", "column": 1},
                {"name": "plan", "tensor": "c", "type": "categorical"},
            ],
        },
        "features.yaml",
    )
    table, rows = read(csv_file(tmp_path, "a,b,c,d\n1,2,3,4\n"), layout=layout)
    assert rows["in"].dtype == np.float32
    assert rows["in"].tolist() == [[2.0, 1.0]]
    schema = table.schema()
    assert schema.names == ("age", "plan")
    assert [tensor.name for tensor in schema.tensors] == ["in", "c"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"tensor": []}, "tensor: Extra"),
        ({"features": [{"name": "a"}]}, r"features\.0\.tensor: Field required"),
        ([1], "the file"),
        ({"tensors": [{"name": "x", "columns": ["nope"]}]}, "'nope' of tensor 'x'"),
        (
            {"tensors": [{"name": "x", "shape": [3], "columns": ["a"]}]},
            "do not hold 3 values",
        ),
        ({"tensors": [{"name": "a", "datatype": "F4"}]}, "datatype 'F4'"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(tmp_path, content, problem):
    with pytest.raises(DataError, match=problem):
        read(csv_file(tmp_path, "a,b\n1,2\n"), layout=Layout.parse(content, "l.yaml"))


def test_a_category_that_is_not_there_is_named(tmp_path):
    table = Table(
        csv_file(tmp_path, "a\n1\n"), Choices(categorical=frozenset({"nope"}))
    )
    with pytest.raises(SchemaError, match="names nope; there are a"):
        table.schema()


def test_another_files_columns_are_arranged_as_the_references_or_refused(tmp_path):
    reference = Table(npz_file(tmp_path, x=np.zeros((3, 2), np.float32)))
    schema = reference.schema()
    table = Table(csv_file(tmp_path, "x[1],x[0],z\n1,2,3\n")).arranged_as(schema)
    [(tensors, _)] = table.chunks()
    assert tensors["x"].dtype == np.float32
    assert tensors["x"].tolist() == [[2.0, 1.0]]
    with pytest.raises(DataError, match=r"columns 'x\[1\]' of tensor 'x' are absent"):
        Table(csv_file(tmp_path, "x[0]\n1\n")).arranged_as(schema)
    with pytest.raises(DataError, match="contain text; the reference has numbers"):
        Table(csv_file(tmp_path, "x[0],x[1]\n1,a\n")).arranged_as(schema)
    wide = npz_file(tmp_path, x=np.zeros((3, 5)))
    with pytest.raises(DataError, match="do not hold 2 values a row"):
        Table(wide).arranged_as(schema)


def test_the_ending_and_the_file_must_be_there(tmp_path):
    with pytest.raises(
        DataError, match=r"'\.txt'; want one of \.parquet, .*, or a folder of parquet"
    ):
        Table(csv_file(tmp_path, "a\n1\n", "data.txt"))
    with pytest.raises(DataError, match="no such file"):
        Table(tmp_path / "nothing.csv")
    with pytest.raises(DataError):
        digest(tmp_path / "nothing.csv")


def test_the_digest_is_that_of_the_bytes(tmp_path):
    path = csv_file(tmp_path, "abc")
    assert digest(path) == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_progress_is_told_in_rows(tmp_path):
    told = []
    list(Table(npz_file(tmp_path, x=np.zeros(150_000))).chunks(told.append))
    assert told == [65_536, 131_072, 150_000]


def test_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    columns = [pa.array([1.0, 2.0]), pa.array([3.0, 4.0]), pa.array([5.0, 6.0])]
    parquet.write_table(pa.Table.from_arrays(columns, ["x", "y", "x"]), path)
    with pytest.raises(DataError, match="'x' twice"):
        Table(path)
