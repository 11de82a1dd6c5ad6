"""The server under load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.openai.completions import Api

Protocol = Literal["grpc", "http", "openai-chat", "openai-completions"]
API_OF: Final[Mapping[Protocol, Api]] = {
    "openai-chat": "chat",
    "openai-completions": "completions",
}


@dataclass(frozen=True, slots=True)
class Target:
    """One port of a server: of Triton, of any KServe-v2 server, or OpenAI-compatible."""

    protocol: Protocol
    address: str
    """host:port."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request."""
    ca_file: str | None = None
    """TLS, checked against these certificates; "" for those of the system."""

    @property
    def is_openai(self) -> bool:
        """Return whether requests are OpenAI's."""
        return self.protocol.startswith("openai-")

    @property
    def host(self) -> str:
        """Name or address alone, as sockets and certificates use it."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Port of the address."""
        return int(self.address.rpartition(":")[2])
