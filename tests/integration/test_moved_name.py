"""A name that comes to mean another, older server, of which a sidecar knew nothing."""

from __future__ import annotations

import subprocess

import pytest
from playground import Traffic
from sidecars import SidecarProcess

pytestmark = pytest.mark.triton

OLD, NEW = "127.0.0.1", "127.0.0.2"
NAME = "triton.test"
WITHIN = ("unshare", "--map-root-user", "--mount", "sh", "-c")
OLDER_REQUESTS = 60


def lacking_namespaces():
    tried = subprocess.run([*WITHIN, "true"], capture_output=True, check=False)
    return tried.returncode != 0


class Name:
    """A name in a hosts file that a sidecar alone sees."""

    def __init__(self, file, host):
        self.file = file
        self.means(host)

    def means(self, host):
        # In place: a file that is mounted cannot be replaced.
        self.file.write_text(f"127.0.0.1 localhost\n{host} {NAME}\n")

    @property
    def within(self):
        script = f'mount --bind {self.file} /etc/hosts && exec "$@"'
        return (*WITHIN, script, "sh")


class Moving:
    """Two servers on one port of two addresses, and a sidecar that knows them by name."""

    def __init__(self, start_triton, repository, settings, folder):
        def start(*arguments):
            load = ("--load-model=double", *arguments)
            return start_triton(repository, model_control="explicit", arguments=load)

        self.old = start()
        port = self.old.ports.grpc
        start(f"--grpc-address={NEW}", f"--grpc-port={port}")
        self.clients = [Traffic(f"{host}:{port}") for host in (OLD, NEW)]
        self.name = Name(folder / "hosts", OLD)
        config = settings(self.old)
        config["target"] = {"grpc": f"{NAME}:{port}", "http": None, "metrics": None}
        self.sidecar = SidecarProcess(
            config, folder / "sidecar", within=self.name.within
        )

    def counted(self, page):
        return page.value("triton_requests_total", model="double", outcome="success")

    def close(self):
        self.sidecar.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def moving(start_triton, playground, settings, tmp_path):
    if lacking_namespaces():
        pytest.skip("no mount namespaces: run as root, or allow user namespaces")
    made = Moving(start_triton, playground.triton.repository, settings, tmp_path)
    made.sidecar.wait_listening()
    yield made
    made.close()


@pytest.mark.parametrize("old", ["stays", "ends"])
def test_what_an_older_server_had_counted_is_no_production(moving, old) -> None:
    at_old, at_new = moving.clients
    sidecar, counted = moving.sidecar, moving.counted
    at_new.double(OLDER_REQUESTS)
    sidecar.wait(lambda page: counted(page) is not None)
    at_old.double(3)
    sidecar.wait(lambda page: counted(page) == 3)
    moving.name.means(NEW)
    if old == "ends":
        moving.old.kill()
    pages = []

    def is_followed(page):
        pages.append(page)
        return changes(page) == 1

    sidecar.wait(is_followed)
    assert {page.value("triton_up") for page in pages} == {1}
    # A server that has ended is not read for a while: its counter is absent then.
    unread = {None} if old == "ends" else set()
    assert {counted(page) for page in pages} - unread == {3}
    page = sidecar.settle(4)
    assert counted(page) == 3
    at_new.double(5)
    page = sidecar.wait(lambda page: counted(page) > 7)
    page = sidecar.settle(3)
    assert counted(page) == 3 + 5
    assert changes(page) == 1
    assert page.value("triton_statistics_resets_total", model="double") == 1
    assert "event=another_server" in sidecar.log


def changes(page):
    return page.value("triton_server_changes_total")
