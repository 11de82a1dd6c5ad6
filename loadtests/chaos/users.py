"""The users of an experiment: the `load` of its extension."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from exporter.settings import Settings
from loadtests.engine.backoff import Backoff
from loadtests.profiles import AnyProfile
from loadtests.scenario import ModelSettings, Scenario, TargetSettings
from loadtests.target import Protocol

_DURATION: Final = "duration_seconds"
_PROFILES: TypeAdapter[Any] = TypeAdapter(AnyProfile)


class LoadSettings(Settings):
    """The load of an experiment: an open loop, as long as the experiment."""

    models: tuple[ModelSettings, ...] = Field(min_length=1, max_length=50)
    """Requests to send, drawn by weight."""
    profile: dict[str, Any] = Field(
        default={"kind": "poisson", "requests_per_second": 50}
    )
    """Schedule: a profile of `tritonwatch load list`. The experiment sets its duration.
    """
    protocol: Protocol = Field(default="grpc")
    """gRPC, or HTTP with binary tensors."""
    timeout_seconds: float = Field(default=1.0, gt=0, le=60)
    """Longest a user waits."""
    in_flight: int = Field(default=4096, ge=1, le=50_000)
    """Limit of requests in flight; more are rejected, and count as misses."""
    backoff: Backoff = Field(default=Backoff())
    """Reconnects and retries of the client."""

    @property
    def client(self) -> str:
        """The client's timeouts and retries in words: recovery depends on them as well."""
        timeout = f"the client waits {self.timeout_seconds:g} s for an answer"
        if self.protocol == "http":
            return f"{timeout}, reconnects at once and sends each request once (HTTP)"
        back = self.backoff
        return (
            f"{timeout}, reconnects after {back.first_seconds:g} s, then times "
            f"{back.factor:g} up to {back.longest_seconds:g} s, and tries each "
            f"request at most {back.attempts} times (gRPC)"
        )

    @model_validator(mode="after")
    def _asks_again_over_grpc(self) -> LoadSettings:
        if self.protocol == "http" and self.backoff.attempts > 1:
            raise ValueError(
                f"found backoff.attempts {self.backoff.attempts} over HTTP, where "
                "requests are not retried; use gRPC, or set 1"
            )
        return self

    @model_validator(mode="after")
    def _has_profile(self) -> LoadSettings:
        self.profile_of(1.0)
        return self

    def profile_of(self, seconds: float) -> AnyProfile:
        """The profile for an experiment of this length.

        Raises:
            ValueError: it is invalid, or has a length of its own.
        """
        try:
            profile: AnyProfile = _PROFILES.validate_python(
                {**self.profile, _DURATION: seconds}
            )
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            where = ".".join(map(str, wrong["loc"][1:]))
            raise ValueError(
                f"invalid profile: {where}: {wrong['msg']}; want one "
                "with a duration of its own (`duration_seconds`), like "
                "{kind: poisson, requests_per_second: 50}"
            ) from None
        return profile

    def scenario(self, name: str, address: str, seconds: float, seed: int) -> Scenario:
        """A load run of this length."""
        return Scenario(
            name=name,
            target=TargetSettings(protocol=self.protocol, address=address),
            models=self.models,
            profile=self.profile_of(seconds),
            seed=seed,
            timeout_seconds=self.timeout_seconds,
            in_flight=self.in_flight,
        )
