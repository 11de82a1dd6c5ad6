"""The command `tritonwatch drift`, and files for it."""

from __future__ import annotations

import numpy as np

from drift.report.drift_document import Origin, document
from exporter.cli import main
from pages import page_text


def table(rng, rows, *, shift=0.0, missing=0.0):
    age = rng.normal(40 + 12 * shift, 12, size=rows)
    age[rng.random(rows) < missing] = np.nan
    return {
        "age": age.astype(np.float32),
        "income": rng.lognormal(10, 0.5, size=rows).astype(np.float32),
        "plan": rng.choice(["free", "plus", "team"], size=rows, p=[0.6, 0.3, 0.1]),
    }


def save(path, columns):
    if path.suffix == ".npz":
        np.savez(path, **columns)
    else:
        names = list(columns)
        lines = [",".join(names)]
        lines += [
            ",".join("" if str(v) == "nan" else str(v) for v in row)
            for row in zip(*columns.values(), strict=True)
        ]
        path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def told(found, profile, counts):
    """Return the text that the command prints for a judgement."""
    origin = Origin("before", "now", "", "", {})
    return page_text.render(document(found, profile, counts, origin))


def run(*arguments):
    return main(["drift", *map(str, arguments)])
