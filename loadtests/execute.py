"""Prepares a scenario's requests and runs it, for commands and experiments.

Locust takes its options from here.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.errors import InvalidRequestError
from exporter.own_requests.own_request import check_parameters
from exporter.own_requests.payload import InputSettings, make_payload
from loadtests.engine import Options, run_closed, run_open
from loadtests.errors import LoadError, PlanError
from loadtests.machine_guard import Guard, GuardLimits, guarded
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.data_file import rows_of
from loadtests.payloads.metadata import model_spec, require_fit, takes_binary
from loadtests.payloads.prompts import (
    PromptSettings,
    openai_body,
    prompts_of,
    row_of,
    text_spec,
)
from loadtests.plan import Entry, Mix, Style
from loadtests.profiles.profile import arrivals_of
from loadtests.result import Outcome
from loadtests.scenario import MAX_VARIANTS, ClosedLoop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporter.triton.protocol_types import ModelSpec
    from loadtests.machine_guard import Watch
    from loadtests.payloads.prompts import Prompt
    from loadtests.plan import Body
    from loadtests.result import RunResult
    from loadtests.scenario import ModelSettings, Scenario
    from loadtests.target import Target

MAX_BYTES: Final = 512 << 20
"""Limit of all bodies of one model."""
UNASKED_BYTES: Final = 128 << 20
"""The same where the scenario does not say how many."""
_MADE, _PROMPTS = 16, 1000  # different requests by default, where there is no file
_PAYLOADS = 4  # a stream of random numbers of the seed


def execute_watched(
    scenario: Scenario, mix: Mix, options: Options | None = None, *, strict: bool = True
) -> tuple[RunResult, Watch]:
    """Execute while the machine is watched; disturbances are in the verdict.

    Where it is not `strict`, they are warnings. The watch's times count from the start of
    the run.
    """
    with Guard(scenario.target.target(), GuardLimits()) as guard:
        result = execute(scenario, mix, options)
    origin = time.monotonic() - (time.time() - result.about.started_at)
    watch = guard.watch(origin)
    return guarded(result, watch, strict=strict), watch


def execute(scenario: Scenario, mix: Mix, options: Options | None = None) -> RunResult:
    """Send the requests of the scenario, on its schedule.

    The scenario overrides timeout, seed, SLO and profile of `options`.

    Raises:
        LoadError: there is no server.
        PlanError: the profile is more than one run can hold.
    """
    result = _sent(scenario, mix, options)
    length: float | None = scenario.profile.length_seconds
    if result.about.interrupted and result.about.mode == "open":
        length = result.about.schedule_seconds
    about = replace(
        result.about,
        schedule_seconds=length,
        goodput=scenario.goodput or "",
        slo=scenario.slo or "",
    )
    return replace(result, about=about)


def _sent(scenario: Scenario, mix: Mix, options: Options | None) -> RunResult:
    profile, target = scenario.profile, scenario.target.target()
    objective = scenario.objective()
    options = replace(
        options or Options(),
        timeout_seconds=scenario.timeout_seconds,
        seed=scenario.seed,
        slo_seconds=None if objective is None else objective.limit_seconds,
        profile=profile.model_dump(mode="json"),
    )
    if isinstance(profile, ClosedLoop):
        return run_closed(
            target,
            mix,
            concurrency=profile.concurrency,
            duration_seconds=profile.duration_seconds,
            options=options,
        )
    arrivals = arrivals_of(profile, scenario.seed)
    return run_open(
        target, mix, arrivals, in_flight=scenario.in_flight, options=options
    )


def prepared(scenario: Scenario) -> Mix:
    """Return the mix of a scenario.

    Every entry's first request is sent once, so that one that fails is reported before
    the run, in the server's words.

    Raises:
        LoadError: there is no server or no such model, or it refuses the request.
        PlanError: the data does not fit the model.
    """
    target = scenario.target.target()
    entries: list[Entry] = []
    for model in scenario.models:
        spec = model_spec(target, model.model, model.version)
        _check_parameters(spec, model)
        if not model.stream and (target.protocol != "http" or not spec.decoupled):
            raise PlanError(
                "found stream: false; whole answers can be asked of decoupled models, "
                "with the protocol http",
                f"model {model.model}",
            )
        if spec.sequence and spec.decoupled and target.protocol == "http":
            raise PlanError(
                "found a sequence model that streams; its sequences can only be sent "
                "with the protocol grpc",
                f"model {model.model}",
            )
        if target.is_openai:
            bodies = _openai_bodies(target, model, scenario.seed)
        else:
            if model.prompts is not None:
                spec = text_spec(spec)
            bodies = _bodies(target, spec, model, scenario.seed)
        entries.append(_entry(spec, model, bodies))
    mix = Mix(tuple(entries))
    _require_streams(scenario, mix)
    for entry in mix.entries:
        _try_out(target, entry, scenario.timeout_seconds)
    return mix


def _require_streams(scenario: Scenario, mix: Mix) -> None:
    for limits in (scenario.objective(), scenario.limits()):
        for term in limits.terms if limits is not None else ():
            unary = [entry.name for entry in mix.entries if entry.style != "stream"]
            if unary and term.measure != "latency":
                raise PlanError(
                    f"found {term.text!r}, which needs streamed answers; {unary[0]} "
                    "does not stream"
                )


def _check_parameters(spec: ModelSpec, model: ModelSettings) -> None:
    try:
        check_parameters(model.parameters, string_ids=spec.sequence_id_type == "STRING")
    except InvalidRequestError as error:
        raise PlanError(str(error), f"model {model.model}") from None


def _rows(spec: ModelSpec, model: ModelSettings, seed: int) -> list[Row]:
    if spec.max_batch_size > 0 and spec.most_rows < model.batch:
        raise PlanError(
            f"found batch {model.batch}; {spec.name} takes at most "
            f"{spec.most_rows} rows a request",
            f"model {model.model}",
        )
    if model.data is not None:
        given = rows_of(Path(model.data), spec, batch=model.batch)
        return [
            Row(row.inputs, row.expected, model.parameters)
            for row in islice(given, model.variants or MAX_VARIANTS)
        ]
    rng = np.random.default_rng((seed, _PAYLOADS))
    overrides = _overrides(spec, model)
    try:
        return [
            Row(make_payload(spec, overrides, rng).inputs, {}, model.parameters)
            for _ in range(model.variants or _MADE)
        ]
    except InvalidRequestError as error:
        raise PlanError(str(error), f"model {model.model}") from None


def _overrides(spec: ModelSpec, model: ModelSettings) -> dict[str, InputSettings]:
    """Return the given settings, with the wanted batch where the model takes batches."""
    overrides = dict(model.inputs)
    if model.batch == 1:
        return overrides
    # Without Triton's configuration, an open first dimension is the only indication.
    opens = all(t.shape[:1] == (-1,) for t in spec.inputs if not t.optional)
    if not spec.max_batch_size and not opens:
        raise PlanError(
            f"found batch {model.batch}; {spec.name} takes no batches: leave it out",
            f"model {model.model}",
        )
    for tensor in spec.inputs:
        given = overrides.get(tensor.name, InputSettings())
        if given.shape is None and not tensor.optional:
            rest = tuple(1 if size < 0 else size for size in tensor.shape[1:])
            shape = (model.batch, *rest)
            overrides[tensor.name] = given.model_copy(update={"shape": shape})
    return overrides


def _bodies(
    target: Target, spec: ModelSpec, model: ModelSettings, seed: int
) -> tuple[Body, ...]:
    require_fit(spec, target)
    rows: Iterable[Row]
    if model.prompts is None:
        rows = _rows(spec, model, seed)
    else:
        prompts = _prompts(model, seed)
        rows = (
            row_of(spec, prompt, model.parameters, streams=model.stream)
            for prompt in prompts
        )
    binary = takes_binary(target)
    made = (body_of(spec, row, target.protocol, binary=binary) for row in rows)
    return _bounded(made, model)


def _openai_bodies(target: Target, model: ModelSettings, seed: int) -> tuple[Body, ...]:
    prompts = _prompts(model, seed)
    made = (openai_body(target, model.model, p, model.parameters) for p in prompts)
    return _bounded(made, model)


def _prompts(model: ModelSettings, seed: int) -> Iterator[Prompt]:
    settings = model.prompts or PromptSettings()
    count = _PROMPTS if settings.file is None else MAX_VARIANTS
    return prompts_of(settings, model.variants or count, seed)


def _bounded(made: Iterable[Body], model: ModelSettings) -> tuple[Body, ...]:
    bodies: list[Body] = []
    size = 0
    for body in made:
        size += len(body.data)
        if bodies and model.variants is None and size > UNASKED_BYTES:
            break
        bodies.append(body)
        if size > MAX_BYTES:
            raise PlanError(
                f"found more than {MAX_BYTES} bytes in the first {len(bodies)} requests; "
                "give fewer variants",
                f"model {model.model}",
            )
    return tuple(bodies)


def _entry(spec: ModelSpec, model: ModelSettings, bodies: tuple[Body, ...]) -> Entry:
    style: Style = "unary"
    if spec.decoupled:
        style = "stream" if model.stream else "generate"
    return Entry(
        name=model.model,
        spec=spec,
        bodies=bodies,
        weight=model.weight,
        style=style,
        sequence_length=model.sequence_length,
        tolerance=model.tolerance,
    )


def _try_out(target: Target, entry: Entry, timeout_seconds: float) -> None:
    """Send one request, or one whole sequence, so that no sequence remains open."""
    count = entry.sequence_length if entry.spec.sequence else 1
    result = run_closed(
        target,
        Mix((entry,)),
        concurrency=1,
        duration_seconds=timeout_seconds * count,
        requests=min(count, 100),
        options=Options(timeout_seconds=timeout_seconds),
    )
    if result.requests.count(Outcome.OK) == len(result.requests):
        return
    said = next(iter(result.errors), f"no answer within {timeout_seconds:g} s")
    raise LoadError(f"the first request to {entry.name} failed: {said}")
