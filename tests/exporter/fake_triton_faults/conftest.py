"""The FakeTriton of a test: two models, to be scripted."""

from __future__ import annotations

import pytest

from exporter.testing import FakeModel, FakeTriton


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m"), FakeModel("n")]) as server:
        yield server
