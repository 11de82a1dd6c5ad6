"""`tritonwatch drift` on data that are hardly any: a defined answer, and a page."""

from __future__ import annotations

import numpy as np
import pytest
from drift_command import run, save

from drift.judgement import Judgement

AWKWARD = {
    "nan": np.full(600, np.nan),
    "constant": np.full(600, 7.0),
    "huge": 1e9 + np.arange(600.0),
    "giant": np.full(600, 1e300) * np.arange(600),
    "infinite": np.full(600, np.inf),
    "half_infinite": np.where(np.arange(600) % 2, np.inf, 1.0),
    "one_row": np.array([3.0]),
    "names": np.array([f"user-{i}" for i in range(600)]),
}


@pytest.mark.parametrize("later", sorted(AWKWARD))
@pytest.mark.parametrize("first", sorted(AWKWARD))
def test_awkward_columns_get_a_defined_answer(first, later, tmp_path, capsys):
    if (first == "names") != (later == "names"):
        expected = {2}
    elif first == later or "one_row" in {first, later}:
        expected = {0}
    else:
        expected = {0, 1}
    train = save(tmp_path / "train.npz", {"x": AWKWARD[first]})
    data = save(tmp_path / "data.npz", {"x": AWKWARD[later]})
    code = run("compare", train, data, "--json")
    assert code in expected
    if code != 2:
        found = Judgement.model_validate_json(capsys.readouterr().out)
        assert found.rows == len(AWKWARD[later])
        assert np.isfinite(found.log_evidence)


@pytest.mark.parametrize("later", sorted(AWKWARD))
def test_awkward_columns_can_be_drawn(later, tmp_path):
    data = save(tmp_path / "data.npz", {"x": AWKWARD[later]})
    page = tmp_path / "page.html"
    for first in {later, "constant" if later != "names" else later}:
        train = save(tmp_path / "train.npz", {"x": AWKWARD[first]})
        assert run("report", train, data, "--output", page) in {0, 1}
        content = page.read_text("utf-8")
        assert "nan" not in content.lower().replace("name", "")
        assert "<svg" in content or "no values to draw" in content


def test_values_that_vanish_or_stand_still_are_drift(tmp_path):
    rng = np.random.default_rng(4)
    train = save(tmp_path / "train.npz", {"x": rng.normal(size=2000)})
    for name in ("nan", "constant", "infinite", "huge"):
        data = save(tmp_path / "data.npz", {"x": AWKWARD[name]})
        assert run("compare", train, data) == 1, name


def test_a_million_categories_stay_bounded(tmp_path):
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 2**40, size=200_000)
    train = save(tmp_path / "train.npz", {"id": ids[:150_000], "x": ids[:150_000] % 7})
    later = save(tmp_path / "later.npz", {"id": ids[150_000:], "x": ids[150_000:] % 7})
    path = tmp_path / "p.json"
    assert run("fit", "--data", train, "--output", path, "--categorical", "id,x") == 0
    # 128 names and what tells at most 1,024 others, a feature.
    assert path.stat().st_size < 50_000
    assert run("compare", path, later) == 0
