"""Process control over what is exposed: readings, state, acknowledgement, configuration."""

from __future__ import annotations

import json

import numpy as np
import pytest
from chart_scene import Scene, score, signal
from descriptor_limits import no_descriptors_left
from structlog.testing import capture_logs

from exporter import catalogue
from exporter.histograms.histogram import Histogram
from exporter.samples import HistogramSample, ReadTime, Sample


def shewhart(metric, mean, sigma, **changes):
    """A scene with one chart on a signal of model m with a known baseline."""
    return Scene(
        signal(
            metric=metric,
            labels={"model": "m"},
            baseline={"mean": mean, "sigma": sigma},
            charts=[{"kind": "shewhart"}],
            **changes,
        )
    )


def requests(success, failure):
    return [
        Sample(catalogue.REQUESTS, number, ("m", "1", outcome))
        for outcome, number in (("success", success), ("failure", failure))
    ]


def learnt_and_alarmed(path) -> bytes:
    """Save a baseline of 25 samples and an alarm to `path`; return the file's content."""
    scene = Scene(LEARNT, state_file=path)
    for value in [0.97] * 25 + [0.8] * 5:
        scene.look(score(value))
    scene.collector.close()  # type: ignore[attr-defined]
    return path.read_bytes()


LEARNT = signal(baseline=None, learn_samples=25, least_sigma=0.01)


class TestReading:
    def test_a_gauge_is_taken_as_it_is(self) -> None:
        scene = Scene(signal())
        for _ in range(3):
            scene.look(score(0.98), score(0.1, "other"), score(0.2, metric="auc"))
        assert scene.value("triton_spc_samples_total") == 3
        assert scene.value("triton_spc_statistic", "ewma") > 0

    def test_of_a_gauge_with_two_series_nothing_is_guessed(self) -> None:
        scene = Scene(signal(labels={"metric": "accuracy"}))
        with capture_logs() as log:
            scene.look(score(0.98))
            for _ in range(3):
                scene.look(score(0.98), score(0.1, "other"))
        assert scene.value("triton_spc_samples_total") == 1
        (said,) = (line for line in log if line["event"] == "spc_signal_ambiguous")
        assert (said["signal"], said["series"]) == ("score", 2)

    @pytest.mark.parametrize("before", ["", "g", "ggg", "ggg-----g", "bbb"])
    def test_a_signal_that_is_absent_is_not_in_control(self, before) -> None:
        scene = Scene(signal(charts=[{"kind": "shewhart"}], every_seconds=5))
        looks = {"g": [score(0.97)], "b": [score(0.1)], "-": []}
        for kind in before + "-----":
            scene.look(*looks[kind])
        assert scene.value("triton_spc_samples_total") == len(before.replace("-", ""))
        assert scene.value("triton_spc_statistic") is None
        assert scene.value("triton_spc_alarm") == (1 if "b" in before else None)
        scene.look(score(0.97))
        assert scene.value("triton_spc_statistic") is not None

    @pytest.mark.parametrize(("missed", "z"), [(0, 0.0), (1, 5.0)])
    def test_after_a_gap_a_sample_is_not_expected_to_be_near_the_one_before(
        self, missed, z
    ) -> None:
        baseline = {"mean": 0.5, "sigma": 0.1, "correlation": 0.9}
        chart = [{"kind": "shewhart"}]
        scene = Scene(signal(baseline=baseline, charts=chart, every_seconds=5))
        for exposed in ([score(1.0)], [score(1.0)], *[[]] * missed):
            scene.look(*exposed)
        # By the sample before, 0.95 is expected; alone it is 4.5 deviations away.
        scene.look(score(0.95 if not missed else 1.0))
        assert scene.value("triton_spc_statistic") == pytest.approx(z, abs=1e-6)

    def test_a_counter_is_its_rate_over_all_that_fits(self) -> None:
        scene = shewhart("triton_requests_total", 10, 1)
        for total in (0, 25, 50, 20):
            scene.look(*requests(total, total))
        # Two rates of 10 a second; the fall is a restart and no rate.
        assert scene.value("triton_spc_samples_total") == 2
        assert scene.value("triton_spc_statistic") == pytest.approx(0)

    @pytest.mark.parametrize("part", [{}, {"outcome": "failure"}])
    def test_a_series_that_returns_with_its_old_total_is_no_jump(self, part) -> None:
        steady = (10, 0.1) if not part else (0.1, 0.001)
        scene = shewhart("triton_requests_total", *steady, part=part)
        for step in range(1, 9):
            other = [
                Sample(catalogue.REQUESTS, number, ("m", "2", outcome))
                for outcome, number in (("success", 2e6), ("failure", 9e5))
            ]
            scene.look(*requests(45 * step, 5 * step), *other * (step not in {4, 5}))
        assert scene.value("triton_spc_samples_total") == 7
        assert scene.value("triton_spc_statistic") == pytest.approx(0)
        assert scene.value("triton_spc_alarms_total") == 0

    def test_a_rate_is_over_the_time_between_two_reads_of_its_source(self) -> None:
        scene = shewhart("triton_requests_total", 20, 1)
        for step in range(9):
            at = step // 2 * 10.0
            scene.look(
                *requests(10 * at, 10 * at),
                ReadTime(catalogue.COLLECTOR_TIMESTAMP, 1e9, ("statistics",), at=at),
            )
        assert scene.value("triton_spc_samples_total") == 4
        assert scene.value("triton_spc_statistic") == pytest.approx(0)

    @pytest.mark.parametrize("read_at", [[7], [7, 7, 7, 9], [7, 9, 9, 11, 11]])
    def test_a_gauge_is_a_sample_each_time_its_source_is_read(self, read_at) -> None:
        scene = Scene(signal())
        for at in read_at:
            when = ReadTime(catalogue.COLLECTOR_READ_TIMESTAMP, 1e9, ("golden",), at=at)
            scene.look(score(0.97), when)
        assert scene.value("triton_spc_samples_total") == len(set(read_at))
        # A collector that has never succeeded has read nothing.
        scene.look(score(0.97), Sample(catalogue.COLLECTOR_SUCCESS, 0, ("golden",)))
        assert scene.value("triton_spc_samples_total") == len(set(read_at))

    def test_a_part_is_the_share_of_what_came_since(self) -> None:
        part = {"outcome": "failure"}
        scene = shewhart("triton_requests_total", 0.1, 0.05, part=part)
        for good, bad in ((0, 0), (80, 20), (80, 20)):
            scene.look(*requests(good, bad))
        # A look at which nothing came says nothing.
        assert scene.value("triton_spc_samples_total") == 1
        assert scene.value("triton_spc_statistic") == pytest.approx(2)

    def test_a_histogram_is_the_mean_of_what_came_since(self) -> None:
        scene = shewhart("triton_request_duration_seconds", 0.01, 0.01)
        histogram = Histogram()
        for values in ([5.0], [0.02, 0.04]):
            for value in values:
                histogram.record(value)
            scene.look(
                HistogramSample(
                    catalogue.REQUEST_DURATION, histogram.copy(), ("m", "1")
                )
            )
        assert scene.value("triton_spc_statistic") == pytest.approx(2)

    def test_a_signal_is_sampled_no_oftener_than_asked_for(self) -> None:
        scene = Scene(signal(every_seconds=20))
        seen = []
        # Half a second early is on time.
        for seconds in (0, 19.4, 19.5, 38.9, 39.0):
            scene.now = 100.0 + seconds
            scene.look(score(0.97))
            seen.append(scene.value("triton_spc_samples_total"))
        assert seen == [1, 1, 2, 2, 3]


class TestAlarms:
    def test_a_fall_is_told_with_limits_and_heals(self) -> None:
        scene = Scene(signal(sides="lower"))
        for _ in range(12):
            scene.look(score(0.95))
        assert scene.value("triton_spc_alarm", "cusum") == 1
        assert scene.value("triton_spc_alarms_total", "cusum") == 1
        limit = scene.value("triton_spc_limit", "cusum", "lower")
        assert scene.value("triton_spc_statistic", "cusum") < limit < 0
        assert scene.value("triton_spc_limit", "cusum", "upper") is None
        for _ in range(30):
            scene.look(score(0.971))
        assert scene.value("triton_spc_alarm", "cusum") == 0

    def test_the_wanted_run_length_is_that_of_all_charts_together(self) -> None:
        charts = [{"kind": "shewhart"}, {"kind": "cusum"}, {"kind": "page_hinkley"}]
        scene = Scene(signal(charts=charts, in_control_samples=700))
        scene.look(score(0.97))
        nominal = scene.value("triton_spc_in_control_samples", "nominal")
        assert nominal == pytest.approx(700, rel=0.01)
        assert scene.value("triton_spc_baseline_effective_samples") is None

    def test_while_it_learns_it_says_so_and_then_what_the_limits_rest_on(self) -> None:
        scene = Scene(signal(baseline=None, learn_samples=30))
        rng = np.random.default_rng(2)
        for value in rng.normal(0.97, 0.01, 29):
            scene.look(score(value))
        assert scene.value("triton_spc_learning") == 1
        assert scene.value("triton_spc_alarm", "cusum") is None
        with capture_logs() as log:
            for _ in range(3):
                scene.look(score(0.97))
        [learnt] = [line for line in log if line["event"] == "spc_baseline_learnt"]
        assert learnt["mean"] == scene.value("triton_spc_baseline_mean")
        assert scene.value("triton_spc_learning") == 0
        assert scene.value("triton_spc_info", "independent") == 1
        assert 5 < scene.value("triton_spc_baseline_effective_samples") <= 30
        # A baseline of two and a half minutes: nothing is promised.
        assert scene.value("triton_spc_info", "few_samples") == 1
        assert scene.value("triton_spc_in_control_samples", "lower") is None

    def test_a_baseline_of_days_is_said_to_hold_the_run_length_that_was_wanted(
        self,
    ) -> None:
        learnt = {"baseline": None, "learn_samples": 600, "every_seconds": 300}
        scene = Scene(signal(**learnt, in_control_samples=700))
        for value in np.random.default_rng(1).normal(0.97, 0.01, 600):
            scene.now += 295
            scene.look(score(value))
        assert scene.value("triton_spc_info", "none") == 1
        assert scene.value("triton_spc_in_control_samples", "lower") == pytest.approx(
            700
        )
        assert scene.value("triton_spc_in_control_samples", "nominal") > 900


class TestAcknowledging:
    def alarmed(self) -> Scene:
        scene = Scene(signal())
        for _ in range(10):
            scene.look(score(0.8))
        assert scene.value("triton_spc_alarm", "ewma") == 1
        return scene

    def test_it_ends_the_alarms_until_the_next_sample_that_is_out(self) -> None:
        scene = self.alarmed()
        assert scene.post({"signal": "score"}).body == b"2 alarms ended\n"
        scene.look()
        assert scene.value("triton_spc_alarm", "ewma") == 0
        for _ in range(3):
            scene.look(score(0.8))
        assert scene.value("triton_spc_alarm", "cusum") == 1

    def test_one_chart_alone(self) -> None:
        scene = self.alarmed()
        assert scene.post({"signal": "score", "chart": "ewma"}).outcome == "accepted"
        scene.look()
        assert scene.value("triton_spc_alarm", "ewma") == 0
        assert scene.value("triton_spc_alarm", "cusum") == 1

    def test_relearning_takes_the_new_level_for_well(self) -> None:
        scene = Scene(signal(baseline=None, learn_samples=20, least_sigma=0.01))
        for value in [0.97] * 20 + [0.8] * 5:
            scene.look(score(value))
        scene.post({"signal": "score", "relearn": True})
        for _ in range(40):
            scene.look(score(0.8))
        assert scene.value("triton_spc_baseline_mean") == pytest.approx(0.8)
        assert scene.value("triton_spc_alarm", "cusum") == 0

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (b"", 400),
            (b"[]", 400),
            (b"{}", 400),
            (b"[" * 4_000, 400),
            # Deeper than any request, so refused by a scan and not parsed.
            (b'{"signal": "score", "x": ' + b"[" * 99 + b"]" * 99 + b"}", 400),
            ({"signal": "other"}, 404),
        ],
    )
    def test_what_is_no_such_request_is_refused(self, body, status) -> None:
        assert Scene(signal()).post(body).status == status


class TestState:
    def test_what_a_reload_took_over_is_newer_than_the_file(self, tmp_path) -> None:
        path = tmp_path / "spc.json"
        learnt_and_alarmed(path)
        before, after = (Scene(LEARNT, state_file=path) for _ in range(2))
        for _ in range(10):
            before.look(score(0.97))
        # Its last save failed: the file is older.
        after.collector.inherit(before.collector)  # type: ignore[attr-defined]
        after.look()
        assert after.value("triton_spc_samples_total") == 40

    def test_the_state_is_saved_once_in_so_many_seconds(self, tmp_path) -> None:
        path = tmp_path / "spc.json"
        scene = Scene(signal(), state_file=path, save_seconds=10)
        saved = []
        for _ in range(6):
            scene.look(score(0.97))
            saved.append(path.exists())
            path.unlink(missing_ok=True)
        assert saved == [False, True] * 3
        scene.look(score(0.97))
        assert not path.exists()
        scene.collector.close()  # type: ignore[attr-defined]
        assert path.exists()

    @pytest.mark.parametrize("content", [b"\x00", b"[]", b"{}", b'{"version": 1}'])
    def test_a_file_that_is_no_state_is_set_aside(self, tmp_path, content) -> None:
        path = tmp_path / "spc.json"
        path.write_bytes(content)
        scene = Scene(signal(), state_file=path)
        scene.look(score(0.97))
        assert scene.value("triton_spc_samples_total") == 1
        assert (tmp_path / "spc.json.set-aside").read_bytes() == content

    def test_a_file_that_cannot_be_read_now_is_kept_and_read_later(
        self, tmp_path
    ) -> None:
        path = tmp_path / "spc.json"
        kept = learnt_and_alarmed(path)
        second = Scene(LEARNT, state_file=path)
        with no_descriptors_left():
            for _ in range(3):
                second.look()
        assert path.read_bytes() == kept
        assert [found.name for found in tmp_path.iterdir()] == ["spc.json"]
        second.look()
        assert second.value("triton_spc_alarm", "cusum") == 1
        assert second.value("triton_spc_samples_total") == 30

    @pytest.mark.parametrize(
        "change",
        [
            {"learn_samples": 40},
            {"labels": {"model": "other"}},
            {"every_seconds": 120},
            {"metric": "triton_ready", "labels": {}},
        ],
    )
    def test_other_settings_learn_anew(self, tmp_path, change) -> None:
        path = tmp_path / "spc.json"
        chosen = {"baseline": None, "learn_samples": 20}
        first = Scene(signal(**chosen), state_file=path)
        for _ in range(25):
            first.look(score(0.97))
        first.collector.close()  # type: ignore[attr-defined]
        second = Scene(signal(**{**chosen, **change}), state_file=path)
        second.look(score(0.97))
        assert second.value("triton_spc_learning") == 1

    def test_a_state_of_a_version_that_noted_no_source_is_kept(self, tmp_path) -> None:
        path = tmp_path / "spc.json"
        state = json.loads(learnt_and_alarmed(path))
        del state["signals"]["score"]["source"]
        path.write_text(json.dumps(state))
        scene = Scene(LEARNT, state_file=path)
        scene.look(score(0.97))
        assert scene.value("triton_spc_learning") == 0

    def test_a_folder_that_cannot_be_written_costs_nothing_else(self, tmp_path) -> None:
        (tmp_path / "file").write_text("")
        scene = Scene(signal(), state_file=tmp_path / "file" / "spc.json")
        with capture_logs() as logs:
            for _ in range(3):
                scene.look(score(0.97))
        assert scene.value("triton_spc_samples_total") == 3
        assert [entry["event"] for entry in logs] == ["spc_state_not_saved"]
