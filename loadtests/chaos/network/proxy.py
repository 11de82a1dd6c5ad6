"""A TCP proxy that injects network faults, without root privileges.

    python -m loadtests.chaos.network.proxy --control FILE --grpc HOST:PORT --http HOST:PORT

It listens on two free ports of loopback, prints them in one line of JSON, and ends with
its standard input, and so with its owner. Effects are set over the Unix socket FILE, one
JSON object a line (see `proxy_client`); without effects, bytes are forwarded unchanged.

It sees a stream where a network sees packets, so two effects are models. A loss is a
stall of this direction of the connection for a retransmission timeout, 200 ms as in
Linux and doubled for each loss in a row: what a small request sees, pessimistic for a
long transfer, which TCP repairs within a round trip. And a connection is accepted at once
even during a partition: it stays silent instead of unopened.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, Final

from loadtests.chaos.network.proxy_client import short_name
from loadtests.chaos.network.wire import Effect, Wire

HOST: Final = "127.0.0.1"
_MAX_COMMAND_BYTES: Final = 65_536
_COMMAND_SECONDS: Final = 2.0
_BACKLOG: Final = 512
_DESCRIPTORS: Final = 8192


class Proxy:
    """Two wires, and the faults that are set on them."""

    def __init__(self, upstreams: dict[str, tuple[str, int]], seed: int) -> None:
        self._wires = {
            name: Wire(host, port, seed=f"{seed} {name}")
            for name, (host, port) in upstreams.items()
        }
        self._faults: dict[str, Effect] = {}

    async def listen(self) -> dict[str, str]:
        """Start to listen; return the addresses by protocol."""
        loop = asyncio.get_running_loop()
        found = {}
        for name, wire in self._wires.items():
            server = await loop.create_server(wire.accept, HOST, 0, backlog=_BACKLOG)
            found[name] = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        return found

    async def control(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection of the control socket: a command, an answer."""
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_COMMAND_SECONDS):
                answer = self.answer(await reader.readline())
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a command: the state after it, or an error."""
        try:
            match json.loads(line):
                case {"do": "set", "token": str(token), "effect": dict(effect)}:
                    self._faults[token] = Effect(**effect)
                    self._apply()
                case {"do": "clear", "token": str(token)}:
                    self._faults.pop(token, None)
                    self._apply()
                case {"do": "state"}:
                    pass
                case other:
                    return {"error": f"found {other!r}; want set, clear or state"}
        except (TypeError, ValueError) as error:
            return {"error": str(error)}
        return {token: effect.to_record() for token, effect in self._faults.items()}

    def _apply(self) -> None:
        for wire in self._wires.values():
            wire.set_effects(tuple(self._faults.values()))


async def serve(arguments: argparse.Namespace) -> None:
    """Run until standard input ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            ended.set()

    loop.add_reader(sys.stdin.fileno(), read_input)
    upstreams = {"grpc": arguments.grpc, "http": arguments.http}
    proxy = Proxy(upstreams, arguments.seed)
    try:
        # asyncio removes the socket by this name at the end.
        with short_name(arguments.control) as name:
            control = await asyncio.start_unix_server(
                proxy.control, name, limit=_MAX_COMMAND_BYTES
            )
            sys.stdout.write(json.dumps(await proxy.listen()) + "\n")
            sys.stdout.flush()
            await ended.wait()
            control.close()
    finally:
        # The owner may be dead, so its folder is ours to remove, if it has nothing else.
        with contextlib.suppress(OSError):
            arguments.control.unlink()
            arguments.control.parent.rmdir()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--control", type=Path, required=True)
    parser.add_argument("--grpc", type=_address, required=True)
    parser.add_argument("--http", type=_address, required=True)
    parser.add_argument("--seed", type=int, default=0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
