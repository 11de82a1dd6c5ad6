"""Sequence ids that a model's sequence batcher can take.

Triton 2.51 copies the id of a request into the model's control tensor without comparing
their datatypes: a string id sent to a model with a numeric control overwrites the heap
of the server, which then aborts (signal 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporter.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

DEFAULT_TYPE: Final = "UINT64"
"""Type for a model without a declared sequence id: integers are safe for every model."""

# Lower end included, upper end excluded. The upper part of what the datatype holds:
# clients count from 1, hash, or draw at random, so an equal id is next to impossible.
# Wider ids would be cut off in the control tensor and meet those of other clients.
_RANGES: Final = {
    "INT32": (3 << 29, 1 << 31),
    "UINT32": (3 << 30, 1 << 32),
    "INT64": (1 << 62, 1 << 63),
    "UINT64": (1 << 62, 1 << 63),
}
_CORRELATION_ID: Final = "CONTROL_SEQUENCE_CORRID"
_MOST_STEPS: Final = 1_000


def control_type(controls: Iterable[tuple[str, str]]) -> str:
    """Return the datatype of a model's sequence ids.

    `controls` are (kind, data_type) of `sequence_batching.control_input[].control[]`, in
    Triton's own words.
    """
    for kind, datatype in controls:
        if kind == _CORRELATION_ID:
            name = datatype.removeprefix("TYPE_")
            return name if name in {*_RANGES, "STRING"} else DEFAULT_TYPE
    return DEFAULT_TYPE


def types_of_config(config: Any, config_of: Callable[[str, str], Any]) -> set[str]:
    """Return the datatypes of the sequence ids that requests to a model must carry.

    Empty where they need none. Triton passes the id of a request to an ensemble on to
    its steps, whose configurations `config_of(model, version)` returns. Configurations
    are Triton's ModelConfig messages.
    """
    types: set[str] = set()
    seen: set[tuple[str, int]] = set()
    configs = [config]
    while configs:
        found = configs.pop()
        if found.HasField("sequence_batching"):
            types.add(control_type(_controls(found.sequence_batching)))
        for step in found.ensemble_scheduling.step:
            key = (step.model_name, step.model_version)
            if key in seen or len(seen) >= _MOST_STEPS:
                continue
            seen.add(key)
            version = "" if step.model_version < 0 else str(step.model_version)
            try:
                configs.append(config_of(step.model_name, version))
            except InvalidRequestError:
                # A step that is not loaded: requests are refused, whatever they carry.
                continue
    return types


def _controls(batching: Any) -> Iterator[tuple[str, str]]:
    for entry in batching.control_input:
        for control in entry.control:
            fields = control.DESCRIPTOR.fields_by_name
            kinds = fields["kind"].enum_type.values_by_number
            datatypes = fields["data_type"].enum_type.values_by_number
            if control.kind in kinds and control.data_type in datatypes:
                yield kinds[control.kind].name, datatypes[control.data_type].name


def common_type(datatypes: Collection[str]) -> str:
    """Return the datatype whose ids do no harm to any of these, for an ensemble.

    The narrowest integer wins; a string is sent only where nothing else is taken.
    """
    found = (name for name in (*_RANGES, "STRING") if name in datatypes)
    return next(found, DEFAULT_TYPE)


def draw_sequence_id(
    datatype: str, draw: Callable[[int, int], int], *, prefix: str
) -> int | str:
    """Return a new id; `draw(low, end)` gives a random integer, `end` excluded."""
    if datatype == "STRING":
        return f"{prefix}{draw(*_RANGES['UINT64']):x}"
    return int(draw(*_RANGES[datatype]))
