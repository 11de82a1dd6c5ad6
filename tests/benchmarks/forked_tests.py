"""Run pytest in forks of a process that has imported the large libraries already.

Each line of standard input is a JSON object: pytest's `arguments`, `limit_seconds` and
folders (`more`) to import from. The answer is a line with pytest's status, null where
the limit ended it; what pytest printed is in `tests.log`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time

import pytest

# None with a plugin of pytest in it: pytest wants to rewrite those as it imports them.
LARGE = (
    *("numpy", "scipy.stats", "scipy.optimize", "scipy.special", "scipy.signal"),
    *("pydantic", "pydantic_settings", "yaml", "structlog", "prometheus_client"),
    *("urllib3", "google.protobuf", "ssl", "asyncio", "email.message", "http.server"),
)


def forked(arguments: list[str], more: list[str]) -> int:
    """Start pytest in a session of its own and return its process id."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path += more
    status = 3
    with contextlib.suppress(BaseException):
        status = int(pytest.main(arguments))
    os._exit(status)


def waited(child: int, limit_seconds: float) -> int | None:
    """Return its exit status, None if it had to be ended; nothing it started is left."""
    until = time.monotonic() + limit_seconds
    status: int | None = None
    try:
        while status is None and time.monotonic() < until:
            ended, raw = os.waitpid(child, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(raw)
            else:
                time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def main() -> None:
    """Answer requests until standard input ends, or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for name in LARGE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        child = forked(request["arguments"], request["more"])
        print(json.dumps(waited(child, request["limit_seconds"])), flush=True)


if __name__ == "__main__":
    main()
