"""Checks of golden answers: equal, or for text a pattern, a JSON schema or a likeness."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from exporter.features.golden import answer_quality
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jsonschema_rs import Draft202012Validator as Validator
    from jsonschema_rs import ValidationError

    from drift.numerics.normal import Bools, Floats, Ints
    from exporter.features.golden.golden_data import GoldenSet
    from exporter.triton.protocol_types import Array

    Embed = Callable[[str, Sequence[bytes]], Floats]
    """Returns a vector for each text, by the model of that name."""
    AnswerCheck = Callable[[Ints, Array], "Judged"]
    """Judges the answers to the rows of a set at these places, in that order."""


class Judged(NamedTuple):
    """Which answers pass, and their cosine to the expected ones where there is one."""

    passes: Bools
    reason: Callable[[int], str]
    """Returns why the answer at a place of these fails."""
    cosine: Floats | None = None


def equality(expected: Array, relative: float, absolute: float) -> AnswerCheck:
    """Return a check for the expected answer: floats within tolerances."""

    def judge(places: Ints, found: Array) -> Judged:
        wanted = expected[places]
        return Judged(
            answer_quality.agree(found, wanted, relative, absolute),
            lambda at: f"expected {answer_quality.shown(wanted[at])}",
            answer_quality.cosines(found, wanted),
        )

    return judge


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    """Return the regular expression, as RE2 compiles it: it matches in linear time.

    Raises:
        ValueError: it is not valid, or needs more than RE2 has (lookaround, backreferences).
    """
    import re2  # noqa: PLC0415 - only with such checks

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args else "invalid"
        found = f"found {pattern!r:.80}: {reason} (the syntax is RE2's)"
        raise ValueError(found) from None


_MOST: Final = 120
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_STRICT: Final = {
    "$schema": _DRAFT,
    "$id": "urn:tritonwatch:strict",
    "$dynamicAnchor": "meta",
    "$ref": _DRAFT,
    "properties": {
        # Other drafts have other keywords, or the same with another meaning.
        "$schema": {"enum": [_DRAFT, f"{_DRAFT}#"]},
        # References could be fetched, or lead nowhere.
        "$ref": False,
        "$dynamicRef": False,
        "$recursiveRef": False,
    },
    "unevaluatedProperties": False,
}
"""The schema of schemas without keywords that do not exist."""


def _schema(definition: dict[str, Any]) -> Validator:
    """Return the compiled schema: patterns match in linear time, and nothing is fetched.

    Raises:
        ValueError: it is not valid, or has a keyword or a format that does not exist.
    """
    import jsonschema_rs  # noqa: PLC0415 - only with such checks

    def depth(error: ValidationError) -> tuple[int, bool]:
        return len(error.instance_path), error.kind.name != "unevaluatedProperties"

    found = list(jsonschema_rs.Draft202012Validator(_STRICT).iter_errors(definition))
    if found:
        # The innermost: what contains it is wrong for the same reason.
        raise ValueError(_told(max(found, key=depth)))
    try:
        return jsonschema_rs.Draft202012Validator(
            definition,
            pattern_options=jsonschema_rs.RegexOptions(),
            validate_formats=True,
            ignore_unknown_formats=False,
        )
    except jsonschema_rs.ValidationError as error:
        raise ValueError(_told(error)) from None


def _told(error: ValidationError) -> str:
    place = "".join(f"/{part}" for part in error.instance_path) or "/"
    # The value comes first, the reason last.
    cut = "… " if len(error.message) > _MOST else ""
    return f"{place}: {cut}{error.message[-_MOST:]}"


class RegexCheck(Settings):
    """A regular expression that the answer contains."""

    kind: Literal["regex"] = "regex"
    output: str = Field(min_length=1)
    """The text output. Of several values, each must match."""
    pattern: str | None = Field(default=None, max_length=1000)
    """RE2's syntax, as in Prometheus; `^` and `$` for the whole answer. Without it, the
    column `expected:OUTPUT` has a pattern for each row."""

    @field_validator("pattern")
    @classmethod
    def _valid(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            _compiled(pattern)
        return pattern

    def build(self, golden: GoldenSet, embed: Embed | None) -> AnswerCheck:
        """The check for one set."""
        del embed
        if self.pattern is not None:
            return _of_texts([_compiled(self.pattern)], _no_match)
        column = expected_of(golden, self.output, "a pattern, or set `pattern`")
        patterns = []
        for row, value in enumerate(column.reshape(golden.rows, -1)[:, 0]):
            try:
                patterns.append(_compiled(answer_quality.text(value)))
            except ValueError as error:
                name = f"expected:{self.output}"
                raise golden.problem(str(error), name=name, row=row) from None
        return _of_texts(patterns, _no_match)


class JsonSchemaCheck(Settings):
    """A JSON document of a schema."""

    kind: Literal["json_schema"] = "json_schema"
    output: str = Field(min_length=1)
    """The text output. Of several values, each must fit."""
    definition: dict[str, Any]
    """JSON Schema (2020-12) without references. Unknown keywords are refused."""

    @field_validator("definition")
    @classmethod
    def _valid(cls, definition: dict[str, Any]) -> dict[str, Any]:
        _schema(definition)
        return definition

    def build(self, golden: GoldenSet, embed: Embed | None) -> AnswerCheck:
        """The check for one set."""
        del golden, embed
        return _of_texts([_schema(self.definition)], _misfit)


class EmbeddingCheck(Settings):
    """A text whose embedding is near that of the expected one."""

    kind: Literal["embedding"] = "embedding"
    output: str = Field(min_length=1)
    """The text output; the column `expected:OUTPUT` has the text to compare with."""
    model: str = Field(min_length=1)
    """A model of the same server with one text input and one float output, the
    embedding. Its requests count for the budget of the probe."""
    min_cosine: float = Field(default=0.8, ge=-1, le=1)
    """Lowest cosine of an answer that passes."""

    def build(self, golden: GoldenSet, embed: Embed | None) -> AnswerCheck:
        """The check for one set."""
        wanted = "the text to compare with"
        if embed is None:
            raise golden.problem("embeddings need a probe", name=self.output)
        return _near(self, expected_of(golden, self.output, wanted), embed)


GoldenCheck = Annotated[
    RegexCheck | JsonSchemaCheck | EmbeddingCheck, Field(discriminator="kind")
]


def expected_of(golden: GoldenSet, output: str, what: str) -> Array:
    """Return the expected answers of an output.

    Raises:
        GoldenDataError: the set has none.
    """
    try:
        return golden.expected[output]
    except KeyError:
        reason = f"no such column; the check of this output needs {what}"
        raise golden.problem(reason, name=f"expected:{output}") from None


def _of_texts(wanted: Sequence[Any], fault: Callable[[str, Any], str]) -> AnswerCheck:
    """Return a check of each text by itself, against its own of `wanted` or the only one.

    `fault` returns why a text fails, "" if it passes.
    """

    def why(place: int, row: Array) -> str:
        values = np.asarray(row).ravel().tolist()
        if not values:
            return "which has no text"
        own = wanted[place if len(wanted) > 1 else 0]
        texts = map(answer_quality.text, values)
        return next(filter(None, (fault(text, own) for text in texts)), "")

    def judge(places: Ints, found: Array) -> Judged:
        reasons = list(map(why, places.tolist(), found))
        return Judged(np.array([not reason for reason in reasons]), reasons.__getitem__)

    return judge


def _no_match(text: str, wanted: Any) -> str:
    return "" if wanted.search(text) else f"which does not match {wanted.pattern!r:.80}"


def _misfit(text: str, schema: Validator) -> str:
    try:
        document = json.loads(text, parse_constant=_refused)
        fault = next(schema.iter_errors(document), None)
    except (ValueError, RecursionError) as error:
        return f"which is not JSON: {error}"
    return "" if fault is None else f"which does not fit the schema at {_told(fault)}"


def _refused(name: str) -> object:
    raise ValueError(f"found {name}, which JSON does not have")


def _near(check: EmbeddingCheck, expected: Array, embed: Embed) -> AnswerCheck:
    """Return a check of texts by the cosine of their embeddings."""

    def judge(places: Ints, found: Array) -> Judged:
        wanted = expected[places]
        vectors = embed(check.model, _joined(found) + _joined(wanted))
        cosine = answer_quality.cosines(vectors[: len(found)], vectors[len(found) :])
        return Judged(
            cosine >= check.min_cosine,
            lambda at: (
                f"whose embedding has a cosine of {cosine[at]:.3f} to that of "
                f"{answer_quality.shown(wanted[at])}; want at least {check.min_cosine:g}"
            ),
            cosine,
        )

    return judge


def _joined(rows: Array) -> list[bytes]:
    return [
        " ".join(map(answer_quality.text, np.asarray(row).ravel().tolist())).encode()
        for row in rows
    ]
