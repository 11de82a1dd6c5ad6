"""Prompts of given lengths, and the requests that carry them."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from exporter.triton.protocol_types import ModelSpec, TensorSpec
from loadtests.errors import PlanError
from loadtests.payloads import prompts
from loadtests.payloads.bodies import body_of
from loadtests.payloads.prompts import (
    Lengths,
    Prompt,
    PromptSettings,
    row_of,
    text_spec,
)
from loadtests.payloads.prompts import (
    prompts_of as made_prompts,
)

TEXT = TensorSpec("text_input", "BYTES", (1,))
ANSWER = TensorSpec("text_output", "BYTES", (1,))
COUNT = TensorSpec("num_output_tokens", "UINT32", (1,))


def prompts_of(settings, count, seed):
    return list(made_prompts(settings, count, seed))


def spec_of(*inputs, outputs=(ANSWER, COUNT), **more):
    return ModelSpec("llm", "", inputs, outputs, decoupled=True, **more)


def words(prompt):
    return prompt.text.split()


def test_fixed_lengths_are_exact() -> None:
    settings = PromptSettings(
        input_tokens=Lengths(median=40), output_tokens=Lengths(median=7)
    )
    prompts = prompts_of(settings, 20, seed=1)
    assert [len(words(p)) for p in prompts] == [40] * 20
    assert {p.max_tokens for p in prompts} == {7}
    assert len({p.text for p in prompts}) == 20
    assert prompts == prompts_of(settings, 20, seed=1)
    assert prompts != prompts_of(settings, 20, seed=2)


def test_lognormal_lengths_have_their_median_and_spread() -> None:
    lengths = np.array(
        Lengths(median=500, sigma=0.8).drawn(20_000, np.random.default_rng(3))
    )
    logs = np.log(lengths)
    # Standard errors of the median and of the deviation: 0.8 * 1.25 / sqrt(n), 0.8 / sqrt(2 n).
    assert abs(np.median(logs) - np.log(500)) < 4 * 0.8 * 1.25 / np.sqrt(lengths.size)
    assert abs(logs.std() - 0.8) < 4 * 0.8 / np.sqrt(2 * lengths.size)
    assert (
        Lengths(median=500, sigma=3.0, max=600)
        .drawn(999, np.random.default_rng(3))
        .count(600)
    )


def test_a_shared_prefix_is_part_of_the_length() -> None:
    for median, shared in ((30, 20), (12, 12)):
        settings = PromptSettings(
            input_tokens=Lengths(median=median), shared_prefix_tokens=20
        )
        prompts = prompts_of(settings, 50, seed=1)
        assert {len(words(p)) for p in prompts} == {median}
        assert len({tuple(words(p)[:shared]) for p in prompts}) == 1
    assert len({p.text for p in prompts}) == 1


def test_turns_of_a_conversation_hold_the_turns_before_them() -> None:
    settings = PromptSettings(
        input_tokens=Lengths(median=10), output_tokens=Lengths(median=5), turns=3
    )
    prompts = prompts_of(settings, 7, seed=1)
    assert [len(words(p)) for p in prompts] == [10, 25, 40, 10, 25, 40, 10]
    for before, after in pairwise(prompts):
        goes_on = len(words(after)) > 10
        assert after.text.startswith(before.text) == goes_on


AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n,396,109\n"
)
BURST = "Timestamp,Session ID,Request tokens,Response tokens\n5,1,374,44\n6,2,9,0\n7,3,396,109\n"
MOONCAKE = "".join(
    json.dumps({"timestamp": 0, "input_length": a, "output_length": b, "hash_ids": [1]})
    + "\n"
    for a, b in ((374, 44), (396, 109))
)
SHARED = json.dumps(
    [
        {
            "conversations": [
                {"from": "human", "value": "how are you"},
                {"value": "I am well"},
            ]
        },
        {"conversations": []},
        {"conversations": [{"value": "x"}, {"value": ""}]},
        {"conversations": [{"value": "a b"}, {"value": "c"}, {"value": "d"}]},
    ]
)


@pytest.mark.parametrize(
    ("name", "text", "lengths"),
    [
        ("a.csv", AZURE, [(374, 44), (396, 109)]),
        ("a.CSV", "\ufeff" + AZURE, [(374, 44), (396, 109)]),
        ("b.csv", BURST, [(374, 44), (396, 109)]),
        ("m.jsonl", MOONCAKE, [(374, 44), (396, 109)]),
        ("s.json", SHARED, [(3, 3), (2, 1)]),
    ],
)
def test_recorded_workloads_are_read(tmp_path, name, text, lengths) -> None:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    prompts = prompts_of(PromptSettings(file=path), 10, seed=1)
    assert [(len(words(p)), p.max_tokens) for p in prompts] == lengths
    assert len(prompts_of(PromptSettings(file=path), 1, seed=1)) == 1


def test_turns_of_shared_conversations_hold_those_before_them(tmp_path) -> None:
    path = tmp_path / "s.json"
    values = ["hi", "yes?", "how are you", "well", "and now", "bye"]
    turns = [
        {"from": ("human", "gpt")[place % 2], "value": value}
        for place, value in enumerate(values)
    ]
    path.write_text(json.dumps([{"conversations": turns}] * 2), "utf-8")
    found = prompts_of(PromptSettings(file=path, turns=2), 10, seed=1)
    assert found == [Prompt("hi", 1), Prompt("hi\nyes?\nhow are you", 1)] * 2


def test_prompts_of_mooncake_share_the_blocks_that_it_recorded(tmp_path) -> None:
    path = tmp_path / "m.jsonl"
    rows = [(1200, [4, 7, 9]), (1100, [4, 7, 8]), (600, [5, 7]), (1000, [4])]
    path.write_text(
        "".join(
            json.dumps({"input_length": n, "output_length": 1, "hash_ids": ids}) + "\n"
            for n, ids in rows
        )
    )
    first, second, third, short = map(
        words, prompts_of(PromptSettings(file=path), 9, seed=1)
    )
    assert list(map(len, (first, second, third, short))) == [n for n, _ in rows]
    assert first[:1024] == second[:1024]
    assert first[1024:1100] != second[1024:]
    assert first[:512] == short[:512] != third[:512]
    assert third[512:] == first[512:600]
    assert short[512:] != first[512:1000]
    again = prompts_of(PromptSettings(file=path), 1, seed=2)
    assert words(again[0]) != first


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ("秋天来了。树叶黄了。" * 20, 200),
        ("こんにちは", 5),
        ("你好 world", 3),
        ("a-b c", 2),
    ],
)
def test_an_answer_without_spaces_counts_its_characters(
    tmp_path, answer, tokens
) -> None:
    turns = [{"from": "human", "value": "写"}, {"from": "gpt", "value": answer}]
    path = tmp_path / "s.json"
    path.write_text(json.dumps([{"conversations": turns}]), "utf-8")
    assert [e.output_tokens for e in prompts.recorded(path, 10)] == [tokens]


def test_a_shared_conversation_begins_with_what_its_user_wrote(tmp_path) -> None:
    begun = [{"from": "system", "value": "be kind"}, {"from": "gpt", "value": "go on"}]
    asked = [{"from": "human", "value": "why"}, {"from": "gpt", "value": "a b c d"}]
    document = [{"conversations": begun + asked}, {"conversations": begun}]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document), "utf-8")
    found = [(e.text, e.output_tokens) for e in prompts.recorded(path, 10)]
    assert found == [("why", 4)]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", b"A,B\n1,2\n", "want ContextTokens and GeneratedTokens"),
        (
            "a.csv",
            b"ContextTokens,GeneratedTokens\nmany,3\n",
            "not a recorded workload",
        ),
        ("a.csv", b"ContextTokens,GeneratedTokens\n-5,3\n", "lengths of -5"),
        ("a.csv", b"ContextTokens,GeneratedTokens\n1\n", "not a recorded workload"),
        ("a.csv", b"\xff\xfe\x00", "not a recorded workload"),
        ("a.csv", b"", "no request"),
        ("a.jsonl", b"{", "not a recorded workload"),
        ("a.jsonl", b"[1]\n", "want ContextTokens"),
        ("a.json", b"{}", "want a list"),
        ("a.json", b"[" * 100_000, "not a recorded workload"),
        ("a.json", b'[{"conversations": [{}, {}]}]', "not a recorded workload"),
        ("a.json", b"[1]", "not a recorded workload"),
        ("a.txt", b"1 2", "found the ending '.txt'"),
    ],
)
def test_files_that_are_no_workload(tmp_path, name, content, told) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(PlanError, match=told):
        prompts.recorded(path, 10)


def test_a_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        prompts.recorded(tmp_path / "a.csv", 10)


@pytest.mark.parametrize(
    "given",
    [
        {"lengths": "azure-chat", "file": "a.csv"},
        {"lengths": "azure-chat", "input_tokens": {"median": 3}},
        {"file": "a.csv", "output_tokens": {"median": 3}},
    ],
)
def test_lengths_have_one_source(given) -> None:
    with pytest.raises(ValueError, match="found both"):
        PromptSettings.model_validate(given)


def content(array):
    return array.reshape(-1).tolist()


def test_a_request_of_the_vllm_backend() -> None:
    spec = spec_of(
        TEXT,
        TensorSpec("stream", "BOOL", (1,), True),
        TensorSpec("sampling_parameters", "BYTES", (1,), True),
        TensorSpec("return_num_output_tokens", "BOOL", (1,), True),
    )
    row = row_of(spec, Prompt("hello you", 9), {"temperature": 0})
    assert content(row.inputs["text_input"]) == [b"hello you"]
    assert content(row.inputs["stream"]) == [True]
    assert content(row.inputs["return_num_output_tokens"]) == [True]
    (sampling,) = content(row.inputs["sampling_parameters"])
    assert json.loads(sampling) == {"max_tokens": 9, "temperature": 0}
    assert row.parameters == {}


def test_a_request_of_tensorrt_llm() -> None:
    spec = spec_of(TEXT, TensorSpec("max_tokens", "INT32", (1,)), max_batch_size=8)
    row = row_of(spec, Prompt("hello", 9), {"temperature": 0})
    assert row.inputs["max_tokens"].dtype == np.int32
    assert {name: array.shape for name, array in row.inputs.items()} == {
        "text_input": (1, 1),
        "max_tokens": (1, 1),
    }
    assert row.parameters == {"temperature": 0}
    body = body_of(spec, row, "http")
    assert json.loads(body.data) == {
        "text_input": "hello",
        "max_tokens": 9,
        "temperature": 0,
    }


def test_a_model_without_a_limit_gets_a_parameter() -> None:
    spec = spec_of(
        TensorSpec("PROMPT", "BYTES", (1,)), outputs=(TensorSpec("OUT", "BYTES", (1,)),)
    )
    row = row_of(spec, Prompt("hello", 9), {})
    assert list(row.inputs) == ["PROMPT"]
    assert row.parameters == {"max_tokens": 9}
    assert text_spec(spec).outputs == spec.outputs


def test_only_the_text_is_required_of_an_answer() -> None:
    assert text_spec(spec_of(TEXT)).outputs == (ANSWER,)


def test_models_that_take_or_answer_no_text_are_refused() -> None:
    numbers = TensorSpec("x", "FP32", (4,))
    with pytest.raises(PlanError, match="want one text input"):
        row_of(spec_of(numbers), Prompt("hello", 9), {})
    with pytest.raises(PlanError, match="want one text output"):
        text_spec(spec_of(TEXT, outputs=(numbers,)))


def test_prompts_are_made_one_by_one() -> None:
    """So that ten thousand of a million tokens end at the limit of bytes, not of memory."""
    prompts = made_prompts(
        PromptSettings(input_tokens=Lengths(median=1_000_000)), 10_000, seed=1
    )
    assert len(words(next(prompts))) == 1_000_000
