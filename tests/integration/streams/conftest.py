"""A real Triton with models that stream."""

from __future__ import annotations

import pytest
from accesses import access_to, board_of
from slow_llm import slow_llm
from streaming_models import (
    STREAM,
    set_speaker_fault,
    write_echo,
    write_embedder,
    write_speaker,
)

from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = slow_llm(tmp_path_factory.mktemp("models"))
    write_speaker(folder)
    write_embedder(folder)
    write_echo(folder)
    (folder / "stream").symlink_to(STREAM)
    return folder


@pytest.fixture(scope="module")
def server(repository, triton_environment):
    with EmbeddedTriton(repository, environment=triton_environment) as started:
        yield started


@pytest.fixture
def access(server):
    grpc = GrpcClient(server.grpc)
    http = HttpClient(server.http)
    yield access_to(grpc, board=board_of(grpc), http=http)
    grpc.close()
    http.close()


@pytest.fixture(params=["grpc", "http"])
def protocol(request):
    return request.param


@pytest.fixture
def fault(repository):
    yield lambda **how: set_speaker_fault(repository, **how)
    set_speaker_fault(repository)
