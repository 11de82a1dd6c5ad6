"""Write the dashboards, or say which are stale: `python -m grafana.build [--check]`."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana import (
    answers,
    drift,
    energy,
    fleet,
    generation,
    latency,
    runs,
    sidecar,
    slo,
)
from grafana.frame import RUNBOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS: Final = 24
FOLDER: Final = Path(__file__).with_name("dashboards")
_BOARDS: Final = (
    fleet,
    latency,
    generation,
    slo,
    energy,
    drift,
    answers,
    runs,
    sidecar,
)


def documents(runbooks: str = RUNBOOKS) -> dict[str, dict[str, Any]]:
    """Every dashboard as JSON-able values, by its file's name.

    `runbooks` is the URL of the folder of runbooks, as a browser reaches it.
    """
    found = {}
    for board in _BOARDS:
        text = JSONEncoder(sort_keys=True, indent=2).encode(board.build().build())
        document = json.loads(text)
        _numbered(document["panels"])
        _filled(document["panels"])
        for variable in document["templating"]["list"]:
            if variable["name"] == "runbooks":
                variable["query"] = runbooks
        found[f"{document['uid']}.json"] = document
    return found


def _numbered(panels: list[dict[str, Any]]) -> None:
    # Without ids Grafana gives some at import, and every export would differ.
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number


def _filled(panels: list[dict[str, Any]]) -> None:
    # A last panel alone in its line would leave half of the screen empty.
    lines = itertools.groupby(panels, key=lambda panel: panel["gridPos"]["y"])
    for _, line in lines:
        places = [panel["gridPos"] for panel in line]
        if all(place["w"] == places[0]["w"] for place in places):
            width = _COLUMNS // len(places)
            for number, place in enumerate(places):
                place["x"], place["w"] = number * width, width


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 1 with --check where a committed file is not what would be written."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument(
        "--runbooks",
        metavar="URL",
        default=RUNBOOKS,
        help="where a browser finds deploy/runbooks (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    check = options.check
    written = {
        name: json.dumps(document, indent=2, sort_keys=True) + "\n"
        for name, document in documents(options.runbooks.rstrip("/")).items()
    }
    stale = {path.name for path in FOLDER.glob("*.json")} - written.keys()
    for name, text in written.items():
        path = FOLDER / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.add(name)
        if not check:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    if check and stale:
        print(f"stale: {', '.join(sorted(stale))}; run python -m grafana.build")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
