"""Two models compared, such as int8 with fp32: speed-up, energy ratio, loss of accuracy.

Both run in blocks one right after the other, in an order drawn for each pair, so that
a disturbance that lasts affects both alike; its power is in the joules of both, so the
machine is watched as in every other run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.commands.golden_command import answer_set, spec_of
from exporter.errors import GoldenDataError
from exporter.features.golden import golden_data
from exporter.features.golden.golden_settings import GoldenData
from exporter.triton.grpc import GrpcClient
from loadtests import tls
from loadtests.efficiency import efficiency_report
from loadtests.efficiency.efficiency_report import PairReport
from loadtests.engine import Options
from loadtests.errors import PlanError
from loadtests.execute import execute, prepared
from loadtests.machine_guard import Guard, GuardLimits
from loadtests.scenario import ClosedLoop

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from loadtests.efficiency.efficiency_report import Interval
    from loadtests.efficiency.metering import MeteredRun, PowerMeter
    from loadtests.plan import Mix
    from loadtests.result import RunResult
    from loadtests.scenario import Scenario

_ORDER: Final = 7  # a stream of random numbers of the seed
_LABEL: Final = "label"


@dataclass(slots=True)
class _Blocks:
    """Results of each block of one model."""

    rates: list[float]
    joules: dict[str, list[float]]


def compare(
    run: MeteredRun, *, pairs: int, block_seconds: float, data: Path | None
) -> PairReport:
    """Compare the scenario's two models, the first being the reference.

    Args:
        run: what is measured.
        pairs: number of pairs of blocks.
        block_seconds: of each block.
        data: npz of labelled rows: one column for each input, and `label`.

    Raises:
        LoadError: there is no server or no such model.
        PlanError: there are not two models, or the data does not fit.
    """
    scenario, meter = run.scenario, run.meter
    if pairs < 1:
        raise PlanError(f"found {pairs} pairs; want at least one")
    if len(scenario.models) != 2:  # noqa: PLR2004 - a pair
        raise PlanError(f"found {len(scenario.models)} models; want two, as --model")
    names = tuple(model.model for model in scenario.models)
    singles = [
        scenario.model_copy(update={"models": (model,)}) for model in scenario.models
    ]
    seen = [_Blocks([], {name: [] for name in meter.sources}) for _ in names]
    reasons: set[str] = set()
    results: list[RunResult] = []
    mixes = [prepared(single) for single in singles]
    # First: data that do not fit are found before the blocks.
    accuracy, change, rows = _accuracy(run, names, data)
    with Guard(scenario.target.target(), GuardLimits()) as guard:
        rng = np.random.default_rng((scenario.seed, _ORDER))
        for number in range(pairs):
            if results and run.stop():
                break
            run.log(f"pair {number + 1} of {pairs}")
            for place in rng.permutation(2).tolist():
                results.append(_block(run, singles[place], mixes[place], block_seconds))
                reasons |= _note(seen[place], results[-1], meter, singles[place])
    machine = guard.watch().verdict()
    reasons.update(machine.reasons)
    about = results[-1].about
    return PairReport(
        reference=names[0],
        candidate=names[1],
        pairs=len(results) // 2,
        block_seconds=block_seconds,
        concurrency=run.concurrency,
        speed_up=efficiency_report.median_ratio(
            seen[1].rates, seen[0].rates, seed=scenario.seed
        ),
        energy_ratio={
            name: efficiency_report.median_ratio(
                seen[1].joules[name], seen[0].joules[name], seed=scenario.seed
            )
            for name in meter.sources
        },
        accuracy=accuracy,
        accuracy_change=change,
        rows=rows,
        sources=meter.sources,
        descriptions=meter.descriptions,
        seed=scenario.seed,
        valid=not reasons,
        reasons=tuple(sorted(reasons)),
        warnings=machine.warnings,
        versions=dict(about.versions),
        hardware=dict(about.hardware),
    )


def _block(
    run: MeteredRun, scenario: Scenario, mix: Mix, block_seconds: float
) -> RunResult:
    loop = ClosedLoop(concurrency=run.concurrency, duration_seconds=block_seconds)
    return execute(
        scenario.model_copy(update={"profile": loop}), mix, Options(stop=run.stop)
    )


def _note(
    blocks: _Blocks, result: RunResult, meter: PowerMeter, scenario: Scenario
) -> set[str]:
    """Add a block; return the reasons against it."""
    reasons = set(result.verdict.reasons)
    start = result.about.started_at
    end = start + result.sending_seconds
    meter.wait_past(end)
    rate = result.throughput * scenario.models[0].batch
    inferences = rate * result.sending_seconds
    blocks.rates.append(rate)
    for boundary in meter.sources:
        drawn = meter.drawn(boundary, start, end)
        if not drawn.known:
            reasons.add("power was not known all the time")
        blocks.joules[boundary].append(drawn.joules / max(inferences, 1.0))
    if not inferences:
        reasons.add(f"{scenario.models[0].model} answered nothing")
    return reasons


def _accuracy(
    run: MeteredRun, names: tuple[str, ...], data: Path | None
) -> tuple[dict[str, float], Interval | None, int]:
    """Return accuracy by model on the labelled rows, the change, and the number of rows."""
    if data is None:
        return {}, None, 0
    target = run.scenario.target.target()
    if target.protocol != "grpc":
        raise PlanError("found protocol http; labelled rows need gRPC")
    settings = GoldenData(file=data, format="npz", label=_LABEL)
    right: dict[str, NDArray[np.bool_]] = {}
    credentials = tls.grpc_credentials(target)
    client = GrpcClient(
        target.address, credentials=credentials, headers=dict(target.headers)
    )
    try:
        golden = golden_data.read(settings)
        for name in names:
            found = answer_set(client, spec_of(client, name), golden, settings, run.log)
            if found.right is None:
                raise PlanError("found labels that are no classes", str(data))
            right[name] = found.right
    except GoldenDataError as error:
        raise PlanError(str(error)) from None
    finally:
        client.close()
    change = efficiency_report.paired_change(right[names[0]], right[names[1]])
    accuracy = {name: float(found.mean()) for name, found in right.items()}
    return accuracy, change, golden.rows
