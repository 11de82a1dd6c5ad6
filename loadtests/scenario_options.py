"""Builds a scenario from command-line options, which override the file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final, get_args

from exporter.config import config_file
from exporter.errors import ConfigError
from loadtests import scenario as scenarios
from loadtests.errors import PlanError
from loadtests.payloads.prompts import WORKLOADS
from loadtests.profiles import AnyProfile
from loadtests.scenario import ClosedLoop

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from pathlib import Path

    from loadtests.scenario import Scenario

_OF_MODELS: Final = ("data", "batch", "stream", "sequence_length")
_TOP: Final = {
    "timeout": "timeout_seconds",
    "in_flight": "in_flight",
    "seed": "seed",
    "slo": "slo",
    "goodput": "goodput",
    "name": "name",
}
_JUDGED_BY: Final = {
    "slo": "`tritonwatch load run` and `capacity`, and Locust, judge it",
    "goodput": "`tritonwatch load run` reports it",
}
_RATE: Final = "requests_per_second"


def scenario_of(options: argparse.Namespace) -> Scenario:
    """Return the scenario of the options, checked like a file.

    Raises:
        ConfigError: with every problem found.
    """
    given: dict[str, Any] = {}
    source = ""
    if options.scenario is not None:
        source = str(options.scenario)
        given = _given(options.scenario)
    _set_target(given, options)
    _set_models(given, options)
    _set_profile(given, options)
    for key, commands in _JUDGED_BY.items():
        if given.get(key) is not None and not hasattr(options, key):
            raise PlanError(f"{key}: only {commands}; leave it out", source)
    for option, key in _TOP.items():
        value = getattr(options, option, None)
        if value is not None:
            given[key] = value
    if "models" not in given:
        raise PlanError("found no model; want --model NAME")
    if "profile" not in given:
        raise PlanError(
            "found neither --profile nor --concurrency; want a profile of "
            "`tritonwatch load list`, or a number of requests in flight"
        )
    document = config_file.Document(written=given, value=given)
    return scenarios.parse(document, source)


def _given(path: Path) -> dict[str, Any]:
    document = scenarios.read(path)
    if document.problems:
        raise ConfigError(str(path), document.problems)
    return document.value


def check_outputs(*outputs: Path | None, inputs: Iterable[Path] = ()) -> None:
    """Refuse files that cannot be written, before a run; say which will be replaced.

    Raises:
        PlanError: there is no such folder, it is a folder, or it is one of the inputs.
    """
    read = {path.resolve() for path in inputs}
    for path in (path for path in outputs if path is not None):
        if not path.parent.is_dir():
            raise PlanError(f"no such folder: {path.parent}", str(path))
        if path.is_dir():
            raise PlanError("is a folder; want the name of a file", str(path))
        if path.resolve() in read:
            raise PlanError("is read here, too; want another file", str(path))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PlanError("cannot be written: no permission", str(path))
        if path.is_file():
            sys.stderr.write(f"tritonwatch: {path}: exists, and will be replaced\n")


def _set_target(given: dict[str, Any], options: argparse.Namespace) -> None:
    target = given.get("target") or {}
    if not isinstance(target, dict):
        return  # refused when it is checked, with its place in the file
    target = dict(target)
    for key in ("protocol", "address", "ca_file"):
        value = getattr(options, key)
        if value is not None:
            target[key] = value
    headers = _pairs(options.header or (), "--header", "NAME=VALUE")
    before = target.get("headers") or {}
    if headers and isinstance(before, dict):
        target["headers"] = {**before, **headers}
    if target:
        given["target"] = target


def _set_models(given: dict[str, Any], options: argparse.Namespace) -> None:
    if options.model:
        given["models"] = [_model(text) for text in options.model]
    changes = {
        key: getattr(options, key)
        for key in _OF_MODELS
        if getattr(options, key) is not None
    }
    prompts = _prompts(options)
    if prompts:
        changes["prompts"] = prompts
    if changes and isinstance(given.get("models"), list):
        given["models"] = [
            {**model, **changes} if isinstance(model, dict) else model
            for model in given["models"]
        ]


def _prompts(options: argparse.Namespace) -> dict[str, Any]:
    prompts: dict[str, Any] = {}
    for side in ("input_tokens", "output_tokens"):
        text: str | None = getattr(options, side, None)
        if text is not None:
            median, colon, sigma = text.partition(":")
            prompts[side] = {"median": _value(median)}
            if colon:
                prompts[side]["sigma"] = _value(sigma)
    given: str | None = getattr(options, "prompts", None)
    if given is not None:
        prompts["lengths" if given in WORKLOADS else "file"] = given
    return prompts


def _model(text: str) -> dict[str, Any]:
    name, equals, weight = text.rpartition("=")
    if not equals:
        return {"model": text}
    try:
        return {"model": name, "weight": float(weight)}
    except ValueError:
        raise PlanError(
            f"found --model {text!r}; want NAME, or NAME=WEIGHT with a number"
        ) from None


def _set_profile(given: dict[str, Any], options: argparse.Namespace) -> None:
    # Commands that choose their own schedule lack some of these options.
    kind, concurrency, texts, rate, duration = (
        getattr(options, name, None)
        for name in ("profile", "concurrency", "set", "rate", "duration")
    )
    if kind is not None and concurrency is not None:
        raise PlanError("found both --profile and --concurrency; set one of them")
    before = given.get("profile")
    profile: dict[str, Any] = dict(before) if isinstance(before, dict) else {}
    if concurrency is not None:
        profile = {"kind": "closed", "concurrency": concurrency}
    elif kind is not None and profile.get("kind") != kind:
        profile = {"kind": kind}
    for key, text in _pairs(texts or (), "--set", "KEY=VALUE").items():
        profile[key] = _value(text)
    if rate is not None and profile:
        _require_rate(profile.get("kind"))
        profile[_RATE] = rate
    if duration is not None:
        profile["duration_seconds"] = duration
    if profile:
        given["profile"] = profile


def _require_rate(kind: object) -> None:
    profiles = {
        p.model_fields["kind"].default: p
        for p in (ClosedLoop, *get_args(get_args(AnyProfile)[0]))
    }
    # An unknown profile is refused later, with the list of known ones.
    if kind not in profiles or _RATE in profiles[kind].model_fields:
        return
    raise PlanError(
        f"found --rate for the profile {kind!r}, which has several rates; set them "
        "with --set KEY=VALUE"
    )


def _pairs(texts: Any, option: str, form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise PlanError(f"found {option} {text!r}; want {form}")
        pairs[key] = value
    return pairs


def _value(text: str) -> Any:
    """Return the value of YAML text: numbers, true, lists."""
    try:
        return config_file.read(f"value: {text}".encode(), "--set", os.environ).value[
            "value"
        ]
    except (ConfigError, KeyError):
        return text
