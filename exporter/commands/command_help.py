"""Shell completion and the manual page, made from the parser of the command line."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_BASH: Final = """# bash completion; zsh reads it after `autoload bashcompinit && bashcompinit`.
_tritonwatch() {{
  local command=tritonwatch words= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
      {commands}) command="$command $word" ;;
    esac
  done
  case "$command" in
{words}
  esac
  case "$command ${{COMP_WORDS[COMP_CWORD-1]}}" in
{choices}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _tritonwatch tritonwatch
"""


class PrintBashCompletion(argparse.Action):
    """Prints the completion of the whole parser and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print it."""
        parser.exit(message=None, status=_printed(bash_completion(parser)))


class PrintManPage(argparse.Action):
    """Prints the manual page of the whole parser and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print it."""
        parser.exit(message=None, status=_printed(man_page(parser)))


def _printed(text: str) -> int:
    print(text, end="")  # noqa: T201 - what the option is for
    return 0


def bash_completion(parser: argparse.ArgumentParser) -> str:
    """Return a script that completes commands, options and choices, and else files."""
    every = dict(_parsers(parser))
    words, choices = [], []
    for name, command in every.items():
        options = [o for a in command._actions for o in a.option_strings]  # noqa: SLF001 - argparse has no other list
        words.append(_case(name, [*_commands_below(command), *options]))
        choices += [
            _case(f"{name} {option}", [str(choice) for choice in action.choices])
            for action in command._actions  # noqa: SLF001
            if action.choices
            for option in action.option_strings
        ]
    nested = "|".join(shlex.quote(name) for name in every if " " in name)
    return _BASH.format(
        commands=nested, words="\n".join(words), choices="\n".join(choices)
    )


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


def _case(pattern: str, words: list[str]) -> str:
    return f"    {shlex.quote(pattern)}) words={shlex.quote(' '.join(words))} ;;"


def _roff(line: str) -> str:
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    # A dot or an apostrophe at the beginning would be a command.
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
