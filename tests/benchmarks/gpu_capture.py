"""A minute of a real GPU: our energy beside nvidia-smi's, kept as JSON.

    python tests/benchmarks/gpu_capture.py [--seconds 60] [--output FILE]

For a machine with an NVIDIA driver; put load on the board meanwhile. It reads the boards
as the sidecar does, once a second, and lets nvidia-smi write its instantaneous power ten
times a second, whose sum is held against the energy counted. On the machines this project
is developed on there is no GPU: it has been run against the scripted library only.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import io
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from exporter.access.work_board import WorkBoard
from exporter.features.energy.energy_meter import MICRO, Meter
from exporter.features.energy.sources.nvml import NvmlSettings
from exporter.features.energy.sources.power_source import Surroundings

_PERIOD_MS: Final = 100
_QUERY: Final = "timestamp,uuid,power.draw.instant"


def main(arguments: list[str] | None = None) -> int:
    """Capture, write, and print how far the two are apart."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", type=Path, help="JSON; by default on stdout")
    options = parser.parse_args(arguments)
    program = shutil.which("nvidia-smi")
    source = NvmlSettings().find(
        Surroundings(time.monotonic, time.time, None, WorkBoard())
    )
    if program is None or source is None:
        print("found no NVIDIA driver, or no board", file=sys.stderr)
        return 1
    theirs = subprocess.Popen(
        [
            program,
            f"--query-gpu={_QUERY}",
            "--format=csv,noheader,nounits",
            f"-lms={_PERIOD_MS}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        ours = _readings(source, options.seconds)
    finally:
        source.close()
        theirs.terminate()
        printed, _ = theirs.communicate(timeout=10)
    report = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "seconds": options.seconds,
        "source": source.description,
        "boards": _compared(ours, printed, options.seconds),
    }
    text = json.dumps(report, indent=2)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text + "\n", "utf-8")
    return 0


def _readings(source: Any, seconds: float) -> dict[str, dict[str, Any]]:
    """What the sidecar would have counted, and every reading, by board."""
    meters: dict[str, Meter] = {}
    captured: dict[str, list[dict[str, Any]]] = {}
    began = time.monotonic()
    due = began
    while True:
        for reading in source.read():
            key = reading.device.key
            meters.setdefault(key, Meter()).add(reading)
            captured.setdefault(key, []).append(
                {
                    "at": reading.at - began,
                    "counter_microjoules": reading.counter_microjoules,
                    "power_watts": reading.power_watts,
                    "average_watts": reading.average_watts,
                    "utilization_ratio": reading.utilization_ratio,
                    "faults": sorted(reading.faults),
                    "samples": {
                        f"{s.spec.name}{list(s.labels[4:])}": s.value
                        for s in reading.samples
                    },
                }
            )
        due += 1.0
        if due - began > seconds + 0.5:
            break
        time.sleep(max(0.0, due - time.monotonic()))
    return {
        key: {
            "joules": meter.take(meter.read_until or 0.0)[0] / MICRO,
            "reading": meter.kind,
            "readings": captured[key],
        }
        for key, meter in meters.items()
    }


def _compared(
    ours: dict[str, dict[str, Any]], printed: str, seconds: float
) -> dict[str, dict[str, Any]]:
    powers: dict[str, list[float]] = {}
    for row in csv.reader(io.StringIO(printed), skipinitialspace=True):
        if len(row) == len(_QUERY.split(",")):
            powers.setdefault(row[1], []).append(float(row[2]))
    return {
        key: {
            **found,
            "nvidia_smi_samples": len(powers.get(key, ())),
            "nvidia_smi_joules": float(np.mean(powers[key])) * seconds
            if powers.get(key)
            else None,
            "ratio": found["joules"] / (float(np.mean(powers[key])) * seconds)
            if powers.get(key)
            else None,
        }
        for key, found in ours.items()
    }


if __name__ == "__main__":
    sys.exit(main())
