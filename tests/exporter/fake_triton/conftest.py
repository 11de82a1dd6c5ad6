"""The FakeTriton of a test: one model, behaving."""

from __future__ import annotations

import pytest
from triton_clients import M

from exporter.testing import FakeTriton


@pytest.fixture
def fake():
    with FakeTriton([M]) as server:
        yield server
