"""The drift collector on a real hub, with a clock that tests turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from accesses import access_to

from drift.features import Schema, Tensor
from drift.fitting import fit
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.mirror_hub import Mirrored, MirrorHub
from exporter.features.drift.drift_collector import DriftCollector
from exporter.features.drift.drift_settings import DriftCollectorSettings, DriftSettings
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = 1_800_000_000.0
SCHEMA = Schema.from_tensors(
    [Tensor("x", "FP32", (3,)), Tensor("colour", "BYTES", (1,))]
)
COLOURS = np.array([b"red", b"green", b"blue"], object)


def model_spec(
    name="m", *, inputs=None, outputs=None, max_batch_size=8, version="1"
) -> ModelSpec:
    inputs = inputs or {"x": ("FP32", (-1, 3)), "colour": ("BYTES", (-1, 1))}
    outputs = outputs or {"y": ("FP32", (-1, 2))}

    def tensors(those):
        return tuple(TensorSpec(n, d, shape) for n, (d, shape) in those.items())

    return ModelSpec(name, version, tensors(inputs), tensors(outputs), max_batch_size)


class Bench:
    """A collector, the hub it listens to, and the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.epoch = EPOCH
        self.now = 0.0
        self.hub = MirrorHub()
        self.board = InventoryBoard()
        self.exposed = []
        self.rng = np.random.default_rng(7)
        self.collector = None
        self.samples = []
        self._grpc = GrpcClient("127.0.0.1:1")

    def close(self) -> None:
        self._grpc.close()

    def serve(self, address: str) -> None:
        """The server that answers our own requests."""
        self._grpc.close()
        self._grpc = GrpcClient(address)

    def models(self, *specs: ModelSpec) -> None:
        """What the server holds."""
        found = {(spec.name, spec.version): spec for spec in specs}
        self.board.publish(Inventory(up=True, ready=True, models=found))

    def profile(self, data, schema=SCHEMA, name="profile.json") -> Path:
        """A reference file made of `data`."""
        path = self.folder / name
        path.write_bytes(fit(schema, data).to_bytes())
        return path

    def rows(self, number, *, shift=0.0, colours=COLOURS):
        """Rows of the law that references here are drawn from; `shift` moves x[1]."""
        x = self.rng.normal(size=(number, 3)).astype(np.float32)
        x[:, 1] += shift
        colour = colours[self.rng.integers(0, len(colours), (number, 1))]
        return {"x": x, "colour": colour}

    def watch(self, *entries, predecessor=None) -> None:
        """Start a collector, as a new process would, or a reload if it has a predecessor."""
        settings = DriftCollectorSettings.of(
            tuple(DriftSettings.model_validate(entry) for entry in entries)
        )
        access = access_to(
            self._grpc,
            board=self.board,
            clock=lambda: self.now,
            exposed=lambda: self.exposed,
            mirror=self.hub,
        )
        collector = DriftCollector(
            settings, access, wall_clock=lambda: EPOCH + self.now
        )
        if predecessor is not None:
            collector.inherit(predecessor)
            predecessor.close()
        self.collector = collector
        self.collect()

    def send(
        self, inputs=None, *, outputs=None, model="m", request_id="r", version=""
    ) -> None:
        """One mirrored request."""
        inputs, outputs = inputs or {}, outputs or {}
        self.hub.publish(
            [Mirrored("http", model, version, request_id, inputs, outputs)]
        )

    def collect(self, after=0.0):
        """One run of the collector, `after` seconds from the last."""
        self.now += after
        self.samples = list(self.collector.collect())  # type: ignore[attr-defined]
        return self.samples

    def window(self, inputs=None, *, seconds=10.0, **request):
        """One window's worth of requests, judged."""
        self.send(inputs, **request)
        return self.collect(after=seconds)

    def value(self, name, *labels):
        """The value of a series; None where there is none."""
        found = [s.value for s in self.all(name) if s.labels == labels]
        assert len(found) < 2, f"{name}{labels} is there twice"
        return found[0] if found else None

    def all(self, name):
        """The samples of a metric."""
        return [s for s in self.samples if s.spec.name == name]

    def violations(self):
        """The kinds of schema violations that occurred, with their counts."""
        found = {
            s.labels[1]: s.value for s in self.all("triton_schema_violations_total")
        }
        # Each is there from the beginning: Prometheus sees no rise from absent.
        assert found.keys() == {"absent", "extra", "dtype", "type", "shape"}
        return {kind: count for kind, count in found.items() if count}

    def state(self, model="m", side="inputs"):
        (found,) = [
            s.labels[2]
            for s in self.all("triton_drift_state_info")
            if s.labels[:2] == (model, side)
        ]
        return found

    def document(self, model="m", side="inputs"):
        (found,) = [
            part
            for part in self.collector.document()["drift"]  # type: ignore[attr-defined]
            if (part["model"], part["side"]) == (model, side)
        ]
        return found


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.models(model_spec())
    yield made
    made.close()


@pytest.fixture
def another_bench(tmp_path):
    folder = tmp_path / "another"
    folder.mkdir()
    made = Bench(folder)
    made.models(model_spec())
    yield made
    made.close()


@pytest.fixture
def spec_of():
    return model_spec


@pytest.fixture
def entry(bench):
    """An entry of `drift:` with a reference of 4,000 rows and windows of 10 s."""
    return {
        "reference": bench.profile(bench.rows(4000)),
        "window": {"rows": 100, "seconds": 10},
    }
