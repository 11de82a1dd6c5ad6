"""Sequence models on a real Triton: whatever asks them must not harm the server."""

from __future__ import annotations

import numpy as np
import pytest
from accesses import access_to, board_of
from golden_probing import Probing
from model_kinds import DECOUPLED, streaming
from small_models import config, ensemble_of, sequence_batching, write_model

from exporter.access.inventory import Inventory
from exporter.cli import main
from exporter.features.synthetic.synthetic_settings import SyntheticSettings
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from loadtests.engine.load_run import run_closed
from loadtests.errors import PlanError
from loadtests.execute import execute, prepared
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.metadata import model_spec
from loadtests.plan import Entry, Mix
from loadtests.result import Outcome
from loadtests.scenario import Scenario
from loadtests.target import Target

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

STRATEGIES = {"direct": "direct {}", "oldest": "oldest { max_candidate_sequences: 2 }"}
TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING", "")
# A string id of 34 characters corrupts the heap; it took up to 21 of them to be noticed.
TIMES = 40

DOUBLES = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        given = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", 2 * x)]) for x in given]
"""
TWICE = streaming("sender.send(doubled(request))", "sender.send(doubled(request))")


def _name(strategy, id_type):
    return f"{strategy}_{id_type or 'none'}".lower()


# On 2.51 Triton itself refuses every request to a model with a string id.
REFUSED = {_name(strategy, "TYPE_STRING") for strategy in STRATEGIES}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequence_models")
    for strategy, text in STRATEGIES.items():
        for id_type in TYPES:
            section = sequence_batching(text, id_type, idle=5)
            write_model(folder, _name(strategy, id_type), config(section))
    write_model(folder, "ensemble", ensemble_of("oldest_type_uint64"))
    write_model(folder, "nested", ensemble_of("ensemble"))
    return folder


@pytest.fixture(scope="module")
def server(repository, triton_environment):
    with EmbeddedTriton(
        repository, environment=triton_environment, ready_timeout_seconds=120
    ) as triton:
        yield triton


@pytest.fixture
def access(server):
    grpc, http = GrpcClient(server.grpc), HttpClient(server.http)
    yield access_to(grpc, http=http, board=board_of(grpc))
    grpc.close()
    http.close()


def _expected(outcome, key):
    wanted = "configuration" if key[0] in REFUSED else "ok"
    assert outcome == wanted, key


def test_the_model_config_says_which_ids_a_model_takes(access) -> None:
    found = {key[0]: spec for key, spec in access.board.current.models.items()}
    for strategy in STRATEGIES:
        for id_type in TYPES:
            spec = found[_name(strategy, id_type)]
            assert spec.sequence
            wanted = (id_type or "TYPE_UINT64").removeprefix("TYPE_")
            assert spec.sequence_id_type == wanted
    for name in ("ensemble", "nested"):
        assert found[name].sequence
        assert found[name].sequence_id_type == "UINT64"


def test_the_default_probe_harms_no_sequence_model(server, access) -> None:
    probe = SyntheticSettings(timeout_seconds=10).build(access)
    targets = probe.targets(access.board.current)
    assert len(targets) == 2 * len(access.board.current.models)
    for _ in range(TIMES):
        for target in targets:
            _expected(probe.attempt(target).outcome, target.key)
    assert server.running


def test_a_configured_string_id_is_never_sent(server, access) -> None:
    # An ensemble whose step is unknown here: only the parameter itself gives it away.
    parameters = {"sequence_id": "tritonwatch-synthetic-deadbeef-1"}
    override = {"parameters": parameters | {"sequence_start": True}}
    key = ("ensemble", "1")
    spec = access.board.current.models[key]
    plain = type(spec)(spec.name, spec.version, spec.inputs, spec.outputs)
    access.board.publish(Inventory(up=True, ready=True, models={key: plain}))
    probe = SyntheticSettings(overrides={"ensemble": override}).build(access)
    for target in probe.targets(access.board.current):
        for _ in range(5):
            # Refused here, so the signature is read anew, and the id becomes a number.
            assert probe.attempt(target).outcome == "ok"
            assert server.running


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_load_harms_no_sequence_model(server, access, protocol) -> None:
    target = Target(protocol, getattr(server, protocol))
    for name, _ in access.board.current.models:
        spec = model_spec(target, name)
        assert spec.sequence
        assert (
            spec.sequence_id_type
            == access.board.current.models[name, "1"].sequence_id_type
        )
        if name in REFUSED:
            continue
        body = body_of(spec, Row({"x": np.zeros(1, np.float32)}), protocol)
        entry = Entry(name, spec, (body,), sequence_length=3)
        result = run_closed(
            target, Mix((entry,)), concurrency=2, duration_seconds=60, requests=30
        )
        assert result.requests.count(Outcome.OK) == 30, (name, result.errors)
    assert server.running


def test_ids_stay_within_what_the_control_tensor_holds(start_triton, tmp_path) -> None:
    code = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb.get_input_tensor_by_name(request, "CORRID").as_numpy().ravel()[0]
        whole = request.correlation_id()
        y = np.array([float(int(given) == int(whole))], np.float32)
        return pb.InferenceResponse([pb.Tensor("y", y)])
"""
    for id_type in ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32"):
        section = sequence_batching("direct {}", id_type, idle=5)
        write_model(tmp_path / "models", id_type.lower(), config(section), code)
    server = start_triton(tmp_path / "models")
    grpc = GrpcClient(server.grpc)
    board = board_of(grpc)
    # All zeros is a fault here: it would mean that the id was cut off.
    probe = SyntheticSettings(checks={"all_zero"}, timeout_seconds=10).build(
        access_to(grpc, board=board)
    )
    for target in probe.targets(board.current):
        for _ in range(5):
            assert probe.attempt(target).outcome == "ok", target
    grpc.close()


@pytest.fixture(scope="module")
def batched(tmp_path_factory, triton_environment):
    """Sequence models that take batches: `plain`, and `streams`, which is decoupled."""
    folder = tmp_path_factory.mktemp("batched_sequences")
    section = sequence_batching("direct {}", "TYPE_UINT64", idle=5)
    for name, more, code in (("plain", (), DOUBLES), ("streams", (DECOUPLED,), TWICE)):
        text = config(section, *more).replace("max_batch_size: 0", "max_batch_size: 4")
        write_model(folder, name, text, code)
    with EmbeddedTriton(folder, environment=triton_environment) as triton:
        yield triton


@pytest.mark.parametrize("model", ["plain", "streams"])
def test_golden_data_are_sent_row_by_row(batched, tmp_path, model) -> None:
    data, golden = tmp_path / "data.npz", tmp_path / "golden.npz"
    np.savez(data, x=np.arange(5, dtype=np.float32).reshape(5, 1))
    command = ["golden", "record", "--model", model, "--grpc", batched.grpc]
    assert main([*command, "--data", str(data), "--output", str(golden)]) == 0
    grpc = GrpcClient(batched.grpc)
    access = access_to(grpc, board=board_of(grpc))
    probing = Probing(access, model, data={"file": str(golden)})
    assert [verdict.outcome for verdict in probing.round()] == ["ok"] * 5
    grpc.close()


def _steps(server, protocol):
    profile = {"kind": "closed", "concurrency": 2, "duration_seconds": 0.5}
    return Scenario.model_validate(
        {
            "target": {"protocol": protocol, "address": getattr(server, protocol)},
            "models": [{"model": "streams", "sequence_length": 3}],
            "profile": profile,
        }
    )


def test_load_on_a_sequence_model_that_streams_sends_sequences(batched) -> None:
    scenario = _steps(batched, "grpc")
    result = execute(scenario, prepared(scenario))
    requests = result.requests
    assert requests.count(Outcome.OK) == len(requests) > 3, result.errors
    assert set(requests.responses.tolist()) == {2}


def test_where_no_sequence_can_be_sent_load_says_so(batched) -> None:
    with pytest.raises(PlanError, match=r"sequence.*with the protocol grpc"):
        prepared(_steps(batched, "http"))
