"""A model's signature, by the protocol the load will use."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format

from exporter.errors import (
    DeniedError,
    InvalidRequestError,
    ModelError,
    TritonError,
)
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.http_path import model_path
from exporter.triton.kserve import service_pb2
from exporter.triton.protocol_types import ModelSpec, TensorSpec
from exporter.triton.sequence_ids import common_type, types_of_config
from loadtests.errors import LoadError, PlanError
from loadtests.tls import grpc_credentials, require_trusted, ssl_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.target import Target

_TIMEOUT_SECONDS: Final = 10.0
_SHOWN: Final = 10
_BINARY: Final = "binary_tensor_data"
_MODELS: Final = "/v1/models"


def model_spec(target: Target, model: str, version: str = "") -> ModelSpec:
    """Return the model's inputs and outputs, as the server reports them.

    Raises:
        LoadError: no server answers, or there is no such model; lists the models.
    """
    require_trusted(target)
    try:
        with _client(target) as client:
            if target.is_openai and isinstance(client, HttpClient):
                return _served(client, model)
            return _spec(client, model, version)
    except TritonError as error:
        raise LoadError(_explanation(error, target, model, version)) from None


def takes_binary(target: Target) -> bool:
    """Return whether tensors may be sent as binary data, an extension over HTTP.

    A server that does not list its extensions is assumed to be Triton.
    """
    try:
        with _client(target) as client:
            if isinstance(client, GrpcClient):
                return True
            extensions = _document(client, "/v2").get("extensions")
    except TritonError:
        return True
    return not isinstance(extensions, list) or _BINARY in extensions


@contextlib.contextmanager
def _client(target: Target) -> Iterator[GrpcClient | HttpClient]:
    client: GrpcClient | HttpClient
    if target.protocol == "grpc":
        client = GrpcClient(
            target.address,
            credentials=grpc_credentials(target),
            headers=target.headers,
        )
    else:
        client = HttpClient(
            target.address, tls=ssl_context(target), headers=target.headers
        )
    try:
        yield client
    finally:
        client.close()


def _spec(client: GrpcClient | HttpClient, model: str, version: str) -> ModelSpec:
    if isinstance(client, GrpcClient):
        return client.model_spec(model, version, timeout_seconds=_TIMEOUT_SECONDS)
    path = model_path(model, version)
    metadata = _document(client, path)
    try:
        config = _document(client, f"{path}/config")
    except (DeniedError, InvalidRequestError, ModelError):
        config = {}  # an extension of Triton's that others may lack
    types = _sequence_types(client, config)
    return _parsed(metadata, config, model, version, types)


def _served(client: HttpClient, model: str) -> ModelSpec:
    """Return a model of an OpenAI-compatible server, which reports only names.

    Raises:
        ModelError: the server has others.
    """
    try:
        served = _document(client, _MODELS).get("data")
    except (DeniedError, InvalidRequestError, ModelError):
        served = None  # not every server lists them
    if isinstance(served, list):
        names = sorted(str(one.get("id")) for one in served if isinstance(one, dict))
        if names and model not in names:
            raise ModelError(f"it serves {', '.join(names[:_SHOWN])}")
    return ModelSpec(model, "", (), (), max_batch_size=0, decoupled=True)


def _document(client: HttpClient, path: str) -> dict[str, Any]:
    body = client.get(path, timeout_seconds=_TIMEOUT_SECONDS)
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ModelError(f"the answer to GET {path} is not a JSON object")
    return document


def _sequence_types(client: HttpClient, config: dict[str, Any]) -> set[str]:
    def message(document: dict[str, Any]) -> Any:
        return json_format.ParseDict(
            document,
            service_pb2.ModelConfigResponse().config,
            ignore_unknown_fields=True,
        )

    def config_of(step: str, version: str) -> Any:
        return message(_document(client, f"{model_path(step, version)}/config"))

    try:
        return types_of_config(message(config), config_of)
    except json_format.ParseError as error:
        raise ModelError(f"not a Triton model configuration: {error}") from None


def _parsed(
    metadata: dict[str, Any],
    config: dict[str, Any],
    model: str,
    version: str,
    sequence_types: set[str],
) -> ModelSpec:
    optional = {t["name"] for t in config.get("input", ()) if t.get("optional")}
    try:
        return ModelSpec(
            name=model,
            version=version,
            inputs=tuple(_tensors(metadata["inputs"], optional)),
            outputs=tuple(_tensors(metadata["outputs"], set())),
            max_batch_size=int(config.get("max_batch_size", 0)),
            decoupled=bool(
                config.get("model_transaction_policy", {}).get("decoupled", False)
            ),
            sequence=bool(sequence_types),
            sequence_id_type=common_type(sequence_types),
            backend=str(config.get("backend", "")),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"invalid metadata of model {model!r}: {type(error).__name__}: {error}"
        ) from None


def _tensors(entries: list[dict[str, Any]], optional: set[str]) -> Iterator[TensorSpec]:
    for entry in entries:
        shape = tuple(int(size) for size in entry["shape"])
        name = str(entry["name"])
        yield TensorSpec(name, str(entry["datatype"]), shape, name in optional)


def _explanation(error: TritonError, target: Target, model: str, version: str) -> str:
    if isinstance(error, DeniedError):
        return f"{target.address} answers no question about {model!r}: {error}"
    if not isinstance(error, InvalidRequestError | ModelError):
        return (
            f"no {target.protocol} server answers at {target.address}: {error}; "
            "is the address right, and is it that protocol's port?"
        )
    wanted = f"{model!r} version {version}" if version else repr(model)
    return f"{target.address} has no model {wanted} to load: {error}{_ready_models(target)}"


def _ready_models(target: Target) -> str:
    """Return the names of the server's models, if it reports them."""
    if target.protocol != "grpc":
        return ""
    try:
        with _client(target) as client:
            if not isinstance(client, GrpcClient):
                return ""
            index = client.repository_index(timeout_seconds=_TIMEOUT_SECONDS)
    except TritonError:
        return ""
    names = sorted({entry.name for entry in index if entry.ready})
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; ready are {', '.join(names[:_SHOWN]) or 'none'}{more}"


def require_fit(spec: ModelSpec, target: Target) -> None:
    """Require that the protocol can be used for the model.

    Raises:
        PlanError: the inputs of the model are unknown.
    """
    if not spec.inputs:
        raise PlanError(
            f"the metadata of {spec.name!r} at {target.address} has no inputs; "
            "declare them in the server's model settings"
        )
