"""Answers of decoupled models on the real Triton: all their responses are checked."""

from __future__ import annotations

import numpy as np
import pytest
from golden_probing import Probing
from streaming_models import TEXT, synthetic

from exporter.cli import main
from exporter.features.golden.golden_settings import GoldenSettings

pytestmark = pytest.mark.triton


@pytest.fixture
def recorded(server, tmp_path):
    """`tritonwatch golden record` of prompts to a model: its file as columns."""

    def record(model, **columns):
        prompts, output = tmp_path / "prompts.npz", tmp_path / f"{model}.npz"
        np.savez(prompts, **columns)
        arguments = ["golden", "record", "--model", model, "--grpc", server.grpc]
        arguments += ["--data", str(prompts), "--output", str(output)]
        assert main(arguments) == 0
        with np.load(output) as file:
            return output, dict(file)

    return record


def test_a_golden_text_is_the_whole_streamed_text(access, recorded, protocol) -> None:
    file, columns = recorded("speaker", text=np.array([TEXT, "one two"]))
    assert columns["expected:word"].ravel().tolist() == [
        b"the cat sat on the mat ",
        b"one two ",
    ]
    assert columns["expected:reason"].ravel().tolist() == [b"stop", b"stop"]
    probing = Probing(access, "speaker", data={"file": str(file)}, protocol=protocol)
    assert probing.target.protocol == protocol
    assert {verdict.outcome for verdict in probing.round()} == {"ok"}
    assert probing.value("triton_golden_score_ratio", "match") == 1


HALVES = "hex:4dc3 hex:bc6e63 hex:68656ef0 hex:9f98 hex:80"
""" "München😀", whose responses end within its characters."""


def test_characters_that_are_split_between_responses_are_joined(
    access, recorded, protocol
) -> None:
    override = {"speaker": {"inputs": {"text": {"values": [HALVES]}}}}
    verdict = synthetic(access, protocols=[protocol], overrides=override)
    assert (verdict.outcome, verdict.detail) == ("ok", "")
    file, columns = recorded("speaker", text=np.array([HALVES, "hex:00ff01"]))
    assert columns["expected:word"].ravel().tolist() == [
        "München😀".encode(),
        b"\x00\xff\x01",
    ]
    probing = Probing(access, "speaker", data={"file": str(file)}, protocol=protocol)
    assert {v.outcome for v in probing.round()} == {"ok"}
    columns["expected:word"][1] = b"\x00\xfe\x01"
    np.savez(file, **columns)
    probing = Probing(access, "speaker", data={"file": str(file)}, protocol=protocol)
    assert sorted(v.outcome for v in probing.round()) == ["bad_output", "ok"]


def test_a_wrong_word_in_the_middle_of_a_stream_is_found(
    access, recorded, fault
) -> None:
    file, _ = recorded("speaker", text=np.array([TEXT]))
    probing = Probing(access, "speaker", data={"file": str(file)})
    assert {verdict.outcome for verdict in probing.round()} == {"ok"}
    fault(at=2, word="lay")
    (verdict,) = probing.round()
    assert verdict.outcome == "bad_output"
    assert "the cat lay on the mat" in verdict.detail
    assert probing.failing() == {"expected"}


def test_numbers_of_a_stream_are_compared_one_after_the_other(access, recorded) -> None:
    values = np.array([[1, 2, 6], [4, 4, 7]], np.float32)
    file, columns = recorded("stream", values=values)
    means = columns["expected:mean"]
    assert means == pytest.approx(np.array([[1, 1.5, 3], [4, 4, 5]]))
    probing = Probing(access, "stream", data={"file": str(file), "output": "mean"})
    assert {verdict.outcome for verdict in probing.round()} == {"ok"}
    means[1, 1] = 5
    np.savez(file, **columns)
    probing = Probing(access, "stream", data={"file": str(file), "output": "mean"})
    assert sorted(v.outcome for v in probing.round()) == ["bad_output", "ok"]


def test_every_response_of_a_stream_is_checked(access, fault, protocol) -> None:
    assert synthetic(access, protocols=[protocol]).outcome == "ok"
    fault(at=2, score="nan")
    verdict = synthetic(access, protocols=[protocol])
    assert verdict.outcome == "bad_output"
    assert "response 3 of 6: output 'score' holds 1 NaN" in verdict.detail


def test_a_golden_output_that_no_response_has_is_missing(
    access, recorded, capsys
) -> None:
    file, columns = recorded("speaker", text=np.array([TEXT, "one two"]))
    assert "output 'score' has another shape for another row" in capsys.readouterr().err
    assert "expected:score" not in columns
    columns["expected:optional"] = np.array(["x", "y"])
    np.savez(file, **columns)
    probing = Probing(access, "speaker", data={"file": str(file)})
    for verdict in probing.round():
        assert verdict.outcome == "bad_output"
        assert verdict.detail.startswith("output 'optional' is missing; found [")
    assert probing.outcomes() == {"invalid": 2}


def prompts(folder, texts, *, name="text", **columns):
    file = folder / "prompts.npz"
    np.savez(file, **{name: np.array(texts)}, **columns)
    return str(file)


def checked(access, file, **check):
    """The verdicts of a round of `speaker`, sorted by outcome, and the probe."""
    data = {"file": file, "checks": [{"output": "word", **check}]}
    probing = Probing(access, "speaker", data=data)
    return sorted(probing.round(), key=lambda v: v.outcome), probing


def test_an_answer_is_searched_for_a_pattern(access, tmp_path, fault) -> None:
    file = prompts(tmp_path, [TEXT, "the cat slept"])
    check = {"kind": "regex", "pattern": "^the (cat|dog) s(a|lep)t"}
    verdicts, _ = checked(access, file, **check)
    assert [v.outcome for v in verdicts] == ["ok", "ok"]
    fault(at=1, word="horse")
    verdicts, probing = checked(access, file, **check)
    assert [v.outcome for v in verdicts] == ["bad_output"] * 2
    assert "which does not match '^the (cat|dog)" in verdicts[0].detail
    assert probing.value("triton_golden_score_ratio", "match:word") == 0
    assert probing.failing() == {"expected"}


def test_each_prompt_may_have_a_pattern_of_its_own(access, tmp_path) -> None:
    expected = {"expected:word": np.array(["^the", "dog$"])}
    file = prompts(tmp_path, [TEXT, "one two"], **expected)
    verdicts, probing = checked(access, file, kind="regex")
    assert [v.outcome for v in verdicts] == ["bad_output", "ok"]
    assert "row 1 of prompts" in verdicts[0].detail
    assert probing.outcomes() == {"right": 1, "wrong": 1}


def test_an_answer_is_a_document_of_a_schema(access, tmp_path, fault) -> None:
    file = prompts(tmp_path, ['{"age": 3}'])
    definition = {
        "type": "object",
        "required": ["age"],
        "properties": {"age": {"type": "integer", "minimum": 0}},
    }
    check = {"kind": "json_schema", "definition": definition}
    (verdict,), _ = checked(access, file, **check)
    assert verdict.outcome == "ok"
    fault(at=1, word="-3}")
    (verdict,), _ = checked(access, file, **check)
    assert (
        verdict.outcome,
        "at /age: -3 is less than the minimum of 0" in verdict.detail,
    ) == (
        "bad_output",
        True,
    )
    fault(at=1, word="three")
    (verdict,), _ = checked(access, file, **check)
    assert "which is not JSON" in verdict.detail


NEAR = {"kind": "embedding", "model": "embedder", "min_cosine": 0.7}


def test_an_answer_near_the_recorded_one_passes(
    access, recorded, fault, protocol
) -> None:
    file, _ = recorded("speaker", text=np.array([TEXT]))
    fault(at=5, word="carpet")
    data = {"file": str(file), "checks": [{"output": "word", **NEAR}]}
    probing = Probing(access, "speaker", data=data, protocol=protocol)
    assert {v.outcome for v in probing.round()} == {"ok"}
    cosine = probing.value("triton_golden_score_ratio", "cosine")
    assert cosine == pytest.approx(7 / 8, abs=1e-6)
    data["checks"][0]["min_cosine"] = 0.9
    probing = Probing(access, "speaker", data=data, protocol=protocol)
    (verdict,) = probing.round()
    assert verdict.outcome == "bad_output"
    assert "has a cosine of 0.875 to that of [the cat sat" in verdict.detail


def test_without_an_embedding_nothing_is_known_of_the_answer(access, tmp_path) -> None:
    expected = {"expected:word": np.array(["x"])}
    file = prompts(tmp_path, ["unspeakable words"], **expected)
    for model, said in (("embedder", "too sad"), ("stream", "want one input of BYTES")):
        (verdict,), probing = checked(access, file, **{**NEAR, "model": model})
        assert verdict.outcome == "unjudged"
        assert f"embedding model {model!r}: " in verdict.detail
        assert said in verdict.detail
        assert probing.outcomes() == {"unjudged": 1}
        assert probing.value("triton_golden_failing") is None
        assert probing.value("triton_golden_score_ratio") is None


def test_a_wrong_answer_stays_one_while_the_embedding_fails(access, tmp_path) -> None:
    columns = {
        "expected:word": np.array(["x"] * 2),
        "expected:reason": ["stop", "length"],
    }
    file = prompts(tmp_path, ["unspeakable words"] * 2, **columns)
    verdicts, probing = checked(access, file, **NEAR)
    assert [v.outcome for v in verdicts] == ["bad_output", "unjudged"]
    assert "'reason' is [stop], expected [length]" in verdicts[0].detail
    assert probing.outcomes() == {"wrong": 1, "unjudged": 1}


@pytest.mark.parametrize(("model", "attempts"), [("embedder", 3), ("one_embedder", 2)])
def test_embeddings_count_for_the_budget(access, tmp_path, model, attempts) -> None:
    """Six requests a minute: two an attempt, or three where the embedder has no batches."""
    expected = {"expected:word": np.array(["a b"] * 9)}
    file = prompts(tmp_path, ["a c"] * 9, **expected)
    data = {"file": file, "checks": [{"output": "word", **NEAR, "model": model}]}
    probing = Probing(access, "speaker", data=data, idle_requests_per_second=0.1)
    verdicts = [probing.attempt() for _ in range(5)]
    assert [v.outcome for v in verdicts if v] == ["bad_output"] * attempts
    assert verdicts[attempts:] == [None] * (5 - attempts)
    assert GoldenSettings.model_validate({"data": data}).requests_per_attempt == 3


def test_a_batch_of_answers_is_no_larger_than_what_is_embedded_at_once(
    access, tmp_path
) -> None:
    """Of a model without batches a request has one row, of which two texts are embedded."""
    rows = [f"a {n}" for n in range(20)]
    columns = {"expected:text": np.array([f"b {n}" for n in range(20)])}
    file = prompts(tmp_path, rows, name="said", **columns)
    for model, size in (("embedder", 4), ("one_embedder", 1)):
        check = {"output": "text", **NEAR, "model": model, "min_cosine": 0.4}
        data = {"file": file, "checks": [check]}
        probing = Probing(access, "echo", data=data, samples_per_request=8)
        assert probing.attempt().outcome == "ok"
        assert probing.outcomes() == {"right": size}


@pytest.mark.parametrize(
    ("check", "columns", "said"),
    [
        ({"kind": "regex"}, {}, "needs a pattern, or set `pattern`"),
        ({"kind": "regex"}, {"expected:word": ["a", "("]}, "missing )"),
        (NEAR, {}, "needs the text to compare with"),
        ({"kind": "regex", "output": "score"}, {}, "no such output of text"),
    ],
)
def test_a_check_that_does_not_fit_the_set_is_an_error_of_it(
    access, tmp_path, check, columns, said
) -> None:
    file = prompts(tmp_path, ["a", "b"], **columns)
    data = {"file": file, "checks": [{"output": "word", **check}]}
    probing = Probing(access, "speaker", data=data)
    verdict = probing.attempt()
    assert verdict.outcome == "configuration"
    assert said in verdict.detail
    assert "prompts.npz" in verdict.detail
    assert ("row 1" in verdict.detail) == (said == "missing )")
    assert probing.value("triton_golden_usable") == 0
