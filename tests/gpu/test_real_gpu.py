"""Energy of models on a real NVIDIA GPU: `make test-gpu`."""

from __future__ import annotations

import contextlib
import subprocess
import time
import urllib.request
from itertools import chain

import pytest
from gpu_board import NONE, Mixed, Sender, first_board
from gpu_models import MODELS, write_gpu_models
from gpu_scenario import Scenario
from requirements import require_triton

from exporter import catalogue
from exporter.access.work_board import WorkBoard
from exporter.features.energy.placement import PlacementReader
from exporter.features.energy.sources.nvml import NvmlSettings
from exporter.features.energy.sources.power_source import Surroundings
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

pytestmark = [pytest.mark.gpu, pytest.mark.triton]

PARTS = (
    "triton_model_energy_joules_total",
    "triton_idle_energy_joules_total",
    "triton_unattributed_energy_joules_total",
)


@pytest.fixture(scope="module")
def board():
    with first_board() as handle:
        if handle is None:
            pytest.skip(NONE)
        yield handle


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_gpu_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def scenario(board, repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sidecar")
    with EmbeddedTriton(repository, environment=require_triton()) as triton:
        scenario = Scenario(board, triton, folder)
        yield scenario
        scenario.close()


@pytest.fixture(scope="module")
def alone(scenario):
    return {model: scenario.alone(model, 6) for model in MODELS}


@pytest.fixture(scope="module")
def together(scenario, alone):
    mixed = Mixed(scenario.sender, tuple(MODELS), 40, 0.4, seed=7)
    return scenario.together(Mixed.overlapping, mixed)


@pytest.fixture
def reading(board):
    source = NvmlSettings().find(
        Surroundings(time.monotonic, time.time, None, WorkBoard())
    )
    (first, *_) = source.read()
    yield first
    source.close()


def test_nvml_is_read_as_nvidia_smi_reads_it(reading):
    answer = subprocess.run(
        [
            "nvidia-smi",
            "--id=0",
            "--format=csv,noheader,nounits",
            "--query-gpu=uuid,name,driver_version,memory.total,power.limit,ecc.errors.uncorrected.volatile.total",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    uuid, name, driver, mebibytes, limit, errors = answer.stdout.strip().split(", ")
    found = {
        (sample.spec, sample.labels[4:]): sample.value for sample in reading.samples
    }
    assert not reading.faults
    assert (reading.device.key, reading.device.name) == (uuid, name)
    assert found[catalogue.GPU_INFO, (driver, "off", "counter")] == 1
    assert found[catalogue.GPU_MEMORY_TOTAL, ()] / 2**20 == int(mebibytes)
    assert found[catalogue.GPU_POWER_LIMIT, ()] == float(limit)
    assert found[catalogue.GPU_ECC, ("uncorrected",)] == int(errors)
    assert 0 < reading.power_watts <= float(limit)
    assert reading.counter_microjoules > 0


def test_every_model_has_energy_like_what_it_takes_alone(alone, together):
    for model, joules in together.attributed.items():
        expected = alone[model].joules * together.inferences[model]
        within = max(0.25, 3 * (together.errors[model] or 1.0))
        assert joules == pytest.approx(expected, rel=within), model


def test_the_board_is_counted_once_and_divided_without_a_rest(together):
    assert together.board_counted == pytest.approx(together.board.joules, rel=0.1)
    page = together.page
    parts = chain.from_iterable(page.values(name, boundary="gpu") for name in PARTS)
    assert sum(parts) == pytest.approx(page.sum("triton_gpu_energy_joules_total"))


def test_multiply_adds_without_a_pause_reach_most_of_the_peak(alone):
    page = alone["fma"].page
    assert 0.5 < page.value("triton_model_flops_utilization_ratio", model="fma") < 1.05


def test_models_are_on_the_board_whether_loaded_at_the_start_or_later(
    board, repository, reading
):
    with EmbeddedTriton(
        repository,
        environment=require_triton(),
        model_control="explicit",
        arguments=["--load-model=fma"],
    ) as triton:
        load = f"http://{triton.http}/v2/repository/models/copy/load"
        urllib.request.urlopen(load, data=b"", timeout=60).close()
        sender = Sender(triton.grpc)
        with contextlib.closing(sender):
            for name in ("fma", "copy"):
                sender.infer(name)
        with contextlib.closing(GrpcClient(triton.grpc)) as grpc:
            models = {
                (name, "1"): grpc.model_spec(name, "1", timeout_seconds=10)
                for name in ("fma", "copy")
            }
        # Triton renews its page every two seconds.
        time.sleep(3)
        with contextlib.closing(HttpClient(triton.metrics)) as client:
            reader = PlacementReader(client, 5.0)
            placement = reader.read([reading.device], models, ask=True)
    assert {spec.gpus for spec in models.values()} == {(0,)}
    for key in models:
        assert placement.share(key, reading.device) == (1.0, "")
    labelled = {key[0] for key, where in placement.compute.items() if any(where)}
    assert labelled == {"copy"}
