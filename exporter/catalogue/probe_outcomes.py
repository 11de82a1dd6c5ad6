"""Meaning of each probe outcome for objectives, alerts and dashboards. Data only."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

Outcome = Literal[
    "ok",
    "timeout",
    "unavailable",
    "invalid",
    "model_error",
    "bad_output",
    "cached",
    "backlog",
    "late",
    "stalled",
    "unjudged",
    "configuration",
]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)


class Meaning(NamedTuple):
    """Meaning of an outcome; None if it proves nothing."""

    serves: bool | None
    """Whether the model serves."""
    succeeded: bool | None
    """Whether the probe itself succeeded. If None, it is no event of an objective."""
    text: str = ""


_FAILED: Final = Meaning(serves=False, succeeded=False)
MEANINGS: Final[dict[Outcome, Meaning]] = {
    "ok": Meaning(serves=True, succeeded=True),
    "timeout": _FAILED,
    "unavailable": _FAILED,
    "invalid": _FAILED,
    "model_error": _FAILED,
    "bad_output": _FAILED,
    "cached": Meaning(None, None, "a response cache answered, which proves nothing"),
    "backlog": Meaning(
        serves=True,
        succeeded=None,
        text="no answer in time, or no room in the model's queue, but the model executes"
        " other clients' requests; of an OpenAI-compatible server: refused with 429, too"
        " many requests",
    ),
    "late": Meaning(
        None, None, "no answer in time, but tritonwatch itself could not run meanwhile"
    ),
    "stalled": Meaning(
        serves=True,
        succeeded=False,
        text="a whole streamed answer with a response later than"
        " max_first_response_seconds or max_gap_seconds allow; the model counts as"
        " serving",
    ),
    "unjudged": Meaning(
        None,
        None,
        "answered, but what judges the answer failed: the model that embeds golden texts",
    ),
    "configuration": Meaning(
        None,
        None,
        "the settings of the probe, or its golden data, do not fit the model; the model"
        " refuses generated inputs that it never took; or the server or a proxy wants a"
        " header or credentials (target.headers)",
    ),
}
SERVED: Final = frozenset(o for o in OUTCOMES if MEANINGS[o].serves)
"""Outcomes of a model that serves; a stalled one is slow, and its answers are complete."""
UNJUDGED: Final = frozenset(o for o in OUTCOMES if MEANINGS[o].succeeded is None)
"""Outcomes that leave the probe's own outcome unknown: neither good nor bad."""
GOOD: Final = SERVED - UNJUDGED
"""Good events of an objective on availability; slow answers are for those on latency."""
NOT_FAILED: Final = "|".join(o for o in OUTCOMES if MEANINGS[o].succeeded is not False)
"""In PromQL: all outcomes but those after which triton_probe_success is 0."""
