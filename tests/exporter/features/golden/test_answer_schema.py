"""The subset of JSON Schema beside the library `jsonschema`, and schemas that are refused."""

from __future__ import annotations

import re
import time

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.features.golden.answer_schema import check_schema, compiled, faults

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, "", "a", "ab", "é", 1e300])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
SIZES = st.integers(0, 3)
FLAT = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1),
    "enum": st.lists(LEAVES, min_size=1),
    "const": LEAVES,
    "pattern": st.sampled_from(["a", "^a$", "b+"]),
    "required": st.lists(st.sampled_from("abc"), unique=True),
    "minimum": st.integers(-3, 3),
    "maximum": st.integers(-3, 3),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), SIZES),
    "title": st.just("a note"),
}
SCHEMAS = st.recursive(
    st.booleans() | st.fixed_dictionaries({}, optional=FLAT),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            **FLAT,
            "items": inner,
            "additionalProperties": inner,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        },
    ),
    max_leaves=5,
)


@given(VALUES, SCHEMAS)
def test_a_value_is_judged_as_by_the_library(value, schema) -> None:
    check_schema(schema)
    library = jsonschema.Draft202012Validator(schema)
    assert any(faults(value, schema)) is not library.is_valid(value)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"minimun": 1}}}, "/properties/a/minimun: not supported"),
        ({"type": "text"}, '/type: found "text"; want null, boolean'),
        ({"items": 3}, "/items: found 3; want a map"),
        ({"minLength": True}, "/minLength: found true; want a whole number"),
        ({"maximum": "3"}, '/maximum: found "3"; want a number'),
        ({"pattern": "("}, "/pattern: found '(': missing )"),
        ({"required": "a"}, "/required"),
        ({"properties": []}, "/properties: found []"),
        ({"$ref": "#/$defs/a"}, "/$ref: not supported"),
    ],
)
def test_a_wrong_schema_is_refused_with_its_place(schema, said) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        check_schema(schema)


def test_a_schema_without_end_is_refused() -> None:
    schema: dict = {}
    schema["items"] = schema
    with pytest.raises(ValueError, match="32 schemas deep"):
        check_schema(schema)


@pytest.mark.parametrize(
    "pattern", [r"(\w+\s?)+$", "(a|a)*b", r"(\d+).*(\d+) apples", ".*.*.*x"]
)
def test_no_pattern_takes_longer_than_the_text_is_long(pattern) -> None:
    found = compiled(pattern)
    begun = time.process_time()
    assert not found.search("1a" * 100_000 + "\n ")
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1"])
def test_what_cannot_be_matched_in_linear_time_is_refused(pattern) -> None:
    with pytest.raises(ValueError, match="RE2"):
        compiled(pattern)


def test_numbers_of_any_size_are_judged() -> None:
    huge = 10**400
    assert not any(faults(huge, {"type": "integer", "minimum": 0.5}))
    assert any(faults(huge, {"maximum": 3}))


@pytest.mark.parametrize(
    ("value", "other"), [([1], [True]), ({"a": 0}, {"a": False}), ([[0]], [[False]])]
)
def test_a_number_is_no_boolean_within_others_either(value, other) -> None:
    assert any(faults(value, {"const": other}))
    assert any(faults(value, {"enum": [other]}))
    assert not any(faults(value, {"const": value}))
