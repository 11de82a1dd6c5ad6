"""RAPL as the kernel shows it: zones, wraps, and files that may not be read."""

from __future__ import annotations

import pytest
from requirements import as_nobody
from structlog.testing import capture_logs

from exporter.access.work_board import WorkBoard
from exporter.features.energy.energy_meter import MICRO
from exporter.features.energy.sources.power_source import Surroundings
from exporter.features.energy.sources.rapl import RaplSettings

WRAP = 262_143_328_850


class Powercap:
    """A folder as /sys/class/powercap."""

    def __init__(self, root):
        self.root = root
        self.now = 0.0

    def zone(self, zone, name, joules, *, wrap=WRAP, watts=None):
        folder = self.root / zone
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{round(joules * MICRO)}\n")
        (folder / "max_energy_range_uj").write_text(f"{wrap}\n")
        if watts:
            (folder / "constraint_0_max_power_uw").write_text(f"{watts * MICRO}\n")
        return folder / "energy_uj"

    def find(self, **more):
        surroundings = Surroundings(lambda: self.now, lambda: 0, None, WorkBoard())
        return RaplSettings(root=self.root, **more).find(surroundings)


@pytest.fixture
def powercap(tmp_path):
    return Powercap(tmp_path / "powercap")


def by_domain(source):
    return {reading.device.key: reading for reading in source.read()}


def test_packages_and_their_memory_are_read_and_nothing_is_read_twice(powercap):
    powercap.zone("intel-rapl:0", "package-0", 100, watts=205)
    powercap.zone("intel-rapl:0:0", "core", 60)
    powercap.zone("intel-rapl:0:1", "dram", 20)
    powercap.zone("intel-rapl:1", "package-1", 300, watts=205)
    powercap.zone("intel-rapl:1:1", "dram", 30)
    powercap.zone("intel-rapl:2", "psys", 999)
    powercap.zone("intel-rapl-mmio:0", "package-0", 100)
    (powercap.root / "intel-rapl").mkdir()
    readings = by_domain(powercap.find())
    assert {key: r.counter_microjoules / MICRO for key, r in readings.items()} == {
        "package-0": 100,
        "dram-0": 20,
        "package-1": 300,
        "dram-1": 30,
    }
    assert readings["package-0"].device.max_watts == 205
    assert readings["dram-0"].device.max_watts is None
    assert readings["package-0"].wraps_at_microjoules == WRAP
    assert all(r.power_watts is None for r in readings.values())


def test_what_may_not_be_read_is_told_apart_from_what_is_no_number(reachable_path):
    powercap = Powercap(reachable_path)
    powercap.zone("intel-rapl:0", "package-0", 100).chmod(0)
    powercap.zone("intel-rapl:1", "package-1", 100).write_text("garbage")
    source = powercap.find()
    with as_nobody():
        readings = by_domain(source)
    assert readings["package-0"].faults == {"permission_denied"}
    assert readings["package-1"].faults == {"unreadable"}
    assert readings["package-0"].counter_microjoules is None


def test_a_zone_that_goes_away_is_flagged_and_the_others_go_on(powercap):
    gone = powercap.zone("intel-rapl:0", "package-0", 100)
    powercap.zone("intel-rapl:1", "package-1", 100)
    source = powercap.find()
    gone.unlink()
    readings = by_domain(source)
    assert readings["package-0"].faults == {"unreadable"}
    assert not readings["package-1"].faults


def test_no_zones_are_no_source(powercap):
    assert powercap.find() is None
    powercap.zone("intel-rapl:0", "psys", 1)
    assert powercap.find() is None


@pytest.mark.parametrize(
    ("idle_watts", "expected"),
    [
        (92, {"package-0": 40, "dram-0": 6, "package-1": 40, "dram-1": 6}),
        ({"package-0": 36, "dram-0": 4}, {"package-0": 36, "dram-0": 4}),
    ],
)
def test_a_configured_idle_power_is_of_all_domains_together_or_by_domain(
    powercap, idle_watts, expected
):
    for number in (0, 1):
        powercap.zone(f"intel-rapl:{number}", f"package-{number}", 100)
        powercap.zone(f"intel-rapl:{number}:0", "dram", 10)
    for domain, reading in by_domain(powercap.find(idle_watts=idle_watts)).items():
        assert reading.device.idle_watts == pytest.approx(expected.get(domain))


def test_idle_power_of_a_domain_that_does_not_exist_is_logged(powercap):
    powercap.zone("intel-rapl:0", "package-0", 100)
    with capture_logs() as log:
        powercap.find(idle_watts={"package-0": 36, "package0": 4})
    (warning,) = log
    assert (warning["event"], warning["domains"]) == (
        "rapl_domain_unknown",
        ["package0"],
    )


def test_turbo_above_the_nominal_power_of_a_package_is_plausible(powercap):
    folder = powercap.zone("intel-rapl:0", "package-0", 100, watts=125).parent
    (folder / "constraint_0_power_limit_uw").write_text(f"{125 * MICRO}")
    (folder / "constraint_1_max_power_uw").write_text("0")
    (folder / "constraint_1_power_limit_uw").write_text(f"{253 * MICRO}")
    assert by_domain(powercap.find())["package-0"].device.max_watts == 253
