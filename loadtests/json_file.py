"""Results as files: JSON that is read within a limit and checked, reports, schemas."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from loadtests.errors import PlanError, validation_problems
from pages import page_html, page_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TypeVar

    from pydantic import BaseModel

    from pages.blocks import Document

    Model = TypeVar("Model", bound=BaseModel)

MAX_FILE_BYTES: Final = 1 << 30


def read(path: Path, most_bytes: int = MAX_FILE_BYTES) -> Any:
    """Return the JSON of a file.

    Raises:
        PlanError: it cannot be read, is larger than `most_bytes`, or is not JSON.
    """
    source = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", source) from None
    if len(data) > most_bytes:
        raise PlanError(f"is larger than {most_bytes} bytes", source)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"is not valid JSON: {error}", source) from None


def require_size(path: Path) -> None:
    """Refuse a file that is not there or too large.

    Raises:
        PlanError: it is one of these.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", str(path)) from None
    if size > MAX_FILE_BYTES:
        raise PlanError(
            f"found {size} bytes; the maximum is {MAX_FILE_BYTES}", str(path)
        )


def require_version(document: Any, version: int, source: str) -> None:
    """Refuse a document of another version of its format.

    Raises:
        PlanError: it is of another one.
    """
    found = document.get("version") if isinstance(document, dict) else None
    if isinstance(found, int) and found != version:
        raise PlanError(
            f"has format version {found}; this tritonwatch reads version {version}: "
            "run the experiments again",
            source,
        )


def validated(model: type[Model], document: Any, source: str) -> Model:
    """Return the model that a document describes.

    Raises:
        PlanError: the document is incomplete.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = validation_problems(error)[0]
        raise PlanError(f"is incomplete: {first}", source) from None


def write(path: Path, content: str) -> None:
    """Write a text, JSON or a page.

    Raises:
        PlanError: it cannot be written.
    """
    try:
        path.write_text(content, "utf-8")
    except OSError as error:
        raise PlanError(f"cannot be written: {error.strerror}", str(path)) from None


def schema(model: type[BaseModel]) -> str:
    """Return the published JSON schema of a model."""
    return json.dumps(model.model_json_schema(), indent=2, sort_keys=True)


def publish(options: argparse.Namespace, document: Document, as_json: str) -> None:
    """Write the files that `--json` and `--html` name, then print a report.

    The JSON cannot be made again: it comes first, and no other failure prevents it.

    Raises:
        PlanError: a file cannot be written; the other one is, and the report is printed.
    """
    failures: list[PlanError] = []
    for path, content in _files(options, document, as_json):
        try:
            write(path, content)
        except PlanError as error:
            failures.append(error)
    sys.stdout.write(page_text.render(document))
    for failure in failures:
        raise failure


def _files(
    options: argparse.Namespace, document: Document, as_json: str
) -> Iterator[tuple[Path, str]]:
    if options.json is not None:
        yield options.json, f"{as_json}\n"
    if options.html is not None:
        yield options.html, page_html.render(document)
