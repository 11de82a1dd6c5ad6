"""A broken client: requests with a tensor cut short, unknown, or of another dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from loadtests.chaos.faults.bad_requests import (
    BadRequest,
    BadRequests,
    send_forever,
    specification,
    tally_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.mix import Body

_VARIANTS: Final = 24


class CorruptInputs(BadRequests):
    """All of them should be refused, and nobody else should notice."""

    strength: ClassVar[str | None] = "requests_per_second"

    kind: Literal["corrupt_inputs"] = "corrupt_inputs"
    seed: int = 0
    """Of what is wrong with which."""

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether nothing sends them, or the server takes them for right."""
        accepted = tally_of(record)["accepted"]
        taken = [f"{accepted} of them were answered as if they were right"]
        return super().missing(record) + (taken if accepted else [])


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Make them from the model's own signature, and send them."""
    import numpy as np  # noqa: PLC0415 - whoever undoes does not need it

    from exporter.probes.payload import make_payload  # noqa: PLC0415
    from loadtests.payloads.bodies import Row, body_of  # noqa: PLC0415
    from loadtests.payloads.corrupt import corrupted  # noqa: PLC0415

    rng = np.random.default_rng(settings["seed"])
    spec = specification(settings)
    good = (
        body_of(spec, Row(make_payload(spec, {}, rng).inputs), "http")
        for _ in range(_VARIANTS)
    )
    send_forever(settings, [_request(corrupted(body, rng)) for body in good], ready)


def _request(body: Body) -> BadRequest:
    header, content = body.data[: body.header_bytes], body.data[body.header_bytes :]
    return BadRequest(header, len(content), lambda: iter([content]))
