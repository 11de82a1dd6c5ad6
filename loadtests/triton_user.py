"""A Locust user that sends inferences: for a locustfile with tasks of one's own.

Tasks, weights and `wait_time` are Locust's own, and so is the closed loop: users that wait
for a slow server send less. `loadtests/locustfile.py` follows a schedule instead.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final

import gevent
import numpy as np
from locust import User, events

from exporter.errors import TritonError
from exporter.own_requests.answer_checks import joined_outputs
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import make_payload
from exporter.triton import generate
from exporter.triton.http import HttpClient
from exporter.triton.tensors import array_dtype, decode
from loadtests.errors import PlanError
from loadtests.payloads import metadata
from loadtests.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from exporter.triton.protocol_types import Array, ModelSpec

_TIMEOUT_SECONDS: Final = 30.0


class TritonClient:
    """Sends inferences over HTTP and reports each to Locust."""

    def __init__(self, host: str, request_event: Any) -> None:
        scheme, separator, address = host.rstrip("/").rpartition("://")
        if separator and scheme != "http":
            raise PlanError(f"found {host!r}; want http://HOST:PORT", "--host")
        self._target = Target(protocol="http", address=address)
        self._http = HttpClient(address, connections=1)
        self._event = request_event
        self._specs: dict[tuple[str, str], ModelSpec] = {}
        self._rng = np.random.default_rng(random.getrandbits(64))

    def infer(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike] | None = None,
        *,
        version: str = "",
        name: str | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> dict[str, Array] | None:
        """Return the outputs by name; None after a failure, which Locust counts.

        Inputs that are not given are drawn anew from the model's metadata. `name` is the
        row of Locust's table, by default the model's name. A decoupled model's answer is
        streamed by `generate_stream`, and its responses are joined; the row `first response`
        has the time to the first one.

        Raises:
            LoadError: there is no such model, or the server does not describe it.
        """
        spec = self._spec(model, version)
        if inputs is None:
            arrays = make_payload(spec, {}, self._rng).inputs
        else:
            types = {tensor.name: tensor.datatype for tensor in spec.inputs}
            arrays = {
                key: np.asarray(value, array_dtype(types[key]))
                for key, value in inputs.items()
            }
        # To a sidecar, a user's request is production: its id has not our prefix.
        request = own_request(
            spec, f"locust-{random.getrandbits(48):x}", arrays, version=version
        )
        failure: TritonError | None = None
        outputs: dict[str, Array] | None = None
        first: float | None = None
        size = 0
        started = time.perf_counter()
        try:
            if spec.decoupled:
                reply = generate.infer_stream(
                    self._http, request, spec, timeout_seconds=timeout_seconds
                )
                first = reply.first_response_seconds
                outputs = joined_outputs(spec, reply)
            else:
                reply = self._http.infer(request, timeout_seconds=timeout_seconds)
                outputs = {output.name: decode(output) for output in reply.outputs}
            responses = (reply.outputs, *reply.streamed)
            size = sum(len(output.data) for each in responses for output in each)
        except TritonError as error:
            failure = error
        seconds = time.perf_counter() - started
        self._report("infer", name or model, seconds, size, failure)
        if first is not None:
            self._report("first response", name or model, first)
        return outputs

    def _report(
        self,
        kind: str,
        name: str,
        seconds: float,
        size: int = 0,
        failure: TritonError | None = None,
    ) -> None:
        self._event.fire(
            request_type=kind,
            name=name,
            response_time=1e3 * seconds,
            response_length=size,
            exception=failure,
            context={},
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _spec(self, model: str, version: str) -> ModelSpec:
        key = (model, version)
        if key not in self._specs:
            self._specs[key] = metadata.model_spec(self._target, model, version)
        return self._specs[key]


class TritonUser(User):
    """A Locust user with a `client` that infers; derive from it and write tasks."""

    abstract = True
    client: TritonClient

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        host = self.host or environment.host
        if not host:
            raise PlanError("found none; want http://HOST:PORT", "--host")
        self.client = TritonClient(host, environment.events.request)

    def on_stop(self) -> None:
        """Close the user's connection."""
        self.client.close()


def _begin(**_: object) -> None:
    # gevent's timers count from the last time its loop read the clock, and that was
    # before all the imports: --run-time would be seconds too short.
    gevent.get_hub().loop.update_now()


_init: Any = events.init
_init.add_listener(_begin)
