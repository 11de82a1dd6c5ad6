"""Spelling of addresses, whether two mean the same server, and names that resolve anew."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# What stands between `//` and `/` of a URL could say more than where to go: `#`, `?`
# and `@` would take a request elsewhere than the text seems to say.
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})"
)


def is_address(text: str) -> bool:
    """Return whether `text` is "host:port" with a port a server can have."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:  # noqa: PLR2004
        return False
    try:
        ipaddress.IPv6Address(match["ipv6"] or "::")
    except ipaddress.AddressValueError:
        return False
    return True


def host_port(host: str, port: int) -> str:
    """Return "host:port", with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_brackets(host: str) -> str:
    """The host as sockets take it: "[::1]" is "::1".

    Raises:
        ValueError: there are brackets around something else, or only one of them.
    """
    if "[" not in host and "]" not in host:
        return host
    inner = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.IPv6Address(inner)
    except ipaddress.AddressValueError:
        inner = ""
    if not inner or host != f"[{inner}]":
        raise ValueError(f'found {host!r}; want an address like "::1" or "[::1]"')
    return inner


LOCAL: Final = "local"
"""All addresses of this host, in `canonical`."""


def same_server(one: str, other: str) -> bool:
    """Return whether two "host:port" addresses reach the same server, as far as known.

    localhost, 127.0.0.1, ::1, an address of this host and its name are one. A name that
    does not resolve equals only itself.
    """
    if one == other:
        return True
    (host, port), (other_host, other_port) = _split(one), _split(other)
    if port != other_port:
        return False
    return bool(_resolved(host) & _resolved(other_host))


def _split(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def resolve(host: str) -> frozenset[str]:
    """Return the addresses of a host.

    Raises:
        OSError: it has none, or no name server answers.
        UnicodeError: it cannot be a name.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(str(entry[4][0]) for entry in found)


def _resolved(host: str) -> set[str]:
    try:
        return {canonical(address) for address in resolve(host)}
    except (OSError, UnicodeError):
        return {host.lower()}


def canonical(text: str) -> str:
    """Return one spelling for each address, LOCAL for those of this host.

    Raises:
        ValueError: it is no IP address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or address.is_unspecified or _is_local(str(address)):
        return LOCAL
    return str(address)


def _is_local(address: str) -> bool:
    """Return whether it is an address of this host: only those can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
    return True


_WAIT_SECONDS: Final = 1.0
"""A name server that takes longer shows nothing this time."""


class NamedHost:
    """The host of one "host:port". Thread-safe.

    Addresses and localhost never change. `resolve` returns the addresses of a name and
    raises OSError if there are none.
    """

    def __init__(
        self,
        address: str,
        resolve: Callable[[str], frozenset[str]] = resolve,
    ) -> None:
        self._host = address.rpartition(":")[0].strip("[]")
        self._resolve = resolve
        self._lock = threading.Lock()
        self._question: threading.Thread | None = None
        self._answer: frozenset[str] = frozenset()
        self.known: frozenset[str] = frozenset()
        """Addresses that it stood for when it was last asked for; empty if unknown."""

    def has_moved(self) -> bool:
        """Return whether the name has an address that it did not have the last time.

        False where it cannot be resolved, and at the first answer.
        """
        if not self._is_name():
            return False
        with self._lock:
            now = self._resolved()
            if now <= self.known:
                return False
            before, self.known = self.known, now
            return bool(before)

    def _is_name(self) -> bool:
        if self._host.lower() == "localhost":
            return False
        try:
            ipaddress.ip_address(self._host.partition("%")[0])
        except ValueError:
            return True
        return False

    def _resolved(self) -> frozenset[str]:
        """Ask in a thread, since a resolver may take minutes; empty if it takes too long."""
        if self._question is None:
            self._question = threading.Thread(target=self._ask, daemon=True)
            self._question.start()
        self._question.join(_WAIT_SECONDS)
        if self._question.is_alive():
            return frozenset()
        self._question = None
        return self._answer

    def _ask(self) -> None:
        try:
            self._answer = self._resolve(self._host)
        except (OSError, UnicodeError):
            self._answer = frozenset()
