"""Two sidecars watch one Triton, and one of them knows of the other."""

from __future__ import annotations

import base64
import shutil

import bcrypt
import pytest
import yaml
from web_files import make_pair, make_pairs, tls_of

pytestmark = pytest.mark.triton

PRODUCTION = ("triton_requests_total", "triton_inferences_total")
UNATTRIBUTED = "triton_unattributed_requests_total"
PROBE = {"interval_seconds": 0.5}
OPENS = "open sesame"


def test_what_another_sidecar_asks_is_no_production(
    playground, settings, start_sidecar, traffic
) -> None:
    other = start_sidecar(settings(playground, probe=PROBE))
    config = settings(playground, probe=PROBE)
    address = f"127.0.0.1:{other.port}"
    config["collectors"][1]["watchers"] = [{"address": address}]
    sidecar = start_sidecar(config)

    def counted(page):
        return page.sum("triton_requests_total", model="double")

    page = sidecar.wait(lambda page: page.sum(UNATTRIBUTED, model="double") >= 10)
    assert page.value("tritonwatch_watcher_up", watcher=address) == 1
    assert not any(page.sum(name, model="double") for name in PRODUCTION)
    # It does not know of this one, and takes what it asks for production.
    assert counted(other.page()) >= 10
    traffic.double(100)
    page = sidecar.wait(lambda page: counted(page) >= 90)
    page = sidecar.settle(4)
    assert 90 <= counted(page) <= 100


@pytest.fixture
def guarded(playground, settings, tmp_path):
    """Files of another sidecar, that asks for a certificate and a password, and of its clients."""
    make_pairs(tmp_path)
    hashed = bcrypt.hashpw(OPENS.encode(), bcrypt.gensalt(4)).decode()
    web = tls_of(
        tmp_path,
        client_auth_type="RequireAndVerifyClientCert",
        client_ca_file=str(tmp_path / "authority.pem"),
    )
    web["basic_auth_users"] = {"watcher": hashed}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(web), "utf-8")
    return tmp_path


def watching(settings, playground, files, address):
    given = base64.b64encode(f"watcher:{OPENS}".encode()).decode()
    config = settings(playground, probe=PROBE)
    config["collectors"][1]["watchers"] = [
        {
            "address": address,
            "tls": {
                "ca_file": str(files / "authority.pem"),
                "cert_file": str(files / "mine.pem"),
                "key_file": str(files / "mine.key"),
            },
            "headers": {"Authorization": f"Basic {given}"},
        }
    ]
    return config


def test_another_sidecar_may_have_tls_and_a_password_and_new_files_are_taken_up(
    playground, settings, start_sidecar, guarded
) -> None:
    other = start_sidecar(
        settings(playground, probe=PROBE), "--web.config.file", guarded / "web.yaml"
    )
    address = f"localhost:{other.port}"
    # A certificate of nobody it trusts.
    make_pair(guarded, "mine")
    sidecar = start_sidecar(watching(settings, playground, guarded, address))
    up = {"watcher": address}
    sidecar.wait(lambda page: page.value("tritonwatch_watcher_up", **up) == 0)
    sidecar.settle(3)
    assert sidecar.log.count("event=watcher_not_read") == 1
    for kind in ("pem", "key"):
        shutil.copy(guarded / f"client.{kind}", guarded / f"mine.{kind}")
    sidecar.wait(lambda page: page.value("tritonwatch_watcher_up", **up) == 1)
    # What was asked before the first reading of its counters may show one read later.
    before = sidecar.settle(2).sum("triton_requests_total", model="double")
    page = sidecar.wait(lambda page: page.sum(UNATTRIBUTED, model="double") >= 10)
    assert page.sum("triton_requests_total", model="double") == before
    assert OPENS not in sidecar.log
