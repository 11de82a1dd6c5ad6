"""TLS, client certificates and passwords on the sidecar's own pages."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import ssl
from typing import TYPE_CHECKING

import bcrypt
import pytest
import yaml
from attacks import (
    ENDLESS,
    Target,
    basic,
    idle_connections,
    long_hellos,
    pour,
    tried,
)
from commands import tritonwatch
from monitoring import free_port
from sidecars import SidecarProcess
from structlog.testing import capture_logs
from waiting import patience, wait_until
from web_files import make_pair, make_pairs, openssl, tls_of, trusting

from exporter.errors import ConfigError
from exporter.web import web_config

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "correct horse battery staple"  # noqa: S105 - of this test alone
HASHED = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="session")
def pairs(tmp_path_factory, require_commands) -> Path:
    require_commands("openssl")
    folder = tmp_path_factory.mktemp("certificates")
    make_pairs(folder)
    make_pair(folder, "stranger")
    return folder


class Served(SidecarProcess):
    """A sidecar without a Triton, with a web configuration."""

    def __init__(self, folder: Path, web: dict) -> None:
        self.web = folder / "web.yaml"
        self.web.write_text(yaml.safe_dump(web))
        nowhere = {"grpc": f"127.0.0.1:{free_port()}", "http": None, "metrics": None}
        config = {
            "target": nowhere,
            "listen": {"address": "127.0.0.1", "port": 0},
            "power": None,
        }
        super().__init__(config, folder, "--web.config.file", str(self.web))
        self.wait_listening()

    def get(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        path: str = "/-/healthy",
        **headers: str,
    ):
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        options = {"context": tls} if tls else {}
        connection = kind("127.0.0.1", self.port, timeout=patience(20), **options)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.body = answer.read()
            answer.certificate = (
                connection.sock.getpeercert(binary_form=True) if tls else None
            )
            return answer


@pytest.fixture
def serve(tmp_path):
    with contextlib.ExitStack() as stack:

        def start(web: dict) -> Served:
            return stack.enter_context(contextlib.closing(Served(tmp_path, web)))

        yield start


def test_a_password_is_asked_for_and_taken(serve) -> None:
    served = serve({"basic_auth_users": {"prometheus": HASHED}})
    refused = served.get()
    assert refused.status == 401
    assert refused.getheader("www-authenticate").startswith("Basic ")
    assert served.get(authorization=basic("prometheus", "wrong")).status == 401
    for _ in range(2):
        assert served.get(authorization=basic("prometheus", PASSWORD)).status == 200
    assert PASSWORD not in served.log
    assert HASHED not in served.log


@pytest.mark.parametrize("mutual", [False, True])
def test_silent_connections_keep_no_scrape_out_of_a_tls_listener(
    serve, pairs, mutual
) -> None:
    more = {
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": str(pairs / "authority.pem"),
    }
    served = serve(tls_of(pairs, **(more if mutual else {})))
    trust = trusting(pairs, *(["client"] if mutual else []))
    with tried(idle_connections, Target(("127.0.0.1", served.port))):
        for _ in range(30):
            answer = served.get(trust, path="/metrics")
            assert answer.status == 200
    assert b'refused_total{listener="web",reason="crowded"}' in answer.body


def test_long_first_messages_of_all_connections_take_little_memory(
    serve, pairs
) -> None:
    served = serve(tls_of(pairs))
    assert served.get(trusting(pairs)).status == 200
    before = served.resident_bytes
    with tried(long_hellos, Target(("127.0.0.1", served.port))):
        wait_until(lambda: served.get(trusting(pairs)).status == 200)
        taken = served.resident_bytes - before
    assert taken < 64 << 20, f"{taken / 1e6:.0f} MB"


def test_requests_without_end_over_tls_leave_no_error_in_the_log(serve, pairs) -> None:
    served = serve(tls_of(pairs))
    files = (str(pairs / "authority.pem"),)
    for start, more in ENDLESS.values():
        with contextlib.suppress(OSError):
            pour(("127.0.0.1", served.port, *files), start, more, 1 << 20)
    assert served.get(trusting(pairs)).status == 200
    assert "level=error" not in served.log


def test_a_changed_password_counts_without_a_restart(serve) -> None:
    served = serve({"basic_auth_users": {"u": HASHED}})
    assert served.get(authorization=basic("u", PASSWORD)).status == 200
    other = bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode()
    served.web.write_text(yaml.safe_dump({"basic_auth_users": {"u": other}}))
    wait_until(lambda: served.get(authorization=basic("u", "new")).status == 200)
    assert served.get(authorization=basic("u", PASSWORD)).status == 401


def test_a_file_is_read_again_after_a_second_and_a_wrong_one_changes_nothing(
    pairs, tmp_path
) -> None:
    web, now = tmp_path / "web.yaml", 0.0

    def users(*names: str) -> dict:
        return {"basic_auth_users": dict.fromkeys(names, HASHED)}

    def write(content: dict) -> None:
        web.write_text(yaml.safe_dump(content))

    def at(seconds: float) -> tuple[list[str], bool, list[str]]:
        nonlocal now
        now = seconds
        with capture_logs() as log:
            found = list(file.config.basic_auth_users), file.context is not None
        return *found, [line["event"] for line in log]

    write(users("a"))
    file = web_config.WebConfigFile(web, lambda: now)
    write(users("a", "b"))
    assert at(0.9) == (["a"], False, [])
    assert at(1.0) == (["a", "b"], False, ["web_config_reloaded"])
    assert at(2.0) == (["a", "b"], False, [])
    write({"nonsense": 1})
    assert at(2.9) == (["a", "b"], False, [])
    assert at(3.0) == (["a", "b"], False, ["web_config_refused"])
    assert at(4.0) == (["a", "b"], False, []), "said once"
    write(tls_of(pairs))
    assert at(5.0) == (["a", "b"], False, ["web_config_needs_restart"])
    write(users("c"))
    assert at(6.0) == (["c"], False, ["web_config_reloaded"])
    # A certificate that comes later is found without a change of the file.
    served = tls_of(pairs, cert_file=str(tmp_path / "new.pem"))
    shutil.copy(pairs / "server.pem", tmp_path / "new.pem")
    write(served)
    file = web_config.WebConfigFile(web, lambda: now)
    (tmp_path / "new.pem").unlink()
    assert at(7.0) == ([], True, ["web_config_refused"])
    shutil.copy(pairs / "server.pem", tmp_path / "new.pem")
    assert at(8.0) == ([], True, ["web_config_reloaded"])


def test_tls_is_spoken_and_nothing_else(serve, pairs) -> None:
    served = serve(tls_of(pairs, min_version="TLS13"))
    assert served.get(trusting(pairs)).status == 200
    old = trusting(pairs)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        served.get(old)
    with pytest.raises((http.client.HTTPException, OSError)):
        served.get()


def test_every_setting_of_tls_has_its_effect(pairs, tmp_path) -> None:
    file = tmp_path / "web.yaml"
    authority = str(pairs / "authority.pem")

    def context(**settings: object) -> ssl.SSLContext:
        file.write_text(yaml.safe_dump(tls_of(pairs, **settings)))
        tls = web_config.load(file).tls_server_config
        assert tls is not None
        return tls.context()

    usual = context()
    assert usual.minimum_version == ssl.TLSVersion.TLSv1_2
    assert usual.maximum_version == ssl.TLSVersion.TLSv1_3
    assert usual.verify_mode == ssl.CERT_NONE
    assert context(min_version="TLS13").minimum_version == ssl.TLSVersion.TLSv1_3
    assert context(max_version="TLS12").maximum_version == ssl.TLSVersion.TLSv1_2
    for kind, mode in (
        ("VerifyClientCertIfGiven", ssl.CERT_OPTIONAL),
        ("RequireAndVerifyClientCert", ssl.CERT_REQUIRED),
    ):
        asking = context(client_auth_type=kind, client_ca_file=authority)
        assert asking.verify_mode == mode
        assert len(asking.get_ca_certs()) == 1
    chosen = ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"]
    few = context(cipher_suites=chosen).get_ciphers()
    assert [c["name"] for c in few if c["protocol"] == "TLSv1.2"] == chosen


def test_a_client_has_to_show_a_certificate_of_the_authority(serve, pairs) -> None:
    served = serve(
        tls_of(
            pairs,
            client_auth_type="RequireAndVerifyClientCert",
            client_ca_file=str(pairs / "authority.pem"),
        )
    )
    assert served.get(trusting(pairs, "client")).status == 200
    for client in (None, "stranger"):
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            served.get(trusting(pairs, client))


def test_a_renewed_certificate_is_shown_without_a_restart(
    serve, pairs, tmp_path
) -> None:
    here = tmp_path / "mine"
    here.mkdir()
    for name in ("authority", "server"):
        for kind in ("pem", "key"):
            (here / f"{name}.{kind}").write_bytes(
                (pairs / f"{name}.{kind}").read_bytes()
            )
    served = serve(tls_of(here))
    first = served.get(trusting(pairs)).certificate
    make_pair(here, "server", "authority")
    wait_until(lambda: served.get(trusting(pairs)).certificate != first)


@pytest.mark.parametrize(
    ("web", "message"),
    [
        ({"basic_auth_users": {"u": "hunter2"}}, "not a bcrypt hash"),
        ({"tls_server_config": {"cert_file": "a.pem"}}, "key_file"),
        ({"tls": {}}, "tls"),
        ({"http_server_config": {"headers": {"X-Foo": "deny"}}}, 'found "X-Foo"'),
        ({"http_server_config": {"headers": {"X-Foo": None}}}, 'found "X-Foo"'),
        ({"basic_auth_users": {"u": HASHED.replace("$04$", "$99$")}}, "cost 4 to 17"),
        ({"basic_auth_users": "hunter2"}, "basic_auth_users"),
        (
            {"http_server_config": {"headers": {"X-Frame-Options": "\u20ac"}}},
            "cannot be sent",
        ),
        (
            {"http_server_config": {"headers": {"X-Frame-Options": "a\r\nb: c"}}},
            "cannot be sent",
        ),
        (
            {
                "tls_server_config": {
                    "cert_file": "a",
                    "key_file": "b",
                    "client_allowed_sans": ["prometheus"],
                }
            },
            "client_allowed_sans",
        ),
        (
            {"tls_server_config": {"cert_file": "none.pem", "key_file": "none.key"}},
            "none.pem: cannot be used as it is",
        ),
        (
            {
                "tls_server_config": {
                    "cert_file": "a",
                    "key_file": "b",
                    "client_auth_type": "RequireAndVerifyClientCert",
                }
            },
            "want both or neither",
        ),
        (
            {
                "tls_server_config": {
                    "cert_file": "a",
                    "key_file": "b",
                    "client_auth_type": "RequireAnyClientCert",
                }
            },
            "accepts any certificate without verifying it",
        ),
    ],
)
def test_a_wrong_file_is_told_and_no_secret_of_it(web, message, tmp_path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(web))
    with pytest.raises(ConfigError, match=re.escape(message)) as found:
        web_config.load(file)
    assert "hunter2" not in str(found.value)


def test_the_command_ends_with_2_over_a_wrong_file(tmp_path) -> None:
    done = tritonwatch("serve", "--web.config.file", tmp_path / "none.yaml")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked(
    pairs, tmp_path
) -> None:
    key = str(tmp_path / "secret.key")
    command = ["ec", "-in", "server.key", "-aes256", "-passout", "pass:x", "-out", key]
    openssl(pairs, *command)
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(tls_of(pairs, key_file=key)))
    with pytest.raises(ConfigError, match="the key has a passphrase: cannot be used"):
        web_config.load(file)
