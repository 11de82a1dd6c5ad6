"""Free text as numbers: what each number is, and that a changed text is a drift."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from drift_command import run, save
from hypothesis import given
from hypothesis import strategies as st

from drift.text_features import MAX_CHARACTERS, NAMES, text_numbers

CANARY = "canary4711"
NOUNS = ["server", "queue", "batch", "model", "answer", "token", "cache", "request"]
VERBS = ["waits", "fails", "grows", "ends", "starts", "stalls", "counts", "moves"]


def numbers(*texts):
    """The numbers of texts, by name."""
    found = text_numbers(np.array(texts, object))
    return dict(zip(NAMES, found.T.tolist(), strict=True))


def sentences(rng, number, *, words=12, end=""):
    """Texts that do not repeat."""
    parts = np.where(
        rng.random((number, words)) < 0.5,
        rng.choice(NOUNS, (number, words)),
        rng.choice(VERBS, (number, words)),
    )
    lengths = rng.integers(words // 2, words + 1, number)
    return [
        f"{' '.join(row[:length])} {rng.integers(1 << 30)}{end}"
        for row, length in zip(parts, lengths, strict=True)
    ]


def test_each_number_is_what_its_name_says():
    found = numbers(b"Why, why is 42 slow?", "Übermäßig".encode(), "日本 12", b"")
    letters = {n: v for n, v in found.items() if n.endswith("_letters_ratio")}
    assert letters.pop("accented_letters_ratio") == pytest.approx([0, 3 / 9, 0, 0])
    assert letters.pop("cjk_letters_ratio") == pytest.approx([0, 0, 2 / 5, 0])
    assert set(map(tuple, letters.values())) == {(0, 0, 0, 0)}
    assert found["characters"] == [20, 9, 5, 0]
    assert found["words"] == [5, 1, 2, 0]
    assert found["digits_ratio"] == pytest.approx([2 / 20, 0, 2 / 5, 0])
    assert found["symbols_ratio"] == pytest.approx([2 / 20, 0, 0, 0])
    # "Why," and "why" differ.
    assert found["repeated_words_ratio"] == [0, 0, 0, 0]
    assert numbers(b"no No yes no")["repeated_words_ratio"] == [0.5]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Почему", "cyrillic_letters_ratio"),
        ("لماذا", "arabic_letters_ratio"),
        ("なぜカ한글", "cjk_letters_ratio"),
        ("Γιατί", "other_letters_ratio"),
        ("éàü", "accented_letters_ratio"),
    ],
)
def test_letters_count_by_script(text, name):
    assert numbers(text.encode())[name] == [1.0]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_shares_are_those_of_a_count_by_the_unicode_database(text):
    found = {name: value for name, (value,) in numbers(text.encode()).items()}
    foreign = sum(c > "\x7f" and unicodedata.category(c)[0] == "L" for c in text)
    digits = sum(c.isdigit() for c in text)
    assert found["characters"] == len(text)
    if max(text, default="") < "\U00020000":
        letters = [v for n, v in found.items() if n.endswith("_letters_ratio")]
        assert sum(letters) == pytest.approx(foreign / max(len(text), 1), abs=1e-6)
        assert found["digits_ratio"] == pytest.approx(digits / max(len(text), 1))


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        (b"I'm sorry, but I can't help with that.", 1),
        (b"As an AI language model I have no opinion.", 1),
        (b"The queue grows. " * 20 + b"I cannot say more.", 0),
        (b"A canary cannot be seen.", 0),
    ],
)
def test_a_refusal_is_one_at_the_beginning(text, refuses):
    assert numbers(text)["refusal"] == [refuses]


def test_what_is_no_text_is_missing_and_bytes_that_are_no_utf8_are_text():
    found = text_numbers(np.array([None, float("nan"), b"\xff\xfe", 12], object))
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2:]).all()


def test_only_the_beginning_of_a_long_text_is_read():
    assert numbers("é".encode() * (1 << 20))["characters"] == [MAX_CHARACTERS]


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(3)

    def file(name, texts):
        columns = {
            "prompt": np.array(texts),
            "plan": rng.choice(["a", "b"], len(texts)),
        }
        return save(tmp_path / name, columns)

    return {
        "train": file("train.csv", sentences(rng, 4000)),
        "same": file("same.npz", sentences(rng, 1000)),
        "longer": file("longer.csv", sentences(rng, 1000, words=20)),
        "asked": file("asked.csv", sentences(rng, 1000, end=" ???")),
    }


def test_longer_or_other_texts_are_drift_and_the_same_kind_of_texts_are_not(
    files, tmp_path, capsys
):
    profile = tmp_path / "profile.json"
    fitted = ("--text", "prompt", "--ordered", "--output", profile)
    assert run("fit", "--data", files["train"], *fitted) == 0
    assert run("compare", profile, files["same"]) == 0
    capsys.readouterr()
    assert run("compare", profile, files["longer"]) == 1
    assert "CHANGED  prompt.words" in capsys.readouterr().out
    assert run("compare", profile, files["asked"]) == 1
    assert "CHANGED  prompt.symbols_ratio" in capsys.readouterr().out


def test_a_text_is_in_no_profile(tmp_path):
    texts = [f"{CANARY} {number}" for number in range(600)]
    data = save(tmp_path / "train.npz", {"prompt": np.array(texts)})
    profile = tmp_path / "profile.json"
    assert run("fit", "--data", data, "--text", "prompt", "--output", profile) == 0
    assert CANARY.encode() not in profile.read_bytes()


def test_what_is_no_text_or_not_there_is_refused_with_the_reason(
    files, tmp_path, capsys
):
    output = ("--output", tmp_path / "profile.json")
    assert run("fit", "--data", files["train"], "--text", "prompts", *output) == 2
    assert "--text names prompts" in capsys.readouterr().err
    numeric = save(tmp_path / "n.npz", {"x": np.zeros(500)})
    assert run("fit", "--data", numeric, "--text", "x", *output) == 2
    assert "tensor 'x' is FP64; text is BYTES" in capsys.readouterr().err
