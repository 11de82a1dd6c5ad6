"""The options of `tritonwatch compare`; comparison_command.py runs it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from exporter.commands.common_options import add_config, progress_of

if TYPE_CHECKING:
    from exporter.commands.common_options import Subparsers
    from exporter.features.comparison.comparison_settings import ComparisonSettings

_DESCRIPTION: Final = (
    "Send the same inputs to a champion and a challenger, in random order, until it is "
    "decided which is better or the time is up. With --gate the exit status is the "
    "verdict: 0 if the challenger is equivalent or better in every metric, 1 if it is "
    "worse in one, 3 if undecided. The intervals hold however often they are evaluated. "
    "Sends inferences to both models; changes nothing."
)


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare",
        help="decide whether a challenger is better than the champion",
        description=_DESCRIPTION,
    )
    add_config(parser)
    parser.add_argument(
        "--name", help="run this entry of `comparisons:` in the configuration file"
    )
    parser.add_argument(
        "--champion", metavar="MODEL[:VERSION]", help="the model in production"
    )
    parser.add_argument(
        "--challenger", metavar="MODEL[:VERSION]", help="the model that may replace it"
    )
    parser.add_argument(
        "--preset",
        choices=("precision",),
        help="precision: what a model of lower precision loses and gains (default models: "
        "digits_fp32 and digits_int8 of the demo)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="golden data: inputs, and `label` for accuracy (default: generated inputs)",
    )
    _add_statistics(parser)
    parser.add_argument(
        "--gate", action="store_true", help="exit with the verdict: 0, 1 or 3"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=_run)


def _add_statistics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        dest="metrics",
        metavar="METRIC",
        help="metric to compare, may be repeated (default: accuracy, or agreement without "
        "labels; success, latency_mean, latency_p95)",
    )
    parser.add_argument(
        "--margin",
        action="append",
        default=[],
        type=_margin,
        dest="margins",
        metavar="METRIC=VALUE",
        help="largest loss that does not matter, like latency_p95=0.1; may be repeated",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="probability of a false verdict between equal models (default 0.05)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=100.0,
        help="highest rate, in pairs a second (default 100)",
    )
    parser.add_argument(
        "--budget",
        type=_budget,
        metavar="SHARE",
        help="limit while the champion has production traffic, as a share of its requests "
        "and busy time; `none` limits by --rate alone (default 0.05)",
    )
    parser.add_argument(
        "--duration",
        type=float,
        default=60.0,
        metavar="S",
        help="give up, undecided, after S seconds (default 60)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the order and inputs"
    )


def _margin(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    try:
        return name, float(value if separator else "")
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; want METRIC=VALUE, like latency_p95=0.1"
        ) from None


def _budget(text: str) -> float | Literal["none"]:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if text == "none":
        return "none"
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; want a share above 0 and up to 1, like 0.2, or none"
        )
    return share


def _run(options: argparse.Namespace) -> int:
    from exporter.commands import comparison_command  # noqa: PLC0415 - heavy, only here

    settings = _settings(options)
    report = comparison_command.run(
        options.config,
        settings,
        options.duration,
        progress_of("compare"),
    )
    sys.stdout.write(f"{report.to_json()}\n" if options.json else report.to_text())
    return comparison_command.EXIT_CODES[report.outcome] if options.gate else 0


def _shares(budget: float | Literal["none"] | None) -> dict[str, float | None]:
    """Return what --budget sets; nothing where it was not given."""
    if budget is None:
        return {}
    share = None if budget == "none" else budget
    return {"request_ratio": share, "busy_ratio": share}


def _settings(options: argparse.Namespace) -> ComparisonSettings:
    from exporter.commands import comparison_command  # noqa: PLC0415 - heavy, only here
    from exporter.config.configuration import load  # noqa: PLC0415
    from exporter.errors import ConfigError  # noqa: PLC0415

    if options.duration <= 0:
        raise ConfigError("compare", [f"found --duration {options.duration:g}"])
    shares = _shares(options.budget)
    if options.name:
        for found in load(options.config).comparisons:
            if found.name == options.name:
                budget = found.budget.model_copy(update=shares)
                chosen = comparison_command.decidable(found)
                return chosen.model_copy(update={"budget": budget})
        raise ConfigError(
            str(options.config), [f"found no comparison called {options.name!r}"]
        )
    precision = options.preset == "precision"
    champion = options.champion or ("digits_fp32" if precision else "")
    challenger = options.challenger or ("digits_int8" if precision else "")
    if not champion or not challenger:
        problem = "want --champion and --challenger, --preset precision, or --name"
        raise ConfigError("compare", [problem])
    metrics = tuple(options.metrics)
    if precision and not metrics:
        every = comparison_command.PRECISION
        metrics = every if options.data else every[1:]
    return comparison_command.settings_of(
        champion,
        challenger,
        data=options.data,
        metrics=metrics,
        margins=dict(options.margins),
        alpha=options.alpha,
        budget={
            "idle_pairs_per_second": options.rate,
            "max_pairs_per_second": options.rate,
            **shares,
        },
        seed=options.seed,
    )
