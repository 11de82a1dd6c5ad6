"""Trace settings that eat memory, starve models or touch every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.audit.finding import Finding, measure, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.audit.evidence import Evidence

    Settings = Mapping[str, tuple[str, ...]]

_SOURCE: Final = "gRPC TraceSetting"
_STARVED_PER_MINUTE: Final = 1.0


def is_on(settings: Settings) -> bool:
    """Whether anything is traced."""
    return bool(set(settings.get("trace_level", ())) - {"OFF"})


def rate(settings: Settings) -> int | None:
    """One of how many requests is traced; None if that is not told."""
    return number(settings, "trace_rate")


def number(settings: Settings, name: str) -> int | None:
    """An integer among the settings."""
    text = "".join(settings.get(name, ())[:1])
    bare = text.removeprefix("-")
    return int(text) if bare.isdecimal() and len(bare) <= 19 else None  # noqa: PLR2004


def opentelemetry(settings: Settings) -> bool:
    """Whether traces go to a collector and not to files."""
    return settings.get("trace_mode", ()) == ("opentelemetry",)


def traced(evidence: Evidence) -> dict[str, Settings]:
    """Models whose requests are traced, with the settings in force."""
    return {m: s for m, s in evidence.trace_settings.items() if m and is_on(s)}


def requests_per_second(evidence: Evidence, model: str) -> float:
    """What others asked of all versions of a model in the window."""
    windows = (evidence.window(key) for key in evidence.second if key[0] == model)
    count = sum(window.success.count for window in windows if window)
    return count / evidence.window_seconds if evidence.window_seconds else 0.0


def _who(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{shown(names[0])}{more}"


def unbounded(evidence: Evidence) -> Iterator[Finding]:
    """Traces are kept in memory until shutdown."""
    found = [
        name
        for name, s in traced(evidence).items()
        if number(s, "log_frequency") == 0
        and number(s, "trace_count") in (None, -1)
        and not opentelemetry(s)
    ]
    if not found:
        return
    settings = evidence.trace_settings[found[0]]
    per_second = sum(
        requests_per_second(evidence, m) / max(1, rate(evidence.trace_settings[m]) or 1)
        for m in found
    )
    yield Finding(
        "trace-buffer-unbounded",
        "critical",
        f"Traces of {_who(found)} are kept in memory until the server ends",
        "Set log_frequency to, say, 100 (it can be changed now, over the trace API): "
        "then each 100 traces go to a file and out of memory.",
        (
            measure(
                "trace_level", ",".join(settings.get("trace_level", ())), "", _SOURCE
            ),
            measure("log_frequency", 0, "", _SOURCE),
            measure("growth", per_second * 60, "traces a minute", "statistics"),
            measure("in memory", per_second * 60 * 0.9, "kB a minute", "estimate"),
        ),
    )


def tensors(evidence: Evidence) -> Iterator[Finding]:
    """Tensors are copied into traces."""
    found = [
        name
        for name, s in traced(evidence).items()
        if "TENSORS" in s.get("trace_level", ())
    ]
    if found:
        yield Finding(
            "trace-tensors-on",
            "warning",
            f"Whole tensors of {_who(found)} are written into traces",
            "Use it for moments only: it copies every traced tensor to the host, puts "
            "users' data on disk, and kills a server whose Python backend has numpy 2.",
            (
                measure("models", len(found), "", _SOURCE),
                measure(
                    "trace_rate", rate(evidence.trace_settings[found[0]]), "", _SOURCE
                ),
            ),
        )


def starved(evidence: Evidence) -> Iterator[Finding]:
    """One counter samples all models, and rare ones are hardly seen."""
    on = traced(evidence)
    common = evidence.trace_settings.get("", {})
    if len(on) < 2 or not is_on(common):  # noqa: PLR2004
        return
    shared = [m for m, s in on.items() if s == common]
    one_of = rate(common) or 1
    asked = {m: requests_per_second(evidence, m) for m in shared}
    few = [m for m, r in asked.items() if 0 < r * 60 / one_of < _STARVED_PER_MINUTE]
    if few:
        yield Finding(
            "trace-rate-starves",
            "info",
            f"{_who(few)} yields less than one trace a minute at the global rate",
            "Set a rate of its own for each model, a prime so that periodic clients do "
            "not alias; `collectors: [{kind: traces, control: true}]` does.",
            (
                measure("trace_rate", one_of, "", f"{_SOURCE}, global"),
                measure("requests", asked[few[0]], "a second", "statistics"),
            ),
        )


def state(evidence: Evidence) -> Iterator[Finding]:
    """What is traced, or that nothing is."""
    problem = evidence.problems.get("traces")
    if problem and not evidence.trace_settings:
        yield Finding(
            "tracing-unknown",
            "unknown",
            "The trace settings cannot be read",
            "If the API is restricted, put its header under `target.headers`.",
            (measure("answer", problem, source=_SOURCE),),
        )
    elif evidence.trace_settings and not traced(evidence):
        yield Finding(
            "tracing-off",
            "info",
            "Tracing is off: production's tail latency cannot be known",
            "Start Triton with --trace-config for files or OpenTelemetry and sample one "
            "in a hundred or fewer; tritonwatch turns that into quantiles.",
            (measure("trace_level", "OFF", "", _SOURCE),),
            "server#7672",
        )


CHECKS: Final = (unbounded, tensors, starved, state)
