"""Settings of `drift:` in the configuration; loads none of the drift package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, model_validator

from exporter.access.collector_base import Access, Collector, CollectorSettings
from exporter.settings import ModelMention, Settings, pattern_mentions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Side = Literal["inputs", "outputs"]
Watched = Literal["inputs", "outputs", "input_embeddings", "output_embeddings"]
StatisticName = Literal[
    "jensen_shannon",
    "kolmogorov_smirnov",
    "psi",
    "wasserstein",
]

MONTH_SECONDS: Final = 30 * 86400.0


class DriftFeatureSettings(Settings):
    """One watched column of one tensor, under a name of your own."""

    name: str = Field(min_length=1, max_length=100)
    """Value of the `feature` label."""
    tensor: str = Field(min_length=1, max_length=200)
    """Name of the tensor that holds it."""
    column: int = Field(default=0, ge=0, le=1 << 24)
    """Index of the value within a row of the tensor, from 0."""
    type: Literal["numeric", "categorical"] | None = Field(default=None)
    """Type of the feature. null: by datatype, where text and booleans are categorical.
    """
    of: Literal["column", "confidence"] = Field(default="column")
    """`confidence` watches the largest probability of each answer of a classifier whose
    output is probabilities. That of logits is missing, also where the estimated accuracy
    reads them."""

    @model_validator(mode="after")
    def _confidence_is_a_number(self) -> DriftFeatureSettings:
        if self.of == "confidence" and (self.column or self.type == "categorical"):
            found = f"column {self.column}" if self.column else f"type {self.type}"
            raise ValueError(
                f"found {found} with of: confidence, which has one value per row; "
                "leave it out"
            )
        return self


class DriftLearnSettings(Settings):
    """Learn the reference from live traffic, which should resemble future traffic."""

    rows: int = Field(default=10_000, ge=500, le=10_000_000)
    """Minimum number of rows. With as few as 1,000, small changes take longer to
    detect."""
    seconds: float = Field(default=86_400.0, ge=1, le=90 * 86_400)
    """Minimum duration. A whole day covers the daily cycle."""


class DriftWindowSettings(Settings):
    """Size of a window: it closes once it is `seconds` old and has `rows` rows."""

    rows: int = Field(default=500, ge=1, le=100_000_000)
    """Minimum number of rows in a window."""
    seconds: float = Field(default=600.0, ge=1, le=86_400)
    """Minimum time between the ends of two windows."""
    longest_seconds: float = Field(default=86_400.0, ge=1, le=7 * 86_400)
    """Age at which a window closes even if it has fewer rows, as long as it has one."""
    panes: int = Field(default=1, ge=1, le=168)
    """Number of latest windows combined for scores and shares: 1 gives tumbling
    windows, more give sliding ones. Alarms evaluate each window separately.
    """

    @model_validator(mode="after")
    def _ordered(self) -> DriftWindowSettings:
        if self.longest_seconds < self.seconds:
            raise ValueError(
                f"found longest_seconds {self.longest_seconds:g} below seconds "
                f"{self.seconds:g}; want at least {self.seconds:g}"
            )
        return self


class DriftForecastSettings(Settings):
    """Forecast of when the model has to be retrained, if the data support one."""

    accuracy_floor: float | None = Field(default=None, gt=0, lt=1)
    """Lowest acceptable accuracy. Forecasts when triton_estimated_accuracy_ratio of the
    model will fall below it."""
    psi_limit: float | None = Field(default=None, gt=0, le=100)
    """Highest acceptable PSI of any feature, above its mean without a change. Forecasts
    when it will be exceeded.
    """
    every_seconds: float = Field(default=3600.0, ge=1, le=7 * 86_400)
    """Time over which one point of the forecast is averaged. A forecast needs at least
    24 points."""

    @model_validator(mode="after")
    def _something(self) -> DriftForecastSettings:
        if self.accuracy_floor is None and self.psi_limit is None:
            raise ValueError(
                "found neither accuracy_floor nor psi_limit; set one or both"
            )
        return self


class DriftEmbeddingSettings(Settings):
    """Watch what texts are about, by their embeddings."""

    model: str = Field(min_length=1, max_length=200)
    """A model of the same server that embeds text: one input of BYTES, and one output of
    floats with fixed dimensions."""
    tensor: str = Field(min_length=1, max_length=200)
    """Name of the tensor of text."""
    texts_per_second: float = Field(default=1.0, gt=0, le=100)
    """Maximum rate of texts that are embedded, drawn at random from those that were
    mirrored. They are our own requests, and no production."""


class DriftSettings(Settings):
    """Compare the data of some models, received by the taps, with a reference."""

    models: str = Field(default="*", min_length=1, max_length=200)
    """Shell-style pattern of the models. A model uses the first entry that matches."""
    side: Side = Field(default="inputs")
    """Tensors to watch: the models' inputs or their outputs."""
    reference: Path | None = Field(default=None)
    """Path of a reference profile written by `tritonwatch drift fit`. Reloaded when the
    file changes."""
    learn: DriftLearnSettings | None = Field(default=None)
    """Learn the reference from live traffic instead of setting `reference`."""
    features: tuple[DriftFeatureSettings, ...] = Field(default=(), max_length=4096)
    """With `learn`: the columns to watch. If empty, all columns, named `tensor[i]`, but for
    inputs that are optional and for `text`."""
    text: tuple[str, ...] = Field(default=(), max_length=64)
    """With `learn`: tensors of free text, such as prompts. Length, characters, repetition and
    refusals of each are watched, as `TENSOR.characters` and so on; the text is not kept."""
    embedding: DriftEmbeddingSettings | None = Field(default=None)
    """With `learn`: watch the embeddings of one tensor of text instead of the tensors.
    Its metrics have the side `input_embeddings` or `output_embeddings`."""
    window: DriftWindowSettings = Field(default=DriftWindowSettings())
    """Size of the windows that are compared with the reference."""
    false_alarms_per_month: float = Field(default=1.0, gt=0, le=1000)
    """The main setting: maximum mean number of alarms in 30 days while nothing changes,
    over all features of the model and however often they are evaluated.
    """
    margin_sigma: float = Field(default=0.0, ge=0, le=2)
    """Largest shift of a mean that raises no alarm, in standard deviations."""
    margin_rate: float = Field(default=0.0, ge=0, lt=1)
    """Largest increase of a share (missing, out of range, unseen) that raises no alarm.
    """
    statistics: tuple[StatisticName, ...] = Field(
        default=("psi", "jensen_shannon", "kolmogorov_smirnov", "wasserstein"),
        max_length=7,
    )
    """Distances to expose, each with the value expected without a change."""
    classic_thresholds: bool = Field(default=False)
    """Also expose which distances exceed the common rules of thumb (such as PSI 0.2).
    These ignore the number of rows in a window.
    """
    max_features: int = Field(default=100, ge=1, le=4096)
    """Maximum number of features with series of their own; features with an alarm come
    first. All features are watched.
    """
    export_bins: tuple[str, ...] = Field(default=(), max_length=100)
    """Shell-style patterns of features whose bins are also exposed, so that Prometheus
    can sum over a fleet. Up to 17 series per feature, and as many for the reference."""
    state: Path | None = Field(default=None)
    """Folder in which windows, evidence and learnt references are kept across restarts.
    A restart while a reference is being learnt begins its learning again (log event
    `drift_learning_lost`)."""
    state_seconds: float = Field(default=60.0, ge=0.1, le=86_400)
    """Time between two saves. A kill -9 loses the data since the last one."""
    forecast: DriftForecastSettings | None = Field(default=None)
    """Forecast of when the model has to be retrained."""

    @property
    def windows_per_false_alarm(self) -> float:
        """Windows of a month, at their closest, for each false alarm allowed."""
        return MONTH_SECONDS / self.window.seconds / self.false_alarms_per_month

    @property
    def watched(self) -> Watched:
        """Value of the label `side`."""
        if self.embedding is None:
            return self.side
        return "input_embeddings" if self.side == "inputs" else "output_embeddings"

    def model_mentions(self) -> Iterator[ModelMention]:
        """The pattern of the models, and the one that embeds their texts."""
        yield from pattern_mentions("models", [self.models])
        if self.embedding is not None:
            yield ModelMention("embedding.model", self.embedding.model)

    @model_validator(mode="after")
    def _sensible(self) -> DriftSettings:
        if (self.reference is None) == (self.learn is None):
            found = "both" if self.learn else "neither"
            raise ValueError(
                f"found {found} of reference and learn; set `reference` to a profile "
                "or set `learn: {}`"
            )
        chosen = {
            "features": self.features,
            "text": self.text,
            "embedding": self.embedding,
        }
        named = next((name for name, value in chosen.items() if value), None)
        if self.embedding is not None and named != "embedding":
            raise ValueError(f"found {named} with embedding; want an entry for each")
        if named is not None and self.learn is None:
            raise ValueError(
                f"found {named} with a reference, which has its own; choose them when "
                "you create it with `tritonwatch drift fit`"
            )
        names = [feature.name for feature in self.features]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(
                f"found features with the same name: {doubled}; want unique names"
            )
        limited = self.forecast is not None and self.forecast.psi_limit is not None
        if limited and "psi" not in self.statistics:
            raise ValueError("found psi_limit without psi among the statistics; add it")
        if self.windows_per_false_alarm <= 1:
            raise ValueError(
                f"found {self.false_alarms_per_month:g} false alarms a month with "
                f"windows of {self.window.seconds:g} s; want fewer alarms than windows"
            )
        return self


def doubled_entries(entries: Sequence[DriftSettings]) -> list[str]:
    """Entries that can never match, since one before has the same models and side."""
    keys = [(entry.models, entry.watched) for entry in entries]
    return [
        f"found two drift entries for the {side} of {models!r}; want one"
        for models, side in sorted({key for key in keys if keys.count(key) > 1})
    ]


class DriftCollectorSettings(CollectorSettings):
    """Built from `drift:`."""

    entries: tuple[DriftSettings, ...] = Field(default=())
    """As configured."""

    @classmethod
    def of(cls, entries: tuple[DriftSettings, ...]) -> DriftCollectorSettings:
        """Return settings whose interval fits the shortest window."""
        shortest = min(entry.window.seconds for entry in entries)
        # A window takes longer the first time: that is when scipy is imported.
        return cls(
            entries=entries,
            interval_seconds=min(5.0, shortest / 2),
            deadline_seconds=60,
        )

    def build(self, access: Access) -> Collector:
        """The collector."""
        from exporter.features.drift.drift_collector import (  # noqa: PLC0415 - only when configured
            DriftCollector,
        )

        return DriftCollector(self, access)
