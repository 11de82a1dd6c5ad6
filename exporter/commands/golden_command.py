"""`tritonwatch golden record|score`: ask a whole golden set once, outside the sidecar."""

from __future__ import annotations

import io
import zipfile
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import ValidationError

from exporter.access.collector_base import Access
from exporter.access.inventory import latest_of
from exporter.config import connect
from exporter.config.config_problems import plain_problems
from exporter.config.configuration import load
from exporter.errors import ConfigError, GoldenDataError, InvalidRequestError
from exporter.features.golden import golden_data as data
from exporter.features.golden import golden_formats
from exporter.features.golden.answer_quality import agree, content, shown
from exporter.features.golden.golden_data import prepare
from exporter.features.golden.golden_scoring import Scoring
from exporter.features.golden.golden_settings import GoldenData
from exporter.own_requests.asking import Asker
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from drift.numerics.normal import Bools
    from exporter.access.collector_base import Server
    from exporter.features.golden.golden_data import GoldenSet
    from exporter.triton.protocol_types import Array, ModelSpec

_TIMEOUT_SECONDS: Final = 30.0
_ROWS: Final = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """The server, model and data of one run."""

    config: Path | None
    grpc: str | None
    model: str
    version: str
    data: GoldenData


@dataclass(frozen=True, slots=True)
class Answers:
    """Every answer to a set, rows first, with their scores."""

    golden: GoldenSet
    spec: ModelSpec
    outputs: Mapping[str, Array]
    scores: Mapping[str, float]
    right: Bools | None
    """True for each answer that fits its label; None without classes."""


def ask(wanted: Wanted, report: Callable[[str], None]) -> Answers:
    """Send the whole set once.

    Raises:
        GoldenDataError: the file is not what it should be, or not this model's.
        TritonError: the model did not answer a row.
    """
    golden = data.read(wanted.data)
    config = load(wanted.config)
    target = config.target
    if wanted.grpc:
        target = connect.triton(config, "golden --grpc").model_copy(
            update={"grpc": wanted.grpc}
        )
    with closing(connect.clients(target)[0]) as client:
        spec = spec_of(client, wanted.model, wanted.version)
        return answer_set(client, spec, golden, wanted.data, report)


def record(wanted: Wanted, output: Path, report: Callable[[str], None]) -> Answers:
    """Send the whole set twice, and write it with the answers as expected ones.

    Raises:
        ConfigError: the folder of `output` is missing.
        GoldenDataError: also where two answers to a row differ, or one is not finite:
            such a model is not to be trusted with what is right.
    """
    if not output.parent.is_dir():
        reason = f"found {str(output)!r}: no such folder: {output.parent}"
        raise ConfigError("--output", [reason])
    first = ask(wanted, report)
    second = ask(wanted, report)
    settings = wanted.data
    for name, array in first.outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            rows = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
            row = int(np.argmin(rows))
            reason = f"{first.spec.name} answers {shown(array[row])}; not recorded"
            raise first.golden.problem(reason, name=name, row=row)
        again = second.outputs.get(name)
        if again is None:
            reason = f"{first.spec.name} does not always answer with it in one shape"
            raise first.golden.problem(reason, name=name)
        same = agree(
            again,
            array,
            settings.tolerance_relative,
            settings.tolerance_absolute,
        )
        if not same.all():
            row = int(np.argmin(same))
            raise first.golden.problem(
                f"{first.spec.name} is not deterministic: it answered "
                f"{shown(array[row])}, then {shown(again[row])}",
                name=name,
                row=row,
            )
    _write(output, dict(_columns(first, settings)))
    return first


def spec_of(client: Server, model: str, version: str = "") -> ModelSpec:
    """Return the signature of a ready model, of its latest version by default."""
    if not version:
        index = client.repository_index(timeout_seconds=_TIMEOUT_SECONDS)
        ready = [e.key for e in index if e.ready]
        found = latest_of(ready, model)
        if found is None:
            names = sorted({name for name, _ in ready})
            raise InvalidRequestError(
                f"found no ready model {model!r}; the server has {names[:20]}"
            )
        version = found
    return client.model_spec(model, version, timeout_seconds=_TIMEOUT_SECONDS)


def answer_set(
    client: Server,
    spec: ModelSpec,
    golden: GoldenSet,
    settings: GoldenData,
    report: Callable[[str], None],
) -> Answers:
    """Send each row of a set once.

    Raises:
        GoldenDataError: the set is not this model's.
        TritonError: the model did not answer a row.
    """
    prepared = prepare(golden, spec)
    scoring = Scoring(prepared, settings, spec)
    asker = Asker(Access.detached(client), spec, np.random.default_rng(0))
    parts: dict[str, list[Array]] = {}
    # Another order each time: no cache answers for the model.
    order = np.random.default_rng().permutation(golden.rows)
    size = min(_ROWS, spec.most_rows)
    for begin in range(0, golden.rows, size):
        places = order[begin : begin + size]
        answer = asker.ask(prepared.request(places), prepared.datatypes)
        if answer.error is not None:
            raise answer.error
        outputs = answer.outputs
        if not prepared.batched:
            outputs = {name: array[None] for name, array in outputs.items()}
        scoring.judge(places, outputs)
        for name, array in outputs.items():
            parts.setdefault(name, []).append(array)
        if (begin // size + 1) % 100 == 0:
            report(f"{begin + len(places)} of {golden.rows} rows")
    back = np.argsort(order)
    joined: dict[str, Array] = {}
    for name, arrays in parts.items():
        if len({array.shape[1:] for array in arrays}) > 1:
            report(f"output {name!r} has another shape for another row; it is left out")
        else:
            joined[name] = np.concatenate(arrays)[back]
    scores = {**dict(scoring.scores()), **dict(scoring.errors())}
    return Answers(golden, spec, joined, scores, scoring.right)


def _columns(answers: Answers, settings: GoldenData) -> Iterator[tuple[str, Array]]:
    columns = answers.golden.columns
    texts: set[str] = set()
    for tensor in answers.spec.inputs:
        if tensor.datatype == "BYTES":
            texts |= set(golden_formats.column_of(columns, tensor.name)[1])
    for name, column in columns.items():
        yield name, column if name in texts else golden_formats.as_numbers(column)
    if answers.golden.labels is not None:
        yield settings.label or "label", answers.golden.labels
    for name, array in answers.outputs.items():
        yield f"{golden_formats.EXPECTED}{name}", array
    if "accuracy" in answers.scores:
        yield golden_formats.ACCURACY, np.array([answers.scores["accuracy"]])


def _write(path: Path, columns: Mapping[str, Array]) -> None:
    """An npz whose bytes depend on the columns alone, in place at once or not at all."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, column in columns.items():
            entry = io.BytesIO()
            # Text as bytes of one length: no pickles.
            plain = _plain(column)
            np.lib.format.write_array(entry, np.asarray(plain), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entry.getvalue())
    try:
        whole_file.write(path, content.getvalue(), 0o644)
    except OSError as error:
        reason = f"cannot be written: {error.strerror or error}"
        raise GoldenDataError(str(path), reason) from None


def _plain(column: Array) -> Array:
    if column.dtype.kind not in "OU":
        return column
    items = [content(item) for item in column.ravel().tolist()]
    return np.array(items, np.bytes_).reshape(column.shape)


def settings_of(file: Path, **more: object) -> GoldenData:
    """Data settings from command line arguments.

    Raises:
        ConfigError: they do not fit together.
    """
    try:
        return GoldenData.model_validate({"file": file, **more})
    except ValidationError as error:
        raise ConfigError("the arguments", plain_problems(error)) from None
