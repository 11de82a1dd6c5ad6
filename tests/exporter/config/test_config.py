"""The configuration file: what it may say, and every way it can be wrong.

`tests/data/config/invalid/NAME.yaml` must give exactly the problems in NAME.txt;
everything in `valid` must load.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import config_file
from exporter.config.configuration import (
    Config,
    is_address,
    load,
    parse,
)
from exporter.errors import ConfigError
from exporter.features.synthetic.synthetic_settings import SyntheticSettings

DATA = Path(__file__).parents[2] / "data" / "config"
INVALID = sorted(path.stem for path in (DATA / "invalid").glob("*.yaml"))
VALID = sorted(path.stem for path in (DATA / "valid").glob("*.yaml"))
CANARY = "canary-value"
SCHEMA = Config.model_json_schema()
ENVIRONMENT = {
    "SECRET": CANARY,
    "SECRET_LINE": f"{CANARY}\n",
    "NUMBER": "700001",
    "PORT": "8013",
    "KIND": "statistics",
    "NOT_UNICODE": "caf\udce9",
}


def outcome_of(raw):
    """The configuration, or its problems."""
    try:
        return parse(raw, "FILE", ENVIRONMENT)
    except ConfigError as error:
        return error.problems


def problems_of(text):
    problems = outcome_of(text if isinstance(text, bytes) else text.encode())
    assert isinstance(problems, tuple)
    return problems


def names():
    """What grows with every new part, by the name that stands for it in NAME.txt."""
    known = {
        f"<keys of {name}>": ", ".join(sorted(part.get("properties", ())))
        for name, part in {"the file": SCHEMA, **SCHEMA["$defs"]}.items()
        if "properties" in part
    }
    for part in ("collectors", "probes"):
        items = SCHEMA["properties"][part]["items"]
        mapping = items.get("discriminator", {}).get("mapping", {"synthetic": None})
        quoted = [repr(kind) for kind in sorted(mapping)]
        last = f" or {quoted[-1]}" if len(quoted) > 1 else quoted[-1]
        known[f"<kinds of {part}>"] = ", ".join(quoted[:-1]) + last
    return known


@pytest.mark.parametrize("name", INVALID)
def test_a_wrong_file_gives_exactly_these_problems(name):
    found = problems_of((DATA / "invalid" / f"{name}.yaml").read_bytes())
    expected = (DATA / "invalid" / f"{name}.txt").read_text("utf-8")
    for stand_in, known in names().items():
        expected = expected.replace(stand_in, known)
    assert "\n".join(found) + "\n" == expected
    assert all("\n" not in problem for problem in found)
    assert not any(CANARY in problem or "700001" in problem for problem in found)


def test_every_message_belongs_to_a_file():
    assert sorted(p.stem for p in (DATA / "invalid").glob("*.txt")) == INVALID


@pytest.mark.parametrize("name", VALID)
def test_a_right_file_loads(name):
    path = DATA / "valid" / f"{name}.yaml"
    assert parse(path.read_bytes(), str(path), ENVIRONMENT).probes


def test_an_empty_map_is_the_defaults():
    assert load(DATA / "valid" / "empty-map.yaml", {}) == Config()


def test_no_file_at_all_is_the_defaults():
    assert load(None) == Config()


def test_everything_a_file_says_arrives():
    path = DATA / "valid" / "everything.yaml"
    config = load(path, ENVIRONMENT)
    headers = config.target.headers
    assert headers["Authorization"].get_secret_value() == f"Bearer {CANARY}"
    assert config.listen.port == 8013
    assert config.target.metrics is None
    assert [c.interval_seconds for c in config.all_collectors()][:2] == [5.0, 2.0]
    quick = config.probes[0]
    assert isinstance(quick, SyntheticSettings)
    assert quick.overrides["1"].inputs["TEXT"].values == ("a", 1, 1.5, True)
    assert quick.overrides["1"].inputs["NUMBER"].range == (0, 2**64 - 1)


def test_a_merged_map_gives_way_to_the_keys_beside_it():
    probes = load(DATA / "valid" / "merge-keys.yaml", {}).probes
    assert [(p.label, p.models.include, p.models.exclude) for p in probes] == [
        ("first", ("a",), ("b",)),
        ("second", ("a",), ("c",)),
        ("third", ("a",), ("b",)),
    ]


def test_secrets_are_shown_nowhere():
    config = load(DATA / "valid" / "everything.yaml", ENVIRONMENT)
    shown = f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
    assert CANARY not in shown


# Every level of the schema, so that a part that comes later is tested unasked.


def levels(node, definitions, document=None, seen=()):
    """(document builder, keys) for every map with known keys in the schema."""
    build = document or (lambda value: value)
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from levels(definitions[name], definitions, build, (*seen, name))
        return
    for option in [*node.get("anyOf", ()), *node.get("oneOf", ())]:
        yield from levels(option, definitions, build, seen)
    if "properties" in node:
        kind = node["properties"].get("kind", {})
        kinds = kind.get("enum", [kind["const"]] if "const" in kind else [])
        base = {"kind": kinds[0]} if kinds else {}
        yield build, base, sorted(node["properties"])
        for key, child in node["properties"].items():
            yield from levels(
                child,
                definitions,
                lambda value, key=key, base=base: build({**base, key: value}),
                seen,
            )
    if "items" in node:
        yield from levels(
            node["items"], definitions, lambda value: build([value]), seen
        )
    if isinstance(node.get("additionalProperties"), dict):
        yield from levels(
            node["additionalProperties"],
            definitions,
            lambda value: build({"some": value}),
            seen,
        )


LEVELS = list(levels(SCHEMA, SCHEMA["$defs"]))


@pytest.mark.parametrize(("build", "base", "keys"), LEVELS)
def test_an_unknown_key_is_refused_at_every_level(build, base, keys):
    misspelt = {f"{key}x": 1 for key in keys}
    found = problems_of(json.dumps(build({**base, **misspelt})))  # JSON is YAML
    for key in keys:
        told = f"{key}x: found unknown key; did you mean '{key}'?"
        assert sum(problem.endswith(told) for problem in found) == 1


# Hostile files.


def test_the_largest_file_is_read():
    padding = b"{}" + b"#".rjust(config_file.MAX_FILE_BYTES - 2)
    assert parse(padding, "FILE", {}) == Config()
    assert problems_of(padding + b"#") == (
        "the file is larger than the maximum of 1048576 bytes",
    )


def test_more_values_than_any_configuration_has_are_refused(monkeypatch):
    monkeypatch.setattr(config_file, "MAX_NODES", 1000)
    assert parse(f"models: {{include: [{'x,' * 995}]}}".encode(), "FILE", {})
    (problem,) = problems_of(f"models: {{include: [{'x,' * 1000}]}}")
    assert problem.endswith(
        "found more than 1000 values, with aliases expanded; that is the maximum"
    )


def test_a_long_wrong_value_is_cut():
    (problem,) = problems_of(f"log: {{level: {'x' * 100_000}}}")
    assert len(problem) < 200


@given(st.binary(max_size=300))
def test_any_bytes_give_a_configuration_or_problems(raw):
    outcome = outcome_of(raw)
    if not isinstance(outcome, Config):
        assert outcome
        assert all("\n" not in problem for problem in outcome)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["${env:SECRET}", "${env:NONE}", "statistics", "synthetic"])
)
KEYS = st.sampled_from(
    sorted({key for _, _, keys in LEVELS for key in keys} | {"x", "kind"})
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(sorted(Config.model_fields)), DOCUMENTS))
def test_any_values_give_a_configuration_or_problems_without_secrets(document):
    text = yaml.safe_dump(document, allow_unicode=True)
    outcome = outcome_of(text.encode("utf-8", "surrogatepass"))
    if not isinstance(outcome, Config):
        assert CANARY not in str(outcome)
        assert all(": " in problem for problem in outcome)


# Addresses.


@pytest.mark.parametrize(
    "text",
    [
        "localhost:8001",
        "10.0.0.1:1",
        "[::1]:65535",
        "[fe80::1]:1",
        "[fe80::1%eth0]:80",
        "a_b-c.d:00080",
    ],
)
def test_an_address_is_a_host_and_a_port(text):
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":1",
        "host:0",
        "host:65536",
        "host:1\n",
        "ho st:1",
        "host:٣",
        "user@host:1",
        "evil#good:1",
        "evil?good:1",
        "evil\\good:1",
        "evil%2fgood:1",
        "http://host:1",
        "host/path:1",
        "::1:80",
        "[::g]:80",
        "[1.2.3.4]:80",
        "[]:80",
        "[::1]:80:80",
        "[::1%a\r\nX: y]:80",
        "[::1%@evil/]:80",
        "[::1%]:80",
        "*:80",
        "host:-1",
    ],
)
def test_what_else_a_url_could_hold_is_no_address(text):
    assert not is_address(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[::]", "::"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("0.0.0.0", "0.0.0.0"),
        ("localhost", "localhost"),
    ],
)
def test_an_ipv6_address_to_listen_on_may_stand_in_brackets(text, wanted):
    raw = f"listen: {{address: '{text}', tap: {{address: '{text}'}}}}".encode()
    listen = parse(raw, "a.yaml", {}).listen
    assert (listen.address, listen.tap.address) == (wanted, wanted)


@pytest.mark.parametrize(
    "text", ["[::1", "::1]", "[]", "[127.0.0.1]", "[localhost]", "[[::1]]", "[::1]:80"]
)
def test_other_brackets_around_an_address_to_listen_on_are_refused(text):
    raw = f"listen: {{tap: {{address: '{text}'}}}}".encode()
    with pytest.raises(ConfigError) as caught:
        parse(raw, "a.yaml", {})
    assert "listen.tap.address" in str(caught.value)
    assert 'like "::1" or "[::1]"' in str(caught.value)


GOLDEN = "{kind: golden, name: g, data: {file: set.npz}}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}", ["synthetic"]),
        (f"probes: [{GOLDEN}]", ["synthetic", "g"]),
        ("probes: [{kind: synthetic, name: mine}]", ["mine"]),
        (f"probes: [{GOLDEN}, {{kind: synthetic}}]", ["g", "synthetic"]),
        (f"probes: [{GOLDEN}, {{kind: synthetic, enabled: false}}]", ["g"]),
        (
            "probes: [{kind: golden, data: {file: set.npz}, enabled: false}]",
            ["synthetic"],
        ),
        ("probes: []", []),
    ],
)
def test_probes_add_up_and_the_default_one_stays_unless_turned_off(text, wanted):
    config = parse(text.encode(), "a.yaml", {})
    assert [probe.label for probe in config.all_probes()] == wanted


def test_a_probe_cannot_take_the_name_of_the_default_one():
    with pytest.raises(ConfigError, match="two probes named 'synthetic'"):
        parse(
            b"probes: [{kind: golden, name: synthetic, data: {file: set.npz}}]",
            "a.yaml",
            {},
        )
