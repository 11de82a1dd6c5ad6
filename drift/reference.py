"""The reference profile: the training data as counts, small enough to ship with a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift import codec, limits
from drift.categories import CategoryGrid, new_values
from drift.dispersion import Dispersion
from drift.errors import DriftError, ProfileError, StateError
from drift.features import JOINT, Feature, Schema, Tensor
from drift.grid import CELLS, INNER, OTHER, NumericGrid
from drift.joint import JointModel
from drift.names import FEW_NAMES
from drift.projection import (
    BINS,
    EVENTS,
    FEWER_BINS,
    ORDERED_CELLS,
    Projection,
    Summary,
    project,
)
from drift.season import Season
from drift.window import Accumulator, Counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from drift.grid import FloatType

    Floats = NDArray[np.float64]

JOINT_VERSION: Final = 4
"""Format with correlations between columns."""
VERSION: Final = 3
"""Format with numeric features' own edges, or filters of many names."""
FILTER_VERSION: Final = 2
"""Format with filters for the names of categories that share a cell."""
FIRST_VERSION: Final = 1
"""Format without either; programs of 0.1.0 read it."""
KIND: Final = "profile"
LEVELS: Final = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
NO_JOINT: Final = (
    "correlations between columns: the reference was made before they were compared; make "
    "it again"
)
_UNREADABLE: Final = (IndexError, KeyError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a profile, as reported by its maker; nothing here is computed.

    `sha256` of the data, `versions` of the libraries that read it, `source` in words.
    """

    source: str = ""
    sha256: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """Schema, cells, counts and dependence of the reference.

    `quantiles` (numeric features, len(LEVELS)) are the sample's, in the features'
    own units. `dispersion` rests on `blocks` of `block_rows`; `ordered` is
    true if the rows were in time order. `season` is None with less than
    four weeks of timestamps.
    """

    schema: Schema
    grid: NumericGrid
    categories: tuple[CategoryGrid, ...]
    counts: Counts
    quantiles: Floats
    dispersion: Dispersion
    blocks: int
    block_rows: int
    ordered: bool
    season: Season | None = None
    provenance: Provenance = field(default_factory=Provenance)
    weekdays: tuple[int, ...] | None = None
    """Days of the week that had rows, 0 for Monday; None without times."""
    joint: JointModel | None = field(default=None, compare=False)
    """Correlations between columns: of the last feature and the last of `categories`."""
    no_joint: str = ""
    """Why there is no `joint`, as a limit; "" also where there is no pair of columns."""
    joint_name: str = field(default=JOINT, compare=False)
    """The feature's name, which two profiles of one model must not share."""
    bins: int = BINS
    """Most coarse bins of a feature."""
    read_as: str = field(default="", compare=False)
    """Checksum of the file it was read from, "" where it was made here."""

    @cached_property
    def fingerprint(self) -> str:
        """Checksum of the profile's file, which identifies it."""
        return self.read_as or codec.digest_of(self.to_bytes(), KIND, self._version)

    @property
    def _version(self) -> int:
        if self.joint is not None:
            return JOINT_VERSION
        large = any(len(c.others) > FEW_NAMES for c in self.categories)
        if self.grid.cuts or large:
            return VERSION
        shared = any(category.others for category in self.categories)
        return FILTER_VERSION if shared else FIRST_VERSION

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the order of every array about features: the schema's, and the joint one."""
        joint = () if self.joint is None else (self.joint_name,)
        return self.schema.names + joint

    def is_joint(self, feature: int) -> bool:
        """Return whether a feature represents the correlations between the others."""
        return feature == len(self.schema.features)

    @property
    def rows(self) -> int:
        """Reference rows."""
        return self.counts.rows

    @cached_property
    def projection(self) -> Projection:
        """Scores and coarse bins, from the counts."""
        return project(self.counts, frozenset(self.grid.cuts), self.bins)

    @cached_property
    def summary(self) -> Summary:
        """Return the reference's own sums, with the values that it would not have known itself.

        A reference has seen all its own values, yet clean traffic brings new ones: as
        many, of as many rows, as there are values it saw once (Good, 1953).
        """
        own = self.projection.summarise(self.counts)
        for feature, place in enumerate(self.projection.between):
            if place < BINS:
                of_size = np.bincount(self.counts.cells[feature, :ORDERED_CELLS])
                once, twice = np.append(of_size, (0, 0))[1:3]
                own.bins[feature, place] += new_values(int(once), int(twice))
        outside = EVENTS.index("outside")
        for index, category in enumerate(self.categories, self.schema.numeric):
            cells = self.counts.cells[index]
            expected = category.expected_unseen
            if expected is None:
                kept = cells[: len(category.values)]
                expected = (kept == 1).sum() + min(len(category.others), cells[OTHER])
            seen = own.events[index, outside] + expected
            own.events[index, outside] = min(seen, own.finite[index])
        return own

    @property
    def caveats(self) -> tuple[str, ...]:
        """Return why the false-alarm rate may not hold; empty if it does."""
        return tuple(limits.caveats(self))

    @property
    def blind_spots(self) -> tuple[str, ...]:
        """Return which changes would not be found; empty if nothing is known of any."""
        return tuple(limits.blind_spots(self))

    def is_open(self, feature: int) -> bool:
        """Return whether a category has too many values to know which are new."""
        place = feature - self.schema.numeric
        return place >= 0 and self.categories[place].open

    def accumulator(self) -> Accumulator:
        """An empty window over this profile's cells."""
        own = len(self.schema.features) - self.schema.numeric
        return Accumulator(self.schema, self.grid, self.categories[:own], self.joint)

    def constant(self, window: Counts) -> NDArray[np.bool_]:
        """Return which features vary in the reference and are constant in a window."""
        found = np.asarray(window.constant & ~self.counts.constant)
        found[len(self.schema.features) :] = False
        return found

    def require(self, schema: Schema) -> None:
        """Check that a model's schema is this one.

        Raises:
            ProfileError: it is not; every difference is listed.
        """
        differences = self.schema.differences(schema)
        if differences:
            raise ProfileError(differences)

    def cell_label(self, feature: int, first: int, last: int) -> str:
        """Cells `first..last` of a feature in its own unit, for a person to read."""
        if feature < self.schema.numeric:
            return self.grid.label(feature, first, last)
        values = self.categories[feature - self.schema.numeric].values
        rest = "unusual" if self.is_joint(feature) else "other or unseen"
        return values[first] if first < len(values) else rest

    def bin_label(self, feature: int, cells: Sequence[int]) -> str:
        """The cells of one coarse bin, in order, for a person to read."""
        if feature < self.schema.numeric and self.projection.is_between(
            feature, cells[0]
        ):
            return "values that the reference does not have"
        return self.cell_label(feature, cells[0], cells[-1])

    def to_bytes(self) -> bytes:
        """Versioned, checksummed, readable; the same profile gives the same bytes."""
        return codec.encode(KIND, self._version, _payload(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Profile:
        """Read what `to_bytes` wrote.

        Raises:
            StateError: the bytes are foreign, damaged or of another version.
        """
        found = codec.version_of(data)
        known = (FIRST_VERSION, FILTER_VERSION, VERSION)
        version = next((each for each in known if found == str(each)), JOINT_VERSION)
        payload = codec.decode(data, KIND, version)
        try:
            return replace(
                _restore(payload), read_as=codec.digest_of(data, KIND, version)
            )
        except (*_UNREADABLE, DriftError) as error:
            raise StateError(f"cannot read the profile: {error!r}") from error


def _payload(profile: Profile) -> dict[str, Any]:
    schema, grid, season = profile.schema, profile.grid, profile.season
    return {
        "tensors": [[t.name, t.datatype, list(t.row_shape)] for t in schema.tensors],
        "features": [[f.name, f.tensor, f.column, f.kind] for f in schema.features],
        "grid": {
            "low": grid.low,
            "width": grid.width,
            "dtype": grid.dtype.name,
            "cuts": [[feature, edges] for feature, edges in grid.cuts.items()],
        },
        "categories": [category.state() for category in profile.categories],
        "joint": profile.joint.state() if profile.joint else profile.no_joint,
        "rows": profile.rows,
        "cells": profile.counts.cells,
        "bins": profile.bins,
        "levels": LEVELS,
        "quantiles": profile.quantiles,
        "dispersion": {
            "location": profile.dispersion.location,
            "scale": profile.dispersion.scale,
            "shape": profile.dispersion.shape,
            "events": profile.dispersion.events,
            "growth": profile.dispersion.growth,
            "unit_rows": profile.dispersion.unit_rows,
            "reach_rows": _finite(profile.dispersion.reach_rows),
            "shown": [
                [feature, shown[:, : profile.bins]]
                for feature, shown in enumerate(profile.dispersion.shown)
                if np.isfinite(shown).all()
            ],
        },
        "blocks": profile.blocks,
        "block_rows": profile.block_rows,
        "ordered": profile.ordered,
        "season": season and asdict(season),
        "weekdays": profile.weekdays,
        "caveats": profile.caveats,
        "source": profile.provenance.source,
        "sha256": profile.provenance.sha256,
        "versions": dict(profile.provenance.versions),
    }


def _feature(name: Any, tensor: Any, column: Any, kind: Any) -> Feature:
    if not (isinstance(name, str) and isinstance(tensor, str)):
        raise StateError(f"feature {name!r} of tensor {tensor!r}; want two names")
    return Feature(name, tensor, int(column), kind)


def _restore(payload: dict[str, Any]) -> Profile:
    schema = Schema(
        tuple(Tensor(n, d, tuple(shape)) for n, d, shape in payload["tensors"]),
        tuple(_feature(*fields) for fields in payload["features"]),
    )
    categories = tuple(map(CategoryGrid.from_state, payload["categories"]))
    own = len(schema.features) - schema.numeric
    joint = payload.get("joint", NO_JOINT)
    model, no_joint = None, joint
    if isinstance(joint, dict):
        model = JointModel.from_state(joint, schema.numeric, categories[:own])
        no_joint = ""
    features = len(schema.features) + (model is not None)
    cells = np.array(payload["cells"], np.int64).reshape(-1, CELLS)
    if not cells.shape[0] == schema.numeric + len(categories) == features:
        raise StateError(f"{cells.shape[0]} counts, {features} features")
    bins = int(payload.get("bins", FEWER_BINS))
    if not 1 < bins <= BINS:
        raise StateError(f"{bins} coarse bins; want 2 to {BINS}")
    grid, spread, season = payload["grid"], payload["dispersion"], payload["season"]
    return Profile(
        schema,
        NumericGrid(
            _floats(grid["low"]),
            _floats(grid["width"]),
            _dtype(grid),
            {
                _place(feature, schema.numeric): _increasing(edges)
                for feature, edges in grid.get("cuts", ())
            },
        ),
        categories,
        Counts(cells, int(payload["rows"]), schema.numeric),
        _floats(payload["quantiles"]).reshape(schema.numeric, len(LEVELS)),
        Dispersion(
            _floats(spread["location"]).reshape(features),
            _floats(spread["scale"]).reshape(features),
            _floats(spread["shape"]).reshape(features),
            _floats(spread["events"]).reshape(features, -1),
            _floats(spread["growth"]).reshape(features),
            _floats(spread["unit_rows"]).reshape(features, -1),
            _shown(spread, features, bins),
            np.inf if spread["reach_rows"] is None else float(spread["reach_rows"]),
        ),
        int(payload["blocks"]),
        int(payload["block_rows"]),
        bool(payload["ordered"]),
        season and _season(season, int(payload["rows"])),
        Provenance(payload["source"], payload["sha256"], dict(payload["versions"])),
        _weekdays(payload),
        model,
        str(no_joint),
        bins=bins,
    )


def _season(payload: dict[str, Any], rows: int) -> Season:
    location = _floats(payload["location"])
    # Older profiles have no counts.
    even = np.full(location.shape, rows / location.shape[0])
    return Season(
        location, _floats(payload["scale"]), _floats(payload.get("rows", even))
    )


def _weekdays(payload: dict[str, Any]) -> tuple[int, ...] | None:
    weekdays = payload.get("weekdays")
    return None if weekdays is None else tuple(int(day) for day in weekdays)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _floats(values: object) -> Floats:
    return np.array(values, np.float64)


def _shown(spread: dict[str, Any], features: int, bins: int) -> Floats:
    found = Dispersion.independent(features).shown
    for feature, shares in spread.get("shown", ()):
        place = _place(feature, features)
        found[place] = 0.0
        found[place, :, :bins] = shares
    known = found[~np.isnan(found)]
    if not ((known >= 0) & (known <= 1)).all():
        raise StateError("invalid shares in the reference; want numbers from 0 to 1")
    return found


def _place(feature: object, features: int) -> int:
    if not isinstance(feature, int) or not 0 <= feature < features:
        raise StateError(f"feature {feature!r} of {features}")
    return feature


def _increasing(values: object) -> Floats:
    edges = _floats(values)
    known = 1 < edges.size <= INNER + 1 and np.isfinite(edges).all()
    if not known or not (np.diff(edges) > 0).all():
        raise StateError(
            f"{edges.size} bin edges: too many, or not in increasing order"
        )
    return edges


def _dtype(grid: dict[str, Any]) -> FloatType:
    if grid["dtype"] == "float64":
        return np.dtype(np.float64)
    return np.dtype(np.float32)
