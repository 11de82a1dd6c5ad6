"""Drift on a real Triton: real patients through it and, mirrored, past the sidecar."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import monitoring
import numpy as np
import pytest
import yaml
from commands import tritonwatch
from waiting import patience

from exporter.demo.demo_traffic import Mirror, Traffic

pytestmark = pytest.mark.triton

MODELS = Path(__file__).parents[2] / "deploy" / "models"
REFERENCE = MODELS / "diabetes" / "data" / "reference.profile"
ALARM = "triton_model_drift_alarm"


@pytest.fixture
def watching(triton, settings, start_sidecar, tmp_path):
    """Start a sidecar that watches the demo's patients; its tap keeps its port."""
    tap = monitoring.free_port()

    def start(**changes):
        entry = {
            "models": "diabetes",
            "reference": str(REFERENCE),
            "window": {"rows": 20, "seconds": 1},
            "state": str(tmp_path / "state"),
            "state_seconds": 0.2,
            **changes,
        }
        signals = {
            "kind": "signal",
            "name": "data",
            "metric": ALARM,
            "at_most": 0,
            "objective_ratio": 0.5,
        }
        config = settings(triton, probes=[], drift=[entry], slos=[signals])
        config["listen"]["tap"] = {"port": tap}
        config["collectors"].append(
            {"kind": "mirror", "interval_seconds": 0.5, "samples_per_second": 1000}
        )
        sidecar = start_sidecar(config)
        sidecar.wait(lambda page: page.all("triton_drift_state_info"), 30)
        return sidecar

    start.tap = tap  # type: ignore[attr-defined]
    return start


class Patients(Traffic):
    """The demo's traffic, to the one model and faster."""

    def __init__(self, triton, mirror: Mirror) -> None:
        super().__init__(triton.grpc, MODELS, mirror)

    def ask(self, number: int) -> None:
        """So many patients, one request each."""
        for place in range(number):
            request = self._request("diabetes", place)
            self._client.infer(request, timeout_seconds=10)
            self._mirror.sent(request)
            time.sleep(0.002)


def named(page) -> set[str]:
    return {
        labels["feature"]
        for labels, value in page.all("triton_feature_drift_alarm", model="diabetes")
        if value == 1
    }


def test_older_patients_are_noticed_and_a_kill_9_forgets_nothing(
    triton, watching
) -> None:
    sidecar = watching()
    with Mirror(watching.tap) as mirror:
        patients = Patients(triton, mirror)
        for _ in range(8):
            patients.ask(40)
            page = sidecar.page()
            assert not page.value(ALARM, model="diabetes")
        page = sidecar.wait(lambda page: page.value(ALARM, model="diabetes") == 0)
        assert page.sum("triton_drift_rows_total") > 100
        assert page.sum("triton_schema_violations_total") == 0
        bad_before = page.value("triton_slo_events_total", slo="data", outcome="bad")
        assert bad_before in {0, None}

        patients.grow_older()
        deadline = time.monotonic() + patience()
        while not (page := sidecar.page()).value(ALARM, model="diabetes"):
            assert time.monotonic() < deadline, page.body.decode()
            patients.ask(20)
        assert "age" in named(page)
        sidecar.wait(
            lambda page: page.value(
                "triton_slo_events_total", slo="data", outcome="bad"
            )
        )
        (told,) = json.loads(sidecar.get("/api/v1/status").body)["drift"]
        assert told["alarm"] is True
        assert told["changes"][0]["says"].startswith("age: shifted up by")
        since = page.value("triton_model_drift_start_timestamp_seconds")
        saved = "tritonwatch_drift_state_saved_timestamp_seconds"
        window = "triton_drift_window_timestamp_seconds"
        page = sidecar.wait(
            lambda page: (page.value(saved) or 0) > (page.value(window) or 0)
        )
        before = page.value(
            "triton_feature_drift_score", feature="age", statistic="psi"
        )

        sidecar.process.send_signal(signal.SIGKILL)
        sidecar.process.wait()
        again = watching()
        page = again.wait(lambda page: page.value(ALARM, model="diabetes") is not None)
        # Before any new row: as it was left.
        assert page.value(ALARM, model="diabetes") == 1
        assert "age" in named(page)
        assert page.value("triton_model_drift_start_timestamp_seconds") == since
        score = page.value("triton_feature_drift_score", feature="age", statistic="psi")
        assert score == before
        patients._client.close()


def test_a_reload_goes_on_with_the_windows_it_had(triton, watching) -> None:
    sidecar = watching()
    with Mirror(watching.tap) as mirror:
        patients = Patients(triton, mirror)
        patients.ask(60)
        rows = "triton_drift_window_rows"
        before = sidecar.wait(lambda page: page.value(rows)).value(rows)
        config = {**sidecar_config(sidecar)}
        config["drift"][0]["classic_thresholds"] = True
        sidecar.write(config)
        sidecar.process.send_signal(signal.SIGHUP)
        page = sidecar.wait(
            lambda page: page.all("triton_feature_drift_threshold_exceeded")
        )
        assert page.value(rows) == before
        del config["drift"]
        sidecar.write(config)
        sidecar.process.send_signal(signal.SIGHUP)
        sidecar.wait(lambda page: not page.all("triton_drift_state_info"))
        patients._client.close()


def sidecar_config(sidecar):
    return yaml.safe_load(sidecar.file.read_text())


def joint(profile) -> list[float]:
    """The numbers of a reference's correlations."""
    found = profile["joint"]
    means = np.frombuffer(base64.b64decode(found["mean"]), "<f4")
    return [*means, found["limit"], *found["width"], *found["used"]]


def test_the_reference_that_ships_is_that_of_the_recorded_patients(tmp_path) -> None:
    data = MODELS / "diabetes" / "data"
    made, recorded = tmp_path / "made", tmp_path / "recorded.npz"
    subprocess.run(
        [sys.executable, MODELS / "train.py", "--patients", recorded],
        check=True,
        capture_output=True,
        timeout=patience(60),
    )
    fitted = tritonwatch(
        *("drift", "fit", "--data", recorded, "--features", "features.yaml"),
        *("--ordered", "--output", made),
        cwd=data,
    )
    assert fitted.returncode == 0, fitted.stderr
    shipped, fresh = (
        json.loads(file.read_bytes().partition(b"\n")[2]) for file in (REFERENCE, made)
    )
    # All but the versions of the libraries that made it.
    del shipped["versions"], fresh["versions"]
    assert shipped.keys() == fresh.keys()
    for key, value in shipped.items():
        if key in {"quantiles", "grid", "dispersion", "joint"}:
            continue
        assert value == fresh[key], key
    assert np.allclose(shipped["quantiles"], fresh["quantiles"])
    # Sums of products, the last digits of which depend on the processor.
    assert joint(shipped) == pytest.approx(joint(fresh), rel=1e-3, abs=1e-4)
