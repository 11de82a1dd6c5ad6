"""Shell completion and the manual page, made from the parser of the command line."""

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

        for _name, command in _parsers(parser):
            for action in command._actions:  # noqa: SLF001 - argparse has no other list
                if action.type is Path or "FILE" in str(action.metavar):
                    action.complete = shtab.FILE  # type: ignore[attr-defined]
        parser.exit(message=None, status=_printed(shtab.complete(parser, shell)))


class PrintManPage(argparse.Action):
    """Prints the manual page of the whole parser and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print it."""
        parser.exit(message=None, status=_printed(man_page(parser)))


def _printed(text: str) -> int:
    print(text, end="")  # noqa: T201 - what the option is for
    return 0


def man_page(parser: argparse.ArgumentParser) -> str:
    """Return the manual page in roff: the help of every command."""
    lines = [
        '.TH TRITONWATCH 1 "" "tritonwatch" "User Commands"',
        ".SH NAME",
        f"tritonwatch \\- {_roff(parser.description or '')}",
    ]
    for name, command in _parsers(parser):
        lines += [f".SH {name}", ".nf"]
        lines += [_roff(line) for line in command.format_help().splitlines()]
        lines.append(".fi")
    return "\n".join(lines) + "\n"


def _parsers(
    parser: argparse.ArgumentParser, name: str = "tritonwatch"
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for word, below in _commands_below(parser).items():
        yield from _parsers(below, f"{name} {word}")


def _commands_below(
    parser: argparse.ArgumentParser,
) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _roff(line: str) -> str:
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    # A dot or an apostrophe at the beginning would be a command.
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
