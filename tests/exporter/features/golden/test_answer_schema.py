"""Patterns and JSON schemas of golden answers: those refused, and answers of any kind."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest
from pydantic import ValidationError

from exporter.features.golden.golden_checks import JsonSchemaCheck, RegexCheck


def fault(definition, text: str) -> str:
    """Why the text fails a check, "" if it passes."""
    check = JsonSchemaCheck(output="text", definition=definition).build(None, None)
    return check(np.array([0]), [text]).reason(0)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"minimun": 1}}}, r"/properties/a: .*'minimun'"),
        ({"anyOf": [{"minimun": 1}]}, "/anyOf/0: .*'minimun'"),
        ({"type": "text"}, '/type: "text"'),
        ({"items": 3}, "/items: 3 "),
        ({"minLength": True}, "/minLength: true"),
        ({"pattern": "("}, '/pattern: "[(]"'),
        ({"pattern": "(?=a)"}, "/pattern: "),
        ({"format": "mail"}, "/format: .*'mail'"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, r"/\$schema: .*2020"),
        ({"not": {"$schema": "https://example.com/own"}}, r"/not/\$schema: "),
        ({"$ref": "http://localhost/a"}, r"/\$ref: "),
    ],
)
def test_a_wrong_schema_is_refused_with_its_place(schema, said) -> None:
    with pytest.raises(ValidationError, match=said):
        JsonSchemaCheck(output="text", definition=schema)


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ({"properties": {"a": {"minimum": 0}}}, '{"a": -3}', "/a: -3 is less than"),
        ({"type": "integer", "minimum": 0.5}, "1" + 400 * "0", ""),
        ({"maximum": 3}, "1" + 400 * "0", "greater than"),
        ({"const": [1]}, "[true]", "was expected"),
        ({}, '"\\ud800"', "not JSON"),
        ({}, 100_000 * "[", "not JSON"),
        ({}, "NaN", "not JSON"),
        ({"anyOf": [{"type": "null"}, {"format": "date"}]}, '"2026-01-31"', ""),
    ],
)
def test_an_answer_fits_or_does_not(schema, text, said) -> None:
    found = fault(schema, text)
    assert re.search(said, found) if said else not found


PATTERNS = [r"(\w+\s?)+$", "(a|a)*b", r"(\d+).*(\d+) apples", ".*.*.*x"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_pattern_takes_longer_than_the_text_is_long(pattern) -> None:
    text = "1a" * 100_000 + "\n "
    check = RegexCheck(output="text", pattern=pattern).build(None, None)
    begun = time.process_time()
    assert "does not match" in check(np.array([0]), [text]).reason(0)
    assert "does not match" in fault({"pattern": pattern}, json.dumps(text))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1"])
def test_what_cannot_be_matched_in_linear_time_is_refused(pattern) -> None:
    with pytest.raises(ValidationError, match="RE2"):
        RegexCheck(output="text", pattern=pattern)
