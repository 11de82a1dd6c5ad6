"""On a real NVIDIA board: its sensors, and energy attributed to models on a real Triton."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import numpy as np
import pynvml
from gpu_board import NONE, Mixed, Sender, counter_joules, first_board, powers_watts
from gpu_models import MODELS, write_gpu_models
from gpu_scenario import Scenario
from requirements import require_triton

from exporter.access.work_board import WorkBoard
from exporter.features.energy.sources.nvml import NvmlSettings
from exporter.features.energy.sources.power_source import Surroundings
from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from figures import Figure
    from gpu_scenario import Alone, Together

_NAMES = tuple(MODELS)


@contextlib.contextmanager
def _machine() -> Generator[tuple[Any, str, EmbeddedTriton, Path]]:
    """A board, its name, a Triton with the models, and a folder."""
    with contextlib.ExitStack() as stack:
        board = stack.enter_context(first_board())
        if board is None:
            raise figures.Skipped(NONE)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        triton = stack.enter_context(
            EmbeddedTriton(
                write_gpu_models(folder / "models"),
                environment=require_triton(),
                log=folder / "triton.log",
            )
        )
        name = str(pynvml.nvmlDeviceGetName(board))
        yield board, name, triton, folder


def sensor(*, quick: bool = False) -> Iterator[Figure]:
    """Steps of load: how late and how often the sensors change, and what a read costs."""
    steps = 1 if quick else 3
    with _machine() as (board, name, triton, _):
        sender = Sender(triton.grpc)
        for _ in range(10):
            sender.infer("fma")
        rows, edges = _sampled(board, sender, steps)
        sender.close()
        times, counter, instant, average = np.array(rows).T
        energy = counter[-1] - counter[0]
        for sensor_name, watts in (("instant", instant), ("average", average)):
            integrated = float(np.trapezoid(watts, times))
            yield figures.at_most(
                f"gpu_integrated_{sensor_name}_power_error_percent",
                100 * (integrated / energy - 1),
                "percent",
                None,
                n=len(rows),
                board=name,
                measured=f"{sensor_name} power integrated over {steps} steps of load, "
                "relative to the driver's energy counter over the same time",
            )
            lags = [_lag(times, watts, start, end) for start, end in edges]
            yield figures.at_most(
                f"gpu_{sensor_name}_power_lag_seconds",
                float(np.median(lags)),
                "seconds",
                None,
                n=steps,
                board=name,
                measured="time from the first request until the power is half of the "
                "way from idle to load",
            )
        for sensor_name, values in (("counter", counter), ("instant", instant)):
            changed = times[1:][np.diff(values) != 0]
            yield figures.at_most(
                f"gpu_{sensor_name}_update_seconds",
                float(np.median(np.diff(changed))),
                "seconds",
                None,
                n=len(changed),
                board=name,
                measured="median time between two changes of the value",
            )
        yield from _read_cost(name)


def _sampled(
    board: Any, sender: Sender, steps: int
) -> tuple[list[tuple[float, ...]], list[tuple[float, float]]]:
    """Readings of the sensors as fast as they can be read, and the steps of load."""
    rows: list[tuple[float, ...]] = []
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            rows.append((time.monotonic(), counter_joules(board), *powers_watts(board)))
            time.sleep(0.002)

    thread = threading.Thread(target=sample)
    thread.start()
    edges = []
    time.sleep(3)
    for _ in range(steps):
        start = time.monotonic()
        sender.steadily("fma", 4)
        edges.append((start, time.monotonic()))
        time.sleep(4)
    done.set()
    thread.join()
    return rows, edges


def _lag(times: Any, watts: Any, start: float, end: float) -> float:
    low = float(np.median(watts[(times > start - 1) & (times < start)]))
    high = float(np.median(watts[(times > end - 1) & (times < end)]))
    above = times[(times > start) & (watts > (low + high) / 2)]
    return float(above[0] - start)


def _read_cost(name: str) -> Iterator[Figure]:
    source = NvmlSettings().find(
        Surroundings(time.monotonic, time.time, None, WorkBoard())
    )
    assert source is not None
    took = []
    for _ in range(30):
        started = time.perf_counter()
        (reading, *_) = source.read()
        took.append(1000 * (time.perf_counter() - started))
        assert not reading.faults
    source.close()
    yield figures.at_most(
        "gpu_read_milliseconds",
        unit="milliseconds",
        goal=None,
        n=len(took),
        board=name,
        measured="one read of everything that is exported of a board",
        **figures.median(took),
    )


def attribution(*, quick: bool = False) -> Iterator[Figure]:
    """Energy attributed under mixed load, beside what each model takes alone."""
    alone_seconds, mixed_seconds = (6.0, 30.0) if quick else (15.0, 80.0)
    with _machine() as (board, name, triton, folder):
        scenario = Scenario(board, triton, folder)
        try:
            alone = {m: scenario.alone(m, alone_seconds) for m in _NAMES}
            yield from _alone_figures(name, alone)
            for number, (kind, load, busy) in enumerate(
                (
                    ("alternating", Mixed.alternating, 0.6),
                    ("overlapping", Mixed.overlapping, 0.3),
                )
            ):
                mixed = Mixed(
                    scenario.sender, _NAMES, mixed_seconds, busy, figures.SEED + number
                )
                found = scenario.together(load, mixed)
                yield from _together_figures(name, kind, alone, found)
        finally:
            scenario.close()


def _alone_figures(name: str, alone: dict[str, Alone]) -> Iterator[Figure]:
    for model, one in alone.items():
        yield figures.at_most(
            f"gpu_alone_{model}_joules",
            one.joules,
            "joules",
            None,
            n=1,
            board=name,
            board_watts=one.watts,
            idle_watts=one.idle_watts,
            per_second=one.per_second,
            share_of_peak=one.page.value(
                "triton_model_flops_utilization_ratio", model=model
            ),
            inference_energy=one.page.value(
                "triton_inference_energy_joules", model=model, basis="active"
            ),
            measured="energy above idle of one inference by the driver's counter, nothing "
            "else running; beside it what the sidecar exported then",
        )


def _together_figures(
    name: str, kind: str, alone: dict[str, Alone], found: Together
) -> Iterator[Figure]:
    for model, joules in found.attributed.items():
        true = alone[model].joules * found.inferences[model]
        stated = found.errors[model]
        yield figures.at_most(
            f"gpu_attribution_{kind}_{model}_error_percent",
            100 * abs(joules / true - 1),
            "percent",
            None,
            n=int(found.inferences[model]),
            board=name,
            joules=joules,
            expected_joules=true,
            stated_error_percent=None if stated is None else 100 * stated,
            measured="energy attributed to the model relative to its inferences times "
            "their energy alone",
        )
    yield figures.at_most(
        f"gpu_counted_{kind}_error_percent",
        100 * abs(found.board_counted / found.board.joules - 1),
        "percent",
        None,
        n=1,
        board=name,
        unattributed={
            labels["reason"]: value
            for labels, value in found.page.all(
                "triton_unattributed_energy_joules_total", boundary="gpu"
            )
        },
        sensor_lag_seconds=found.page.value(
            "triton_power_sensor_lag_seconds", boundary="gpu"
        ),
        idle_watts=found.page.value("triton_idle_power_watts", boundary="gpu"),
        measured="energy of the board that the sidecar counted, relative to the driver's "
        "counter over the same time",
    )
