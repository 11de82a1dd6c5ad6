"""A real Triton whose models lie on demand, and access to it."""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING

import pytest
from accesses import access_to, board_of
from golden_probing import DEMO, record

from exporter.access.own_traffic import OwnTraffic
from exporter.triton import backend
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.faulty_model import Fault, set_fault, write_faulty_model
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from pathlib import Path

CACHED = "response_cache { enable: true }\n"


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "models"
    for name in ("digits_fp32", "diabetes"):
        write_faulty_model(folder, name, source=DEMO / name)
    write_faulty_model(folder, "digits_cached", source=DEMO / "digits_fp32")
    config = folder / "digits_cached" / "config.pbtxt"
    config.write_text(config.read_text() + CACHED)
    shutil.copytree(DEMO / "slow", folder / "slow")
    return folder


@pytest.fixture(scope="session")
def server(repository, triton_environment):
    caches = backend.inspect(triton_environment).caches
    arguments = [f"--cache-directory={caches}", "--cache-config=local,size=1048576"]
    with EmbeddedTriton(
        repository, environment=triton_environment, arguments=arguments
    ) as triton:
        yield triton


@pytest.fixture
def lie(repository):
    """Have a model go over to a fault; every model is honest at the end."""
    told = set()

    def tell(name, fault="none", **more):
        told.add(name)
        set_fault(repository, name, Fault(fault, **more))

    yield tell
    for name in told:
        set_fault(repository, name, Fault())


@pytest.fixture
def access(server):
    grpc, http = GrpcClient(server.grpc), HttpClient(server.http)
    board = board_of(grpc, "digits_fp32", "digits_cached", "diabetes", "slow")
    yield access_to(
        grpc, http=http, board=board, own=OwnTraffic(run_id=secrets.token_hex(4))
    )
    grpc.close()
    http.close()


@pytest.fixture(scope="session")
def recorded(server, tmp_path_factory) -> Path:
    """The digits with the answers of the honest model."""
    output = tmp_path_factory.mktemp("recorded") / "digits.npz"
    assert record(server, output, "--label", "label") == 0
    return output
