"""ModelInfer as a proxy mirrors it: the same message that Triton gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.errors import MirrorBodyError, MirrorUnsupportedError
from exporter.taps.mirroring import mirrored_messages
from exporter.taps.mirroring.intake import Origin
from exporter.taps.tap_route import MessageRoute

if TYPE_CHECKING:
    from exporter.taps.mirroring.intake import Intake
    from exporter.taps.tap_route import Outcome

SOURCE: Final = "grpc"


class MessageSink:
    """Receives requests to every model with a subscriber."""

    def __init__(self, intake: Intake, *, max_body_bytes: int) -> None:
        self._intake = intake
        self._max_body_bytes = max_body_bytes

    def route(self) -> MessageRoute:
        """Return the tap's route for it."""
        return MessageRoute(SOURCE, self._max_body_bytes, self.admit, self.process)

    def admit(self, message: bytes) -> tuple[Outcome | None, str]:
        """Return why a message is not read; None and "" where it is to be read."""
        try:
            model = mirrored_messages.model_of(message)
        except MirrorBodyError as error:
            return "malformed", str(error)
        return self._intake.admit(model, "request"), ""

    def process(self, message: bytes) -> tuple[Outcome, str]:
        """Read one message and hand it on."""
        try:
            found = mirrored_messages.read(message)
        except MirrorUnsupportedError as error:
            return "unsupported", str(error)
        except MirrorBodyError as error:
            return "malformed", str(error)
        origin = Origin(SOURCE, "request", found.model, found.version)
        return self._intake.publish(origin, found), ""
