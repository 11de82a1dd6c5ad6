"""Which boards a model runs on, from Triton's page and the model's instance groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_server import PageServer
from tritonclient.grpc import model_config_pb2

from exporter.features.energy.placement import PlacementReader
from exporter.features.energy.sources.power_source import Device
from exporter.triton.kserve import gpus_of
from exporter.triton.protocol_types import ModelSpec

RECORDED = Path(__file__).parents[3] / "data" / "triton-2.51.0-h100.prom"
"""The page of a Triton on an H100 whose models were loaded at the start."""
H100 = "GPU-84b0ae4f-2f37-130c-9440-b74445adec67"
KEY = ("fma", "1")
HOST = Device("host", "rapl", "package-0")


def boards(*keys, source="nvml"):
    return [
        Device("gpu", source, key, index=str(index)) for index, key in enumerate(keys)
    ]


def models(gpus, key=KEY):
    return {key: ModelSpec(*key, (), (), gpus=gpus)}


def shares(page, there, gpus, key=KEY):
    """The model's part on each board, and on the host."""
    found = PlacementReader(page.client, 1.0).read(there, models(gpus, key), ask=True)
    assert found.share(key, HOST) == (1.0, "")
    return [found.share(key, board)[0] for board in there]


@pytest.fixture
def page():
    server = PageServer()
    server.body = RECORDED.read_bytes()
    yield server
    server.close()


def shown(*uuids):
    return "".join(
        f'nv_gpu_memory_total_bytes{{gpu_uuid="{uuid}"}} 8e10\n' for uuid in uuids
    )


def spent(micros, uuid=""):
    label = f'gpu_uuid="{uuid}",' if uuid else ""
    series = f'nv_inference_compute_infer_duration_us{{{label}model="fma",version="1"}}'
    return f"{series} {micros}\n"


def test_a_model_loaded_at_the_start_runs_on_the_boards_of_its_instance_groups(page):
    assert shares(page, boards(H100), (0,)) == [1.0]
    assert shares(page, boards(H100), ()) == [0.0]


def test_a_model_of_which_nothing_is_known_runs_on_all_boards_alike(page):
    assert shares(page, boards(H100), None) == [1.0]
    page.body = shown("GPU-a", "GPU-b").encode()
    assert shares(page, boards("GPU-a", "GPU-b"), None) == [0.5, 0.5]
    assert shares(page, boards("GPU-a", "GPU-b"), (7,)) == [0.5, 0.5]


def test_boards_that_the_server_does_not_see_are_not_numbered(page):
    page.body = (spent(5) + shown("GPU-c", "GPU-b")).encode()
    there = boards("GPU-a", "GPU-b", "GPU-c")
    assert shares(page, there, (1,)) == [0.0, 0.0, 1.0]
    assert shares(page, there, (0, 1)) == [0.0, 0.5, 0.5]


def test_boards_are_numbered_anew_once_the_server_sees_others(page):
    there = boards("GPU-a", "GPU-b", "GPU-c")
    reader = PlacementReader(page.client, 1.0)
    for body, expected in (
        (shown("GPU-a", "GPU-b", "GPU-c"), [0.0, 1.0, 0.0]),
        ("", [0.0, 1.0, 0.0]),
        (shown("GPU-a", "GPU-c"), [0.0, 0.0, 1.0]),
    ):
        page.body = body.encode()
        found = reader.read(there, models((1,)), ask=True)
        assert [found.share(KEY, board)[0] for board in there] == expected


def test_numbers_of_boards_in_the_order_of_their_uuids_mean_nothing(page):
    page.body = shown("GPU-a", "GPU-b").encode()
    there = boards("GPU-a", "GPU-b", source="triton")
    assert shares(page, there, (1,)) == [0.5, 0.5]
    assert shares(page, there[:1], (0,)) == [1.0]


def test_a_model_loaded_later_is_where_its_compute_time_rises(page):
    page.body = (spent(300, "GPU-a") + spent(100)).encode()
    there = boards("GPU-a", "GPU-b")
    reader = PlacementReader(page.client, 1.0)
    first = reader.read(there, models((0, 1)), ask=True)
    assert [first.share(KEY, board) for board in there] == [(0.75, ""), (0.0, "")]
    page.body = (spent(400, "GPU-a") + spent(200)).encode()
    second = reader.read(there, models((0, 1)), ask=True)
    assert second.share(KEY, there[0]) == (0.5, "")
    page.body = b""
    third = reader.read(there, models((0, 1)), ask=True)
    assert third.share(KEY, there[0]) == (0.5, "")


def test_a_model_on_a_mig_instance_that_is_not_known_is_where_it_is_configured(page):
    page.body = spent(300, "MIG-new").encode()
    assert shares(page, boards("GPU-a", "GPU-b"), (1,)) == [0.0, 1.0]


def test_declared_gpus_replace_instance_groups_and_the_page(page):
    page.body = (spent(300, "GPU-a") + spent(100)).encode()
    there = boards("GPU-a", "GPU-b")
    for gpus, expected in (((1,), [0.0, 1.0]), ((), [0.0, 0.0]), ((0, 1), [0.5, 0.5])):
        reader = PlacementReader(page.client, 1.0, {"fma": gpus})
        found = reader.read(there, models(()), ask=True)
        assert [found.share(KEY, board)[0] for board in there] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", None),
        ("${gpu_device_ids}", None),
        ("0", (0,)),
        ("2, 0", (0, 2)),
        ("9" * 5000, None),
    ],
)
def test_tensorrt_llm_names_gpus_by_a_parameter(value, expected):
    config = model_config_pb2.ModelConfig(backend="tensorrtllm")
    config.instance_group.add(kind="KIND_CPU")
    config.parameters["gpu_device_ids"].string_value = value
    assert gpus_of(config) == expected


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], None),
        ([("KIND_CPU", [])], ()),
        ([("KIND_GPU", [0])], (0,)),
        ([("KIND_GPU", [2, 0]), ("KIND_CPU", []), ("KIND_GPU", [2])], (0, 2)),
        ([("KIND_GPU", [])], None),
        ([("KIND_AUTO", [])], None),
        ([("KIND_GPU", [0]), ("KIND_MODEL", [])], None),
    ],
)
def test_instance_groups_name_gpus_by_number(groups, expected):
    config = model_config_pb2.ModelConfig()
    for kind, gpus in groups:
        config.instance_group.add(kind=kind, gpus=gpus)
    assert gpus_of(config) == expected
