"""The command `tritonwatch`. Exit 0 is ok, 1 a finding, 2 wrong usage or config."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exporter.commands import cold_start_options, comparison_options
from exporter.errors import ConfigError, ListenError, TritonwatchError
from exporter.system import memory, standard_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Command = Callable[[argparse.Namespace], int]
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_USAGE: Final = 2
COMMANDS_GROUP: Final = "tritonwatch.commands"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the value is the exit status."""
    options = _parser().parse_args(arguments)
    run: Command = options.run
    try:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tritonwatch",
        description="Watches an NVIDIA Triton Inference Server; its numbers can be "
        "trusted, and it says how far.",
    )
    parser.add_argument(
        "--version", action="version", version=f"tritonwatch {version('tritonwatch')}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_check(commands)
    _add_schema(commands)
    _add_metrics(commands)
    _add_rules(commands)
    _add_demo(commands)
    _add_audit(commands)
    _add_golden(commands)
    comparison_options.add(commands)
    cold_start_options.add(commands)
    # Packages beside the exporter bring their own commands, so that nothing here
    # imports them.
    for entry in sorted(entry_points(group=COMMANDS_GROUP), key=lambda e: e.name):
        entry.load()(commands)
    return parser


def _add_config(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", required=required, help="YAML file"
    )


def _add_serve(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the sidecar",
        description="Run the sidecar. Without a file: localhost:8001 and 8000, all "
        "ready models, on port 8003. SIGHUP reads the file again.",
    )
    _add_config(parser)
    parser.add_argument(
        "--web.enable-lifecycle",
        dest="lifecycle",
        action="store_true",
        help="allow POST /-/reload",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config",
        type=Path,
        metavar="FILE",
        help="TLS and passwords, in exporter-toolkit's format",
    )

    def run(options: argparse.Namespace) -> int:
        standard_error.occupy_descriptor()
        # Until the sidecar handles them itself: the imports below take most of its
        # start, the file is read after them, and the first process of a container
        # would not hear of a SIGTERM at all.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_OK))
        if sys.argv[1:2] == ["serve"]:
            memory.start_with_small_caches()
        from exporter.commands.serving import serve  # noqa: PLC0415 - heavy, only here

        serve(
            options.config,
            lifecycle=options.lifecycle,
            web_config=options.web_config,
        )
        return EXIT_OK

    parser.set_defaults(run=run)


def _add_check(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "check", help="check a configuration file: every error at once"
    )
    _add_config(parser, required=True)

    def run(options: argparse.Namespace) -> int:
        from exporter.config import configuration, connect  # noqa: PLC0415 - heavy, only here

        try:
            loaded = configuration.load(options.config)
            for client in (
                connect.grpc_client(loaded.target),
                connect.http_client(loaded.target),
            ):
                if client is not None:
                    client.close()
        except ConfigError as error:
            for problem in error.problems:
                print(f"{options.config}: {problem}", file=sys.stderr)
            return EXIT_FINDING
        print(f"{options.config}: ok")
        return EXIT_OK

    parser.set_defaults(run=run)


def _add_schema(commands: Subparsers) -> None:
    parser = commands.add_parser("schema", help="the configuration's JSON schema")
    parser.add_argument("--markdown", action="store_true", help="as a reference page")

    def run(options: argparse.Namespace) -> int:
        from exporter.commands import reference  # noqa: PLC0415 - heavy, only here

        print(reference.config_page() if options.markdown else reference.schema())
        return EXIT_OK

    parser.set_defaults(run=run)


def _add_metrics(commands: Subparsers) -> None:
    parser = commands.add_parser("metrics", help="every metric that can be exposed")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--markdown", action="store_true", help="as a reference page")

    def run(options: argparse.Namespace) -> int:
        from exporter.commands import reference  # noqa: PLC0415 - heavy, only here

        if options.json:
            print(json.dumps(reference.metrics(), indent=2))
        elif options.markdown:
            print(reference.metrics_page())
        else:
            print(reference.metrics_table())
        return EXIT_OK

    parser.set_defaults(run=run)


def _add_rules(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "rules",
        help="Prometheus rules for the configured SLOs",
        description="Write recording rules and multi-window burn-rate alerts for the "
        "`slos:` of the file, for a fleet of sidecars.",
    )
    _add_config(parser, required=True)

    def run(options: argparse.Namespace) -> int:
        from exporter.config import configuration  # noqa: PLC0415 - heavy, only here
        from exporter.features.slo.objectives import expanded  # noqa: PLC0415
        from exporter.features.slo.slo_rules import rules_file  # noqa: PLC0415

        objectives = expanded(configuration.load(options.config).slos)
        if not objectives:
            problem = "found no `slos:`; there is nothing to write rules for"
            raise ConfigError(str(options.config), [problem])
        sys.stdout.write(rules_file(objectives))
        return EXIT_OK

    parser.set_defaults(run=run)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"found {text!r}; want a whole number from 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}; want seconds above 0")
    return value


def _add_demo(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "demo",
        help="a real Triton, demo models, the sidecar and gentle traffic",
        description="Start an embedded Triton with the demo models, the sidecar and "
        "gentle traffic; print the URLs and one line a second of what is measured.",
    )
    parser.add_argument(
        "--duration", type=_seconds, metavar="S", help="end after S seconds"
    )
    parser.add_argument(
        "--no-traffic", action="store_true", help="send nothing but the probes"
    )
    parser.add_argument(
        "--drift-after",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="after S seconds the patients asked about are older ones (default 60)",
    )
    parser.add_argument(
        "--scenario",
        choices=("silent-failure",),
        help="have something go wrong: a model starts to lie",
    )
    parser.add_argument(
        "--scenario-after",
        type=_seconds,
        default=20.0,
        metavar="S",
        help="seconds until it does, at the earliest (default 20)",
    )
    parser.add_argument(
        "--port", type=int, default=8003, help="port of the sidecar, 0 for a free one"
    )
    parser.add_argument(
        "--default-ports",
        action="store_true",
        help="Triton on 8000, 8001 and 8002, the taps on 8004, where every other command "
        "looks for them; else on free ports",
    )

    parser.add_argument(
        "--trace-rate",
        type=_whole,
        default=2,
        metavar="N",
        help="Triton traces one request in N (default 2), or none (0): take that where much "
        "is sent, since Triton before 2.57 dies of one traced request in tens of thousands",
    )

    def run(options: argparse.Namespace) -> int:
        from exporter.demo import demo  # noqa: PLC0415 - heavy, only here

        return demo.run(
            duration_seconds=options.duration,
            traffic=not options.no_traffic,
            port=options.port,
            default_ports=options.default_ports,
            trace_rate=options.trace_rate,
            moves_after_seconds=options.drift_after,
            scenario=options.scenario,
            scenario_after_seconds=options.scenario_after,
        )

    parser.set_defaults(run=run)


def _add_audit(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "audit",
        help="one look at a server: where the time goes, what lies, what to do",
        description="Look once at one server and say where a request's time goes, what "
        "is ready in truth, which of Triton's metrics lie and what to do, each with its "
        "evidence. Sends a few tensors through each model; changes nothing. Without a "
        "file: localhost. Exit 1 if anything is at warning or above.",
    )
    _add_config(parser)
    parser.add_argument(
        "--duration",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds the look takes, 1 to 600 (default 10)",
    )
    parser.add_argument(
        "--format", choices=("text", "json", "html"), default="text", dest="form"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the report there"
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON report's schema, and end"
    )

    def run(options: argparse.Namespace) -> int:
        from exporter.commands.audit import audit_command, audit_report  # noqa: PLC0415 - heavy, only here

        if options.schema:
            print(audit_report.schema())
            return EXIT_OK
        if options.output is not None:
            audit_command.check_writable(options.output)
        found = audit_command.audit(
            options.config,
            options.duration,
            lambda line: print(f"audit: {line}", file=sys.stderr, flush=True),
        )
        content = audit_command.rendered(found, options.form)
        if options.output is None:
            sys.stdout.write(content)
        else:
            audit_command.write(options.output, content)
        return EXIT_FINDING if found.failed else EXIT_OK

    parser.set_defaults(run=run)


def _add_golden(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "golden",
        help="ask a golden set once: record what a trusted model answers, or score",
        description="Ask a whole golden set of a served model once. `record` asks twice "
        "and writes the set with the answers, which golden probes then expect; `score` "
        "prints what the answers are worth, and ends with 1 where recorded ones differ.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, text in (
        ("record", "write the expected answers"),
        ("score", "print scores"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--model", required=True, help="name of the model")
        action.add_argument("--version", default="", help="the latest if left out")
        action.add_argument("--data", type=Path, required=True, metavar="FILE")
        action.add_argument("--label", metavar="COLUMN", help="the column of the truth")
        action.add_argument("--scored", default="", metavar="OUTPUT", help="its output")
        action.add_argument("--grpc", metavar="HOST:PORT", help="address of the server")
        _add_config(action)
        if name == "record":
            action.add_argument("--output", type=Path, required=True, metavar="FILE")
        action.set_defaults(run=_run_golden)


def _run_golden(options: argparse.Namespace) -> int:
    from exporter.commands import golden_command  # noqa: PLC0415 - heavy, only here

    data = golden_command.settings_of(
        options.data, label=options.label, output=options.scored
    )
    wanted = golden_command.Wanted(
        options.config, options.grpc, options.model, options.version, data
    )

    def tell(line: str) -> None:
        print(f"golden: {line}", file=sys.stderr, flush=True)

    recorded = hasattr(options, "output")
    if recorded:
        asked = golden_command.record(wanted, options.output, tell)
    else:
        asked = golden_command.ask(wanted, tell)
    for metric, value in asked.scores.items():
        print(f"{metric} {value:.6g}")
    print(f"sha256 {asked.golden.sha256}  {asked.golden.rows} rows  {options.data}")
    if recorded:
        print(
            f"recorded {asked.spec.name} version {asked.spec.version} in {options.output}"
        )
    return EXIT_OK if asked.scores.get("match", 1.0) == 1.0 else EXIT_FINDING


if __name__ == "__main__":
    sys.exit(main())
