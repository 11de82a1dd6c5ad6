"""Recorded workloads of language models: lengths, or whole prompts, from files."""

from __future__ import annotations

import csv
import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loadtests import json_file
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

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
_MOST_TOKENS: Final = 10_000_000
_WANT: Final = ", ".join(" and ".join(pair) for pair in _COLUMNS)


class Exchange(NamedTuple):
    """A prompt and its answer."""

    input_tokens: int
    output_tokens: int
    text: str | None = None
    """The prompt, where it was recorded."""


def read(path: Path, count: int) -> list[Exchange]:
    """Return the first exchanges of a file, without those that had no answer.

    Raises:
        PlanError: it cannot be read, or has no exchanges.
    """
    json_file.require_size(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            found = list(islice(_exchanges(path, file), count))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", str(path)) from None
    except _UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"
        raise PlanError(f"is not a recorded workload: {reason}", str(path)) from None
    if not found:
        raise PlanError("has no request that was answered", str(path))
    return found


def _exchanges(path: Path, file: Iterable[str]) -> Iterator[Exchange]:
    match path.suffix.lower():
        case ".csv":
            rows: Iterable[Mapping[str, Any]] = csv.DictReader(file)
        case ".jsonl":
            rows = (json.loads(line) for line in file if line.strip())
        case ".json":
            yield from _conversations(json.loads("".join(file)))
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
            return Exchange(input_tokens, output_tokens)
    raise ValueError(f"found {sorted(map(str, row))[:10]}; want {_WANT}")


def _conversations(document: Any) -> Iterator[Exchange]:
    """Yield each conversation's first question, and the words of its answer as tokens."""
    if not isinstance(document, list):
        raise ValueError("want a list of conversations")  # noqa: TRY004 - of the file
    for conversation in document:
        turns = conversation.get("conversations") or ()
        if len(turns) < 2:  # noqa: PLR2004 - a question and an answer
            continue
        question, answer = (str(turn["value"]) for turn in turns[:2])
        input_tokens, output_tokens = (len(text.split()) for text in (question, answer))
        if input_tokens and output_tokens:
            yield Exchange(input_tokens, output_tokens, question)
