"""The reference level: told where it moved, and kept with the result."""

from __future__ import annotations

import json

import jsonschema
import pytest
from fake_triton import FakeModel, FakeTriton, Slow

from exporter.cli import main
from loadtests import result_file
from loadtests.execute import between_levels, execute
from loadtests.prepare import prepared
from loadtests.report import load_report_command
from loadtests.report.run_report import report_of
from loadtests.scenario import Scenario


def scenario_of(fake: FakeTriton) -> Scenario:
    return Scenario.model_validate(
        {
            "target": {"protocol": "grpc", "address": fake.grpc},
            "models": [{"model": "m"}],
            "profile": {
                "kind": "poisson",
                "requests_per_second": 50,
                "duration_seconds": 0.3,
            },
            "timeout_seconds": 5,
        }
    )


@pytest.mark.parametrize("strict", [False, True])
def test_a_level_that_moved_is_told_and_strictly_invalid(strict) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        scenario = scenario_of(fake)
        mix = prepared(scenario)

        def run():
            result = execute(scenario, mix)
            fake.on("infer").reply(Slow(0.2))
            return result

        result = between_levels(scenario, mix, 0.5, run, strict=strict)
    before, after = result.reference_seconds
    assert before < 0.2 <= after
    told = result.verdict.reasons if strict else result.verdict.warnings
    assert any("the reference level changed by" in line for line in told)


def test_a_run_tells_its_level_and_keeps_it(tmp_path, capfd) -> None:
    file = tmp_path / "run.json"
    with FakeTriton([FakeModel("m")]) as fake:
        arguments = ["--model", "m", "--address", fake.grpc, "--concurrency", "1"]
        arguments += ["--duration", "0.3", "--reference", "0.3", "--json", str(file)]
        main(["load", "run", "--quiet", *arguments])
    out, err = capfd.readouterr()
    assert err == ""
    assert "one at a time  p50" in out
    kept = result_file.read(file)
    assert len(kept.reference_seconds) == 2
    report = report_of(kept).model_dump(mode="json")
    assert report["reference_seconds"] == list(kept.reference_seconds)
    jsonschema.validate(report, json.loads(load_report_command.schema("run")))


def test_a_level_without_end_is_refused(capfd) -> None:
    status = main(
        ["load", "run", "--model", "m", "--concurrency", "1", "--reference", "1e9"]
    )
    assert status == 2
    assert "want 0 to 600" in capfd.readouterr().err
