"""The addresses that a server's name resolves to, and changes of them."""

from __future__ import annotations

import ipaddress
import threading
from typing import TYPE_CHECKING, Final

from exporter.network import addresses

if TYPE_CHECKING:
    from collections.abc import Callable

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
        resolve: Callable[[str], frozenset[str]] = addresses.resolve,
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
