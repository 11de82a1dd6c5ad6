"""A soak: random faults, one after another, and a test for growth of the sidecar.

It is an ordinary experiment whose method is drawn from a seed, and is run, undone and
reported like any other. In addition, `measuring.footprint` tests the trend of the sidecar's
memory and descriptors over time.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos import experiment
from loadtests.chaos.activities import TOOLKIT
from loadtests.chaos.measuring.footprint import SOAK
from loadtests.chaos.measuring.observations import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadtests.chaos.experiment import Loaded

MODEL: Final = "digits_fp32"
FAULTS: Final[tuple[tuple[dict[str, Any], float], ...]] = (
    ({"kind": "kill_server"}, 2.0),
    ({"kind": "freeze_server"}, 1.0),
    ({"kind": "kill_stub", "model": MODEL}, 2.0),
    ({"kind": "freeze_stub", "model": MODEL}, 0.5),
    ({"kind": "unload_model", "model": MODEL}, 2.0),
    ({"kind": "erring_model", "model": MODEL, "share": 0.5}, 2.0),
    ({"kind": "lying_model", "model": MODEL, "lie": "nan"}, 2.0),
    ({"kind": "network_delay", "delay_ms": 50.0}, 2.0),
    ({"kind": "network_loss", "loss_percent": 10.0}, 2.0),
    ({"kind": "bandwidth", "kilobits_per_second": 64.0}, 2.0),
    ({"kind": "partition"}, 2.0),
    ({"kind": "reset"}, 2.0),
)
"""Faults to draw from, each with its seconds: none that needs a privilege or that ends
or stops the sidecar, whose memory is measured.
"""

_PAUSE_SECONDS: Final = 8.0
"""Mean time between faults; enough to be served again."""
_LONGEST: Final = 90
"""Faults of one soak: a method has an end."""


def drawn(minutes: float, seed: int) -> Loaded:
    """Return the experiment of a soak of about this length.

    Raises:
        ValueError: it is longer than one method can be.
    """
    rng = random.Random(seed)  # noqa: S311 - an order, no secret
    method: list[dict[str, Any]] = []
    left, spent = minutes * 60, 0.0
    mean = _PAUSE_SECONDS + sum(seconds for _, seconds in FAULTS) / len(FAULTS)
    pause = max(_PAUSE_SECONDS, left / _LONGEST - (mean - _PAUSE_SECONDS))
    bag: list[tuple[dict[str, Any], float]] = []
    while spent < left and len(method) < 2 * _LONGEST:
        if not bag:
            # Every fault comes once before one comes twice.
            bag = rng.sample(FAULTS, len(FAULTS))
        fault, seconds = bag.pop()
        rest = rng.uniform(0.75, 1.25) * pause
        method += [
            _activity(fault["kind"], "inject", {"fault": fault}, seconds),
            _activity(f"undo {fault['kind']}", "undo", None, rest),
        ]
        spent += seconds + rest
    return experiment.parse(_document(minutes, seed, method), f"soak-{seed}")


def _activity(
    name: str, function: str, arguments: Mapping[str, Any] | None, seconds: float
) -> dict[str, Any]:
    provider: dict[str, Any] = {
        "type": "python",
        "module": TOOLKIT,
        "func": function,
    }
    if arguments is not None:
        provider["arguments"] = arguments
    return {
        "type": "action",
        "name": name.replace("_", " "),
        "provider": provider,
        "pauses": {"after": round(seconds, 3)},
    }


def _document(
    minutes: float, seed: int, method: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "version": "1.0.0",
        "title": f"Random faults for {minutes:g} minutes",
        "description": SOAK,
        "tags": ["soak"],
        "method": list(method),
        "rollbacks": [_activity("undo", "undo", None, 0.0)],
        "extensions": [
            {
                "name": NAME,
                "target": {
                    "kind": "embedded",
                    "models": [MODEL],
                    "proxy": True,
                    "sidecar": {},
                },
                "load": {
                    "models": [{"model": MODEL}],
                    "profile": {"kind": "poisson", "requests_per_second": 20},
                },
                "timing": {"before_seconds": 5, "after_seconds": 10},
                "recovery": {"hold_seconds": 2.0},
                "seed": seed,
            }
        ],
    }
