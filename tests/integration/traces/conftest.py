"""Tritons that send their traces, or write them, with nothing else asked of them."""

from __future__ import annotations

import shutil

import pytest
from monitoring import free_port
from requirements import require_triton
from streaming_models import STREAM
from traced_tritons import (
    CALLER,
    CALLER_CONFIG,
    MODELS,
    PIPELINE,
    files_of_five,
    traced,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    require_triton()
    folder = tmp_path_factory.mktemp("traced")
    shutil.copytree(MODELS / "double", folder / "double")
    shutil.copytree(MODELS / "double", folder / "second")
    shutil.copytree(STREAM, folder / "stream")
    (folder / "caller" / "1").mkdir(parents=True)
    (folder / "caller" / "config.pbtxt").write_text(CALLER_CONFIG, "ascii")
    (folder / "caller" / "1" / "model.py").write_text(CALLER, "ascii")
    (folder / "pipeline" / "1").mkdir(parents=True)
    (folder / "pipeline" / "config.pbtxt").write_text(PIPELINE, "ascii")
    return folder


@pytest.fixture(scope="module")
def spans_server(repository):
    """A Triton that sends spans to the port that comes with it."""
    port = free_port()
    url = f"opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    quick = "opentelemetry,bsp_schedule_delay=300"
    with traced(repository, "mode=opentelemetry", url, quick) as triton:
        yield triton, port


@pytest.fixture(scope="module")
def files_server(repository, tmp_path_factory):
    """A Triton that writes files of five traces to the path that comes with it."""
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    with traced(repository, *files_of_five(path)) as triton:
        yield triton, path
