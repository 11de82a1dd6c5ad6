"""The books balance whatever happens, and the shares are those of a scripted truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.access.work_board import ModelWork, WorkSnapshot
from exporter.features.energy.energy_accounts import Books, Busy, DeviceAccount
from exporter.features.energy.energy_meter import MICRO
from exporter.features.energy.placement import Placement
from exporter.features.energy.power_fit import OtherLoad
from exporter.features.energy.sources.power_source import Device, Reading

MANY_EXAMPLES = settings(max_examples=60)
A, B = ("a", "1"), ("b", "1")


def board(key="GPU-1", **more):
    return Device("gpu", "nvml", key, max_watts=700.0, **more)


class Machine:
    """A scripted truth: boards with idle power, models with watts, and their clock."""

    def __init__(self, *devices, idle=60.0, window=5.0):
        self.devices = devices
        self.idle = idle
        self.books = Books(window)
        self.now = self.ahead = 0.0
        self.joules = {d.key: 1e6 for d in devices}
        self.busy = dict.fromkeys((A, B), 0.0)
        self.production = dict.fromkeys((A, B), 0.0)
        self.inferences = dict.fromkeys((A, B), 0)
        self.truth = dict.fromkeys((A, B), 0.0)
        self.placement = Placement(frozenset(d.key for d in devices))
        self.settled = []
        self.look = None
        self.since = -math.inf
        self.tokens: dict[object, float | None] = {}
        self.ensembles: set[object] = set()
        self._read()

    def second(
        self, running=(), *, look=True, own=0.0, foreign=0.0, faults=frozenset()
    ):
        """One second in which `running` is [(key, busy ratio, watts)]."""
        self.now += 1
        for key, ratio, watts in running:
            self.busy[key] += ratio
            self.production[key] += ratio * (1 - own)
            self.inferences[key] += round(100 * ratio * (1 - own))
            self.truth[key] += ratio * watts * (1 - own)
        active = foreign + sum(ratio * watts for _, ratio, watts in running)
        for device in self.devices:
            self.joules[device.key] += self.idle + active / len(self.devices)
        self._read(faults)
        if look:
            self.look = WorkSnapshot(
                self.now + self.ahead,
                {
                    key: ModelWork(
                        self.busy[key],
                        self.production[key],
                        self.inferences[key],
                        output_tokens=self.tokens.get(key),
                        is_ensemble=key in self.ensembles,
                    )
                    for key in self.busy
                },
                self.since,
            )
        settled = self.books.settle(self.look, self.placement, self.now)
        if settled is not None:
            assert settled.until <= self.now
            self.settled.append(settled)

    def _read(self, faults=frozenset()):
        for device in self.devices:
            counter = None if faults else round(self.joules[device.key] * MICRO)
            self.books.add(Reading(device, self.now, counter, faults=faults))

    def total(self, what):
        return sum(what(a.totals) for a in self.books.devices.values()) / MICRO

    def attributed(self, key):
        return self.total(
            lambda t: sum(e for (k, _), e in t.models.items() if k == key)
        )

    def balance(self):
        for account in self.books.devices.values():
            totals = account.totals
            parts = (
                totals.idle
                + sum(totals.unattributed.values())
                + sum(totals.models.values())
            )
            assert parts == totals.board
            booked = [*totals.unattributed.values(), *totals.models.values()]
            assert min([totals.idle, *booked, 0]) == 0


@MANY_EXAMPLES
@given(data=st.data())
def test_models_idle_and_unattributed_are_the_board_at_every_instant(data):
    boards = data.draw(st.integers(1, 3))
    machine = Machine(*(board(f"GPU-{n}") for n in range(boards)))
    before = 0
    for _ in range(data.draw(st.integers(10, 60))):
        machine.second(
            [
                (key, data.draw(st.floats(0, 2)), data.draw(st.floats(0, 300)))
                for key in data.draw(st.sets(st.sampled_from((A, B))))
            ],
            look=data.draw(st.booleans()),
            own=data.draw(st.floats(0, 1)),
            foreign=data.draw(st.sampled_from((0.0, 0.0, 150.0))),
            faults=data.draw(st.sampled_from((frozenset(), frozenset({"lost"})))),
        )
        machine.balance()
        now = machine.total(lambda t: t.board)
        assert now >= before
        before = now


def test_our_own_requests_energy_is_not_the_models():
    machine = Machine(board(idle_watts=60.0))
    for _ in range(40):
        machine.second([(A, 0.5, 200)], own=0.25)
    assert machine.attributed(A) == pytest.approx(machine.truth[A], rel=0.15)
    own = machine.total(lambda t: t.unattributed["own_requests"])
    assert own == pytest.approx(machine.attributed(A) / 3, rel=0.01)


def test_all_work_of_a_model_that_is_new_is_productions():
    machine = Machine(board(idle_watts=60.0))
    new = ("new", "1")
    for _ in range(10):
        machine.second()
    for ledger, nothing in (
        (machine.busy, 0.0),
        (machine.production, 0.0),
        (machine.inferences, 0),
        (machine.truth, 0.0),
    ):
        ledger[new] = nothing
    for _ in range(6):
        # More than all of its time, where requests that were held back are booked.
        machine.second([(new, 0.5, 200)], own=-0.1)
    assert machine.attributed(new) > 0
    assert machine.total(lambda t: t.unattributed["own_requests"]) == 0


def test_the_steps_of_an_ensemble_have_its_energy():
    machine = Machine(board(idle_watts=60.0))
    machine.ensembles.add(B)
    for _ in range(40):
        # Triton adds the time of a batch of 8 to the ensemble for each request.
        machine.second([(A, 0.2, 200), (B, 1.6, 0)])
    assert machine.attributed(A) == pytest.approx(machine.truth[A], rel=0.15)
    assert machine.attributed(B) == 0
    assert B not in machine.settled[-1].busy


def test_idle_energy_is_learnt_only_while_nothing_runs():
    machine = Machine(board())
    for _ in range(40):
        machine.second([(A, 0.5, 200)])
    assert machine.total(lambda t: t.idle) == 0
    (account,) = machine.books.devices.values()
    assert {method for _, method in account.totals.models} == {"busy_time_with_idle"}
    for _ in range(40):
        machine.second()
    assert account.idle.watts == pytest.approx(60, rel=0.01)
    for _ in range(10):
        machine.second([(A, 0.5, 200)])
    assert (A, "busy_time") in account.totals.models


def test_others_load_while_nothing_of_ours_runs_is_neither_idle_nor_a_models():
    machine = Machine(board(idle_watts=60.0))
    for _ in range(30):
        machine.second(foreign=100.0)
    machine.balance()
    nobody = machine.total(lambda t: t.unattributed["nothing_ran"])
    assert nobody == pytest.approx(100 * 25, rel=0.3)
    assert not machine.attributed(A)


def test_a_model_gets_its_part_in_every_window_beside_load_of_others():
    rng, machine, level = np.random.default_rng(11), Machine(board()), 0.0
    for second in range(1500):
        level = 0.9 * level + float(rng.normal(0, 0.4))
        running = [(A, float(rng.uniform(0.2, 0.6)), 100)] if second > 200 else []
        machine.second(running, foreign=60 * math.exp(level))
    machine.balance()
    assert machine.total(lambda t: t.unattributed["other_load"]) > 0
    ran = [window for s in machine.settled[150:] for _, window in s.parts]
    assert min(window.models[A] for window in ran) > 0


@pytest.mark.parametrize("step", [1.5, 0.6])
def test_load_that_was_there_once_does_not_hide_a_step_in_a_models_watts(step):
    """As of a board that drew power while a model was loaded, and then no more."""
    rng, machine = np.random.default_rng(5), Machine(board(idle_watts=60.0))
    for _ in range(60):
        machine.second()
    for _ in range(60):
        machine.second(foreign=100.0)
    for second in range(2000):
        if second == 1200:
            before = machine.attributed(A), machine.truth[A]
        watts = 200 * (step if second >= 1200 else 1)
        machine.second([(A, float(rng.uniform(0.3, 0.9)), watts)])
    after = machine.attributed(A) - before[0]
    assert after == pytest.approx(machine.truth[A] - before[1], rel=0.1)
    machine.balance()


def test_a_model_whose_watts_alternate_is_no_load_of_others():
    rng, machine = np.random.default_rng(5), Machine(board())
    for _ in range(60):
        machine.second()
    watts = 0
    for second in range(1500):
        if second % 30 == 0:
            watts = int(rng.choice([60, 600]))
        machine.second([(A, 0.98, watts)])
    assert machine.attributed(A) == pytest.approx(machine.truth[A], rel=0.02)


@pytest.mark.parametrize(("seconds", "watts"), [(4, 240), (10, 120)])
def test_executions_as_long_as_a_window_or_two_are_no_load_of_others(seconds, watts):
    machine = Machine(board(idle_watts=60.0))
    for _ in range(1200 // seconds):
        for _ in range(seconds - 1):
            machine.second(foreign=300.0)
        machine.second([(A, float(seconds), 0)], foreign=300.0)
        for _ in range(seconds // 2):
            machine.second()
    (account,) = machine.books.devices.values()
    assert account.idle.others.watts == 0
    assert account.power.watts(A) == pytest.approx(watts, rel=0.05)


def test_what_others_take_in_the_mean_is_not_idle_energy():
    rng, machine = np.random.default_rng(6), Machine(board(idle_watts=60.0))
    level = 0.0
    for second in range(2400):
        level = 0.97 * level + float(rng.normal(0, 0.24))
        foreign = 100 * math.exp(level - 0.5)
        running = [(A, float(rng.uniform(0.1, 0.5)), 200)] if second > 900 else []
        machine.second(running, foreign=foreign)
    idle = machine.total(lambda t: t.idle)
    assert idle == pytest.approx(60 * 2400, rel=0.25)
    machine.balance()


@pytest.mark.parametrize(("is_lost", "joules"), [(True, 100), (False, 520)])
def test_of_a_window_with_a_gap_nothing_is_known_of_others(is_lost, joules):
    """Where all is known, a tenth of what differs from the estimate of 500 J is the model's."""
    account, rng = DeviceAccount(board(idle_watts=60.0)), np.random.default_rng(4)
    for watts in 160 + rng.normal(0, 20, 240):
        others = OtherLoad(0.0, 20.0)
        account.power.learn(watts, 1.0, {A: 0.5}, 60.0, others=others)
    for second in range(6):
        counter = None if is_lost and second in {2, 3} else 200 * second * MICRO
        faults = frozenset({"lost"} if counter is None else ())
        account.add(Reading(account.device, float(second), counter, faults=faults))
    window = account.settle(5.0, {A: Busy(2.5, 0.0, "")})
    assert window.known != is_lost
    assert window.models.get(A, 0) / MICRO == pytest.approx(joules, abs=30)


def test_a_model_runs_where_tritons_page_says_it_does():
    first, second = board("GPU-1", idle_watts=60.0), board("GPU-2", idle_watts=60.0)
    machine = Machine(first, second)
    machine.placement = Placement(
        frozenset({"GPU-1", "GPU-2"}),
        {"MIG-7": "GPU-2"},
        {A: {"GPU-1": 3.0, "MIG-7": 1.0}, B: {"": 5.0}},
        {B: frozenset()},
    )
    for _ in range(30):
        machine.second([(A, 0.5, 200), (B, 0.5, 0)])
    one, two = machine.books.devices.values()
    # The machine takes as much on both boards; what is attributed is what is there.
    assert {key for key, _ in one.totals.models} == {A}
    assert {key for key, _ in two.totals.models} == {A}
    assert set(two.totals.instances) == {"MIG-7"}
    assert not one.totals.instances
    shares = machine.placement.share(A, first), machine.placement.share(A, second)
    assert shares == ((0.75, ""), (0.25, "MIG-7"))


@pytest.mark.parametrize("ahead", [0.0, 0.5])
def test_windows_are_at_least_as_long_as_configured_and_end_when_measured(ahead):
    machine = Machine(board(), window=5.0)
    machine.ahead = ahead
    for number in range(33):
        machine.second(look=not ahead or number % 5 == 0)
    assert len(machine.settled) == 6
    assert all(math.isclose(s.seconds, 5.0) for s in machine.settled)


def test_tokens_of_a_source_that_appears_late_are_not_those_of_one_window():
    machine = Machine(board("GPU-0"))
    for second in range(60):
        if second >= 30:
            # The first number covers all requests so far.
            machine.tokens[A] = 200_000.0 + 10 * min(second - 30, 15)
        machine.second([(A, 0.5, 100)])
    seen = [
        window.output_tokens[A] for window in machine.settled if window.output_tokens
    ]
    assert len(seen) > 2
    assert max(seen) < 1_000
    assert seen[-1] == 0


@pytest.mark.parametrize("interval", [60, 300])
def test_energy_is_attributed_however_rarely_the_statistics_are_read(interval):
    machine = Machine(board(idle_watts=60.0))
    for second in range(8 * interval):
        machine.second([(A, 0.5, 200)], look=second % interval == 0)
    whole = machine.total(lambda t: t.board)
    skipped = machine.total(lambda t: t.unattributed["no_statistics"])
    assert skipped < 0.5 * whole
    assert machine.attributed(A) == pytest.approx(100 * 6 * interval, rel=0.05)
    for _ in range(4 * interval):
        machine.second([(A, 0.5, 200)], look=False)
    after = machine.total(lambda t: t.unattributed["no_statistics"])
    assert after - skipped > 160 * interval


@pytest.mark.parametrize("late", [0, 3])
def test_energy_is_unattributed_where_busy_times_are_missing(late):
    machine = Machine(board())
    for _ in range(30):
        machine.second([(A, 0.95, 240.0)])
    before = machine.busy[A]
    for second in range(12):
        machine.second([(A, 0.95, 240.0)], look=False)
        if second == 11 - late:
            machine.since = machine.now
            machine.busy[A] = before
    for _ in range(30):
        machine.second([(A, 0.95, 240.0)])
    (account,) = machine.books.devices.values()
    assert account.idle.watts is None
    assert account.totals.unattributed["no_statistics"] / MICRO >= 7 * 288
    assert account.totals.unattributed["nothing_ran"] == 0


def test_what_a_board_takes_for_somebody_else_is_no_idle_power():
    account, joules = DeviceAccount(board()), 0
    for second in range(40):
        is_used = second % 2 == 1
        account.add(
            Reading(board(), float(second), joules * MICRO, utilization_ratio=is_used)
        )
        account.settle(float(second), {})
        joules += 60 if is_used else 300
    assert account.idle.watts == 60
