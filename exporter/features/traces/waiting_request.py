"""A request of which spans are missing, packed into one object while it waits.

As objects of Python thousands of requests would be scattered over the memory of whatever
came with them, none of which could then be given back to the kernel.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass

from exporter.features.traces.traced_request import Identity, Marks


def pack(marks: Marks) -> bytes:
    """Return marks as bytes."""
    return marshal.dumps(marks.packed())


def marks_of(packed: bytes) -> Marks:
    """Return the marks that `pack` packed."""
    return Marks.unpacked(marshal.loads(packed))  # noqa: S302 - our own bytes


@dataclass(slots=True)
class WaitingRequest:
    """What is known of a request."""

    identity: Identity
    network_id: str
    marks: Marks
    sender: str
    """The sender of its model's span."""
    has_network: bool = False
    has_compute: bool = False
    has_children: bool = False
    is_known: bool = True
    """True if the server holds its model."""

    @property
    def complete(self) -> bool:
        """True if no span is missing."""
        return (self.has_network or self.identity.child) and (
            self.has_compute or self.has_children
        )

    def packed(self) -> bytes:
        """Return it as bytes."""
        whose = self.identity
        return marshal.dumps(
            (
                (
                    whose.model,
                    whose.version,
                    whose.request_id,
                    whose.trace_id,
                    whose.child,
                    whose.parent,
                ),
                self.network_id,
                self.marks.packed(),
                self.sender,
                self.has_network,
                self.has_compute,
                self.has_children,
                self.is_known,
            )
        )

    @classmethod
    def unpacked(cls, packed: bytes) -> WaitingRequest:
        """Return the request that was packed."""
        identity, network_id, marks, *rest = marshal.loads(packed)  # noqa: S302 - our own bytes
        return cls(Identity(*identity), network_id, Marks.unpacked(marks), *rest)
