"""The generated pages say what the code does: every key, limit and default of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from exporter import cli
from exporter.commands import reference_pages
from exporter.config.configuration import Config, parse

VALID = Path(__file__).parents[2] / "data" / "config" / "valid"
SCHEMA = json.loads(reference_pages.schema())
PARTS = {"the file": SCHEMA, **SCHEMA["$defs"]}
KEYS = {
    (name, key): value
    for name, part in PARTS.items()
    for key, value in part.get("properties", {}).items()
}


def tables():
    """Of the config page: (part, key) -> the other three cells."""
    found, part = {}, ""
    for line in reference_pages.config_page().splitlines():
        if line.startswith("## "):
            part = line.removeprefix("## ")
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 4, line
            found[part, cells[0].strip("`")] = tuple(cells[1:])
    return found


TABLES = tables()


# The configuration.


def test_every_key_says_what_it_means():
    # `kind` is its only value.
    silent = {place for place, cells in TABLES.items() if not cells[2]}
    assert {key for _, key in silent} <= {"kind"}


def test_every_part_says_what_it_is():
    for name, part in PARTS.items():
        if "properties" in part:
            assert part.get("description"), name


def test_links_lead_to_a_part():
    anchors = {name.lower() for name in PARTS}
    linked = set(re.findall(r"\]\(#([^)]*)\)", reference_pages.config_page()))
    assert linked
    assert linked <= anchors


@pytest.mark.parametrize(
    ("part", "key", "told"),
    [
        ("ListenSettings", "port", "integer ≥ 0, ≤ 65535"),
        ("StatisticsSettings", "series_limit", "integer ≥ 1, ≤ 1000000"),
        ("InputSettings", "shape", "list of integer ≥ 0, ≤ 16777216 or null"),
        ("SyntheticSettings", "jitter_ratio", "number ≥ 0, ≤ 0.5"),
        ("SyntheticSettings", "interval_seconds", "number > 0.01, ≤ 86400"),
        ("LogSettings", "format", "`logfmt`, `json`"),
        ("TargetSettings", "http", "string or null"),
        ("TargetSettings", "tls", "[TlsSettings](#tlssettings) or null"),
        ("TargetSettings", "headers", "map to string"),
        ("SyntheticSettings", "overrides", "map to [ModelOverride](#modeloverride)"),
        ("ModelFilter", "include", "list of string"),
    ],
)
def test_a_type_is_told_with_its_limits(part, key, told):
    assert TABLES[part, key][0] == told


def test_no_secret_has_a_default_or_is_told_as_plain():
    headers = KEYS["TargetSettings", "headers"]
    assert headers["additionalProperties"]["writeOnly"]
    assert headers["default"] == {}


# The schema.


def test_the_schema_names_its_draft_and_refuses_unknown_keys_everywhere():
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for name, part in PARTS.items():
        if "properties" in part:
            assert part["additionalProperties"] is False, name


def test_the_defaults_of_the_schema_are_a_configuration():
    defaults = {
        key: value["default"]
        for key, value in SCHEMA["properties"].items()
        if "default" in value
    }
    assert parse(json.dumps(defaults).encode(), "FILE", {}) == Config()


# The metrics.


# The commands that print them.


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["schema"], reference_pages.schema),
        (["schema", "--markdown"], reference_pages.config_page),
        (["metrics"], reference_pages.metrics_table),
        (["metrics", "--markdown"], reference_pages.metrics_page),
        (
            ["metrics", "--json"],
            lambda: json.dumps(reference_pages.metrics(), indent=2),
        ),
    ],
)
def test_the_command_prints_the_page(capsys, arguments, printed):
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == f"{printed()}\n"
