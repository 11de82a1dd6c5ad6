"""Text prompts of given lengths: fixed, lognormal, or those of a recorded workload.

A prompt of n tokens is n short English words, each of which the vocabularies in use hold as
one token. What the server counted is in the result, where it reports that.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from exporter.openai.completions import request_body
from exporter.settings import Settings
from exporter.triton.tensors import array_dtype
from loadtests import json_file
from loadtests.errors import PlanError
from loadtests.payloads.bodies import Row
from loadtests.plan import Body
from loadtests.target import API_OF

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporter.triton.protocol_types import ModelSpec, TensorSpec
    from loadtests.payloads.bodies import Parameter
    from loadtests.target import Target

MAX_TOKENS: Final = 1_000_000
_COMMON: Final = """
the of and to in is you that it he was for on are as with his they at be this
have from or one had by word but not what all were we when your can said there
use an each which she do how their if will up other about out many then them
these so some her would make like him into time has look two more write go see
number no way could people my than first water been call who its now find long
down day did get come made may part over new sound take only little work know
place year live me back give most very after thing our just name good sentence
man think say great where help through much before line right too mean old any
same tell boy follow came want show also around form three small set put end
does another well large must big even such because
"""
_WORDS: Final = _COMMON.split()
_TEXT_INPUT: Final = "text_input"
_TEXT_OUTPUT: Final = "text_output"
_SAMPLING: Final = "sampling_parameters"
_LIMITS: Final = ("max_tokens", "request_output_len", "sampling_param_max_tokens")
_STREAM: Final = ("stream", "streaming")
_RETURN_TOKENS: Final = ("return_num_input_tokens", "return_num_output_tokens")
Recorded = Literal["azure-chat", "azure-code"]
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    csv.Error,
)
_COLUMNS: Final = (
    ("ContextTokens", "GeneratedTokens"),  # Azure
    ("Request tokens", "Response tokens"),  # BurstGPT
    ("input_length", "output_length"),  # Mooncake
)
_USERS: Final = ("human", "user")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff"
    "\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff]"
)
"""A letter or mark of Thai, Lao, Burmese, Khmer, Japanese or Chinese."""
_MOST_TOKENS: Final = 10_000_000
_BLOCK_TOKENS: Final = 512
"""Tokens of a prompt for each of Mooncake's `hash_ids`; equal ids are equal tokens."""
_WANT: Final = ", ".join(" and ".join(pair) for pair in _COLUMNS)


class Lengths(Settings):
    """Lengths in tokens, lognormal about a median; without a spread all are equal."""

    median: int = Field(default=128, ge=1, le=MAX_TOKENS)
    """Half are longer."""
    sigma: float = Field(default=0.0, ge=0, le=4)
    """Standard deviation of the logarithm."""
    max: int = Field(default=MAX_TOKENS, ge=1, le=MAX_TOKENS)
    """Longer ones are cut to it."""

    def drawn(self, count: int, rng: np.random.Generator) -> list[int]:
        """Return this number of lengths."""
        lengths = self.median * np.exp(self.sigma * rng.standard_normal(count))
        return [min(max(round(length), 1), self.max) for length in lengths.tolist()]


WORKLOADS: Final[dict[Recorded, tuple[Lengths, Lengths]]] = {
    "azure-chat": (
        Lengths(median=757, sigma=0.99, max=14_000),
        Lengths(median=151, sigma=0.86, max=1_000),
    ),
    "azure-code": (
        Lengths(median=1097, sigma=1.36, max=7_500),
        Lengths(median=16, sigma=0.85, max=1_900),
    ),
}
"""Lognormal fits to Azure's traces of language models of November 2023, with the longest
that they hold: https://github.com/Azure/AzurePublicDataset."""


class PromptSettings(Settings):
    """Prompts for a language model."""

    lengths: Recorded | None = Field(default=None)
    """Lengths of prompts and answers like those of a service."""
    file: Path | None = Field(default=None)
    """A recorded workload: CSV with columns of tokens (Azure, BurstGPT), JSON lines with
    `input_length`, `output_length` and `hash_ids` (Mooncake; prompts share the prefixes that
    the recorded ones shared), or ShareGPT's JSON, whose texts are sent."""
    input_tokens: Lengths = Field(default=Lengths())
    """Length of a prompt."""
    output_tokens: Lengths = Field(default=Lengths())
    """Limit of an answer, which the server may end before."""
    shared_prefix_tokens: int = Field(default=0, ge=0, le=MAX_TOKENS)
    """The first tokens of every prompt are the same, as with a system's prompt."""
    turns: int = Field(default=1, ge=1, le=100)
    """Prompts of one conversation, sent in turn: each holds those before it and the answers
    to them, made up or those of ShareGPT. `input_tokens` is what each turn adds."""

    @model_validator(mode="after")
    def _one_source(self) -> PromptSettings:
        if self.lengths is not None and self.file is not None:
            raise ValueError("found both lengths and file; want one of them")
        given = self.model_fields_set & {"input_tokens", "output_tokens"}
        if given and (self.lengths is not None or self.file is not None):
            other = "lengths" if self.lengths is not None else "file"
            raise ValueError(f"found both {min(given)} and {other}; want one of them")
        return self


class Prompt(NamedTuple):
    """One prompt."""

    text: str
    max_tokens: int


def prompts_of(settings: PromptSettings, count: int, seed: int) -> Iterator[Prompt]:
    """Yield `count` prompts, or as many as a file has; the same for the same seed.

    Raises:
        PlanError: the file cannot be read, or holds no lengths.
    """
    rng = np.random.default_rng(seed)
    shared = _words(settings.shared_prefix_tokens, rng)
    said: list[str] = []
    for place, exchange in enumerate(_exchanges(settings, count, rng)):
        if exchange.text is not None:
            yield Prompt(exchange.text, exchange.output_tokens)
            continue
        if exchange.blocks:
            if settings.turns > 1 or settings.shared_prefix_tokens:
                raise PlanError(
                    "has hash_ids, which say what prompts share: leave out turns and "
                    "shared_prefix_tokens",
                    str(settings.file),
                )
            recorded_words = _words_of_blocks(exchange, seed)
            rest = exchange.input_tokens - len(recorded_words)
            text = " ".join(recorded_words + _words(rest, rng))
            yield Prompt(text, exchange.output_tokens)
            continue
        more = exchange.input_tokens
        if place % settings.turns == 0:
            said = shared[:more]
            more -= len(said)
        said += _words(more, rng)
        yield Prompt(" ".join(said), exchange.output_tokens)
        said += _words(exchange.output_tokens, rng)


def _exchanges(
    settings: PromptSettings, count: int, rng: np.random.Generator
) -> list[Exchange]:
    if settings.file is not None:
        return recorded(settings.file, count, settings.turns)
    inputs, outputs = settings.input_tokens, settings.output_tokens
    if settings.lengths is not None:
        inputs, outputs = WORKLOADS[settings.lengths]
    pairs = zip(inputs.drawn(count, rng), outputs.drawn(count, rng), strict=True)
    return [Exchange(*pair) for pair in pairs]


def _words(count: int, rng: np.random.Generator) -> list[str]:
    return [_WORDS[place] for place in rng.integers(len(_WORDS), size=count).tolist()]


def _words_of_blocks(exchange: Exchange, seed: int) -> list[str]:
    """Return the words of a prompt that shares its blocks with others of the file."""
    found: list[str] = []
    for number in exchange.blocks:
        if len(found) < exchange.input_tokens:
            found += _words(_BLOCK_TOKENS, np.random.default_rng((seed, number)))
    return found[: exchange.input_tokens]


def text_spec(spec: ModelSpec) -> ModelSpec:
    """Return the model with its text as the only output: others come if asked for.

    Raises:
        PlanError: there is no text among its outputs.
    """
    found = [t for t in spec.outputs if t.datatype == "BYTES"]
    named = [t for t in found if t.name == _TEXT_OUTPUT] or found
    if len(named) != 1:
        raise PlanError(
            f"found prompts for {spec.name}, whose outputs are "
            f"{[t.name for t in spec.outputs]}; want one text output, or text_output"
        )
    return replace(spec, outputs=tuple(named))


def row_of(
    spec: ModelSpec,
    prompt: Prompt,
    parameters: Mapping[str, Parameter],
    *,
    streams: bool = True,
) -> Row:
    """Return a request with a prompt, as Triton's backends for language models expect it.

    It asks for an answer that `streams`, or for one that is whole.

    Raises:
        PlanError: the model has no input for text.
    """
    inputs = {_text_input(spec).name: np.array([prompt.text.encode()], object)}
    by_name = {tensor.name: tensor for tensor in spec.inputs}
    for name in (*_STREAM, *_RETURN_TOKENS):
        if name in by_name and by_name[name].datatype == "BOOL":
            inputs[name] = np.array([streams or name in _RETURN_TOKENS])
    limit = next((by_name[name] for name in _LIMITS if name in by_name), None)
    if limit is not None:
        inputs[limit.name] = np.array([prompt.max_tokens], array_dtype(limit.datatype))
    elif _SAMPLING in by_name:
        sampling = {"max_tokens": prompt.max_tokens, **parameters}
        inputs[_SAMPLING] = np.array([json.dumps(sampling).encode()], object)
        parameters = {}
    else:
        parameters = {"max_tokens": prompt.max_tokens, **parameters}
    if spec.max_batch_size:
        inputs = {name: array[None] for name, array in inputs.items()}
    return Row(inputs, {}, parameters)


def _text_input(spec: ModelSpec) -> TensorSpec:
    texts = [t for t in spec.inputs if t.datatype == "BYTES"]
    named = [t for t in texts if t.name == _TEXT_INPUT]
    found = named or [t for t in texts if not t.optional]
    if len(found) != 1:
        raise PlanError(
            f"found prompts for {spec.name}, whose inputs are "
            f"{[t.name for t in spec.inputs]}; want one text input, or text_input"
        )
    return found[0]


def openai_body(
    target: Target,
    model: str,
    prompt: Prompt,
    parameters: Mapping[str, Parameter],
) -> Body:
    """Return a streamed request to an OpenAI-compatible server."""
    api = API_OF[target.protocol]
    data = request_body(api, model, prompt.text, prompt.max_tokens, parameters)
    return Body(data)


class Exchange(NamedTuple):
    """A prompt and its answer."""

    input_tokens: int
    output_tokens: int
    text: str | None = None
    """The prompt, where it was recorded."""
    blocks: tuple[int, ...] = ()
    """Its blocks of `_BLOCK_TOKENS`, where they were recorded."""


def recorded(path: Path, count: int, turns: int = 1) -> list[Exchange]:
    """Return the first exchanges of a file, without those that had no answer.

    Of a conversation there are at most this many `turns`.

    Raises:
        PlanError: it cannot be read, or has no exchanges.
    """
    json_file.require_size(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            found = list(islice(_recorded_exchanges(path, file, turns), count))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", str(path)) from None
    except _UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"
        raise PlanError(f"is not a recorded workload: {reason}", str(path)) from None
    if not found:
        raise PlanError("has no request that was answered", str(path))
    return found


def _recorded_exchanges(
    path: Path, file: Iterable[str], turns: int
) -> Iterator[Exchange]:
    match path.suffix.lower():
        case ".csv":
            rows: Iterable[Mapping[str, Any]] = csv.DictReader(file)
        case ".jsonl":
            rows = (json.loads(line) for line in file if line.strip())
        case ".json":
            yield from _conversations(json.loads("".join(file)), turns)
            return
        case suffix:
            raise PlanError(
                f"found the ending {suffix!r}; want .csv, .jsonl, or ShareGPT's .json",
                str(path),
            )
    for row in rows:
        exchange = _lengths(row)
        if exchange.input_tokens and exchange.output_tokens:
            yield exchange


def _lengths(row: Mapping[str, Any]) -> Exchange:
    for names in _COLUMNS:
        if all(name in row for name in names):
            input_tokens, output_tokens = (int(row[name]) for name in names)
            if not (
                0 <= input_tokens <= _MOST_TOKENS and 0 <= output_tokens <= _MOST_TOKENS
            ):
                raise ValueError(
                    f"found lengths of {input_tokens} and {output_tokens} tokens"
                )
            blocks = tuple(map(int, row.get("hash_ids") or ()))
            if min(blocks, default=0) < 0:
                raise ValueError(
                    f"found {min(blocks)} in hash_ids; want numbers from 0"
                )
            return Exchange(input_tokens, output_tokens, None, blocks)
    raise ValueError(f"found {sorted(map(str, row))[:10]}; want {_WANT}")


def _conversations(document: Any, most: int) -> Iterator[Exchange]:
    """Yield what each user wrote, after all before it, and the words of its answer."""
    if not isinstance(document, list):
        raise ValueError("want a list of conversations")  # noqa: TRY004 - of the file
    for conversation in document:
        turns = conversation.get("conversations") or ()
        # Shared ones may begin with a model's answer, whose question is missing.
        by_user = [
            place
            for place, turn in enumerate(turns[:-1])
            if turn.get("from", "human") in _USERS
        ]
        for place in by_user[:most]:
            so_far = turns[by_user[0] : place + 1]
            said = "\n".join(str(turn["value"]) for turn in so_far)
            input_tokens = _words_of(said)
            output_tokens = _words_of(str(turns[place + 1]["value"]))
            if input_tokens and output_tokens:
                yield Exchange(input_tokens, output_tokens, said)


def _words_of(text: str) -> int:
    """Return the number of words; of a script without spaces, that of the letters."""
    spaced, letters = _UNSPACED.subn(" ", text)
    return letters + len(spaced.split())
