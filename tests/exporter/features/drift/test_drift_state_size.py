"""A state that could not be read again is not written."""

from __future__ import annotations

import structlog

from exporter.features.drift import drift_state

SAVED = "tritonwatch_drift_state_saved_timestamp_seconds"


def test_a_state_larger_than_can_be_read_is_not_written_and_told_once(
    bench, entry, monkeypatch
):
    forecast = {"psi_limit": 1.0, "every_seconds": 10}
    folder = bench.folder / "state"
    bench.watch({**entry, "state": folder, "state_seconds": 1, "forecast": forecast})
    bench.window(bench.rows(200))
    file = folder / "m.inputs.state"
    before = file.read_bytes()
    saved = bench.value(SAVED, "m", "inputs")
    monkeypatch.setattr(drift_state, "MAX_BYTES", len(before) // 2)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            bench.window(bench.rows(200))
    assert file.read_bytes() == before
    assert bench.value(SAVED, "m", "inputs") == saved
    (told,) = [e for e in logs if e["event"].startswith("drift_state")]
    assert told["event"] == "drift_state_not_saved"
    assert f"the maximum is {len(before) // 2}" in told["reason"]
    assert "panes" in told["reason"]
