"""`tritonwatch drift fit|compare|report`: files in, a profile, a verdict or a page out.

Exit 0 is ok (and no drift, or too few data to decide), 1 is drift, 2 wrong usage or a file
that cannot be read.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drift.errors import DataError, DriftError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drift.judgement import Judgement
    from drift.reference import Profile
    from drift.tables.reading import Choices, Table
    from drift.window import Counts
    from pages.blocks import Document

EXIT_OK: Final = 0
EXIT_DRIFT: Final = 1
EXIT_USAGE: Final = 2
_PROGRESS_SECONDS: Final = 1.0


def add(commands: Any) -> None:
    """Join the sub-commands of `tritonwatch`."""
    parser = commands.add_parser(
        "drift",
        help="make reference profiles and compare data with them",
        description="Make reference profiles of data files and compare files with them. "
        "Reads npz; with the extra `tables` also csv, tsv, parquet (or folders of it) and "
        "feather.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_fit(actions)
    _add_compare(actions)
    _add_report(actions)


def _add_fit(actions: Any) -> None:
    parser = actions.add_parser(
        "fit",
        help="make a reference profile from training data",
        description="Make a reference profile from training data, for `compare`, `report` "
        "and the sidecar's `drift:`. If the rows are in order of time, use --time "
        "or --ordered: the dependence between rows is then measured. Without it, "
        "false-alarm rates hold for independent rows only.",
    )
    parser.add_argument(
        "--data", type=Path, metavar="FILE", required=True, help="the training data"
    )
    _add_output(parser)
    _add_choices(parser)
    parser.set_defaults(run=_guarded(_fit))


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser(
        "compare",
        help="compare data with a reference; exit 1 if they drifted",
        description="Compare DATA with REFERENCE once. If nothing changed, drift is "
        "reported with a probability of at most --false-alarms.",
    )
    _add_sides(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=_guarded(_compare))


def _add_report(actions: Any) -> None:
    parser = actions.add_parser(
        "report",
        help="write the comparison as a self-contained HTML page",
        description="Write the comparison as a page: distributions over each other, "
        "distances next to those expected without a change, data quality, and the bins "
        "that changed most.",
    )
    _add_sides(parser)
    _add_output(parser)
    parser.set_defaults(run=_guarded(_report))


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=Path, metavar="FILE", required=True, help="file to write"
    )


def _add_sides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reference",
        type=Path,
        metavar="REFERENCE",
        help="a reference profile, or a data file",
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="a data file")
    parser.add_argument(
        "--false-alarms",
        type=_chance,
        default=0.01,
        metavar="P",
        help="probability of reporting drift without one (default 0.01)",
    )
    _add_choices(parser)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="YAML with `tensors:` and `features:` (default: every column)",
    )
    parser.add_argument(
        "--categorical",
        default="",
        metavar="A,B",
        help="columns or features whose numbers are categories",
    )
    parser.add_argument(
        "--text",
        default="",
        metavar="A,B",
        help="columns of free text, watched by length, characters, repetition and "
        "refusals; the text itself is not kept",
    )
    parser.add_argument(
        "--time",
        metavar="COLUMN",
        help="column of times, ascending: ISO 8601, or Unix time in s, ms, us or ns",
    )
    parser.add_argument(
        "--ordered", action="store_true", help="the rows are in order of time"
    )


def _chance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; want a chance within (0, 1)")
    return value


def _guarded(
    act: Callable[[argparse.Namespace], int],
) -> Callable[[argparse.Namespace], int]:
    """Return the act with errors as a line and exit 2, since Python's own 1 means drift."""

    def run(options: argparse.Namespace) -> int:
        try:
            return act(options)
        except DriftError as error:
            print(f"tritonwatch drift: {error}", file=sys.stderr)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no drift
            said = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"tritonwatch drift: {said}", file=sys.stderr)
        return EXIT_USAGE

    return run


def _fit(options: argparse.Namespace) -> int:
    _check_writable(options.output)
    from drift.tables.reading import Table  # noqa: PLC0415 - heavy, only here

    choices = _choices(options)
    table = Table(options.data, choices)
    profile = _fitted(table, options)
    _write(options.output, profile.to_bytes())
    numeric = profile.schema.numeric
    print(
        f"{options.output}: {profile.rows:,} rows, {numeric} numeric and "
        f"{len(profile.schema.features) - numeric} categorical features"
    )
    for note in table.notes:
        print(note)
    for skipped in table.skipped:
        print(f"not watched, since of another type: {skipped}")
    for caveat in profile.caveats:
        print(f"false-alarm rate not guaranteed: {caveat}")
        if "order of time" in caveat:
            print("    name the time with --time COLUMN, or use --ordered if it is")
    for blind in profile.blind_spots:
        print(f"not tested: {blind}")
    return EXIT_OK


def _compare(options: argparse.Namespace) -> int:
    from pages import page_text  # noqa: PLC0415 - only here

    found, told = _judged(options)
    if options.json:
        print(found.model_dump_json(indent=2))
    else:
        sys.stdout.write(page_text.render(told))
    return EXIT_DRIFT if found.outcome == "drift" else EXIT_OK


def _report(options: argparse.Namespace) -> int:
    _check_writable(options.output)
    from drift.report.words import headline  # noqa: PLC0415 - heavy, only here
    from pages import page_html  # noqa: PLC0415

    found, told = _judged(options)
    _write(options.output, page_html.render(told).encode())
    print(f"{options.output}: {headline(found)}")
    return EXIT_DRIFT if found.outcome == "drift" else EXIT_OK


def _judged(options: argparse.Namespace) -> tuple[Judgement, Document]:
    from drift.judgement import judge  # noqa: PLC0415 - heavy, only here
    from drift.report.drift_document import Origin, document  # noqa: PLC0415
    from drift.tables.reading import digest  # noqa: PLC0415

    profile, counts, unwatched = _sides(options)
    found = judge(profile, counts, false_alarms=options.false_alarms)
    if unwatched:
        blind = f"columns that the reference does not watch: {', '.join(unwatched)}"
        found = found.model_copy(update={"blind_spots": (*found.blind_spots, blind)})
    origin = Origin(
        options.reference.name,
        options.data.name,
        digest(options.data),
        f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        _versions(),
    )
    return found, document(found, profile, counts, origin)


def _sides(options: argparse.Namespace) -> tuple[Profile, Counts, tuple[str, ...]]:
    """Return the reference, the data's counts, and the columns of the data left out."""
    from drift.reference import Profile  # noqa: PLC0415 - heavy, only here
    from drift.tables.reading import Table  # noqa: PLC0415

    choices = _choices(options)
    if _is_profile(options.data):
        raise DataError(
            str(options.data),
            "found a profile; want data, since the bins of two profiles cannot be "
            "compared",
        )
    if _is_profile(options.reference):
        profile = Profile.from_bytes(options.reference.read_bytes())
    else:
        profile = _fitted(Table(options.reference, choices), options)
    table = Table(options.data, choices).arranged_as(profile.schema)
    window = profile.accumulator()
    report = _progress(options.data, table.rows)
    for tensors, hour in table.chunks(report):
        window.update(tensors, hour=hour)
    return profile, window.take(), table.skipped


def _fitted(table: Table, options: argparse.Namespace) -> Profile:
    from drift.fitting import ProfileBuilder  # noqa: PLC0415 - heavy, only here
    from drift.reference import Provenance  # noqa: PLC0415
    from drift.tables.reading import digest  # noqa: PLC0415

    path = table.path
    ordered = options.ordered or options.time is not None
    builder = ProfileBuilder(table.schema(), ordered=ordered)
    for tensors, hour in table.chunks(_progress(path, table.rows)):
        builder.add(tensors, hour=hour)
    return builder.build(Provenance(path.name, digest(path), _versions()))


def _choices(options: argparse.Namespace) -> Choices:
    from drift.tables.layout import Layout  # noqa: PLC0415 - heavy, only here
    from drift.tables.reading import Choices  # noqa: PLC0415

    layout = Layout()
    if options.features is not None:
        layout = Layout.parse(_yaml(options.features), str(options.features))
    return Choices(
        layout, _names(options.categorical), options.time, _names(options.text)
    )


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip() for name in listed.split(",") if name.strip())


def _yaml(path: Path) -> object:
    import yaml  # noqa: PLC0415 - only here

    try:
        content: object = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(str(path), " ".join(str(error).split())) from error
    return content


def _is_profile(path: Path) -> bool:
    from drift.codec import MAGIC  # noqa: PLC0415 - numpy, only here

    if path.is_dir():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC.encode()
    except OSError as error:
        raise DataError(str(path), error.strerror or str(error)) from error


def _versions() -> dict[str, str]:
    import platform  # noqa: PLC0415 - only here
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    found = {"python": platform.python_version()}
    for name in ("tritonwatch", "numpy", "scipy", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _progress(path: Path, rows: int | None) -> Callable[[int], None]:
    """Print the progress of reading a long file to stderr, every second."""
    last = time.monotonic()

    def report(done: int) -> None:
        nonlocal last
        if time.monotonic() - last < _PROGRESS_SECONDS:
            return
        last = time.monotonic()
        of = f" of {rows:,}" if rows is not None else ""
        print(f"{path.name}: {done:,}{of} rows", file=sys.stderr, flush=True)

    return report


def _check_writable(path: Path) -> None:
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise DataError(
            str(path),
            "cannot be written; want a file in a writable folder",
        )


def _write(path: Path, content: bytes) -> None:
    """Write the file atomically: a reader never sees half of it."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        scratch = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            scratch.chmod(0o644)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            str(path), f"could not be written: {error.strerror or error}"
        ) from error
