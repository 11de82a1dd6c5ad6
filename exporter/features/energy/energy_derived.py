"""Figures derived from energy: joules and cost of an inference, carbon, FLOPS utilisation."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.features.energy.attribution import MICRO
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.features.energy.energy_accounts import DeviceAccount, Settled
    from exporter.features.energy.energy_settings import CostSettings, ModelWorkSettings
    from exporter.features.energy.sources.power_source import Device
    from exporter.samples import AnySample

_HOUR: Final = 3600.0
_JOULES_PER_KWH: Final = 3.6e6
# A window that is longer than the time of the gauges is the latest for about its length.
_LATEST: Final = 1.5
Place = tuple[str, str]
"""Boundary and source."""


class Derived:
    """Costs and rates derived from the accounts; gauges cover a sliding window."""

    def __init__(
        self, cost: CostSettings, window_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._cost = cost
        self._window_seconds = window_seconds
        self._clock = clock
        self._recent: deque[Settled] = deque()
        self._gauges: list[AnySample] = []
        self._started = clock()
        self._time_cost: dict[tuple[ModelKey, str], float] = defaultdict(float)
        self._overhead: dict[str, float] = defaultdict(float)
        self._gpu_hours_paid = 0.0
        self._paid_until = self._started

    def add(self, settled: Settled) -> None:
        """Add a window."""
        self._recent.append(settled)
        for (key, component), price in self._time_costs(settled).items():
            self._time_cost[key, component] += price
        self.pay(sum(device.boundary == "gpu" for device, _ in settled.parts))
        self._update_gauges()

    def expire(self) -> bool:
        """Forget old windows; return whether there were any.

        Without it, gauges would keep their values while no window is settled.
        """
        now, before = self._clock(), len(self._recent)
        while self._recent and now - self._recent[0].until >= max(
            self._window_seconds, _LATEST * self._recent[0].seconds
        ):
            self._recent.popleft()
        if len(self._recent) == before:
            return False
        self._update_gauges()
        return True

    def _update_gauges(self) -> None:
        self._gauges = [
            *self._per_unit(),
            *self._per_thousand(),
            *_utilization(self._cost, self._recent),
        ]

    def samples(self, accounts: Sequence[DeviceAccount]) -> Iterator[AnySample]:
        """Yield all derived samples; those without a configured price are absent."""
        yield from _boundaries(accounts, self._cost.pue)
        yield from self._costs(accounts)
        yield from self._carbon(accounts)
        yield from self._gauges

    def pay(self, gpus: int) -> None:
        """Charge GPU time by the clock, busy or not."""
        now = self._clock()
        self._gpu_hours_paid += gpus * (now - self._paid_until) / _HOUR
        self._paid_until = now

    def _time_costs(self, settled: Settled) -> dict[tuple[ModelKey, str], float]:
        """Each model's part of the hourly prices: its busy time, shared if they overlap."""
        costs: dict[tuple[ModelKey, str], float] = defaultdict(float)
        if self._cost.gpu_hour_price is not None:
            for device, window in settled.parts:
                if device.boundary == "gpu":
                    whole = max(window.seconds, sum(window.busy.values()))
                    price = self._cost.gpu_hour_price * window.seconds / _HOUR
                    for key, seconds in window.busy.items():
                        costs[key, "gpu_time"] += price * seconds / whole
        if self._cost.machine_hour_price is not None:
            whole = max(settled.seconds, sum(settled.busy.values()))
            price = self._cost.machine_hour_price * settled.seconds / _HOUR
            for key, seconds in settled.busy.items():
                costs[key, "machine_time"] += price * seconds / whole
        return costs

    def _costs(self, accounts: Sequence[DeviceAccount]) -> Iterator[AnySample]:
        currency = self._cost.currency
        given: dict[str, float] = defaultdict(float)
        for ((model, version), component), price in self._time_cost.items():
            given[component] += price
            yield Sample(
                catalogue.MODEL_COST, price, (model, version, currency, component)
            )
        paid = self._paid()
        if self._cost.electricity_price_per_kwh is not None:
            per_joule = self._electricity_per_joule()
            for (model, version), joules in _attributed(accounts).items():
                given["electricity"] += joules * per_joule
                yield Sample(
                    catalogue.MODEL_COST,
                    joules * per_joule,
                    (model, version, currency, "electricity"),
                )
            paid["electricity"] = _measured(accounts) * per_joule
        for component, price in paid.items():
            # Paid and charged are not booked at the same instants; a counter never falls.
            overhead = max(self._overhead[component], price - given[component])
            self._overhead[component] = overhead
            yield Sample(catalogue.OVERHEAD_COST, overhead, (currency, component))

    def _paid(self) -> dict[str, float]:
        """Return the total cost by component, without electricity."""
        paid = {}
        if self._cost.gpu_hour_price is not None:
            paid["gpu_time"] = self._cost.gpu_hour_price * self._gpu_hours_paid
        if self._cost.machine_hour_price is not None:
            hours = (self._paid_until - self._started) / _HOUR
            paid["machine_time"] = self._cost.machine_hour_price * hours
        return paid

    def _electricity_per_joule(self) -> float:
        price = self._cost.electricity_price_per_kwh or 0.0
        return price * self._cost.pue / _JOULES_PER_KWH

    def _carbon(self, accounts: Sequence[DeviceAccount]) -> Iterator[AnySample]:
        grams = self._cost.grid_grams_per_kwh
        if grams is None:
            return
        per_joule = grams * self._cost.pue / _JOULES_PER_KWH
        attributed = _attributed(accounts)
        for key, joules in attributed.items():
            yield Sample(catalogue.MODEL_CARBON, joules * per_joule, key)
        rest = max(0.0, _measured(accounts) - sum(attributed.values()))
        yield Sample(catalogue.OVERHEAD_CARBON, rest * per_joule)

    def _per_unit(self) -> Iterator[AnySample]:
        """Energy of an inference and of a token; grams for tokens at all places."""
        tally = _tally(self._recent)
        token_joules: dict[tuple[ModelKey, str], float] = defaultdict(float)
        whole: Counter[Place] = Counter()
        for (place, _), part in tally.energy.items():
            whole[place] += part
        for (place, key), part in tally.energy.items():
            count, tokens = tally.counts[place, key], tally.tokens[place, key]
            if part <= 0:
                continue
            shared = tally.idle[place] * part / whole[place]
            for basis, total in (("active", part), ("full", part + shared)):
                labels = (*key, *place, basis)
                if count > 0:
                    joules = total / MICRO / count
                    yield Sample(catalogue.INFERENCE_ENERGY, joules, labels)
                    yield Sample(catalogue.EFFICIENCY, 1 / joules, labels)
                if tokens > 0 and (place, key) not in tally.untold:
                    joules = total / MICRO / tokens
                    token_joules[key, basis] += joules
                    yield Sample(catalogue.TOKEN_ENERGY, joules, labels)
        if self._cost.grid_grams_per_kwh is not None:
            grams = self._cost.grid_grams_per_kwh * self._cost.pue / _JOULES_PER_KWH
            for (key, basis), joules in token_joules.items():
                yield Sample(
                    catalogue.CARBON_PER_THOUSAND_TOKENS,
                    1000 * joules * grams,
                    (*key, basis),
                )

    def _per_thousand(self) -> Iterator[AnySample]:
        active: dict[ModelKey, float] = defaultdict(float)
        paid = 0.0
        per_joule = self._electricity_per_joule()
        for settled in self._recent:
            for (key, _), price in self._time_costs(settled).items():
                active[key] += price
            gpus = sum(device.boundary == "gpu" for device, _ in settled.parts)
            hours = settled.seconds / _HOUR
            paid += (self._cost.gpu_hour_price or 0.0) * gpus * hours
            paid += (self._cost.machine_hour_price or 0.0) * hours
            for _, window in settled.parts:
                paid += window.board / MICRO * per_joule
                for key, part in window.models.items():
                    active[key] += part / MICRO * per_joule
        whole = sum(active.values())
        for key, charged in active.items():
            if charged > 0:
                shared = max(0.0, paid - whole) * charged / whole
                yield from self._prices(key, "active", charged)
                yield from self._prices(key, "full", charged + shared)

    def _prices(self, key: ModelKey, basis: str, price: float) -> Iterator[AnySample]:
        """Yield what 1,000 inferences and tokens of the sliding window cost."""
        inferences, tokens = 0, 0.0
        for settled in self._recent:
            inferences += settled.inferences.get(key, 0)
            unknown = math.nan if key in settled.busy else 0.0
            tokens += settled.output_tokens.get(key, unknown)
        for spec, number in (
            (catalogue.COST_PER_THOUSAND, inferences),
            (catalogue.COST_PER_THOUSAND_TOKENS, tokens),
        ):
            if number > 0:
                labels = (*key, self._cost.currency, basis)
                yield Sample(spec, 1000 * price / number, labels)


@dataclass(slots=True)
class _Tally:
    """Microjoules and inferences over the windows in which a place was measured whole."""

    energy: Counter[tuple[Place, ModelKey]] = field(default_factory=Counter)
    counts: Counter[tuple[Place, ModelKey]] = field(default_factory=Counter)
    tokens: dict[tuple[Place, ModelKey], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    untold: set[tuple[Place, ModelKey]] = field(default_factory=set)
    """Models with energy in a window whose tokens are not known."""
    idle: Counter[Place] = field(default_factory=Counter)


def _tally(recent: Iterable[Settled]) -> _Tally:
    tally = _Tally()
    for settled in recent:
        gaps = {_place(device) for device, part in settled.parts if not part.known}
        for place in {_place(device) for device, _ in settled.parts} - gaps:
            for key, count in settled.inferences.items():
                tally.counts[place, key] += count
            for key, tokens in settled.output_tokens.items():
                tally.tokens[place, key] += tokens
        for device, window in settled.parts:
            if _place(device) not in gaps:
                tally.idle[_place(device)] += window.idle
                for key, energy in window.models.items():
                    tally.energy[_place(device), key] += energy
                    if key not in settled.output_tokens:
                        tally.untold.add((_place(device), key))
    return tally


def _place(device: Device) -> Place:
    return device.boundary, device.source


def _attributed(accounts: Sequence[DeviceAccount]) -> dict[ModelKey, float]:
    """Joules of each model's production inferences, over all devices."""
    joules: dict[ModelKey, int] = defaultdict(int)
    for account in accounts:
        for (key, _), energy in account.totals.models.items():
            joules[key] += energy
    return {key: energy / MICRO for key, energy in joules.items()}


def _measured(accounts: Sequence[DeviceAccount]) -> float:
    return sum(account.totals.board for account in accounts) / MICRO


def _boundaries(accounts: Sequence[DeviceAccount], pue: float) -> Iterator[AnySample]:
    totals: Counter[str] = Counter()
    for account in accounts:
        totals[account.device.boundary] += account.totals.board
    for boundary, energy in totals.items():
        yield Sample(catalogue.BOUNDARY_ENERGY, energy / MICRO, (boundary,))
    # Without the host there is no node: boards alone would pass for all of it.
    if "host" in totals:
        node = totals.total() / MICRO * pue
        yield Sample(catalogue.BOUNDARY_ENERGY, node, ("node",))


_TERA: Final = 1e12


@dataclass(frozen=True, slots=True)
class Peak:
    """One product; `tera` is 10^12 operations a second by precision."""

    name: str
    """A part of NVML's name of the board."""
    tera: Mapping[str, float]
    sheet: str

    def flops(self, precision: str) -> float | None:
        """Operations a second, None where the product has no such precision."""
        found = self.tera.get("fp16" if precision == "bf16" else precision)
        return None if found is None else found * _TERA


_HOPPER: Final = {"fp64": 67, "fp32": 67, "tf32": 494.5, "fp16": 989.5, "fp8": 1979, "int8": 1979}  # fmt: skip
_NVL: Final = {
    "fp64": 60,
    "fp32": 60,
    "tf32": 417.5,
    "fp16": 835.5,
    "fp8": 1670.5,
    "int8": 1670.5,
}
_H200: Final = "NVIDIA H200 Tensor Core GPU data sheet"
_H100: Final = "NVIDIA H100 Tensor Core GPU data sheet"

# The first whose name is part of the board's counts, so the longer name comes first.
PEAKS: Final = (
    Peak("H200 NVL", _NVL, _H200),
    Peak("H200", _HOPPER, _H200),
    Peak("H100 NVL", _NVL, _H100),
    Peak("H100 PCIe", {"fp64": 51, "fp32": 51, "tf32": 378, "fp16": 756, "fp8": 1513, "int8": 1513}, _H100),
    Peak("H100", _HOPPER, _H100),
    Peak("A100", {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "int8": 624}, "NVIDIA A100 Tensor Core GPU data sheet"),
    Peak("A30", {"fp64": 10.3, "fp32": 10.3, "tf32": 82, "fp16": 165, "int8": 330}, "NVIDIA A30 data sheet"),
    Peak("A10G", {"fp32": 31.5, "tf32": 35, "fp16": 70, "int8": 140}, "NVIDIA A10G in Amazon EC2 G5"),
    Peak("A10", {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "int8": 250}, "NVIDIA A10 data sheet"),
    Peak("L40S", {"fp32": 91.6, "tf32": 183, "fp16": 362, "fp8": 733, "int8": 733}, "NVIDIA L40S data sheet"),
    Peak("L40", {"fp32": 90.5, "tf32": 90.5, "fp16": 181, "fp8": 362, "int8": 362}, "NVIDIA L40 data sheet"),
    Peak("L4", {"fp32": 30.3, "tf32": 60, "fp16": 121, "fp8": 242.5, "int8": 242.5}, "NVIDIA L4 data sheet"),
    Peak("T4", {"fp32": 8.1, "fp16": 65, "int8": 130}, "NVIDIA T4 product brief"),
    Peak("V100-PCIE", {"fp64": 7, "fp32": 14, "fp16": 112}, "NVIDIA V100 data sheet"),
    Peak("V100", {"fp64": 7.8, "fp32": 15.7, "fp16": 125}, "NVIDIA V100 data sheet"),
)  # fmt: skip


def peak_of(name: str) -> Peak | None:
    """Return the product of a board with this name, or None if the table lacks it."""
    words = name.replace("-", " ").split()
    for peak in PEAKS:
        wanted = peak.name.replace("-", " ").split()
        spans = range(len(words) - len(wanted) + 1)
        if any(words[at : at + len(wanted)] == wanted for at in spans):
            return peak
    return None


def _utilization(cost: CostSettings, windows: Iterable[Settled]) -> Iterator[AnySample]:
    """Yield the FLOPS utilisation of models whose work is configured."""
    if not cost.models:
        return
    counts: Counter[ModelKey] = Counter()
    possible: dict[ModelKey, float] = defaultdict(float)
    for settled in windows:
        counts.update(settled.inferences)
        for key, name, seconds in _busy(settled):
            work = cost.models.get(key[0])
            if work is not None:
                possible[key] += seconds * (_flops(cost, work, name) or 0.0)
    for key, operations in possible.items():
        if counts[key] > 0 and operations > 0:
            done = cost.models[key[0]].flops_per_inference * counts[key]
            yield Sample(catalogue.FLOPS_UTILIZATION, done / operations, key)


def _busy(settled: Settled) -> Iterator[tuple[ModelKey, str, float]]:
    """Model, board's name and busy seconds; without boards, the machine's."""
    boards = [(d, w) for d, w in settled.parts if d.boundary == "gpu"]
    for device, window in boards:
        for key, seconds in window.busy.items():
            yield key, device.name, seconds
    if not boards:
        for key, seconds in settled.busy.items():
            yield key, "", seconds


def _flops(cost: CostSettings, work: ModelWorkSettings, name: str) -> float | None:
    configured = cost.gpu.peak_flops.get(work.precision)
    if configured is not None:
        return configured
    known = peak_of(name)
    return None if known is None else known.flops(work.precision)
