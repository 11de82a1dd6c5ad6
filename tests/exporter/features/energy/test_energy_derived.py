"""Joules, money, carbon and use of the hardware, by hand-made windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from clocks import Clock

from exporter import catalogue
from exporter.features.energy import energy_ledger
from exporter.features.energy.energy_accounts import DeviceAccount, Settled, Window
from exporter.features.energy.energy_derived import MOST_ERROR, Derived, share_errors
from exporter.features.energy.energy_meter import MICRO
from exporter.features.energy.energy_settings import CostSettings
from exporter.features.energy.flops_utilization import PEAKS, peak_of
from exporter.features.energy.sources.power_source import Device, Reading

M, N = ("m", "1"), ("n", "1")
GPU = Device("gpu", "nvml", "GPU-1", index="0", name="NVIDIA H100 80GB HBM3")
HOST = Device("host", "rapl", "package-0")


def window(models, busy, *, seconds=10.0, idle=600, known=True, board=None):
    whole = idle + sum(models.values()) if board is None else board
    return Window(
        seconds,
        known,
        whole * MICRO,
        idle * MICRO,
        {key: joules * MICRO for key, joules in models.items()},
        busy,
    )


def settled(*parts, inferences, busy=None):
    return Settled(0.0, 10.0, inferences, busy or {}, parts)


def shown(samples, spec):
    return {s.labels: s.value for s in samples if s.spec is spec}


def derived(cost, *windows, span=60.0):
    found = Derived(CostSettings.model_validate(cost), span, Clock())
    for item in windows:
        found.add(item)
    return list(found.samples([]))


ONE = settled(
    (GPU, window({M: 200, N: 100}, {M: 4.0, N: 1.0})), inferences={M: 1000, N: 50}
)


def test_an_inference_takes_its_models_energy_and_in_full_its_share_of_the_idle():
    samples = derived({}, ONE)
    place = ("gpu", "nvml")
    assert shown(samples, catalogue.INFERENCE_ENERGY) == {
        (*M, *place, "active"): pytest.approx(0.2),
        (*M, *place, "full"): pytest.approx(0.6),
        (*N, *place, "active"): pytest.approx(2.0),
        (*N, *place, "full"): pytest.approx(6.0),
    }
    efficiency = shown(samples, catalogue.EFFICIENCY)
    assert efficiency[*M, *place, "active"] == pytest.approx(5.0)
    assert not shown(samples, catalogue.COST_PER_THOUSAND)
    assert not shown(samples, catalogue.MODEL_CARBON)


def test_a_window_with_a_gap_is_left_out_with_its_inferences():
    gap = settled(
        (GPU, window({M: 2}, {M: 4.0}, known=False)), inferences={M: 5_000_000}
    )
    samples = derived({}, ONE, gap)
    joules = shown(samples, catalogue.INFERENCE_ENERGY)
    assert joules[*M, "gpu", "nvml", "active"] == pytest.approx(0.2)


def test_a_board_without_a_sensor_takes_the_energy_of_its_own_models_only():
    blind = replace(GPU, key="GPU-2", index="1")
    seen = window({M: 200}, {M: 4.0})
    unseen = window({}, {N: 4.0}, idle=0, known=False)
    item = settled((GPU, seen), (blind, unseen), inferences={M: 1000, N: 50})
    cost = {"gpu_hour_price": 1.0, "electricity_price_per_kwh": 1.0}
    samples = derived(cost, item)
    assert shown(samples, catalogue.INFERENCE_ENERGY) == {
        (*M, "gpu", "nvml", "active"): pytest.approx(0.2)
    }
    # Its electricity is not known, so the hour alone is not the cost.
    assert not shown(samples, catalogue.COST_PER_THOUSAND)
    idle = settled((GPU, seen), (blind, replace(unseen, busy={})), inferences={M: 1000})
    assert shown(derived(cost, idle), catalogue.COST_PER_THOUSAND)


def tokens_of(windows, cost=None):
    """Energy, cost and carbon of tokens, of M."""
    samples = derived(cost or {}, *windows)
    return [
        shown(samples, spec)
        for spec in (
            catalogue.TOKEN_ENERGY,
            catalogue.COST_PER_THOUSAND_TOKENS,
            catalogue.CARBON_PER_THOUSAND_TOKENS,
        )
    ]


def with_tokens(item, **tokens):
    known = {("m", "1"): tokens["m"]} if "m" in tokens else {}
    return replace(item, output_tokens=known, busy={M: 4.0, N: 1.0})


def test_energy_cost_and_carbon_of_tokens_add_up_to_those_of_the_model():
    host = (HOST, window({M: 40}, {M: 4.0}))
    both = replace(ONE, parts=(*ONE.parts, host))
    idle = settled(inferences={})
    windows = [with_tokens(both, m=300.0), idle, with_tokens(both, m=100.5)]
    cost = {"electricity_price_per_kwh": 0.36, "grid_grams_per_kwh": 360, "pue": 1.25}
    energy, prices, grams = tokens_of(windows, cost)
    made, spent = 400.5, {("gpu", "nvml"): 400.0, ("host", "rapl"): 80.0}
    assert {(*M, *place, "active") for place in spent} < energy.keys()
    for place, joules in spent.items():
        assert energy[*M, *place, "active"] * made == pytest.approx(joules)
    whole = energy[*M, "gpu", "nvml", "full"] * made
    assert whole == pytest.approx(400 + 1200 * 400 / 600)
    assert grams[*M, "active"] * made / 1000 == pytest.approx(480 * 1.25 * 1e-4)
    assert prices[*M, "USD", "active"] * made / 1000 == pytest.approx(480 * 1.25 * 1e-7)
    assert not any(labels[:2] == N for labels in (*energy, *prices, *grams))


def test_with_a_window_whose_tokens_are_not_known_tokens_have_no_energy():
    known = with_tokens(ONE, m=100.0)
    for windows in ([known, with_tokens(ONE)], [with_tokens(ONE, m=0.0)]):
        priced = {"electricity_price_per_kwh": 1.0, "grid_grams_per_kwh": 1.0}
        assert tokens_of(windows, priced) == [{}, {}, {}]


def test_windows_leave_the_average_when_they_are_old_and_without_any_there_is_none():
    old = settled((GPU, window({M: 9000}, {M: 9.0})), inferences={M: 1000})
    clock = Clock()
    found = Derived(CostSettings(gpu_hour_price=1.0), 60.0, clock)
    found.add(old)
    clock.now = 50.0
    found.add(replace(ONE, until=50.0))
    seen = []
    for now in (59.0, 60.0, 109.0, 110.0):
        clock.now = now
        found.expire()
        gauges = list(found.samples([]))
        assert bool(shown(gauges, catalogue.COST_PER_THOUSAND)) == (now < 110)
        joules = shown(gauges, catalogue.INFERENCE_ENERGY)
        seen.append(joules.get((*M, "gpu", "nvml", "active")))
    assert seen == [pytest.approx(4.6), pytest.approx(0.2), pytest.approx(0.2), None]


def test_a_window_longer_than_the_average_is_shown_until_the_next():
    clock = Clock()
    found = Derived(CostSettings(), 60.0, clock)
    found.add(replace(ONE, until=100.0, seconds=100.0))
    clock.now = 210.0
    assert not found.expire()
    clock.now = 260.0
    assert found.expire()


def test_gpu_time_is_charged_for_busy_time_and_in_full_with_the_rest():
    # 3.6 an hour are 0.01 for ten seconds, of which the models were busy half.
    samples = derived({"gpu_hour_price": 3.6}, ONE)
    per_thousand = shown(samples, catalogue.COST_PER_THOUSAND)
    assert per_thousand[*M, "USD", "active"] == pytest.approx(0.004)
    assert per_thousand[*M, "USD", "full"] == pytest.approx(0.008)
    assert per_thousand[*N, "USD", "full"] == pytest.approx(0.04)


def test_what_nobody_is_charged_for_never_falls():
    clock = Clock()
    found = Derived(CostSettings(gpu_hour_price=3600.0), 60.0, clock)
    busy = settled((GPU, window({M: 1}, {M: 10.0})), inferences={})
    before = 0.0
    # Windows are booked a little earlier or later than their length says.
    for elapsed in (10.0, 9.5, 10.5, 9.0, 11.0):
        clock.now += elapsed
        found.add(busy)
        overhead = shown(found.samples([]), catalogue.OVERHEAD_COST)
        assert overhead["USD", "gpu_time"] >= before
        before = overhead["USD", "gpu_time"]
    assert before <= 1.0


@pytest.mark.parametrize(
    ("busy", "first", "second"),
    [((2.0, 3.0), 2.0, 3.0), ((10.0, 30.0), 2.5, 7.5), ((4.0, 12.0), 2.5, 7.5)],
)
def test_models_that_overlap_share_the_hour_and_pay_no_more_than_it(
    busy, first, second
) -> None:
    seconds, clock = dict(zip((M, N), busy, strict=True)), Clock()
    both = settled((GPU, window({M: 1, N: 1}, seconds)), inferences={}, busy=seconds)
    # A dollar a second for the board, and two for the machine.
    cost = CostSettings(gpu_hour_price=3600.0, machine_hour_price=7200.0)
    found = Derived(cost, 60.0, clock)
    clock.now += 10.0
    found.add(both)
    samples = list(found.samples([DeviceAccount(GPU)]))
    assert shown(samples, catalogue.MODEL_COST) == {
        (*key, "USD", component): pytest.approx(price * share)
        for key, share in ((M, first), (N, second))
        for component, price in (("gpu_time", 1), ("machine_time", 2))
    }
    rest = 10.0 - first - second
    assert shown(samples, catalogue.OVERHEAD_COST) == {
        ("USD", "gpu_time"): pytest.approx(rest),
        ("USD", "machine_time"): pytest.approx(2 * rest),
    }


def account_of(device, board, models):
    account = DeviceAccount(device)
    account.add(Reading(device, 0.0, 0))
    account.totals.board = board * MICRO
    account.totals.models = {(k, "busy_time"): v * MICRO for k, v in models.items()}
    return account


def test_electricity_and_carbon_are_the_energy_times_pue():
    cost = {"electricity_price_per_kwh": 0.36, "pue": 1.5, "grid_grams_per_kwh": 400}
    found = Derived(CostSettings.model_validate(cost), 60.0, Clock())
    accounts = [
        account_of(GPU, 7_200_000, {M: 3_600_000}),
        account_of(HOST, 3_600_000, {M: 1_800_000}),
    ]
    samples = list(found.samples(accounts))
    assert shown(samples, catalogue.MODEL_COST) == {
        (*M, "USD", "electricity"): pytest.approx(1.5 * 0.36 * 1.5)
    }
    assert shown(samples, catalogue.OVERHEAD_COST) == {
        ("USD", "electricity"): pytest.approx(1.5 * 0.36 * 1.5)
    }
    assert shown(samples, catalogue.MODEL_CARBON) == {M: pytest.approx(900)}
    assert shown(samples, catalogue.OVERHEAD_CARBON) == {(): pytest.approx(900)}
    assert shown(samples, catalogue.BOUNDARY_ENERGY) == {
        ("gpu",): 7_200_000,
        ("host",): 3_600_000,
        ("node",): pytest.approx(16_200_000),
    }


def test_boards_of_one_boundary_and_source_are_added_up_with_their_errors():
    boards = [GPU, replace(GPU, key="GPU-2"), HOST]
    accounts = [account_of(board, 0, {M: 100, N: 10}) for board in boards]
    for number, account in enumerate(accounts):
        account.totals.idle = 7 * MICRO
        account.totals.unattributed["nothing_ran"] += (number + 1) * MICRO
        rng = np.random.default_rng(number)
        for busy in rng.uniform(0, 1, 60):
            watts = 60 + 200 * busy + rng.normal(0, 5 + number)
            account.power.learn(watts, 1.0, {M: busy}, 60.0)
    samples = list(energy_ledger._balance(accounts))
    gpu, host = ("gpu", "nvml"), ("host", "rapl")
    assert shown(samples, catalogue.IDLE_ENERGY) == {gpu: 14, host: 7}
    nobody = shown(samples, catalogue.UNATTRIBUTED_ENERGY)
    assert {labels: joules for labels, joules in nobody.items() if joules} == {
        (*gpu, "nothing_ran"): 3,
        (*host, "nothing_ran"): 3,
    }
    assert shown(samples, catalogue.MODEL_ENERGY) == {
        (*key, *place, "busy_time"): joules
        for place, boards in ((gpu, 2), (host, 1))
        for key, joules in ((M, 100 * boards), (N, 10 * boards))
    }
    (one, first), (two, second), (three, third) = (
        account.power.errors()[M] for account in accounts
    )
    worth = [account.power.effective_windows(M) for account in accounts]
    assert share_errors(accounts) == {
        (*M, *gpu): (pytest.approx((first + second) / (one + two)), min(worth[:2])),
        (*M, *host): (pytest.approx(third / three), worth[2]),
    }


@pytest.mark.parametrize("hour", ["gpu_hour_price", "machine_hour_price", None])
def test_an_inference_has_no_energy_where_the_share_is_unknown_but_small(hour):
    cost = {"electricity_price_per_kwh": 0.3} | ({hour: 1.0} if hour else {})
    found = Derived(CostSettings.model_validate(cost), 60.0, Clock())
    found.add(ONE)
    account = account_of(GPU, 0, {M: 100})
    assert (*M, "gpu", "nvml", "active") in shown(
        found.samples([account]), catalogue.INFERENCE_ENERGY
    )
    rng = np.random.default_rng(1)
    for busy in rng.uniform(0, 1, (120, 2)):
        watts = 60 + 100 * busy[1] - 20 * busy[0] + rng.normal(0, 5)
        account.power.learn(watts, 1.0, dict(zip((M, N), busy, strict=True)), 60.0)
    assert share_errors([account])[*M, "gpu", "nvml"][0] > MOST_ERROR
    samples = list(found.samples([account]))
    for spec, place in (
        (catalogue.INFERENCE_ENERGY, ("gpu", "nvml")),
        (catalogue.EFFICIENCY, ("gpu", "nvml")),
        (catalogue.COST_PER_THOUSAND, ("USD", "active")),
    ):
        labels = {key[:4] for key in shown(samples, spec)}
        is_by_hour = spec is catalogue.COST_PER_THOUSAND and hour is not None
        assert ((*M, *place) in labels) == is_by_hour
        assert (*N, *place) in labels


def test_boards_alone_are_no_node():
    found = Derived(CostSettings(pue=1.5), 60.0, Clock())
    samples = found.samples([account_of(GPU, 100, {})])
    assert shown(samples, catalogue.BOUNDARY_ENERGY) == {("gpu",): 100}


def test_utilisation_is_over_the_models_busy_time():
    cost = {
        "models": {
            "m": {"flops_per_inference": 1e12},
            "n": {"flops_per_inference": 1e9, "precision": "fp8"},
        },
        "gpu": {"peak_flops": {"fp16": 1e15}},
    }
    samples = derived(cost, ONE)
    # 1,000 inferences of 1e12 in 4 s are a quarter of 1e15 a second.
    assert shown(samples, catalogue.FLOPS_UTILIZATION) == {
        M: pytest.approx(0.25),
        N: pytest.approx(50 * 1e9 / (1979e12 * 1.0)),
    }


@pytest.mark.parametrize(
    "device",
    [
        Device("gpu", "nvml", "GPU-2", name="Some Accelerator"),
        Device("gpu", "nvml", "GPU-2", name="NVIDIA H100", instances=("MIG-1",)),
    ],
)
def test_a_part_of_unknown_peak_without_a_configured_one_has_no_utilisation(device):
    cost = {"models": {"m": {"flops_per_inference": 1e12}}}
    known = replace(device, name="NVIDIA H100", instances=())
    parts = [(d, window({M: 1}, {M: 1.0})) for d in (known, device)]
    item = settled(*parts, inferences={M: 10})
    assert not shown(derived(cost, item), catalogue.FLOPS_UTILIZATION)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", "L40"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-PCIE-32GB", "V100-PCIE"),
        ("NVIDIA GeForce RTX 4090", None),
        ("NVIDIA T400", None),
    ],
)
def test_boards_are_known_by_the_name_nvml_gives_them(name, expected):
    assert peak_of(name, "fp16") == (
        PEAKS[expected]["fp16"] * 1e12 if expected else None
    )


def test_every_peak_rises_as_precision_falls():
    order = ["fp64", "fp32", "tf32", "fp16", "fp8"]
    for product, peak in PEAKS.items():
        known = [peak[p] for p in order if p in peak]
        assert known == sorted(known)
        assert peak_of(product, "bf16") == peak_of(product, "fp16")
        assert peak_of(product, "fp4") is None
