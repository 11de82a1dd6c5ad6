"""What a configuration holds in secret stays there; what cannot work is refused."""

from __future__ import annotations

import pytest
from fake_triton import FakeModel, FakeTriton

from exporter.access.own_traffic import OwnTraffic
from exporter.config.configuration import parse
from exporter.errors import ConfigError
from exporter.web.multi_target import MultiTarget

CANARY = "canary-4711"
ENVIRONMENT = {"SECRET": CANARY, "LINES": f"{CANARY}\nX: y"}


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(text.encode(), "f", ENVIRONMENT)
    assert CANARY not in str(error.value)
    return str(error.value)


def test_headers_for_a_collector_that_cannot_be_sent_are_refused_unseen():
    otlp = "otlp: {endpoint: 'http://h:4318', headers: {%s}}"
    assert "cannot be sent" in refused(otlp % "api-key: '${env:LINES}'")
    assert "want a name" in refused(otlp % "'a b': x")
    assert "the protocol sets" in refused(otlp % "Content-Length: '5'")


@pytest.mark.parametrize("end", ["@[::1:4318", "@h:99999", "@:4318"])
def test_a_collectors_url_that_is_none_is_refused_unseen(end):
    found = refused(f"otlp: {{endpoint: 'http://u:${{env:SECRET}}{end}'}}")
    assert "${env:SECRET}" in found
    assert "want a URL" in found


async def test_what_debug_shows_of_the_settings_holds_no_secret():
    text = """
    multi_target: {open: true}
    probes:
      - kind: synthetic
        overrides:
          m: {parameters: {key: '${env:SECRET}', rows: 4}}
          n: {inputs: {x: {values: ['${env:SECRET}', 7]}}}
    """
    config = parse(text.encode(), "f", ENVIRONMENT)
    with FakeTriton([FakeModel("m")]) as fake:
        result = await MultiTarget().probe(
            config, {"target": fake.grpc}, {}, "", OwnTraffic(run_id="x")
        )
        sent = [r.parameters for r in fake.requests if r.operation == "infer"]
    assert sent == [{"key": CANARY, "rows": 4}]
    assert CANARY not in result.debug_text()
    assert '"rows": 4' in result.debug_text()


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("2024-01-01", "a date"),
        ("2024-01-01 10:00:00", "a datetime"),
        ("!!set {a}", "a set"),
        ("!!binary aGk=", "binary data"),
        ('"\\ud800"', r'"\ud800"'),
    ],
)
def test_a_kind_of_any_type_is_refused_in_words_that_can_be_sent(kind, shown):
    found = refused(f"collectors: [{{kind: {kind}}}]")
    assert f"collectors[0].kind: found {shown}; want '" in found
    assert "'process'" in found
    assert found.encode()
