"""Calls that models make by themselves (BLS), as the user declares them.

Neither Triton's configuration nor its statistics show them: a call is a request like any
other.
"""

from __future__ import annotations

import graphlib
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from exporter import catalogue
from exporter.samples import Sample
from exporter.settings import literal_mentions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.access.inventory import Inventory, ModelKey
    from exporter.access.own_traffic import OwnCounts
    from exporter.settings import ModelMention

_CALLING_BACKENDS: Final = frozenset({"python"})
"""Backends whose models can call others."""


def _ending(calls: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the calls.

    Raises:
        ValueError: a model calls itself, directly or through others.
    """
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        circle = " calls ".join(reversed(error.args[1]))
        raise ValueError(f"{circle}: calls must not form a circle") from None
    return calls


_Number = Annotated[int, Field(ge=1, le=64)]
DeclaredCalls = Annotated[dict[str, dict[str, _Number]], AfterValidator(_ending)]
"""Calling model -> called model -> calls for one request."""


def mentions(calls: Mapping[str, Mapping[str, int]]) -> Iterator[ModelMention]:
    """Yield the models that call others, and those called."""
    yield from literal_mentions("calls", calls)
    for model, called in calls.items():
        yield from literal_mentions(f"calls.{model}", called)


def samples(
    calls: Mapping[str, Mapping[str, int]],
    inventory: Inventory,
    own: Mapping[ModelKey, OwnCounts],
) -> Iterator[Sample]:
    """Yield, for each model that got our requests and can call others, if that is undeclared."""
    for key, spec in inventory.models.items():
        if key in own and spec.backend in _CALLING_BACKENDS:
            yield Sample(catalogue.CALLS_UNDECLARED, spec.name not in calls, key)
