"""What mirrored requests may hold: broken rows, misfits, answers, wide and odd tensors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from meanwhile import repeated

from drift.features import Schema, Tensor
from exporter.output.exposition import parse_text, render

ALARM = "triton_model_drift_alarm"


def test_data_quality_is_shares_of_rows(bench, entry):
    bench.watch(entry)
    rows = bench.rows(1000)
    rows["x"][:100, 0] = np.nan
    rows["x"][:50, 1] = np.inf
    rows["x"][50:70, 1] = -np.inf
    rows["x"][:200, 2] = 1e9
    rows["colour"][:300] = b"mauve"
    rows["colour"][300:400] = b""
    bench.window(rows)
    assert bench.value("triton_feature_missing_ratio", "m", "x[0]") == 0.1
    assert bench.value("triton_feature_infinite_ratio", "m", "x[1]") == 0.07
    assert bench.value("triton_feature_out_of_range_ratio", "m", "x[2]") >= 0.2
    assert bench.value("triton_feature_unseen_category_ratio", "m", "colour") == 0.3
    assert bench.value("triton_feature_missing_ratio", "m", "colour") == 0.1
    assert bench.value("triton_feature_unseen_category_ratio", "m", "x[0]") is None
    assert bench.value("triton_feature_infinite_ratio", "m", "colour") is None


def test_a_feature_that_stands_still_is_said_to(bench, entry):
    bench.watch(entry)
    rows = bench.rows(200)
    rows["x"][:, 2] = 0.25
    bench.window(rows)
    assert bench.value("triton_feature_constant", "m", "x[2]") == 1
    assert bench.value("triton_feature_constant", "m", "x[0]") == 0


@pytest.mark.parametrize(
    ("rows", "alarm"),
    [
        (lambda b: {**b.rows(200), "x": np.full((200, 3), np.nan, np.float32)}, 1),
        (lambda b: {**b.rows(200), "x": np.full((200, 3), 1e9, np.float32)}, 1),
        (lambda b: {**b.rows(200), "x": np.zeros((200, 3), np.float32)}, 1),
        (lambda b: b.rows(1), 0),
        (
            lambda b: {
                **b.rows(5000),
                "colour": np.array([f"{i}".encode() for i in range(5000)], object)[
                    :, None
                ],
            },
            1,
        ),
    ],
    ids=["only NaN", "only 1e9", "constant", "one row", "huge cardinality"],
)
def test_odd_windows_have_defined_answers(bench, entry, rows, alarm):
    bench.watch({**entry, "window": {"rows": 1, "seconds": 10}, "export_bins": ["*"]})
    for _ in range(3):
        bench.window(rows(bench))
    assert bench.value(ALARM, "m") == alarm
    page, _ = render(bench.samples)
    assert all(np.isfinite(value) for _, _, value in parse_text(page))


def test_a_request_without_rows_changes_nothing(bench, entry):
    bench.watch(entry)
    bench.window(bench.rows(0))
    assert bench.value("triton_drift_rows_total", "m", "inputs") == 0


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda r: {"x": r["x"]}, {"absent"}),
        (lambda r: {**r, "shoe": r["x"]}, {"extra"}),
        (lambda r: {**r, "x": r["x"].astype(np.int32)}, {"dtype"}),
        (lambda r: {**r, "x": r["x"].astype(str).astype(object)}, {"type"}),
        (lambda r: {**r, "x": r["x"][:, :2]}, {"shape"}),
        (lambda r: {"X": r["x"], "COLOUR": r["colour"]}, {"absent", "extra"}),
    ],
)
def test_what_does_not_fit_is_counted_by_kind_at_once(bench, entry, change, kinds):
    bench.watch(entry)
    bench.collect(after=1)
    assert bench.violations() == {}
    bench.send(change(bench.rows(20)))
    bench.collect(after=1)
    assert bench.violations() == dict.fromkeys(kinds, 1)
    bench.send(change(bench.rows(200)))
    bench.collect(after=20)
    bench.send(change(bench.rows(200)))
    bench.collect(after=20)
    # They go on over the ends of windows.
    assert bench.violations() == dict.fromkeys(kinds, 3)


def test_what_we_ask_ourselves_is_no_traffic(bench, entry):
    bench.watch(entry)
    bench.send(bench.rows(100), request_id="tritonwatch-1-probe-2")
    bench.collect(after=11)
    assert bench.value("triton_drift_rows_total", "m", "inputs") == 0


def test_nobody_reads_what_is_not_watched(bench, entry, spec_of):
    bench.models(spec_of("m"), spec_of("other"))
    bench.watch({**entry, "models": "m"})
    assert bench.hub.wanted("m")
    assert not bench.hub.wanted("other")
    bench.collector.close()
    assert not bench.hub.wanted("m")


def test_answers_are_watched_beside_questions_under_one_alarm(bench, entry):
    schema = Schema.from_tensors([Tensor("y", "FP32", (2,))])

    def answers(number, shift=0.0):
        return {"y": (bench.rng.normal(size=(number, 2)) + shift).astype(np.float32)}

    of_answers = {
        "side": "outputs",
        "reference": bench.profile(answers(4000), schema, "answers.json"),
        "window": entry["window"],
    }
    bench.watch(entry, of_answers)
    for _ in range(5):
        # Some loggers send questions and answers apart, others together.
        bench.send(bench.rows(150))
        bench.send(outputs=answers(150))
        bench.window(bench.rows(150), outputs=answers(150))
    assert bench.value(ALARM, "m") == 0
    assert bench.value("triton_drift_rows_total", "m", "inputs") == 1500
    assert bench.value("triton_drift_rows_total", "m", "outputs") == 1500
    assert bench.violations() == {}
    for _ in range(4):
        bench.window(bench.rows(300), outputs=answers(300, shift=0.7))
    assert bench.value(ALARM, "m") == 1
    assert bench.document(side="inputs")["alarm"] is False
    assert bench.document(side="outputs")["alarm"] is True


def test_the_bins_of_chosen_features_are_counted_live(bench, entry):
    bench.watch({**entry, "export_bins": ["x[[]1]", "colour"]})
    bench.send(bench.rows(60))
    bench.collect(after=1)
    name = "triton_feature_observations_total"
    assert {s.labels[1] for s in bench.all(name)} == {"x[1]", "colour"}
    for total in (60, 260, 460):
        for feature in ("x[1]", "colour"):
            bins = [s.value for s in bench.all(name) if s.labels[1] == feature]
            assert sum(bins) == total
        bench.window(bench.rows(200))
    shares = bench.all("triton_feature_reference_ratio")
    for feature in ("x[1]", "colour"):
        mine = [s for s in shares if s.labels[1] == feature]
        assert sum(s.value for s in mine) == pytest.approx(1.0)
        assert len({s.labels for s in mine}) == len(mine)


def test_many_features_have_series_only_as_far_as_allowed(bench, spec_of):
    schema = Schema.from_tensors([Tensor("w", "FP32", (40,))])
    bench.models(spec_of(inputs={"w": ("FP32", (-1, 40))}))

    def wide(number, shift=0.0):
        w = bench.rng.normal(size=(number, 40)).astype(np.float32)
        w[:, 39] += shift
        return {"w": w}

    bench.watch(
        {
            "reference": bench.profile(wide(3000), schema),
            "window": {"rows": 100, "seconds": 10},
            "max_features": 5,
        }
    )
    for _ in range(4):
        bench.window(wide(300, shift=1.0))
    shown = {s.labels[1] for s in bench.all("triton_feature_drift_alarm")}
    assert len(shown) == 5
    assert "w[39]" in shown, "the alarmed one comes first"


def test_the_series_that_a_limit_cuts_off_are_those_of_features(bench, entry):
    bench.watch(entry)
    bench.window(bench.rows(200))
    first = next(s.spec.name for s in bench.samples if "feature" in s.spec.labels)
    names = [s.spec.name for s in bench.samples]
    assert ALARM in names[: names.index(first)]


def test_wide_tensors_are_watched_by_their_sketch(bench, spec_of):
    bench.models(spec_of(inputs={"embedding": ("FP32", (-1, 384))}))
    bench.watch(
        {
            "learn": {"rows": 1000, "seconds": 1},
            "window": {"rows": 100, "seconds": 10},
        }
    )

    def vectors(number, scale=1.0):
        drawn = scale * bench.rng.normal(size=(number, 384))
        return {"embedding": drawn.astype(np.float32)}

    bench.window(vectors(1200))
    for _ in range(3):
        bench.window(vectors(200))
    assert bench.value(ALARM, "m") == 0
    for _ in range(4):
        bench.window(vectors(200, scale=1.3))
    assert bench.value("triton_feature_drift_alarm", "m", "embedding.norm") == 1
    bench.send({"embedding": np.zeros((5, 7), np.float32)})
    bench.collect(after=1)
    assert bench.value("triton_schema_violations_total", "m", "shape") == 1


def test_a_model_that_does_not_batch_sends_one_row_a_request(bench, spec_of):
    schema = Schema.from_tensors([Tensor("x", "FP32", (3,))])
    bench.models(spec_of(inputs={"x": ("FP32", (3,))}, max_batch_size=0))
    reference = bench.rng.normal(size=(2000, 3)).astype(np.float32)
    bench.watch(
        {
            "reference": bench.profile({"x": reference}, schema),
            "window": {"rows": 100, "seconds": 10},
        }
    )
    for _ in range(100):
        bench.send({"x": bench.rng.normal(size=3).astype(np.float32)})
    bench.collect(after=11)
    assert bench.value("triton_drift_window_rows", "m", "inputs") == 100
    assert bench.violations() == {}


def test_the_promise_of_a_short_reference_is_marked_as_not_kept(bench, entry):
    bench.watch(entry)
    assert bench.value("triton_drift_promise_kept", "m", "inputs") == 1
    bench.collector.close()
    bench.watch({**entry, "reference": bench.profile(bench.rows(80), name="short")})
    assert bench.value("triton_drift_promise_kept", "m", "inputs") == 0
    assert "80 rows" in bench.document()["caveats"][0]


def test_rows_from_many_threads_are_all_counted(bench, entry):
    bench.watch(entry)
    requests = [bench.rows(7) for _ in range(50)]
    with repeated(bench.collector.collect), ThreadPoolExecutor(4) as senders:
        for _ in range(4):
            senders.submit(lambda: [bench.send(request) for request in requests])
    bench.collect()
    assert bench.value("triton_drift_rows_total", "m", "inputs") == 4 * 50 * 7


ANY_ARRAY = hnp.arrays(
    dtype=st.one_of(
        hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.boolean_dtypes(),
        st.just(np.dtype("S3")), st.just(np.dtype("U3")),
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)  # fmt: skip


@pytest.fixture
def open_bench(bench, entry):
    bench.watch(entry)
    return bench


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(["x", "colour", "y", ""]), ANY_ARRAY, max_size=4)
)
def test_whatever_a_tap_hands_over_costs_nothing_of_what_was_counted(
    open_bench, request_
):
    before = open_bench.value("triton_drift_rows_total", "m", "inputs") or 0
    with structlog.testing.capture_logs() as logs:
        open_bench.send(request_)
        open_bench.send(open_bench.rows(5))
        open_bench.collect(after=1)
    assert not [entry for entry in logs if entry["event"] == "mirror_reader_failed"]
    assert open_bench.value("triton_drift_rows_total", "m", "inputs") >= before + 5
