"""CSV files as tensors: what is read, and what is refused with its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from drift_command import run
from table_files import csv_file, parquet_file, read

from drift.categories import canonical
from drift.errors import DataError
from drift.tables.reading import Choices, Table


def test_csv_has_numbers_text_and_missing_values(tmp_path):
    text = 'a,b,c\n1,red,\n2.5,"blue, or so",NA\nNaN,"say ""x""",1e9\n'
    table, rows = read(csv_file(tmp_path, text))
    assert [(t.name, t.datatype) for t in table.tensors] == [
        ("a", "FP64"),
        ("b", "BYTES"),
        ("c", "FP64"),
    ]
    assert np.array_equal(rows["a"], [1, 2.5, np.nan], equal_nan=True)
    assert rows["b"].tolist() == ["red", "blue, or so", 'say "x"']
    assert np.array_equal(rows["c"], [np.nan, np.nan, 1e9], equal_nan=True)


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("", "data.csv: ", "is empty"),
        ("a,b\n", "data.csv: ", "no rows"),
        ("a,a\n1,2\n", "data.csv:1: ", "column 'a' twice"),
        ("a,\n1,2\n", "data.csv:1: ", "without name"),
        ("a,b\n1,2\n1,2,3\n", "data.csv:3: ", "found 3 fields; want 2"),
        ("a,b\n1,2\n1\n", "data.csv:3: ", "found 1 fields; want 2"),
        ('a,b\n1,"2\n', "data.csv:2:b: ", "in a column of numbers"),
        ('a,b\n1,"x\n2,y\n3,z\n', "data.csv: ", "unclosed quote in the last row: 'x"),
        (b"a,b\n1,\xff\xfe\n", "data.csv:", "not UTF-8"),
        (b"\xff,b\n1,2\n", "data.csv:1", "not UTF-8"),
        ("a;b\n1;2\n".encode("utf-16"), "data.csv: ", "found UTF-16; want UTF-8"),
        ("a;b\n1;2\n1;2;3\n", "data.csv:3: ", "found 3 fields; want 2"),
        ("a\tb\n1\n", "data.csv:2: ", "found 1 fields; want 2"),
        ("a;b\n1,5;2.5\n", "data.csv: ", "commas in column 'a' and decimal points in"),
    ],
)
def test_a_csv_that_is_none_is_refused_with_its_line(tmp_path, text, where, problem):
    with pytest.raises(DataError, match=problem) as caught:
        read(csv_file(tmp_path, text))
    assert where in str(caught.value)


def test_a_word_among_numbers_is_refused_with_line_and_column(tmp_path):
    text = "a,b\n" + "1,2\n" * 12_000 + "1,abc\n"
    with pytest.raises(DataError) as caught:
        read(csv_file(tmp_path, text))
    assert "data.csv:12002:b: found 'abc'" in str(caught.value)
    assert "--categorical b" in str(caught.value)
    _, rows = read(csv_file(tmp_path, text), categorical=frozenset({"b"}))
    assert set(rows["b"]) == {"2", "abc"}


def test_digits_grouped_as_python_does_are_no_number(tmp_path):
    table, _ = read(csv_file(tmp_path, "a\n1_000\n"))
    assert table.tensors[0].datatype == "BYTES"


def test_a_quoted_field_may_span_lines_and_errors_name_the_row(tmp_path):
    # Rows are counted, of which the header is the first.
    with pytest.raises(DataError, match=r"data\.csv:3: found 3 fields"):
        read(csv_file(tmp_path, 'a,b\n"x\ny",1\n2,3,4\n'))
    _, rows = read(csv_file(tmp_path, 'a,b\n"x\ny",1\n"say ""z""\r\n",3\n'))
    assert rows["a"].tolist() == ["x\ny", 'say "z"\r\n']
    assert rows["b"].tolist() == [1, 3]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    text = "a,b,c\n1.5,red,NA\n2.5,blue,7\n".replace(",", delimiter)
    table, rows = read(csv_file(tmp_path, text))
    assert [(t.name, t.datatype) for t in table.tensors] == [
        ("a", "FP64"),
        ("b", "BYTES"),
        ("c", "FP64"),
    ]
    assert rows["a"].tolist() == [1.5, 2.5]
    assert (table.notes == ()) == (delimiter == ",")


def test_delimiters_within_cells_do_not_count(tmp_path):
    text = 'text,n\n"a;b;c",1\nd;e;f,2\n"g|h",3\n'
    _, rows = read(csv_file(tmp_path, text))
    assert rows["text"].tolist() == ["a;b;c", "d;e;f", "g|h"]


def test_a_single_column_may_hold_any_delimiter(tmp_path):
    table, rows = read(csv_file(tmp_path, "text\na;b\nc\td\ne|f\n"))
    assert [t.name for t in table.tensors] == ["text"]
    assert rows["text"].tolist() == ["a;b", "c\td", "e|f"]


def test_decimal_commas_are_numbers_where_semicolons_separate(tmp_path):
    table, rows = read(csv_file(tmp_path, "a;b;c\n1,5;-2;x\n0,25;1,5e3;y,z\n"))
    assert [t.datatype for t in table.tensors] == ["FP64", "FP64", "BYTES"]
    assert rows["a"].tolist() == [1.5, 0.25]
    assert rows["b"].tolist() == [-2.0, 1500.0]
    assert table.notes == ("columns separated by ';', decimal commas",)


def test_a_column_is_of_what_its_first_values_are_however_late(tmp_path):
    text = "n,late,never\n" + "1,,\n" * 20_000 + "2,red,\n3,7,\n"
    table, rows = read(csv_file(tmp_path, text))
    assert [t.datatype for t in table.tensors] == ["FP64", "BYTES", "FP64"]
    assert rows["late"][-2:].tolist() == ["red", "7"]
    assert rows["late"][0] is None
    assert np.isnan(rows["never"]).all()


def test_a_column_without_a_value_is_of_the_references_type(tmp_path):
    reference = Table(csv_file(tmp_path, "name,n\nred,1\nblue,2\n", "train.csv"))
    later = Table(csv_file(tmp_path, "name,n\n,\nNA,\n")).arranged_as(
        reference.schema()
    )
    [(rows, _)] = later.chunks()
    assert rows["name"].tolist() == [None, None]
    assert np.isnan(rows["n"]).all()
    nothing = parquet_file(tmp_path, {"name": pa.nulls(2), "n": pa.nulls(2)})
    [(rows, _)] = Table(nothing).arranged_as(reference.schema()).chunks()
    assert [canonical(value) for value in rows["name"]] == [None, None]
    assert np.isnan(rows["n"].astype(float)).all()


def test_digits_are_names_where_the_reference_has_names(tmp_path):
    zips = Choices(categorical=frozenset({"zip"}))
    train = Table(csv_file(tmp_path, "zip\n01234\n99999\n", "train.csv"), zips)
    later = Table(csv_file(tmp_path, "zip\n01234\n")).arranged_as(train.schema())
    [(rows, _)] = later.chunks()
    assert rows["zip"].tolist() == ["01234"]


def test_huge_cells_are_read_or_refused_in_a_sentence(tmp_path):
    _, rows = read(csv_file(tmp_path, "a,b\n1," + "x" * 5_000_000 + "\n2,y\n"))
    assert [len(value) for value in rows["b"]] == [5_000_000, 1]
    with pytest.raises(DataError, match="a row of more than 16 MiB, or a quote"):
        read(csv_file(tmp_path, "a,b\n1," + "x" * 50_000_000 + "\n"))


def test_a_name_with_commas_does_not_divide_the_columns(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('id;"range";temp (min, max, avg)\n1;2;3.5\n4;5;6.5\n')
    _, rows = read(path)
    assert list(rows) == ["id", "range", "temp (min, max, avg)"]


def test_texts_that_are_read_as_missing_are_reported_with_their_rows(tmp_path, capsys):
    lines = ["country,amount", *["US,1.5", "NA,NA", "None,2", ",3"] * 200]
    data = tmp_path / "train.csv"
    data.write_text("\n".join(lines) + "\n", "utf-8")
    assert run("fit", "--data", data, "--output", tmp_path / "profile") == 0
    shown = capsys.readouterr().out.splitlines()
    # An empty cell is missing for a live model too; a number cannot be a text there.
    told = [line for line in shown if "counted as missing" in line]
    assert told == [
        f"country: {text!r} (200 rows) is counted as missing; in a live request this text "
        "is a category"
        for text in ("NA", "None")
    ]
