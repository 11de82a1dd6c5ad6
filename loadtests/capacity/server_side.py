"""The server's own view of a search: counters and instances, and their number."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from exporter.triton.grpc import GrpcClient
from loadtests.capacity.saturation import looked
from loadtests.errors import LoadError
from loadtests.tls import grpc_credentials

if TYPE_CHECKING:
    from collections.abc import Generator

    from exporter.triton.model import ModelStatistics
    from loadtests.target import Target

_LOAD_SECONDS: Final = 120.0


class ServerSide:
    """Triton's own view over gRPC; with other protocols or servers nothing is known."""

    def __init__(self, target: Target, models: frozenset[str]) -> None:
        self._target = target
        self._models = models
        self._client: GrpcClient | None = None
        if target.protocol == "grpc":
            self._client = GrpcClient(
                target.address,
                credentials=grpc_credentials(target),
                headers=target.headers,
            )

    def close(self) -> None:
        """Give the connection back."""
        if self._client is not None:
            self._client.close()

    def statistics(self) -> list[ModelStatistics]:
        """Cumulative counters of the models; empty where unknown."""
        return looked(self._client, self._models)

    def instances(self) -> int | None:
        """Instances of the model; None for a mix, or where unknown."""
        if len(self._models) != 1 or self._client is None:
            return None
        with contextlib.suppress(LoadError):
            groups = self._config(next(iter(self._models))).get("instance_group", ())
            counts = [
                int(group.get("count", 1)) * max(1, len(group.get("gpus", ())))
                for group in groups
            ]
            return sum(counts) or None
        return None

    @contextlib.contextmanager
    def scaled(self, instances: int) -> Generator[None]:
        """The model with so many instances; afterwards as it was.

        Raises:
            LoadError: the server does not load models on request
                (`--model-control-mode=explicit`), or not this one.
        """
        model = next(iter(self._models))
        before = self._config(model)
        groups = [dict(group) for group in before.get("instance_group", [{}])][:1]
        groups[0]["count"] = instances
        self._load(model, {**before, "instance_group": groups})
        try:
            yield
        finally:
            self._load(model, before)

    def _config(self, model: str) -> dict[str, Any]:
        with self._control() as client:
            found = client.get_model_config(
                model, headers=dict(self._target.headers), as_json=True
            )
            config: dict[str, Any] = found["config"]
            return config

    def _load(self, model: str, config: dict[str, Any]) -> None:
        with self._control() as client:
            client.load_model(
                model,
                headers=dict(self._target.headers),
                config=json.dumps(config),
                client_timeout=_LOAD_SECONDS,
            )

    @contextlib.contextmanager
    def _control(self) -> Generator[Any]:
        from tritonclient import grpc  # noqa: PLC0415, TID251 - 10 MB, and the core is there
        from tritonclient.utils import InferenceServerException  # noqa: PLC0415

        if self._target.protocol != "grpc":
            raise LoadError("instances are counted and changed over gRPC only")
        client = grpc.InferenceServerClient(
            self._target.address, creds=grpc_credentials(self._target)
        )
        try:
            yield client
        except InferenceServerException as error:
            raise LoadError(
                f"the server does not let us see or change instances: {error}"
            ) from None
        finally:
            client.close()
