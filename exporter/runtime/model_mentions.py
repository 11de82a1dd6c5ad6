"""Logs changes of state, and names in the settings that nothing of the server has."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from exporter.access.inventory import Inventory, ModelKey
    from exporter.settings import ModelMention

log = structlog.get_logger()

_NAMED: Final = 10
_LOGGED: Final = 20


@dataclass(frozen=True, slots=True)
class Misfit:
    """A name in the configuration that nothing of the server has."""

    place: str
    """Path of the setting, like `probes.synthetic.overrides.resnt`."""
    name: str
    known: tuple[str, ...]
    """The models of the server, or the inputs of the model."""
    model: str = ""
    """The model whose input it should be; "" where `name` should be a model's."""
    version: str = ""

    @property
    def of_probe(self) -> bool:
        """True if a probe sends nothing because of it."""
        return self.place.startswith("probes.")

    @property
    def nearest(self) -> str | None:
        """The known name that was probably meant."""
        return next(iter(difflib.get_close_matches(self.name, self.known, n=1)), None)

    @property
    def shown(self) -> str:
        """The known names, the first few of many."""
        more = ["…"] if len(self.known) > _NAMED else []
        return ", ".join([*self.known[:_NAMED], *more])


def misfits(mentions: Iterable[ModelMention], inventory: Inventory) -> list[Misfit]:
    """Return all names that match nothing; none while the server lists no models."""
    if not inventory.up or not inventory.index:
        return []
    models = {entry.name for entry in inventory.index}
    return [
        misfit
        for mention in mentions
        for misfit in _of_mention(mention, models, inventory)
    ]


def _of_mention(
    mention: ModelMention, models: Collection[str], inventory: Inventory
) -> Iterator[Misfit]:
    name = mention.name
    is_known = name in models
    if mention.is_pattern and not is_known:
        is_known = any(fnmatchcase(model, name) for model in models)
    if not is_known:
        yield Misfit(mention.place, name, tuple(sorted(models)))
        return
    if not mention.inputs:
        return
    for (model, version), spec in sorted(inventory.models.items()):
        if model == name:
            known = tuple(sorted(tensor.name for tensor in spec.inputs))
            for unknown in sorted(mention.inputs - set(known)):
                place = f"{mention.inputs_place}.{unknown}"
                yield Misfit(place, unknown, known, model, version)


class MentionLog:
    """Logs each misfit once, and once when it is over."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Misfit] = {}

    def log_changes(
        self, mentions: Iterable[ModelMention], inventory: Inventory
    ) -> None:
        """Log the changes since the last call."""
        if not inventory.up or not inventory.index:
            return
        found = {(m.place, m.version): m for m in misfits(mentions, inventory)}
        new = [misfit for key, misfit in found.items() if key not in self._known]
        for misfit in new[:_LOGGED]:
            _warn(misfit)
        if len(new) > _LOGGED:
            log.warning("more_settings_match_nothing", number=len(new) - _LOGGED)
        over = (m for key, m in self._known.items() if key not in found)
        for misfit in islice(over, _LOGGED):
            log.info("setting_fits_again", setting=misfit.place)
        self._known = found


def _warn(misfit: Misfit) -> None:
    meant = {"did_you_mean": misfit.nearest} if misfit.nearest else {}
    if misfit.model:
        log.warning(
            "setting_names_unknown_input",
            setting=misfit.place,
            model=misfit.model,
            version=misfit.version,
            inputs=misfit.shown,
            **meant,
        )
    else:
        log.warning(
            "setting_matches_no_model",
            setting=misfit.place,
            model=misfit.name,
            models=misfit.shown,
            **meant,
        )


_NAMED_MODELS: Final = 5


class StateLog:
    """Logs each change of state once; many models share a line."""

    def __init__(self) -> None:
        self._up: bool | None = None
        self._ready: bool | None = None
        self._serving: dict[ModelKey, bool] = {}
        self._reasons: dict[str, Mapping[ModelKey, str]] = {}

    def log_changes(
        self,
        inventory: Inventory,
        serving: Mapping[ModelKey, bool],
        unproven: Mapping[ModelKey, str],
    ) -> None:
        """Log the changes since the last call.

        `unproven` says why probes prove nothing, by model version.
        """
        if self._up is not None and inventory.up != self._up:
            (log.info if inventory.up else log.error)(
                "server_answers" if inventory.up else "server_down"
            )
        elif self._ready is not None and inventory.ready != self._ready:
            (log.info if inventory.ready else log.warning)(
                "server_ready" if inventory.ready else "server_not_ready"
            )
        before = self._serving
        broken = [k for k, ok in serving.items() if not ok and before.get(k, True)]
        healed = [k for k, ok in serving.items() if ok and not before.get(k, True)]
        if broken:
            log.error("models_not_serving", number=len(broken), models=_named(broken))
        if healed:
            log.info("models_serving_again", number=len(healed), models=_named(healed))
        self._warn_of_new("probes_prove_nothing", unproven)
        self._warn_of_new("models_not_readable", inventory.unreadable)
        self._up, self._ready = inventory.up, inventory.ready
        self._serving = dict(serving)

    def _warn_of_new(self, event: str, reasons: Mapping[ModelKey, str]) -> None:
        known, self._reasons[event] = self._reasons.get(event, {}), dict(reasons)
        new = [key for key in reasons if key not in known]
        if new:
            models, reason = _named(new), reasons[min(new)]
            log.warning(event, number=len(new), models=models, reason=reason)


def _named(keys: list[ModelKey]) -> str:
    names = [f"{model} {version}" for model, version in sorted(keys)[:_NAMED_MODELS]]
    return ", ".join([*names, *(["…"] if len(keys) > _NAMED_MODELS else [])])
