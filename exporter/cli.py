"""The command `tritonwatch`. Exit 0 is ok, 1 a finding, 2 wrong usage or config."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Final

from exporter.commands import (
    cold_start_options,
    comparison_options,
    golden_options,
    serve_options,
)
from exporter.commands.command_help import PrintCompletion, PrintManPage
from exporter.commands.common_options import add_config, progress_of
from exporter.errors import ConfigError, ListenError, TritonwatchError
from exporter.system.termination import exit_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from exporter.commands.common_options import Subparsers

    Command = Callable[[argparse.Namespace], int]

EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_USAGE: Final = 2
COMMANDS_GROUP: Final = "tritonwatch.commands"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the value is the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser(arguments)
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    options = parser.parse_args(arguments)
    run: Command = options.run
    try:
        with exit_on_signals():
            return run(options)
    except (ConfigError, ListenError) as error:
        print(f"tritonwatch: {error}", file=sys.stderr)
        return EXIT_USAGE
    except TritonwatchError as error:
        print(f"tritonwatch: {error}", file=sys.stderr)
        return EXIT_FINDING
    except BrokenPipeError:
        # The reader of our output is gone, as with `| head`; what is left in the buffer
        # must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        return 130


def _parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tritonwatch",
        description="A monitoring sidecar and Prometheus exporter for NVIDIA Triton "
        "Inference Server.",
    )
    parser.add_argument(
        "--version", action="version", version=f"tritonwatch {version('tritonwatch')}"
    )
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=("bash", "zsh", "tcsh", "fish"),
        help='print shell completion: eval "$(tritonwatch --print-completion bash)"',
    )
    parser.add_argument(
        "--print-man-page", action=PrintManPage, nargs=0, help="print the manual page"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serve_options.add(commands)
    _add_check(commands)
    _add_schema(commands)
    _add_metrics(commands)
    _add_rules(commands)
    _add_demo(commands)
    _add_audit(commands)
    golden_options.add(commands)
    comparison_options.add(commands)
    cold_start_options.add(commands)
    if not arguments or arguments[0] not in {*commands.choices, "--version"}:
        _add_commands_of_others(commands)
    return parser


def _add_commands_of_others(commands: Subparsers) -> None:
    """Add the commands of packages beside the exporter, which nothing here imports."""
    for entry in sorted(entry_points(group=COMMANDS_GROUP), key=lambda e: e.name):
        try:
            add = entry.load()
        except (ImportError, AttributeError) as error:
            # As where another folder of that name comes first on the path.
            problem = f"{entry.value} cannot be imported: {error}"
            _add_broken(commands, entry.name, problem)
        else:
            add(commands)


def _add_broken(commands: Subparsers, name: str, problem: str) -> None:
    def run(_: argparse.Namespace) -> int:
        print(f"tritonwatch {name}: {problem}", file=sys.stderr)
        return EXIT_USAGE

    parser = commands.add_parser(name, help=f"not here: {problem}", add_help=False)
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def _add_check(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "check", help="check a configuration file and report every error"
    )
    add_config(parser, required=True)

    def run(options: argparse.Namespace) -> int:
        from exporter.config import configuration, connect  # noqa: PLC0415 - heavy, only here

        try:
            loaded = configuration.load(options.config)
            for client in connect.clients(loaded.target):
                if client is not None:
                    client.close()
        except ConfigError as error:
            for problem in error.problems:
                print(f"{options.config}: {problem}", file=sys.stderr)
            return EXIT_FINDING
        for pattern in loaded.multi_target.broad:
            print(
                f"{options.config}: warning: multi_target.allow: {pattern!r} matches "
                "names in domains that others may own; end the host with a domain of "
                "yours, like triton-*.models.svc.cluster.local:8001",
                file=sys.stderr,
            )
        print(f"{options.config}: ok")
        return EXIT_OK

    parser.set_defaults(run=run)


def _add_schema(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "schema", help="print the JSON schema of the configuration"
    )
    parser.add_argument("--markdown", action="store_true", help="as a Markdown page")

    def run(options: argparse.Namespace) -> int:
        from exporter.commands import reference_pages  # noqa: PLC0415 - heavy, only here

        print(
            reference_pages.config_page()
            if options.markdown
            else reference_pages.schema()
        )
        return EXIT_OK

    parser.set_defaults(run=run)


def _add_metrics(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "metrics", help="list every metric that can be exposed"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--markdown", action="store_true", help="as a Markdown page")

    def run(options: argparse.Namespace) -> int:
        from exporter.commands import reference_pages  # noqa: PLC0415 - heavy, only here

        if options.json:
            print(json.dumps(reference_pages.metrics(), indent=2))
        elif options.markdown:
            print(reference_pages.metrics_page())
        else:
            print(reference_pages.metrics_table())
        return EXIT_OK

    parser.set_defaults(run=run)


def _add_rules(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "rules",
        help="write Prometheus rules for the configured SLOs",
        description="Write recording rules and multi-window burn-rate alerts for the "
        "`slos:` of the configuration file. They work for one sidecar or a fleet.",
    )
    add_config(parser, required=True)
    parser.add_argument(
        "--runbooks-url",
        default="deploy/runbooks",
        metavar="URL",
        help="base URL of the runbooks, like TritonSLOBurnPage.md (default %(default)s)",
    )
    parser.add_argument(
        "--grafana-url", default="", metavar="URL", help="base URL of Grafana"
    )

    def run(options: argparse.Namespace) -> int:
        from exporter.config import configuration  # noqa: PLC0415 - heavy, only here
        from exporter.features.slo.objectives import expanded  # noqa: PLC0415
        from exporter.features.slo.slo_rules import Links, rules_file  # noqa: PLC0415

        objectives = expanded(configuration.load(options.config).slos)
        if not objectives:
            problem = "found no `slos:`; there is nothing to write rules for"
            raise ConfigError(str(options.config), [problem])
        links = Links(options.runbooks_url, options.grafana_url)
        sys.stdout.write(rules_file(objectives, links))
        return EXIT_OK

    parser.set_defaults(run=run)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"found {text!r}; want a non-negative integer")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"found {text!r}; want a positive number of seconds"
        )
    return value


def _add_demo(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "demo",
        help="run a real Triton with demo models, the sidecar and light traffic",
        description="Start an embedded Triton with the demo models, the sidecar and light "
        "traffic. Print the URLs, and then what is measured.",
    )
    parser.add_argument(
        "--duration", type=_seconds, metavar="S", help="stop after S seconds"
    )
    parser.add_argument(
        "--no-traffic", action="store_true", help="send no traffic besides the probes"
    )
    parser.add_argument(
        "--scenario",
        choices=("silent-failure", "drift", "overload", "dead-backend", "slow-rollout"),
        help="make something go wrong, and print where it shows (default: drift, after a "
        "minute)",
    )
    parser.add_argument(
        "--scenario-after",
        type=_seconds,
        metavar="S",
        help="seconds before it goes wrong, at least (default 20; 60 without --scenario)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8003,
        help="port of the sidecar (0: any free port; default 8003)",
    )
    parser.add_argument(
        "--default-ports",
        action="store_true",
        help="use the usual ports, so that other commands find them: Triton 8000, 8001 and "
        "8002, taps 8004 (default: free ports)",
    )

    parser.add_argument(
        "--trace-rate",
        type=_whole,
        metavar="N",
        help="trace one request in N, or none (0). By default every request for 40 s, so "
        "that p99 is known soon, and then one in 7. Use 0 with heavy load: Triton before "
        "2.57 crashes on one traced request in tens of thousands",
    )

    def run(options: argparse.Namespace) -> int:
        from exporter.demo import demo  # noqa: PLC0415 - heavy, only here

        if options.scenario and options.no_traffic:
            parser.error("--scenario needs traffic; leave out --no-traffic")
        return demo.run(
            duration_seconds=options.duration,
            traffic=not options.no_traffic,
            port=options.port,
            default_ports=options.default_ports,
            trace_rate=options.trace_rate,
            scenario=options.scenario or "drift",
            scenario_after_seconds=options.scenario_after
            or (20.0 if options.scenario else 60.0),
        )

    parser.set_defaults(run=run)


def _add_audit(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "audit",
        help="inspect a server once and report problems with evidence",
        description="Inspect one server: where a request's time goes, which models really "
        "serve, which of Triton's metrics are wrong, and what to do about it, each with "
        "its evidence. Sends a few tensors through each model; changes nothing. Without a "
        "configuration file it inspects localhost. Exits with 1 if a finding is a warning "
        "or worse.",
    )
    add_config(parser)
    parser.add_argument(
        "--duration",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds to observe, 1 to 600 (default 10)",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "html"),
        default="text",
        dest="form",
        help="format of the report (default text)",
    )

    def run(options: argparse.Namespace) -> int:
        from exporter.commands.audit import audit_command  # noqa: PLC0415 - heavy, only here

        found = audit_command.audit(
            options.config, options.duration, progress_of("audit")
        )
        sys.stdout.write(audit_command.rendered(found, options.form))
        return EXIT_FINDING if found.failed else EXIT_OK

    parser.set_defaults(run=run)


if __name__ == "__main__":
    sys.exit(main())
