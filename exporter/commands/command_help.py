"""Shell completion, made from the parser of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class PrintCompletion(argparse.Action):
    """Prints the completion of the whole parser for a shell and ends."""

    def __call__(
        self, parser: argparse.ArgumentParser, _given: Any, shell: Any, *_: Any
    ) -> None:
        """Print it."""
        import shtab  # noqa: PLC0415 - only here

        for command in _parsers(parser):
            for action in command._actions:  # noqa: SLF001 - argparse has no other list
                if action.type is Path or "FILE" in str(action.metavar):
                    action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, shell), end="")  # noqa: T201 - what the option is for
        parser.exit()


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser and those of all commands below it."""
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                yield from _parsers(below)
