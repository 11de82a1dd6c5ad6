"""The whole road from the scripted NVML to samples, second by second on a clock of ours."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque

import pytest
from accesses import access_to
from fake_nvml import GPU_IS_LOST, board
from page_server import PageServer

from exporter import catalogue
from exporter.access.inventory import Inventory
from exporter.access.work_board import ModelWork, WorkSnapshot
from exporter.features.energy.energy_collector import EnergyCollector
from exporter.features.energy.energy_settings import (
    CostSettings,
    PowerSettings,
    energy_settings,
)
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec

A, B = ("a", "1"), ("b", "1")
WATTS = {A: 320.0, B: 130.0}
IDLE = 60.0
WINDOW_SECONDS = 5
PARTS = (
    catalogue.MODEL_ENERGY,
    catalogue.IDLE_ENERGY,
    catalogue.UNATTRIBUTED_ENERGY,
)


class Fleet:
    """Two boards with one truth each; the first runs the models."""

    def __init__(self, nvml, *, first=None, metrics=None, late=0, **power):
        self.now = 0.0
        self.pipe = deque([0.0] * late)
        boards = {n: self._fields(n, 1e6, IDLE) for n in (0, 1)}
        self.script = nvml({**boards, 0: {**boards[0], **(first or {})}})
        self.millijoules = {0: 1e9, 1: 1e9}
        self.truth = {0: 0.0, 1: 0.0}
        self.busy = dict.fromkeys(WATTS, 0.0)
        self.spent = dict.fromkeys(WATTS, 0.0)
        self.access = access_to(
            GrpcClient("127.0.0.1:1"), clock=lambda: self.now, metrics=metrics
        )
        settings = PowerSettings.model_validate(
            {"sources": [{"kind": "nvml", "idle_watts": IDLE}], **power}
        )
        self.collector = EnergyCollector(
            energy_settings(settings, CostSettings(gpu_hour_price=2.0)), self.access
        )
        self.samples = []

    @staticmethod
    def _fields(number, millijoules, watts):
        milliwatts = round(watts * 1000)
        return board(
            number,
            watts=None,
            energy=round(millijoules),
            power=milliwatts,
            **{"field.185": milliwatts, "field.186": milliwatts},
        )

    def second(self, running=None, *, reset=False, look=True):
        """A second in which `running` is the models' busy ratios on the first board."""
        self.now += 1
        active = 0.0
        for key, ratio in (running or {}).items():
            self.busy[key] += ratio
            self.spent[key] += ratio * WATTS[key]
            active += ratio * WATTS[key]
        self.pipe.append(active)
        active = self.pipe.popleft()
        for number, watts in ((0, IDLE + active), (1, IDLE)):
            self.truth[number] += watts
            self.millijoules[number] += watts * 1000
            if reset and number == 0:
                # At another moment of the second each time.
                self.millijoules[0] = watts * (300 + 13 * (self.now % 50))
            fields = self._fields(number, self.millijoules[number], watts)
            kept = {
                name.replace(".", "__"): fields[name]
                for name in ("energy", "power", "field.185", "field.186")
            }
            self.script.change(number, **kept)
        if look and self.now % WINDOW_SECONDS == 0:
            work = {k: ModelWork(s, s, round(100 * s)) for k, s in self.busy.items()}
            self.access.work.publish(WorkSnapshot(self.now, work))
        self.samples = self.collector.collect()

    def values(self, spec):
        return {s.labels: s.value for s in self.samples if s.spec is spec}

    def sum(self, spec):
        return sum(self.values(spec).values())

    def boards(self):
        """Joules by board's number."""
        found = defaultdict(float)
        for labels, value in self.values(catalogue.GPU_ENERGY).items():
            found[int(labels[0])] = value
        return found

    def assert_balanced(self):
        parts = sum(self.sum(spec) for spec in PARTS)
        assert parts == pytest.approx(self.sum(catalogue.GPU_ENERGY), rel=1e-9)

    def close(self):
        self.collector.close()
        self.access.grpc.close()


@pytest.fixture
def fleet(nvml):
    with contextlib.closing(Fleet(nvml)) as fleet:
        yield fleet


def mix(second):
    return ({}, {A: 0.9}, {B: 0.8}, {A: 0.3, B: 0.5})[second // 20 % 4]


def test_every_minute_is_counted_to_a_thousandth_though_the_counter_starts_over(fleet):
    counted, true = [], []
    for second in range(245):
        fleet.second(mix(second), reset=second in {33, 70, 91, 150})
        fleet.assert_balanced()
        if fleet.now % WINDOW_SECONDS == 0:
            counted.append(sum(fleet.boards().values()))
            true.append(sum(fleet.truth.values()))
    # Every minute there is, from one window's end to another's.
    windows = round(60 / WINDOW_SECONDS)
    minutes = [
        (now - before, truth - earlier)
        for before, now, earlier, truth in zip(
            counted, counted[windows:], true, true[windows:], strict=False
        )
    ]
    assert len(minutes) == 37
    for found, truth in minutes:
        assert found == pytest.approx(truth, rel=1e-3)
    resets = fleet.values(catalogue.SENSOR_RESETS)
    assert sorted(resets.values()) == [0, 4]


def test_the_error_of_a_share_is_shown_once_it_is_known(fleet):
    place = ("gpu", "nvml")
    for second in range(95):
        fleet.second(mix(second))
    assert not fleet.values(catalogue.MODEL_ENERGY_ERROR)
    for second in range(95, 305):
        fleet.second(mix(second))
    errors = fleet.values(catalogue.MODEL_ENERGY_ERROR)
    assert set(errors) == {(*A, *place), (*B, *place)}
    assert max(errors.values()) < 0.05
    assert not fleet.values(catalogue.SENSOR_LAG)


def test_a_sensor_that_is_late_is_said_to_be(nvml):
    with contextlib.closing(Fleet(nvml, late=2)) as fleet:
        for second in range(400):
            fleet.second(mix(second))
            fleet.assert_balanced()
        lags = fleet.values(catalogue.SENSOR_LAG)
        assert list(lags.values()) == [pytest.approx(2.0, abs=0.2)]


def test_between_windows_what_is_divided_stands_still(fleet):
    for _ in range(26):
        fleet.second({A: 0.5})
    divided = {s.labels: s.value for s in fleet.samples if s.spec in PARTS}
    fleet.second({A: 0.5})
    assert {s.labels: s.value for s in fleet.samples if s.spec in PARTS} == divided
    assert fleet.values(catalogue.GPU_POWER)


@pytest.mark.parametrize("lost", ["boards", "statistics"])
def test_in_an_outage_gauges_disappear_and_boards_are_paid_for(nvml, lost):
    with contextlib.closing(Fleet(nvml, rate_window_seconds=20)) as fleet:
        for _ in range(60):
            fleet.second({A: 0.5})
        assert fleet.values(catalogue.INFERENCE_ENERGY)
        before = fleet.sum(catalogue.OVERHEAD_COST) + fleet.sum(catalogue.MODEL_COST)
        for number in (0, 1) if lost == "boards" else ():
            fleet.script.change(number, lost=GPU_IS_LOST)
        for _ in range(180):
            fleet.second({A: 0.5} if lost == "boards" else {}, look=lost == "boards")
        assert not fleet.values(catalogue.INFERENCE_ENERGY)
        paid = fleet.sum(catalogue.OVERHEAD_COST) + fleet.sum(catalogue.MODEL_COST)
        assert paid - before == pytest.approx(2 * 2.0 * 180 / 3600, rel=0.1)
        if lost == "statistics":
            assert not fleet.values(catalogue.COST_PER_THOUSAND)


def test_under_mig_the_board_is_measured_and_its_instances_are_attributed(nvml):
    instances = {A: "MIG-a", B: "MIG-b"}
    mig = {"mig": 1, "instance.0": instances[A], "instance.1": instances[B]}
    with (
        contextlib.closing(PageServer()) as page,
        contextlib.closing(Fleet(nvml, first=mig, metrics=page.client)) as fleet,
    ):
        for second in range(161):
            # They were asked something before.
            page.body = "".join(
                f'nv_inference_compute_infer_duration_us{{gpu_uuid="{uuid}",'
                f'model="{model}",version="{version}"}} {1 + 1e6 * fleet.busy[model, version]}\n'
                for (model, version), uuid in instances.items()
            ).encode()
            fleet.second(mix(second))
            fleet.assert_balanced()
        # Only boards are measured.
        boards = {labels[1] for labels in fleet.values(catalogue.GPU_ENERGY)}
        assert not boards & set(instances.values())
        (first,) = {labels[1] for labels in fleet.values(catalogue.MIG_ENERGY)}
        assert first in boards
        attributed = {
            labels[0]: value
            for labels, value in fleet.values(catalogue.MIG_ENERGY).items()
        }
        models = {
            labels[:2]: value
            for labels, value in fleet.values(catalogue.MODEL_ENERGY).items()
        }
        for key, uuid in instances.items():
            assert attributed[uuid] == pytest.approx(models[key])
            assert attributed[uuid] == pytest.approx(fleet.spent[key], rel=0.05)


def test_only_the_declared_one_of_two_models_on_the_cpu_gets_energy_of_the_board(nvml):
    with contextlib.closing(Fleet(nvml, model_gpus={"a": [0]})) as fleet:
        models = {key: ModelSpec(*key, (), (), gpus=()) for key in WATTS}
        fleet.access.board.publish(Inventory(up=True, ready=True, models=models))
        for _ in range(60):
            fleet.second({A: 0.5, B: 0.5})
        energy = defaultdict(float)
        for labels, joules in fleet.values(catalogue.MODEL_ENERGY).items():
            energy[labels[:2]] += joules
    assert energy[A] > 5000
    assert energy[B] == 0
