"""Cells are taken once from the reference, and every value lands in exactly one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drift.categories import CategoryTable, build_category_grid, canonical
from drift.cell_choice import build_numeric_grid
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit
from drift.grid import (
    ABOVE,
    BELOW,
    CELLS,
    INNER,
    MINUS_INF,
    MISSING,
    OTHER,
    PLUS_INF,
    UNSEEN,
)
from drift.names import MAX_BYTES, NameFilter, Names


def columns(rng, rows=3000):
    """A reference with a feature of every kind that cells are chosen for."""
    zeros = rng.random(rows) < 0.4
    return np.stack(
        [
            rng.normal(size=rows),
            1e-3 * rng.normal(size=rows),
            1e6 * rng.normal(size=rows) - 3e7,
            rng.integers(0, 2, rows),
            rng.poisson(3.0, rows) - 4.0,
            rng.integers(-5000, 5000, rows),
            np.where(zeros, 0.0, rng.exponential(size=rows)),
            rng.choice([0.99, 4.99, 9.95, 1e4 / 3], rows),
            np.exp(3.0 * rng.normal(size=rows)),
            np.round(rng.normal(size=rows), 1),
        ],
        axis=1,
    )


def plain_count(grid, rows):
    """The definition of a cell, one value at a time."""
    counts = np.zeros((grid.features, CELLS), np.int64)
    for row in rows:
        for feature, value in enumerate(row):
            if np.isnan(value):
                cell = MISSING
            elif np.isinf(value):
                cell = PLUS_INF if value > 0 else MINUS_INF
            elif feature in grid.cuts:
                edges = grid.cuts[feature].astype(grid.dtype)
                cell = sum(edge <= value for edge in edges)
                cell = ABOVE if cell == edges.size else cell
            else:
                origin = (grid.low - grid.width).astype(grid.dtype)[feature]
                scale = (1.0 / grid.width).astype(grid.dtype)[feature]
                with np.errstate(over="ignore"):
                    place = (value - origin) * scale
                if np.isinf(place):
                    place = np.sign(place) * 1e9
                cell = int(np.clip(np.floor(place), BELOW, ABOVE))
            counts[feature, cell] += 1
    return counts


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("unclean", [False, True], ids=["finite", "any value"])
def test_counting_a_block_equals_counting_its_values_one_by_one(wide, unclean):
    rng = np.random.default_rng(3)
    reference = columns(rng)
    grid = build_numeric_grid(reference, wide=wide)
    assert grid.dtype == (np.float64 if wide else np.float32)
    assert sorted(grid.cuts) == [3, 4, 6, 7, 8]
    edges = np.stack([grid.edges(feature) for feature in range(grid.features)], axis=1)
    drawn = np.concatenate([reference[:80], edges[rng.integers(0, INNER + 1, 40)]])
    drawn = np.concatenate([drawn, drawn * rng.choice([-1e6, -1, 0.5, 3], drawn.shape)])
    rows = drawn.astype(grid.dtype)
    rows = np.concatenate(
        [rows, *(np.nextafter(rows, rows.dtype.type(end)) for end in (-np.inf, np.inf))]
    )
    # What differs from a whole number by its last bit may count as that number.
    rows[:, 3:5] = np.rint(rows[:, 3:5] * 4) / 4
    if unclean:
        odd = rng.random(rows.shape) < 0.2
        rows[odd] = rng.choice([np.nan, np.inf, -np.inf], odd.sum())
    assert np.array_equal(grid.count(rows.copy()), plain_count(grid, rows))


def test_a_cell_holds_little_unless_it_is_one_value_the_same_in_either_precision():
    rng = np.random.default_rng(13)
    reference = columns(rng)
    grids = [build_numeric_grid(reference, wide=wide) for wide in (False, True)]
    held = [grid.count(reference.astype(grid.dtype)) for grid in grids]
    exact = [3, 4, 5, 6, 7, 9]
    assert np.array_equal(held[0][exact], held[1][exact])
    for grid, counts in zip(grids, held, strict=True):
        assert (counts.sum(axis=1) == len(reference)).all()
        # 0.05 % at either end, where no value is as common as that.
        assert counts[:, [BELOW, ABOVE]].max() <= 0.0005 * len(reference) + 1
        for feature in range(grid.features):
            points = grid.points(feature)
            assert counts[feature, ~points].max() < len(reference) / 20
            for cell in np.flatnonzero(points & (counts[feature] > 0)):
                low, high = grid.edges(feature)[cell - 1 : cell + 1]
                column = reference[:, feature].astype(grid.dtype)
                assert np.unique(column[(low <= column) & (column < high)]).size == 1


def test_the_grid_spans_the_quantiles_and_leaves_the_tails_outside():
    rows = np.random.default_rng(1).normal(size=(100_000, 1))
    counts = build_numeric_grid(rows).count(rows.astype(np.float32))[0]
    # 0.05 % either side, within 6 standard errors of a binomial.
    error = 6 * np.sqrt(100_000 * 0.0005)
    assert abs(counts[BELOW] - 50) <= error
    assert abs(counts[ABOVE] - 50) <= error
    assert counts.sum() == 100_000


def test_one_fraction_among_integers_makes_a_grid_of_fractions():
    column = np.append(np.arange(2001.0), 0.5)
    grid = build_numeric_grid(column[:, None])
    bottom, top = np.quantile(column, [0.0005, 0.9995])
    assert grid.width[0] == pytest.approx((top - bottom) / 255)
    assert build_numeric_grid(np.arange(2001.0)[:, None]).width[0] == 8


def test_integers_each_fall_into_the_middle_of_a_cell():
    rows = np.random.default_rng(2).poisson(40, size=(5000, 1)).astype(float)
    grid = build_numeric_grid(rows)
    assert grid.width[0] == 1.0
    assert grid.low[0] % 1.0 == 0.5


def test_values_too_fine_for_float32_are_counted_in_float64():
    rows = 1e9 + np.random.default_rng(5).normal(size=(1000, 1))
    grid = build_numeric_grid(rows)
    assert grid.dtype == np.float64
    assert (grid.count(rows.copy())[0] > 0).sum() > 100


def test_edges_are_where_the_cells_begin():
    grid = build_numeric_grid(np.random.default_rng(6).normal(size=(1000, 2)))
    edges = grid.edges(1)
    assert edges.shape == (INNER + 1,)
    middles = (edges[:-1] + edges[1:]) / 2
    counts = grid.count(np.stack([middles, middles], axis=1).astype(np.float32))
    assert counts[1, 1 : INNER + 1].tolist() == [1] * INNER


def test_categories_beyond_the_kept_ones_are_other_and_new_ones_unseen():
    counts = {f"v{i:04d}": 1000 - i for i in range(300)}
    grid = build_category_grid(counts, complete=True)
    cells = CategoryTable(grid).cells(["v0299", "never", None, "v0003"])
    assert cells == [OTHER, UNSEEN, MISSING, 3]


def test_with_too_many_categories_to_keep_none_is_called_unseen():
    grid = build_category_grid({str(i): 1 for i in range(5000)}, complete=True)
    assert grid.open
    assert CategoryTable(grid).cells(["never"]) == [OTHER]


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**62), 2**62), max_size=30))
def test_integer_categories_count_alike_by_lookup_and_by_name(values):
    grid = build_category_grid({"-3": 4, "0": 2, "17": 9}, complete=True)
    table = CategoryTable(grid)
    column = np.array([*values, -3, 17, -4, 18], np.int64)
    assert np.array_equal(table.count(column), table.count(column.tolist()))


@pytest.mark.parametrize("value", [None, "", b"", float("nan"), np.float32("nan")])
def test_nothing_is_spelled_missing(value):
    assert canonical(value) is None


def test_a_very_long_text_is_cut_and_told_from_others_by_its_first_256_characters():
    first, second = "x" * 100_000, "x" * 255 + "y" * 100_000
    assert canonical(first) == canonical(first.encode()) == canonical("x" * 256)
    assert canonical(first) != canonical(second)
    assert len(canonical("語" * 300).encode()) <= MAX_BYTES
    assert canonical("x" * MAX_BYTES) == "x" * MAX_BYTES


def test_names_are_the_texts_they_were_made_of():
    texts = ("", "red", "é", "\ud800", "red")
    names = Names(texts)
    assert tuple(names) == texts == names[:]
    assert (names[-1], names[1:3], len(names)) == ("red", ("red", "é"), 5)
    assert names == Names(texts) != Names(("r", "ed"))
    assert hash(names) == hash(Names(texts))
    with pytest.raises(IndexError):
        names[5]


def test_a_filter_knows_all_its_names_and_takes_few_others_for_one():
    held = NameFilter.of([f"zip-{i}" for i in range(1024)])
    assert all(f"zip-{i}" in held for i in range(1024))
    others = sum(f"zip-{i}" in held for i in range(10_000, 30_000))
    # (1 - e^(-4 / 16))^4 = 0.24 % of 20,000 are 48; 100 have chance 1e-10 (Poisson).
    assert others < 100
    assert "zip-1" not in NameFilter.of([])


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int16])
def test_integers_of_any_width_count_as_their_names(kind):
    values = np.array([[1], [2], [300], [2], [1]], kind)
    if kind is not np.int16:
        values[4, 0] = 2**40
    schema = Schema.from_tensors([Tensor("c", np.dtype(kind).name.upper(), (1,))])
    schema = Schema(schema.tensors, (Feature("c", "c", 0, "categorical"),))
    profile = fit(schema, {"c": values[[0, 1, 2, 4]].repeat(200, axis=0)})
    window = profile.accumulator()
    for row in values:
        window.update({"c": row[None]})
    cells = window.take().cells[0]
    named = dict(zip(profile.categories[0].values, cells.tolist(), strict=False))
    wanted = {"1": 1 + (kind is np.int16), "2": 2, "300": 1}
    assert named == wanted | ({} if kind is np.int16 else {str(2**40): 1})


def test_long_and_many_texts_are_held_no_longer_than_a_few_rows():
    schema = Schema.from_tensors([Tensor("c", "BYTES", (1,))])
    texts = np.array([[b"red"], [b"blue"]] * 400, object)
    window = fit(schema, {"c": texts}).accumulator()
    big = [b"%d" % i + b"x" * 100_000 for i in range(600)]
    tracemalloc.start()
    for text in big:
        # The sender's bytes go when it has been told; what is held is ours.
        window.update({"c": np.array([[text[:50_000]]], object)})
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 32_000
    assert window.take().cells[0, UNSEEN] == 600
