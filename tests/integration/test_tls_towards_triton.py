"""TLS between the sidecar and its server: by protocol, renewed, and what is said of failures."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_triton import FakeModel, FakeTriton
from requirements import require
from tls_terminator import Authority, Terminator

from exporter.triton.embedded import EmbeddedTriton

PATIENCE_SECONDS = 60.0
PROTOCOLS = ("grpc", "http")
MODELS = Path(__file__).parents[1] / "data" / "models" / "double"


@pytest.fixture(scope="module")
def fake():
    require("nginx")
    require("openssl")
    with FakeTriton([FakeModel("m")]) as server:
        yield server


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "own")


def behind(terminator, certificate="sound"):
    """The addresses as a configuration takes them."""
    return SimpleNamespace(
        metrics=None,
        **{p: f"127.0.0.1:{terminator.port(certificate, p)}" for p in PROTOCOLS},
    )


def over_tls(settings, server, **tls):
    # Long enough for any machine: what takes this long hangs.
    config = settings(server, probe={"timeout_seconds": 20.0})
    config["target"]["tls"] = {key: str(value) for key, value in tls.items()}
    return config


MOUNTED = ("ca.pem", "client.pem", "client.key")


def lay(folder, signer):
    """The sidecar's three files, all of them of one authority."""
    folder.mkdir(exist_ok=True)
    sources = (signer.file, signer.sign("sidecar"), signer.file.parent / "sidecar.key")
    for name, source in zip(MOUNTED, sources, strict=True):
        shutil.copy(source, folder / name)


def show(folder, signer):
    """The server's."""
    shutil.copy(signer.sign("server"), folder / "server.pem")
    shutil.copy(signer.file.parent / "server.key", folder / "server.key")
    shutil.copy(signer.file, folder / "clients.pem")


def serves(page):
    return page.value("triton_up") == 1 and page.values("triton_probe_success") == [
        1,
        1,
    ]


@pytest.mark.parametrize("certificate", ["elsewhere", "unknown"])
def test_a_certificate_that_is_refused_makes_the_server_unavailable(
    certificate, fake, authority, settings, start_sidecar, tmp_path
):
    strange = Authority(tmp_path / "strange")
    shown = {
        "sound": authority.sign("sound"),
        "elsewhere": authority.sign("elsewhere", names="DNS:elsewhere.example"),
        "unknown": strange.sign("unknown"),
    }
    with contextlib.closing(Terminator(tmp_path / "nginx", fake, shown)) as terminator:
        # The server is known, then only the certificate changes.
        config = over_tls(settings, behind(terminator), ca_file=authority.file)
        sidecar = start_sidecar(config)
        sidecar.wait(serves, PATIENCE_SECONDS)
        config["target"]["http"] = behind(terminator, certificate).http
        sidecar.write(config)
        sidecar.process.send_signal(signal.SIGHUP)
        page = sidecar.wait(
            lambda p: p.value("triton_probe_success", protocol="http") == 0,
            PATIENCE_SECONDS,
        )
        found = page.label("triton_probe_total", "outcome", protocol="http")
        counted = {
            o
            for o in found
            if page.value("triton_probe_total", protocol="http", outcome=o)
        }
        assert counted <= {"ok", "unavailable"}
        config["target"]["grpc"] = behind(terminator, certificate).grpc
        sidecar.write(config)
        sidecar.process.send_signal(signal.SIGHUP)
        page = sidecar.wait(lambda p: p.value("triton_up") == 0, PATIENCE_SECONDS)
    assert "CERTIFICATE_VERIFY_FAILED" in sidecar.log or "certificate" in sidecar.log
    # Nothing but events of ours, whatever gRPC's core has to say.
    assert [x for x in sidecar.log.splitlines() if not x.startswith("ts=")] == []


@pytest.mark.parametrize("way", ["in place", "as Kubernetes does"])
def test_renewed_files_are_taken_up_without_a_restart(
    way, fake, authority, settings, start_sidecar, tmp_path
):
    """The server trusts new authorities alone, and shows a certificate of one of them."""
    new = Authority(tmp_path / "new")
    mounted = tmp_path / "mounted"
    if way == "in place":
        lay(mounted, authority)
    else:
        mounted.mkdir()
        lay(mounted / "..1", authority)
        (mounted / "..data").symlink_to("..1")
        for name in MOUNTED:
            (mounted / name).symlink_to(f"..data/{name}")
    server = tmp_path / "server"
    server.mkdir()

    show(server, authority)
    certificates = {"sound": server / "server.pem"}
    with contextlib.closing(
        Terminator(tmp_path / "nginx", fake, certificates, server / "clients.pem")
    ) as terminator:
        config = over_tls(
            settings,
            behind(terminator),
            ca_file=mounted / "ca.pem",
            cert_file=mounted / "client.pem",
            key_file=mounted / "client.key",
        )
        sidecar = start_sidecar(config)
        sidecar.wait(serves, PATIENCE_SECONDS)
        show(server, new)
        terminator.reload()
        page = sidecar.wait(lambda p: p.value("triton_up") == 0, PATIENCE_SECONDS)
        if way == "in place":
            lay(mounted, new)
        else:
            lay(mounted / "..2", new)
            (mounted / "..next").symlink_to("..2")
            (mounted / "..next").rename(mounted / "..data")
        page = sidecar.wait(serves, PATIENCE_SECONDS)
    outcomes = {
        labels["outcome"]
        for labels, value in page.all("triton_probe_total")
        if value > 0
    }
    assert outcomes <= {"ok", "unavailable"}
    assert "event=tls_files_renewed" in sidecar.log


@pytest.mark.parametrize("tls_on", [True, False])
def test_one_side_that_speaks_no_tls_is_unavailable_and_not_nonsense(
    tls_on, fake, authority, settings, start_sidecar, tmp_path
):
    shown = {"sound": authority.sign("sound")}
    with contextlib.closing(Terminator(tmp_path / "nginx", fake, shown)) as terminator:
        # gRPC as it should be, so that the models are known.
        secure = behind(terminator)
        config = settings(fake)
        if tls_on:
            tls = {"ca_file": str(authority.file)}
            config["target"] |= {"grpc": secure.grpc, "tls": tls}
        else:
            config["target"] |= {"http": secure.http}
        sidecar = start_sidecar(config)
        page = sidecar.wait(
            lambda p: (
                p.value("triton_probe_total", protocol="http", outcome="unavailable")
                and p.value("triton_probe_success", protocol="grpc") == 1
            ),
            PATIENCE_SECONDS,
        )
        for outcome in ("bad_output", "invalid"):
            name = "triton_probe_total"
            assert not page.value(name, protocol="http", outcome=outcome)
        status = json.loads(sidecar.get("/api/v1/status").body)
        assert "TLS" in json.dumps(status) or "HTTPS" in json.dumps(status)


@pytest.mark.triton
def test_tritons_own_tls_on_grpc_alone(authority, settings, start_sidecar, tmp_path):
    certificate = authority.sign("sound")
    shutil.copytree(MODELS, tmp_path / "models" / "double")
    arguments = [
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={certificate}",
        f"--grpc-server-key={certificate.with_suffix('.key')}",
        f"--grpc-root-cert={authority.file}",
    ]
    with EmbeddedTriton(tmp_path / "models", arguments=arguments) as triton:
        config = settings(triton)
        config["target"]["tls"] = {
            "ca_file": str(authority.file),
            "protocols": ["grpc"],
        }
        sidecar = start_sidecar(config)
        page = sidecar.wait(serves, PATIENCE_SECONDS)
        assert page.value("triton_model_serving") == 1
