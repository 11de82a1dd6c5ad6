"""Golden files: what they may look like, and what is said of one that is wrong."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from exporter.errors import GoldenDataError
from exporter.features.golden import golden_data
from exporter.features.golden.golden_data import prepare
from exporter.features.golden.golden_scoring import Scoring
from exporter.features.golden.golden_settings import GoldenData
from exporter.triton.protocol_types import ModelSpec, TensorSpec

ROWS = 6


def spec(*, inputs=None, outputs=None, batch=8, version="1") -> ModelSpec:
    return ModelSpec(
        "m",
        version,
        tuple(
            inputs
            or (TensorSpec("x", "FP32", (-1, 3)), TensorSpec("s", "BYTES", (-1, 1)))
        ),
        tuple(outputs or (TensorSpec("p", "FP32", (-1, 2)),)),
        batch,
    )


@pytest.fixture
def columns():
    rng = np.random.default_rng(0)
    return {
        "x": rng.random((ROWS, 3)).round(4),
        "s": np.array([f"word-{i}" for i in range(ROWS)]),
        "label": np.array([0, 1, 0, 1, 0, 1]),
    }


def write(folder, form, columns):
    """The same columns in each format."""
    path = folder / f"golden.{form}"
    if form == "npz":
        np.savez(path, **columns)
    elif form == "csv":
        header = ["x[0]", "x[1]", "x[2]", "s", "label"]
        lines = [
            ",".join(map(str, [*x, s, label]))
            for x, s, label in zip(*columns.values(), strict=True)
        ]
        path.write_text("\n".join([",".join(header), *lines]) + "\n")
    elif form == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet  # noqa: PLC0415

        parquet.write_table(
            pa.table({name: column.tolist() for name, column in columns.items()}), path
        )
    else:
        kinds = {"x": "FP32", "s": "BYTES", "label": "INT64"}
        tensors = [
            {
                "name": n,
                "datatype": kinds[n],
                "shape": [ROWS, *c.shape[1:]],
                "data": c.tolist(),
            }
            for n, c in columns.items()
        ]
        path.write_text(json.dumps({"inputs": tensors}))
    return path


def read(path, **more):
    return golden_data.read(
        GoldenData.model_validate({"file": path, "label": "label", **more})
    )


@pytest.mark.parametrize("form", ["npz", "csv", "parquet", "json"])
def test_every_format_gives_the_model_the_same_tensors(tmp_path, columns, form) -> None:
    golden = read(write(tmp_path, form, columns))
    prepared = prepare(golden, spec())
    np.testing.assert_allclose(prepared.inputs["x"], columns["x"], rtol=1e-6)
    assert prepared.inputs["x"].dtype == np.float32
    assert prepared.inputs["s"].tolist() == [
        [f"word-{i}".encode()] for i in range(ROWS)
    ]
    assert golden.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert len(golden.sha256) == 64


def test_labels_of_a_regression_are_as_wide_as_the_answers(tmp_path, columns) -> None:
    columns["label"] = columns["label"].astype(np.float64)
    settings = GoldenData(file=write(tmp_path, "npz", columns), label="label")
    prepared = prepare(golden_data.read(settings), spec())
    with pytest.raises(GoldenDataError, match=r"has 1 numbers, the output 'p' 2"):
        Scoring(prepared, settings, spec())
    unknown = spec(outputs=[TensorSpec("p", "FP32", (-1, -1))])
    scoring = Scoring(prepared, settings, unknown)
    judged = scoring.judge(np.arange(ROWS), {"p": np.zeros((ROWS, 2), np.float32)})
    assert judged.outcomes["invalid"] == ROWS
    assert not dict(scoring.errors())


def test_perf_analyzers_own_format_carries_expected_answers(tmp_path) -> None:
    path = tmp_path / "input.json"
    path.write_text(
        json.dumps(
            {
                "data": [{"x": {"content": [1, 2, 3], "shape": [3]}, "s": ["a"]}] * 2,
                "validation_data": [{"p": [0.25, 0.75]}] * 2,
            }
        )
    )
    golden = golden_data.read(GoldenData(file=path))
    assert golden.expected["p"].tolist() == [[0.25, 0.75]] * 2
    assert prepare(golden, spec()).inputs["x"].shape == (2, 3)


def test_requests_of_several_rows_each_add_up(tmp_path) -> None:
    request = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [0] * 6}],
        "outputs": [
            {"name": "p", "datatype": "FP32", "shape": [2, 2], "data": [1] * 4}
        ],
    }
    path = tmp_path / "requests.json"
    path.write_text(json.dumps([request, request]))
    golden = golden_data.read(GoldenData(file=path))
    assert (golden.rows, golden.expected["p"].shape) == (4, (4, 2))


def test_columns_of_other_names_make_up_an_input(tmp_path, columns) -> None:
    path = tmp_path / "named.npz"
    np.savez(
        path,
        a=columns["x"][:, 0],
        b=columns["x"][:, 1],
        c=columns["x"][:, 2],
        text=columns["s"],
    )
    golden = golden_data.read(
        GoldenData(file=path, columns={"x": ("a", "b", "c"), "s": ("text",)})
    )
    np.testing.assert_allclose(golden.columns["x"], columns["x"])


def test_a_model_without_a_batch_dimension_takes_a_row_at_a_time(tmp_path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, x=np.zeros((ROWS, 5)))
    prepared = prepare(
        golden_data.read(GoldenData(file=path)),
        spec(inputs=[TensorSpec("x", "FP32", (-1,))], batch=0),
    )
    assert prepared.request(np.array([2]))["x"].shape == (5,)


def encrypted(path, **columns):
    """An npz of which each part says that it takes a password."""
    np.savez(path, **columns)
    raw = path.read_bytes()
    for head, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        parts = raw.split(head)
        place = flags - len(head)
        parts[1:] = [
            part[:place] + bytes([part[place] | 1]) + part[place + 1 :]
            for part in parts[1:]
        ]
        raw = head.join(parts)
    path.write_bytes(raw)
    return path


def used(path, **more) -> Scoring:
    """Everything that is done with a file before the first request."""
    settings = GoldenData(file=path, label="label")
    return Scoring(prepare(read(path, **more), spec()), settings, spec())


class TestWrongFiles:
    """Each is told with the file, and the row and the field where it has any."""

    def wrong(self, path, **more) -> GoldenDataError:
        with pytest.raises(GoldenDataError) as caught:
            used(path, **more)
        error = caught.value
        assert str(path) in str(error)
        assert "\n" not in str(error)
        return error

    def test_there_is_no_file(self, tmp_path) -> None:
        assert "No such file" in str(self.wrong(tmp_path / "none.npz"))

    @pytest.mark.parametrize("form", ["npz", "parquet", "json"])
    def test_it_is_garbage(self, tmp_path, form) -> None:
        path = tmp_path / f"garbage.{form}"
        path.write_bytes(bytes(range(256)) * 4)
        assert self.wrong(path).row is None

    def test_a_pickle_is_not_opened(self, tmp_path) -> None:
        path = tmp_path / "pickle.npz"
        np.savez(path, x=np.array([object()], dtype=object), label=np.array([1]))
        assert "not a readable npz" in str(self.wrong(path))

    def test_its_packing_is_damaged(self, tmp_path) -> None:
        path = tmp_path / "damaged.npz"
        np.savez_compressed(path, x=np.zeros((ROWS, 3)), label=np.zeros(ROWS))
        raw = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            first = archive.infolist()[0]
            extra = int.from_bytes(raw[28:30], "little")
        start = first.header_offset + 30 + len(first.filename) + extra
        raw[start : start + first.compress_size] = b"\xff" * first.compress_size
        path.write_bytes(raw)
        assert "not a readable npz" in str(self.wrong(path))

    def test_it_is_encrypted(self, tmp_path) -> None:
        path = encrypted(tmp_path / "secret.npz", x=np.zeros((ROWS, 3)))
        assert "encrypted" in str(self.wrong(path))

    def test_it_says_it_has_more_rows_than_memory_holds(self, tmp_path) -> None:
        path = tmp_path / "vast.npz"
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 43,)}
        )
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", header.getvalue())
        assert "not a readable npz" in str(self.wrong(path))

    @pytest.mark.parametrize(
        "document",
        [
            {"data": [{"x": {"content": [1, 2], "shape": [3]}}]},
            {"inputs": [], "outputs": [5]},
        ],
    )
    def test_its_parts_do_not_fit_together(self, tmp_path, document) -> None:
        path = tmp_path / "parts.json"
        path.write_text(json.dumps(document))
        assert "not a readable json" in str(self.wrong(path))

    @pytest.mark.parametrize("accuracy", ["good", 0.0, np.nan, 1.5])
    def test_the_recorded_accuracy_is_none(self, tmp_path, columns, accuracy) -> None:
        columns["recorded:accuracy"] = np.array([accuracy])
        error = self.wrong(write(tmp_path, "npz", columns))
        told = "'good'" if accuracy == "good" else f"accuracy {accuracy:g};"
        assert told in str(error)

    def test_columns_of_one_input_differ_in_shape(self, tmp_path) -> None:
        path = tmp_path / "parts.npz"
        np.savez(path, a=np.zeros(ROWS), b=np.zeros((ROWS, 2)), label=np.zeros(ROWS))
        assert self.wrong(path, columns={"x": ("a", "b")}).field == "b"

    def test_a_column_is_missing(self, tmp_path, columns) -> None:
        del columns["s"]
        path = write(tmp_path, "npz", columns)
        error = self.wrong(path)
        assert (error.field, error.row) == ("s", None)
        assert "found ['x']" in str(error)

    def test_the_label_is_missing(self, tmp_path, columns) -> None:
        path = write(tmp_path, "npz", columns)
        error = self.wrong(path, label="truth")
        assert error.field == "truth"
        assert "found label, s, x" in str(error)

    def test_a_label_is_empty(self, tmp_path, columns) -> None:
        path = write(tmp_path, "csv", columns)
        lines = path.read_text().splitlines()
        lines[3] = lines[3].rpartition(",")[0] + ","
        path.write_text("\n".join(lines))
        error = self.wrong(path)
        assert (error.field, error.row) == ("label", 2)

    def test_a_word_stands_among_numbers(self, tmp_path, columns) -> None:
        path = write(tmp_path, "csv", columns)
        lines = path.read_text().splitlines()
        lines[5] = "n/a," + lines[5].partition(",")[2]
        path.write_text("\n".join(lines))
        error = self.wrong(path)
        assert (error.field, error.row) == ("x[0]", 4)

    def test_a_line_is_short(self, tmp_path, columns) -> None:
        path = write(tmp_path, "csv", columns)
        path.write_text(path.read_text() + "1,2\n")
        error = self.wrong(path)
        assert error.row == ROWS
        assert "2 fields" in str(error)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_an_input_is_not_finite(self, tmp_path, columns, bad) -> None:
        columns["x"][4, 1] = bad
        path = write(tmp_path, "npz", columns)
        error = self.wrong(path)
        assert (error.field, error.row) == ("x", 4)
        assert (
            golden_data.read(GoldenData(file=path, label="label", allow_nan=True)).rows
            == ROWS
        )

    def test_columns_are_of_different_lengths(self, tmp_path, columns) -> None:
        columns["label"] = columns["label"][:-1]
        assert self.wrong(write(tmp_path, "npz", columns)).field == "label"

    def test_rows_of_a_parquet_column_differ_in_shape(self, tmp_path) -> None:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet  # noqa: PLC0415

        path = tmp_path / "ragged.parquet"
        parquet.write_table(pa.table({"x": [[1.0, 2.0], [1.0]], "label": [0, 1]}), path)
        error = self.wrong(path)
        assert (error.field, error.row) == ("x", 1)

    def test_a_label_is_no_class(self, tmp_path, columns) -> None:
        columns["label"] = np.array(list("aababa"))
        path = write(tmp_path, "npz", columns)
        golden = read(path, classes=["a"])
        settings = GoldenData(file=path, label="label", classes=("a",))
        with pytest.raises(GoldenDataError) as caught:
            Scoring(prepare(golden, spec()), settings, spec())
        assert (caught.value.field, caught.value.row) == ("label", 2)

    @pytest.mark.parametrize(
        ("changed", "field"),
        [
            ({"inputs": [TensorSpec("x", "FP32", (-1, 4))]}, "x"),
            ({"inputs": [TensorSpec("y", "FP32", (-1, 3))]}, "y"),
            ({"inputs": [TensorSpec("x", "INT32", (-1, 3))]}, "x"),
            ({"inputs": [TensorSpec("s", "FP32", (-1, 1))]}, "s"),
        ],
    )
    def test_the_models_signature_changed(
        self, tmp_path, columns, changed, field
    ) -> None:
        golden = read(write(tmp_path, "npz", columns))
        with pytest.raises(GoldenDataError) as caught:
            prepare(golden, spec(**changed, version="2"))
        assert caught.value.field == field

    def test_expected_answers_of_an_output_that_is_gone(
        self, tmp_path, columns
    ) -> None:
        columns["expected:q"] = np.zeros(ROWS)
        golden = read(write(tmp_path, "npz", columns))
        with pytest.raises(GoldenDataError, match="no such output") as caught:
            prepare(golden, spec())
        assert caught.value.field == "expected:q"

    def test_a_number_does_not_fit_the_models_type(self, tmp_path) -> None:
        path = tmp_path / "large.npz"
        np.savez(path, x=np.array([[1], [300]]))
        with pytest.raises(GoldenDataError) as caught:
            prepare(
                golden_data.read(GoldenData(file=path)),
                spec(inputs=[TensorSpec("x", "UINT8", (-1, 1))]),
            )
        assert (caught.value.field, caught.value.row) == ("x", 1)
