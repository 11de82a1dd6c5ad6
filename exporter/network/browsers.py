"""Requests that a web page makes a browser send, which none of our clients would.

A page of any site can make the browser of somebody who reads it send requests to
loopback and to the internal network. Browsers mark those: every POST carries `Origin`,
and newer ones add `Sec-Fetch-Site`. A name that is re-bound to an internal address (DNS
rebinding) makes the request same-origin, but cannot hide the name in `Host`.
"""

from __future__ import annotations

import ipaddress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MARKS: Final = frozenset({b"origin", b"sec-fetch-site"})
_BROWSERS_SEND: Final = ("origin", "sec-fetch-mode", "accept-language")
# Names that no public DNS server can answer for.
_INTERNAL: Final = ("localhost", "*.localhost", "*.local", "*.internal", "*.svc")


def sent_by_a_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a web page sent this. For listeners that serve no page of their own."""
    return any(name in _MARKS for name, _ in headers)


def refusal(
    method: str, headers: Mapping[str, str], hosts: Sequence[str]
) -> str | None:
    """Return why a request to our own pages is refused, or None.

    `headers` have lower-case names, `hosts` are patterns of names under which browsers
    may open the pages, besides addresses, names without a dot and internal ones.
    """
    site = headers.get("sec-fetch-site", "none")
    if method not in {"GET", "HEAD"}:
        origin = headers.get("origin")
        own = origin is None or origin.partition("://")[2] == headers.get("host")
        if not own or site not in {"none", "same-origin"}:
            return "this request was sent by a page of another site"
    is_browser = any(name in headers for name in _BROWSERS_SEND) or headers.get(
        "user-agent", ""
    ).startswith("Mozilla/")
    return host_refusal(headers.get("host", ""), hosts) if is_browser else None


def host_refusal(header: str, hosts: Sequence[str]) -> str | None:
    """Return why requests with this `Host` header are refused, or None."""
    host = _name_of(header)
    if _is_expected(host, hosts):
        return None
    return (
        f"found the host {host[:100]!r}, which another site may have pointed here; "
        "add it to listen.hosts in the configuration if it is yours"
    )


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_expected(host: str, hosts: Sequence[str]) -> bool:
    if "." not in host and ":" not in host:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return any(fnmatchcase(host, pattern) for pattern in (*_INTERNAL, *hosts))
    return True
