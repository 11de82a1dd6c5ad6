"""A column that a file spells differently from the reference is the same column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from drift_command import run
from pyarrow import feather, parquet

from drift.judgement import Judgement

ROWS = 3000


def flags(seed, missing=()):
    found = (np.random.default_rng(seed).random(ROWS) < 0.3).tolist()
    for row in missing:
        found[row] = None
    return found


def written(path, column):
    write = parquet.write_table if path.suffix == ".parquet" else feather.write_feather
    write(pa.table({"vip": pa.array(column)}), path)
    return path


def compared(first, second, capsys):
    run("compare", first, second, "--json")
    return Judgement.model_validate_json(capsys.readouterr().out)


@pytest.mark.parametrize("ending", ["parquet", "feather"])
@pytest.mark.parametrize("at", ["reference", "data"])
def test_one_missing_boolean_is_one_missing_value(tmp_path, capsys, ending, at):
    sides = {
        side: written(
            tmp_path / f"{side}.{ending}", flags(seed, (17,) if side == at else ())
        )
        for seed, side in enumerate(("reference", "data"))
    }
    found = compared(sides["reference"], sides["data"], capsys)
    assert found.outcome == "no_drift"
    assert "type vip" not in found.violations
    (feature,) = found.features
    shares = {share.name: (share.reference, share.data) for share in feature.quality}
    assert shares["missing"] == tuple(
        1 / ROWS if side == at else 0.0 for side in ("reference", "data")
    )


def test_booleans_that_are_all_missing_are_missing(tmp_path, capsys):
    first = written(tmp_path / "reference.parquet", flags(0))
    second = written(tmp_path / "data.parquet", flags(1, range(ROWS)))
    assert compared(first, second, capsys).outcome == "drift"


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("int64", lambda whole: whole + 0.45),
        ("int8", lambda whole: whole.astype("int64") + 256),
        ("uint16", lambda whole: whole.astype("int64") - 65_536),
        ("bool", lambda flag: flag * 7),
    ],
)
def test_values_that_the_type_of_the_reference_cannot_hold_are_as_in_the_file(
    tmp_path, capsys, kind, change
):
    first, second = np.random.default_rng(3).integers(0, 2, (2, ROWS)).astype(kind)
    train = written(tmp_path / "reference.parquet", first)
    found = compared(train, written(tmp_path / "data.parquet", change(second)), capsys)
    assert (found.outcome, found.violations) == ("drift", ("dtype vip",))
