"""From mirrored requests to windows, alarms and what they say."""

from __future__ import annotations

ALARM = "triton_model_drift_alarm"


def test_clean_data_raise_no_alarm_and_a_shift_names_its_feature(bench, entry):
    bench.watch(entry)
    for _ in range(30):
        bench.window(bench.rows(300))
        assert bench.value(ALARM, "m") == 0
    shifted_at = bench.now
    for _ in range(4):
        bench.window(bench.rows(300, shift=0.5))
    assert bench.value(ALARM, "m") == 1
    named = {s.labels[1]: s.value for s in bench.all("triton_feature_drift_alarm")}
    assert named == {"x[0]": 0, "x[1]": 1, "x[2]": 0, "colour": 0, "(joint)": 0}
    assert bench.value("triton_model_drift_alarms_total", "m") == 1
    began = bench.value("triton_model_drift_start_timestamp_seconds", "m")
    assert abs(began - (1_800_000_000 + shifted_at)) <= 20
    document = bench.document()
    (change,) = document["changes"]
    assert change["feature"] == "x[1]"
    assert change["says"].startswith("x[1]: shifted up by 0.")
    assert 0.3 < change["shift_sigma"] < 0.7
    assert document["worst"][0]["feature"] == "x[1]"
    assert document["since_timestamp_seconds"] == began


def test_an_alarm_ends_when_the_data_are_as_they_were(bench, entry):
    bench.watch(entry)
    for _ in range(4):
        bench.window(bench.rows(300, shift=1.0))
    assert bench.value(ALARM, "m") == 1
    for _ in range(20):
        bench.window(bench.rows(300))
    assert bench.value(ALARM, "m") == 0
    assert bench.value("triton_model_drift_start_timestamp_seconds", "m") is None
    assert bench.document()["changes"] == []


def test_before_a_window_closed_nothing_is_claimed(bench, entry):
    bench.watch(entry)
    bench.send(bench.rows(50))
    bench.collect(after=5)
    assert bench.state() == "watching"
    assert bench.value("triton_drift_rows_total", "m", "inputs") == 50
    for name in (ALARM, "triton_feature_drift_score", "triton_feature_missing_ratio"):
        assert bench.all(name) == []
    assert bench.document()["alarm"] is None


def test_a_window_closes_when_time_has_passed_and_rows_are_there(bench, entry):
    bench.watch(entry)
    bench.send(bench.rows(99))
    bench.collect(after=11)
    assert bench.value("triton_drift_windows_total", "m", "inputs") == 0
    bench.send(bench.rows(1))
    bench.collect(after=0.1)
    assert bench.value("triton_drift_windows_total", "m", "inputs") == 1
    bench.send(bench.rows(1000))
    bench.collect(after=5)
    assert bench.value("triton_drift_windows_total", "m", "inputs") == 1
    assert bench.value("triton_drift_window_rows", "m", "inputs") == 100


def test_a_window_that_never_fills_closes_at_last(bench, entry):
    entry["window"]["longest_seconds"] = 60
    bench.watch(entry)
    bench.collect(after=61)
    assert bench.value("triton_drift_windows_total", "m", "inputs") == 0, "no rows"
    bench.send(bench.rows(3))
    bench.collect()
    assert bench.value("triton_drift_windows_total", "m", "inputs") == 1
    assert bench.value("triton_drift_window_rows", "m", "inputs") == 3


def test_panes_slide_the_scores_over_the_latest_windows(bench, entry):
    entry["window"]["panes"] = 3
    bench.watch(entry)
    seen = []
    for _ in range(5):
        bench.window(bench.rows(200))
        seen.append(bench.value("triton_drift_window_rows", "m", "inputs"))
    assert seen == [200, 400, 600, 600, 600]


def test_distances_stand_beside_what_they_are_without_change(bench, entry):
    bench.watch(entry)
    bench.window(bench.rows(1000))
    for statistic in ("psi", "jensen_shannon", "kolmogorov_smirnov", "wasserstein"):
        label = ("m", "x[0]", statistic)
        score = bench.value("triton_feature_drift_score", *label)
        mean = bench.value("triton_feature_drift_null", *label, "mean")
        upper = bench.value("triton_feature_drift_null", *label, "upper")
        assert 0 <= score < upper
        assert 0 < mean < upper
    bench.window(bench.rows(1000, shift=1.0))
    upper = bench.value("triton_feature_drift_null", "m", "x[1]", "psi", "upper")
    assert bench.value("triton_feature_drift_score", "m", "x[1]", "psi") > upper
    # No order among categories: these distances are absent, not zero.
    assert (
        bench.value("triton_feature_drift_score", "m", "colour", "wasserstein") is None
    )
    assert bench.value("triton_feature_drift_score", "m", "colour", "psi") is not None


def test_classic_thresholds_are_there_only_when_asked_for(bench, entry):
    bench.watch(entry)
    bench.window(bench.rows(200, shift=1.0))
    assert bench.all("triton_feature_drift_threshold_exceeded") == []
    bench.collector.close()
    bench.watch({**entry, "classic_thresholds": True})
    bench.window(bench.rows(200, shift=1.0))
    name = "triton_feature_drift_threshold_exceeded"
    assert bench.value(name, "m", "x[1]", "psi") == 1
    assert bench.value(name, "m", "x[0]", "psi") == 0
