"""What runs and what was found, for people: /api/v1/status and the page at /."""

from __future__ import annotations

import platform
from html import escape
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.app import Sidecar
    from exporter.inventory import ModelKey
    from exporter.probes.meter import TargetStatus

_LINKS = ("/metrics", "/api/v1/status", "/-/healthy", "/-/ready")


def document(sidecar: Sidecar) -> dict[str, Any]:
    """The state of everything as JSON-able values; holds no header and no secret."""
    inventory = sidecar.access.board.current
    serving = sidecar.serving()
    return {
        "tritonwatch": {
            "version": version("tritonwatch"),
            "python": platform.python_version(),
        },
        "target": sidecar.config.target.model_dump(include={"grpc", "http", "metrics"}),
        "server": {
            "up": inventory.up,
            "ready": inventory.ready,
            "name": inventory.info.name if inventory.info else None,
            "version": inventory.info.version if inventory.info else None,
        },
        "models": [
            {
                "model": entry.name,
                "version": entry.version,
                "ready": entry.ready,
                "reason": entry.reason,
                "serving": serving.get((entry.name, entry.version)),
            }
            for entry in inventory.index
            if entry.state
        ],
        "probes": [
            {
                "probe": runner.meter.name,
                "model": status.target.key[0],
                "version": status.target.key[1],
                "protocol": status.target.protocol,
                "outcome": status.verdict.outcome,
                "duration_seconds": status.verdict.duration_seconds,
                "detail": status.verdict.detail,
            }
            for runner in sidecar.probe_runners
            for status in sorted(runner.results.statuses(), key=_by_model)
        ],
        "collectors": [
            {
                "collector": runner.meter.name,
                "success": runner.meter.statistics.success,
                "duration_seconds": runner.meter.statistics.duration_seconds,
                "failure": runner.meter.statistics.failure,
            }
            for runner in sidecar.runners
        ],
        **sidecar.sections(),
    }


def _by_model(status: TargetStatus) -> tuple[ModelKey, str]:
    return status.target.key, status.target.protocol


def page(found: dict[str, Any]) -> str:
    """The document as a page that needs no script."""
    server = found["server"]
    links = " ".join(f'<a href="{link}">{link}</a>' for link in _LINKS)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>tritonwatch</title>
<meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto;
  padding: 0 1rem; color-scheme: light dark; }}
table {{ border-collapse: collapse; width: 100%; margin-bottom: 2rem; }}
th, td {{ text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid #8884; }}
.bad {{ color: #c62828; font-weight: 600; }}
</style></head><body>
<h1>tritonwatch {escape(found["tritonwatch"]["version"])}</h1>
<p>Triton {escape(str(server["version"] or "(version unknown)"))} at
{escape(found["target"]["grpc"])}: {_yes(server["up"], "up", "down")},
{_yes(server["ready"], "ready", "not ready")}. {links}</p>
<h2>Models</h2>
{_table(found["models"], ("model", "version", "ready", "serving", "reason"))}
<h2>Probes</h2>
{
        _table(
            found["probes"],
            (
                "model",
                "version",
                "protocol",
                "probe",
                "outcome",
                "duration_seconds",
                "detail",
            ),
        )
    }
<h2>Collectors</h2>
{_table(found["collectors"], ("collector", "success", "duration_seconds", "failure"))}
</body></html>
"""


def _yes(value: object, yes: str, no: str) -> str:
    return yes if value else f'<span class="bad">{no}</span>'


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{_cell(row[column])}</td>" for column in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return _yes(value, "yes", "no")
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))
