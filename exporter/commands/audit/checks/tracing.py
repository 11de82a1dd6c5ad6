"""Trace settings that eat memory, starve models or touch every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import found, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Finding

    Settings = Mapping[str, tuple[str, ...]]

_SOURCE: Final = "gRPC TraceSetting"
_STARVED_PER_MINUTE: Final = 1.0


def is_on(settings: Settings) -> bool:
    """Return whether anything is traced."""
    return bool(set(settings.get("trace_level", ())) - {"OFF"})


def number(settings: Settings, name: str) -> int | None:
    """Return an integer among the settings; None where there is none."""
    text = "".join(settings.get(name, ())[:1])
    bare = text.removeprefix("-")
    return int(text) if bare.isdecimal() and len(bare) <= 19 else None  # noqa: PLR2004


def opentelemetry(settings: Settings) -> bool:
    """Return whether traces go to a collector and not to files."""
    return settings.get("trace_mode", ()) == ("opentelemetry",)


def traced(evidence: Evidence) -> dict[str, Settings]:
    """Return the models whose requests are traced, with the settings in force."""
    return {m: s for m, s in evidence.trace_settings.items() if m and is_on(s)}


def requests_per_second(evidence: Evidence, model: str) -> float:
    """Return production's requests per second to all versions of a model in the window."""
    windows = (evidence.window(key) for key in evidence.second if key[0] == model)
    count = sum(window.success.count for window in windows if window)
    return count / evidence.window_seconds if evidence.window_seconds else 0.0


def _who(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{shown(names[0])}{more}"


def unbounded(evidence: Evidence) -> Iterator[Finding]:
    """Traces are kept in memory until shutdown."""
    on = traced(evidence)
    names = [
        name
        for name, s in on.items()
        if number(s, "log_frequency") == 0
        and number(s, "trace_count") in (None, -1)
        and not opentelemetry(s)
    ]
    if not names:
        return
    per_minute = 60 * sum(
        requests_per_second(evidence, m) / max(1, number(on[m], "trace_rate") or 1)
        for m in names
    )
    level = ",".join(on[names[0]].get("trace_level", ()))
    yield found(
        "trace-buffer-unbounded",
        ("trace_level", level, "", _SOURCE),
        ("log_frequency", 0, "", _SOURCE),
        ("growth", per_minute, "traces a minute", "statistics"),
        ("in memory", per_minute * 0.9, "kB a minute", "estimate"),
        who=_who(names),
    )


def tensors(evidence: Evidence) -> Iterator[Finding]:
    """Tensors are copied into traces."""
    on = traced(evidence)
    names = [name for name, s in on.items() if "TENSORS" in s.get("trace_level", ())]
    if names:
        yield found(
            "trace-tensors-on",
            ("models", len(names), "", _SOURCE),
            ("trace_rate", number(on[names[0]], "trace_rate"), "", _SOURCE),
            who=_who(names),
        )


def starved(evidence: Evidence) -> Iterator[Finding]:
    """One counter samples all models, and rare ones are hardly seen."""
    on = traced(evidence)
    common = evidence.trace_settings.get("", {})
    if len(on) < 2 or not is_on(common):  # noqa: PLR2004
        return
    one_of = number(common, "trace_rate") or 1
    asked = {m: requests_per_second(evidence, m) for m, s in on.items() if s == common}
    few = [m for m, r in asked.items() if 0 < r * 60 / one_of < _STARVED_PER_MINUTE]
    if few:
        yield found(
            "trace-rate-starves",
            ("trace_rate", one_of, "", f"{_SOURCE}, global"),
            ("requests", asked[few[0]], "a second", "statistics"),
            who=_who(few),
        )


def state(evidence: Evidence) -> Iterator[Finding]:
    """Report the tracing settings, or that nothing is traced."""
    problem = evidence.problems.get("traces")
    if evidence.lacks("traces"):
        return
    if problem and not evidence.trace_settings:
        yield found("tracing-unknown", ("answer", problem, "", _SOURCE))
    elif evidence.trace_settings and not traced(evidence):
        yield found("tracing-off", ("trace_level", "OFF", "", _SOURCE))


CHECKS: Final = (unbounded, tensors, starved, state)
