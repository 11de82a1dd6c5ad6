"""What the machine took while production was watched."""

from __future__ import annotations

import pytest
from accesses import access_to
from clocks import Clock

from exporter.commands.audit.audit_power import PowerLook
from exporter.features.energy.energy_settings import PowerSettings
from exporter.triton.grpc import GrpcClient


@pytest.fixture
def access():
    client = GrpcClient("127.0.0.1:1")
    yield access_to(client)
    client.close()


def rapl(tmp_path, joules):
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir(exist_ok=True)
    (zone / "name").write_text("package-0")
    (zone / "energy_uj").write_text(str(joules * 1_000_000))
    return PowerSettings.model_validate(
        {"sources": [{"kind": "triton"}, {"kind": "rapl", "root": tmp_path}]}
    )


def test_energy_of_the_window_and_no_more(tmp_path, access):
    clock = Clock()
    look = PowerLook(rapl(tmp_path, 1000), access, clock)
    clock.now = 5.0
    rapl(tmp_path, 1100)
    look.begin()
    for joules in (1150, 1200):
        clock.now += 1.0
        rapl(tmp_path, joules)
        look.read()
    clock.now += 1.0
    rapl(tmp_path, 1250)
    (taken,) = look.end()
    assert (taken.boundary, taken.source) == ("host", "rapl")
    assert (taken.joules, taken.seconds, taken.known) == (150.0, 3.0, True)


def test_a_part_that_could_not_be_read_makes_it_the_least_there_was(tmp_path, access):
    clock = Clock()
    look = PowerLook(rapl(tmp_path, 1000), access, clock)
    look.begin()
    clock.now = 1.0
    rapl(tmp_path, 1050)
    look.read()
    clock.now = 2.0
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("garbage")
    (taken,) = look.end()
    assert taken.joules == 50.0
    assert not taken.known


def test_without_sources_nothing_is_said(access):
    for settings in (
        None,
        PowerSettings.model_validate({"sources": [{"kind": "triton"}]}),
    ):
        look = PowerLook(settings, access, Clock())
        look.begin()
        look.read()
        assert look.end() == ()
