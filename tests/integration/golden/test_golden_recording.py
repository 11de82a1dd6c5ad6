"""What is recorded of a real model, and what is not."""

from __future__ import annotations

import re

import numpy as np
import pytest
from golden_probing import HELD_OUT, labelled, record

from exporter.cli import main
from exporter.features.golden import golden_data
from exporter.features.golden.golden_settings import GoldenSettings

pytestmark = pytest.mark.triton


class TestRecording:
    def test_what_is_recorded_is_the_set_with_its_answers_and_its_accuracy(
        self, recorded
    ) -> None:
        settings = GoldenSettings(data=labelled(recorded)).data
        golden = golden_data.read(settings)
        original = golden_data.read(GoldenSettings(data=labelled()).data)
        np.testing.assert_array_equal(
            golden.columns["pixels"], original.columns["pixels"]
        )
        assert golden.expected["probabilities"].shape == (449, 10)
        assert golden.accuracy == pytest.approx(436 / 449)
        assert golden.sha256 != original.sha256

    def test_scoring_against_it_ends_with_1_once_the_model_lies(
        self, server, recorded, lie, capsys
    ) -> None:
        arguments = ["golden", "score", "--model", "digits_fp32", "--label", "label"]
        arguments += ["--grpc", server.grpc, "--data", str(recorded)]
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert re.search(r"^match +1$", said, re.MULTILINE)
        assert said.endswith("All 449 answers match the recorded ones.\n")
        columns = [line.split() for line in said.splitlines() if line[0].islower()]
        starts = {
            said.splitlines()[n].rindex(c[1])
            for n, c in enumerate(columns)
            if len(c) == 2
        }
        assert len(starts) == 1, said
        lie("digits_fp32", "shifted_class")
        assert main(arguments) == 1
        said = capsys.readouterr().out
        assert said.endswith("449 of 449 answers do not match the recorded ones.\n")

    @pytest.mark.parametrize(
        ("fault", "told"),
        [("nan", "not recorded"), ("shifted_class", "not deterministic")],
    )
    def test_a_model_that_cannot_be_trusted_is_not_recorded(
        self, server, lie, tmp_path, capsys, fault, told
    ) -> None:
        lie("digits_fp32", fault, share=1.0 if fault == "nan" else 0.3)
        output = tmp_path / "none.npz"
        assert record(server, output) == 1
        assert told in capsys.readouterr().err
        assert not output.exists()

    def test_a_model_that_is_not_there_is_named_with_those_that_are(
        self, server, capsys
    ) -> None:
        status = main(
            [
                "golden",
                "score",
                "--model",
                "nobody",
                "--grpc",
                server.grpc,
                "--data",
                str(HELD_OUT),
            ]
        )
        assert status == 1
        assert "digits_fp32" in capsys.readouterr().err
