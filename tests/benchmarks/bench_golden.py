"""Label-free accuracy on real records: how far off, beside NannyML's own figure."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import figures
import numpy as np

from exporter.golden.calibration import calibrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from numpy.typing import NDArray

VERSION: Final = "0.13.1"
FOLDER: Final = Path(__file__).parents[2] / "build" / f"nannyml-{VERSION}"
_SHA256: Final = "cf5f4a33489834ae6773cb1baa33a0f98c0a3ee6ed9b43049478b25ce22fe869"
_FILES: Final = ("reference", "analysis", "analysis_target")
_CHUNK: Final = 5_000
# As measured with NannyML's CBPE on the same chunks.
_NANNYML_MAE: Final = 0.0051


def census(*, quick: bool = False) -> Iterator[Figure]:
    """Employment in Massachusetts, real ACS records: calibrated on 2015, 2016 to 2018
    estimated in chunks of 5,000 without their labels."""
    del quick
    reference, analysis, target = (_records(name) for name in _FILES)
    said, right = _confidence(reference, reference)
    calibration = calibrate(said, right)
    if calibration is None:
        raise RuntimeError("the reference holds no answers")
    produced, truth = _confidence(analysis, target)
    starts = range(0, len(produced) - _CHUNK + 1, _CHUNK)
    estimates = [calibration.estimate(produced[i : i + _CHUNK]) for i in starts]
    found = np.array([truth[i : i + _CHUNK].mean() for i in starts])
    errors = np.abs([e.accuracy for e in estimates] - found)
    inside = [e.low <= f <= e.high for e, f in zip(estimates, found, strict=True)]
    yield figures.at_most(
        "golden.estimated_accuracy.mean_absolute_error",
        float(errors.mean()),
        "ratio",
        0.006,
        measured=f"{len(found)} chunks of {_CHUNK} records; realised accuracy "
        f"{found.min():.3f} to {found.max():.3f}, inside the 95 % interval "
        f"{100 * np.mean(inside):.0f} % of the time",
        n=len(found),
        peer=_NANNYML_MAE,
        peer_name=f"NannyML {VERSION} CBPE",
        ratio=float(errors.mean()) / _NANNYML_MAE,
    )
    constant = np.abs(right.mean() - found)
    yield figures.at_most(
        "golden.estimated_accuracy.over_assuming_no_change",
        float(errors.mean() / constant.mean()),
        "ratio",
        1.0,
        measured="error of the estimate over that of taking the reference's accuracy",
        n=len(found),
    )


def _confidence(
    answers: dict[str, NDArray[Any]], labels: dict[str, NDArray[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    yes = answers["predicted_probability"]
    predicted = answers["prediction"]
    said = np.where(predicted == 1, yes, 1 - yes)
    return said, (predicted == labels["employed"]).astype(np.float64)


def _records(name: str) -> dict[str, NDArray[Any]]:
    figures.require(found=_has_pyarrow(), what="pyarrow", how="pip install pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    path = FOLDER / f"employment_MA_{name}.pq"
    if not path.is_file():
        _fetch()
    table = parquet.read_table(path)
    wanted = {"predicted_probability", "prediction", "employed"}
    return {n: table.column(n).to_numpy() for n in wanted & set(table.column_names)}


def _has_pyarrow() -> bool:
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ImportError:
        return False
    return bool(pa.__version__)


def _fetch() -> None:
    """Take the records out of NannyML's wheel, checked by its hash, never installed."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"nannyml=={VERSION} --hash=sha256:{_SHA256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*pip, "--require-hashes", "-r", str(wanted), "-d", folder],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        wheels = list(Path(folder).glob("*.whl"))
        figures.require(
            found=done.returncode == 0 and bool(wheels),
            what=f"wheel nannyml {VERSION}",
            how=f"pip says: {done.stderr.strip()[-200:]}",
        )
        FOLDER.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(wheels[0].read_bytes())) as wheel:
            for name in _FILES:
                member = f"nannyml/datasets/data/employment_MA_{name}.pq"
                part = FOLDER / f".{name}.part"
                part.write_bytes(wheel.read(member))
                part.rename(FOLDER / f"employment_MA_{name}.pq")
