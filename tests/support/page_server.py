"""A metrics page as a Triton would show it, on a real socket."""

from __future__ import annotations

from receiver import Receiver

from exporter.triton.http import HttpClient


class PageServer(Receiver):
    """Shows `body` to whoever asks; `client` asks."""

    def __init__(self) -> None:
        super().__init__()
        self.client = HttpClient(self.address)

    def close(self) -> None:
        """Show nothing more."""
        self.client.close()
        super().close()
