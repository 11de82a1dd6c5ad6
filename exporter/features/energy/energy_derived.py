"""Figures derived from energy: joules and cost of an inference, and carbon."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.features.energy.attribution import MICRO
from exporter.features.energy.flops_utilization import utilization
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.features.energy.energy_accounts import DeviceAccount, Settled
    from exporter.features.energy.energy_settings import CostSettings
    from exporter.features.energy.sources.power_source import Device
    from exporter.samples import AnySample

_HOUR: Final = 3600.0
_JOULES_PER_KWH: Final = 3.6e6
# A window that is longer than the time of the gauges is the latest for about its length.
_LATEST: Final = 1.5
MOST_ERROR: Final = 10.0
"""Error of a share, divided by it, from which the share is unknown but for being small."""
_BY_SHARE: Final = (
    catalogue.INFERENCE_ENERGY, catalogue.EFFICIENCY, catalogue.TOKEN_ENERGY
)  # fmt: skip
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
            *utilization(self._cost, self._recent),
        ]

    def samples(self, accounts: Sequence[DeviceAccount]) -> Iterator[AnySample]:
        """Yield all derived samples; those without a configured price are absent."""
        yield from _boundaries(accounts, self._cost.pue)
        yield from self._costs(accounts)
        yield from self._carbon(accounts)
        unknown = {
            labels
            for labels, (ratio, _) in share_errors(accounts).items()
            if ratio >= MOST_ERROR
        }
        models = {labels[:2] for labels in unknown}
        summed = {catalogue.CARBON_PER_THOUSAND_TOKENS}
        if self._cost.gpu_hour_price is None and self._cost.machine_hour_price is None:
            summed |= {catalogue.COST_PER_THOUSAND, catalogue.COST_PER_THOUSAND_TOKENS}
        for sample in self._gauges:
            if not (
                (sample.spec in _BY_SHARE and sample.labels[:4] in unknown)
                or (sample.spec in summed and sample.labels[:2] in models)
            ):
                yield sample

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
        token_joules: dict[tuple[ModelKey, str], float] = defaultdict(float)
        for basis in ("active", "full"):
            tally = _tally(self._recent, with_idle=basis == "full")
            for (place, key), joules in tally.joules():
                count, tokens = tally.counts[place, key], tally.tokens[place, key]
                labels = (*key, *place, basis)
                if count > 0:
                    each = joules / count
                    yield Sample(catalogue.INFERENCE_ENERGY, each, labels)
                    yield Sample(catalogue.EFFICIENCY, 1 / each, labels)
                if tokens > 0 and (place, key) not in tally.untold:
                    token_joules[key, basis] += joules / tokens
                    yield Sample(catalogue.TOKEN_ENERGY, joules / tokens, labels)
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
        windows = [s for s in self._recent if not per_joule or _is_measured(s)]
        for settled in windows:
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
                yield from self._prices(windows, key, "active", charged)
                yield from self._prices(windows, key, "full", charged + shared)

    def _prices(
        self, windows: Iterable[Settled], key: ModelKey, basis: str, price: float
    ) -> Iterator[AnySample]:
        """Yield what 1,000 inferences and tokens of the windows cost."""
        inferences, tokens = 0, 0.0
        for settled in windows:
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


def share_errors(
    accounts: Iterable[DeviceAccount],
) -> dict[tuple[str, str, str, str], tuple[float, float]]:
    """Return the error of each model's share, divided by it, and the effective windows.

    By model, version, boundary and source; nothing where a device has no estimate. Errors
    of several devices add up as if they all had one cause; the effective windows are
    those of the device with the fewest.
    """
    watts: dict[tuple[str, str, str, str], float] = defaultdict(float)
    errors: dict[tuple[str, str, str, str], float] = defaultdict(float)
    effective: dict[tuple[str, str, str, str], float] = {}
    for account in accounts:
        for key, (value, error) in account.power.errors().items():
            labels = (*key, *_place(account.device))
            watts[labels] += value
            errors[labels] += error
            windows = account.power.effective_windows(key)
            effective[labels] = min(windows, effective.get(labels, windows))
    return {
        labels: (
            errors[labels] / value if value > 0 else math.inf,
            effective[labels],
        )
        for labels, value in watts.items()
        if math.isfinite(errors[labels]) and max(value, errors[labels]) > 0
    }


@dataclass(slots=True)
class _Tally:
    """Microjoules and inferences over the windows in which they were measured."""

    energy: Counter[tuple[Place, ModelKey]] = field(default_factory=Counter)
    counts: Counter[tuple[Place, ModelKey]] = field(default_factory=Counter)
    tokens: dict[tuple[Place, ModelKey], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    untold: set[tuple[Place, ModelKey]] = field(default_factory=set)
    """Models with energy in a window whose tokens are not known."""
    idle: Counter[Place] = field(default_factory=Counter)

    def joules(self) -> Iterator[tuple[tuple[Place, ModelKey], float]]:
        """Yield the joules of each model at each place, and its share of the idle ones."""
        whole: Counter[Place] = Counter()
        for (place, _), part in self.energy.items():
            whole[place] += part
        for (place, key), part in self.energy.items():
            if part > 0:
                shared = self.idle[place] * part / whole[place]
                yield (place, key), (part + shared) / MICRO


def _tally(recent: Iterable[Settled], *, with_idle: bool) -> _Tally:
    """Add up the windows in which all of a model's boards were measured.

    `with_idle` adds idle energy, of windows in which all boards of the place were.
    """
    tally = _Tally()
    for settled in recent:
        gaps, blind = _gaps(settled)
        places = {_place(device) for device, _ in settled.parts}
        if with_idle:
            places -= gaps
        for place in places:
            for key in settled.inferences.keys() - blind[place]:
                tally.counts[place, key] += settled.inferences[key]
                tally.tokens[place, key] += settled.output_tokens.get(key, 0.0)
        for device, window in settled.parts:
            place = _place(device)
            if place not in places:
                continue
            tally.idle[place] += window.idle if with_idle else 0
            for key in window.models.keys() - blind[place]:
                tally.energy[place, key] += window.models[key]
                if key not in settled.output_tokens:
                    tally.untold.add((place, key))
    return tally


def _gaps(settled: Settled) -> tuple[set[Place], Mapping[Place, set[ModelKey]]]:
    """Return where a board was not measured, and the models that ran on one there."""
    gaps: set[Place] = set()
    blind: dict[Place, set[ModelKey]] = defaultdict(set)
    for device, part in settled.parts:
        if not part.known:
            gaps.add(_place(device))
            blind[_place(device)] |= {key for key, busy in part.busy.items() if busy}
    return gaps, blind


def _is_measured(settled: Settled) -> bool:
    """Return whether the energy of every board on which a model ran is known."""
    return all(part.known or not any(part.busy.values()) for _, part in settled.parts)


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
