"""Texts that wait to be embedded, and the tensor that they become.

Texts are drawn in the taps' threads, and embedded in the collector's. None is kept longer.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import structlog

from drift.errors import ProfileError
from drift.text_features import MAX_CHARACTERS
from exporter.errors import DeadlineError, TritonError, UnavailableError
from exporter.features.drift.drift_state import FORMER, PROFILE
from exporter.features.drift.drift_tensors import Declared
from exporter.own_requests.asking import Asker
from exporter.own_requests.embedding import TextEmbedder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from drift.reference import Profile
    from exporter.access.collector_base import Access
    from exporter.features.drift.drift_settings import DriftEmbeddingSettings
    from exporter.features.drift.drift_state import Store
    from exporter.triton.protocol_types import ModelSpec

    Tensors = Mapping[str, NDArray[np.generic[Any]]]

log = structlog.get_logger()

SUFFIX: Final = ".embedding"
_MARK: Final = "embedder"
MAX_HELD: Final = 512
"""Limit of the texts that wait: 8 MiB with the limit of each."""
_TIMEOUT_SECONDS: Final = 5.0
_MOST_SECONDS: Final = 10.0
"""Limit of the time of one round; what is left then is dropped."""
_FIXED: Final = b"The quick brown fox jumps over the lazy dog 1234567890 times."
_MOST_NOISE: Final = 0.045
"""Distance of two embeddings of one text by one model, in lengths: a cosine of 0.999.

Rounding the values of a random vector causes 0.010 (to 8 bits) or 0.002 (to bfloat16);
noise of a model's own arithmetic was not measured."""


class EmbeddedTexts:
    """A random sample of one tensor's texts. `add` is thread-safe."""

    def __init__(
        self, settings: DriftEmbeddingSettings, access: Access, store: Store
    ) -> None:
        self.name = settings.tensor + SUFFIX
        self._settings = settings
        self._clock = access.clock
        # Not for secrets: it chooses what is sampled, no more.
        self._rng = np.random.default_rng()
        asker_of = partial(
            Asker,
            access,
            rng=self._rng,
            timeout_seconds=_TIMEOUT_SECONDS,
            purpose="drift",
        )
        self._embedder = TextEmbedder(access.board, asker_of)
        self._lock = threading.Lock()
        self._held: list[bytes] = []
        self._seen = 0
        self._taken_at = access.clock()
        self._failing = False
        self._mark: NDArray[np.float32] | None = None
        """Embedding of `_FIXED` by the model of all rows so far, if it is known."""
        self._store = store
        self.is_updated = False
        """True if the model is not the one of the rows so far any more."""

    def embedder(self) -> ModelSpec | None:
        """The model that embeds; None while the server does not have it."""
        return self._embedder.found(self._settings.model)

    def declared(self, tensors: Mapping[str, Declared]) -> dict[str, Declared]:
        """The tensor of embeddings of a model that has `tensors`.

        Raises:
            ProfileError: it has no such text, or the other model embeds none.
        """
        name, model = self._settings.tensor, self._settings.model
        if name not in tensors or tensors[name].datatype != "BYTES":
            raise ProfileError([f"the model has no tensor {name!r} of text"])
        try:
            width = self._embedder.width(model)
        except TritonError as error:
            raise ProfileError([str(error)]) from None
        if not width:
            problem = f"embedding model {model!r} leaves the size of its output open"
            raise ProfileError([problem])
        return {self.name: Declared(self.name, "FP32", (width,), whole=False)}

    def add(self, request: Tensors) -> None:
        """Draw from the texts of a request."""
        texts = request.get(self._settings.tensor)
        if texts is None or texts.dtype.kind != "O":
            return
        for text in texts.ravel().tolist():
            if isinstance(text, bytes):
                # A cut must not leave a part of a character, which models refuse.
                cut = text[:MAX_CHARACTERS]
                whole = len(cut) == len(text)
                self._draw(text if whole else cut.decode("utf-8", "ignore").encode())

    def _draw(self, text: bytes) -> None:
        with self._lock:
            self._seen += 1
            if len(self._held) < MAX_HELD:
                self._held.append(text)
                return
            place = int(self._rng.integers(self._seen))
            if place < MAX_HELD:
                self._held[place] = text

    def rows(self) -> Tensors:
        """Embed as many of the drawn texts as the rate allows; empty where none is.

        Before them, embed a fixed text, which shows whether the model was updated.
        """
        now = self._clock()
        # No more than come in a minute, or one: an idle time is not made up for.
        rate = self._settings.texts_per_second
        most = min(rate * (now - self._taken_at), max(rate * 60.0, 1.0))
        if most < 1:
            return {}
        with self._lock:
            texts, self._held, self._seen = self._held, [], 0
        self._taken_at = now
        for marks in self._embedded([_FIXED] if texts else []):
            self._compare(marks[0])
        if self.is_updated:
            return {}
        order = self._rng.permutation(len(texts))[: int(most)]
        vectors = self._embedded([texts[place] for place in order])
        return {self.name: np.concatenate(vectors)} if vectors else {}

    def _compare(self, mark: NDArray[np.float32]) -> None:
        if not np.isfinite(mark).all():
            return
        if self._mark is None or self._mark.shape != mark.shape:
            self._mark = mark
        apart = np.linalg.norm(mark - self._mark)
        self.is_updated = bool(apart > _MOST_NOISE * np.linalg.norm(self._mark))

    def save(self, reference: Profile) -> None:
        """Write the embedding of the fixed text by the model of a reference."""
        if self._mark is not None:
            whose = reference.fingerprint.encode()
            self._store.write(_MARK, whose, b"\n", self._mark.tobytes())

    def recall(self, reference: Profile) -> None:
        """Read what `save` wrote for the same reference."""
        whose, _, mark = (self._store.read(_MARK) or b"").partition(b"\n")
        if whose == reference.fingerprint.encode() and len(mark) % 4 == 0:
            self._mark = np.frombuffer(mark, np.float32)

    def discard(self) -> None:
        """Set aside the references that were learnt before the model was updated."""
        reason = f"embedding model {self._settings.model!r} was updated"
        for what in (PROFILE, FORMER):
            if self._store.read(what) is not None:
                self._store.set_aside(what, reason)

    def _embedded(self, texts: list[bytes]) -> list[NDArray[np.float32]]:
        model, found = self._settings.model, []
        size = self._embedder.size(model)
        until = self._clock() + _MOST_SECONDS
        for begin in range(0, len(texts), size):
            if self._clock() >= until:
                break
            try:
                vectors = self._embedder.vectors(model, texts[begin : begin + size])
            except TritonError as error:
                if not self._failing:
                    log.warning(
                        "drift_embedding_failed", model=model, reason=str(error)
                    )
                self._failing = True
                if isinstance(error, UnavailableError | DeadlineError):
                    break
                continue
            self._failing = False
            found.append(vectors.astype(np.float32))
        return found
