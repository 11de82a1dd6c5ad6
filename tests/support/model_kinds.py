"""Models that end a request in every way that Triton books differently, one line each.

A kind is a small model of the Python backend, or an ensemble of such models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from small_models import config, sequence_batching, write_model

if TYPE_CHECKING:
    from pathlib import Path

CODES: Final = (
    "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG",
    "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED",
)  # fmt: skip
CACHED: Final = "response_cache { enable: true }"
DECOUPLED: Final = "model_transaction_policy { decoupled: true }"

_HEAD = """
import asyncio
import time

import numpy as np
import triton_python_backend_utils as pb


def doubled(request):
    x = pb.get_input_tensor_by_name(request, "x").as_numpy()
    return pb.InferenceResponse([pb.Tensor("y", (x * 2).astype(np.float32))])


def refusal(text, code=None):
    error = pb.TritonError(text) if code is None else pb.TritonError(text, code)
    return pb.InferenceResponse(error=error)


def call(model, request):
    return pb.InferenceRequest(
        model_name=model,
        requested_output_names=["y"],
        inputs=[pb.get_input_tensor_by_name(request, "x")],
    )

"""
_EACH = (
    _HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        BODY
"""
)
_STREAM = (
    _HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            BODY
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)
_ASYNC = (
    _HEAD
    + """
class TritonPythonModel:
    async def execute(self, requests):
        answers = []
        for request in requests:
            await asyncio.gather(*[call("called", request).async_exec() for _ in range(2)])
            answers.append(doubled(request))
        return answers
"""
)


class Kind(NamedTuple):
    """A model and what it calls."""

    config: str
    code: str = ""
    calls: dict[str, int] = {}  # noqa: RUF012 - never changed
    """Calls of other models for one request, by their names."""


def answering(*lines: str) -> str:
    """Code of a model that answers each request by these lines."""
    return _EACH.replace("BODY", "\n        ".join(lines))


def streaming(*lines: str) -> str:
    """Code of a decoupled model that answers each request by these lines."""
    return _STREAM.replace("BODY", "\n            ".join(lines))


GOOD: Final = answering("return doubled(request)")
RAISES: Final = answering('raise ValueError("asked to")')
ANSWERS: Final = answering('return refusal("asked to")')
CALLS: Final = 'call("called", request).exec()'
CALLED: Final = {"called": 1}
TWICE: Final = {"called": 2}
QUEUED: Final = """dynamic_batching {{
  preferred_batch_size: [8]
  max_queue_delay_microseconds: 200000
  default_queue_policy {{
    timeout_action: {action}
    default_timeout_microseconds: 20000
  }}
}}"""


def ensemble(*steps: str, more: str = "") -> str:
    """An ensemble that passes `x` through these models, one after the other."""
    names = ["x", *(f"t{n}" for n in range(1, len(steps))), "y"]
    text = ",\n".join(
        f'{{ model_name: "{step}" model_version: -1 '
        f'input_map {{ key: "x" value: "{names[place]}" }} '
        f'output_map {{ key: "y" value: "{names[place + 1]}" }} }}'
        for place, step in enumerate(steps)
    )
    return (
        'platform: "ensemble"\n'
        'input [{ name: "x" data_type: TYPE_FP32 dims: [1] }]\n'
        'output [{ name: "y" data_type: TYPE_FP32 dims: [1] }]\n'
        f"ensemble_scheduling {{ step [{text}] }}\n{more}"
    )


def _queued(action: str) -> str:
    batching = QUEUED.format(action=action)
    return config(batching).replace("max_batch_size: 0", "max_batch_size: 8")


PLAIN: Final = config()
KINDS: Final[dict[str, Kind]] = {
    "good": Kind(PLAIN, GOOD),
    # Nothing calls these two or passes through them. Our floats are below 1.
    "alone": Kind(PLAIN, GOOD),
    "raises_from_1": Kind(
        PLAIN,
        answering(
            "if pb.get_input_tensor_by_name(request, 'x').as_numpy().max() >= 1:",
            '    raise ValueError("asked to")',
            "return doubled(request)",
        ),
    ),
    "raises": Kind(PLAIN, RAISES),
    **{
        f"answers_{code.lower()}": Kind(
            PLAIN,
            answering(f'return refusal("asked to", pb.TritonError.{code})'),
        )
        for code in CODES
    },
    "fails_every_other_time": Kind(
        PLAIN,
        answering(
            "self.count = getattr(self, 'count', 0) + 1",
            "return refusal('odd') if self.count % 2 else doubled(request)",
        ),
    ),
    "answers_nothing": Kind(PLAIN, answering("return pb.InferenceResponse([])")),
    "answers_no_elements": Kind(
        PLAIN,
        answering(
            'return pb.InferenceResponse([pb.Tensor("y", np.zeros(0, np.float32))])'
        ),
    ),
    "answers_a_wrong_shape": Kind(
        PLAIN,
        answering(
            'return pb.InferenceResponse([pb.Tensor("y", np.zeros(3, np.float32))])'
        ),
    ),
    "slow": Kind(PLAIN, answering("time.sleep(0.1)", "return doubled(request)")),
    "hangs_and_fails": Kind(
        PLAIN, answering("time.sleep(4)", "return refusal('late')")
    ),
    "hangs_and_raises": Kind(
        PLAIN,
        answering("time.sleep(4)", "raise ValueError('late')"),
    ),
    "hangs_and_answers": Kind(
        PLAIN, answering("time.sleep(4)", "return doubled(request)")
    ),
    "queue_rejects": Kind(_queued("REJECT"), GOOD),
    "queue_delays": Kind(_queued("DELAY"), GOOD),
    "sequence": Kind(config(sequence_batching("direct {}", "TYPE_UINT64")), GOOD),
    "sequence_fails": Kind(
        config(sequence_batching("direct {}", "TYPE_UINT64")), ANSWERS
    ),
    "decoupled": Kind(config(DECOUPLED), streaming("sender.send(doubled(request))")),
    "decoupled_many": Kind(
        config(DECOUPLED),
        streaming("for _ in range(3):", "    sender.send(doubled(request))"),
    ),
    "decoupled_none": Kind(config(DECOUPLED), streaming("pass")),
    "decoupled_fails": Kind(
        config(DECOUPLED),
        streaming("sender.send(doubled(request))", "sender.send(refusal('then'))"),
    ),
    "decoupled_raises": Kind(
        config(DECOUPLED), streaming("raise ValueError('asked to')")
    ),
    # Steps and children.
    "child": Kind(PLAIN, GOOD),
    "ensemble": Kind(ensemble("good", "child"), ""),
    **{
        f"{how}_as_step_{place}": Kind(
            ensemble(
                *(
                    how if step == place else ("good", "child")[step > 0]
                    for step in range(3)
                )
            ),
            "",
        )
        for how in (
            "raises",
            "answers_internal",
            "answers_nothing",
            "hangs_and_fails",
            "queue_rejects",
        )
        for place in range(3)
    },
    "ensemble_of_ensemble": Kind(ensemble("ensemble", "child"), ""),
    "ensemble_of_failing_ensemble": Kind(ensemble("good", "raises_as_step_1"), ""),
    "ensemble_of_sequence": Kind(ensemble("good", "sequence"), ""),
    "decoupled_ensemble": Kind(ensemble("good", "decoupled", more=DECOUPLED), ""),
    # Models that call others by themselves. Only these reach `called`, always.
    "called": Kind(PLAIN, GOOD),
    "calls": Kind(PLAIN, answering(CALLS, "return doubled(request)"), CALLED),
    "calls_twice": Kind(
        PLAIN, answering(CALLS, CALLS, "return doubled(request)"), TWICE
    ),
    "calls_async": Kind(PLAIN, _ASYNC, TWICE),
    "calls_and_fails": Kind(PLAIN, answering(CALLS, "return refusal('after')"), CALLED),
    "calls_and_raises": Kind(
        PLAIN, answering(CALLS, "raise ValueError('after')"), CALLED
    ),
    "calls_one_that_fails": Kind(
        PLAIN,
        answering('call("raises", request).exec()', "return doubled(request)"),
        {"raises": 1},
    ),
    "calls_one_that_calls": Kind(
        PLAIN,
        answering('call("calls", request).exec()', "return doubled(request)"),
        {"calls": 1},
    ),
    "calls_a_stream": Kind(
        PLAIN,
        answering(
            'list(call("decoupled_many", request).exec(decoupled=True))',
            "return doubled(request)",
        ),
        {"decoupled_many": 1},
    ),
    "hangs_in_a_call": Kind(
        PLAIN,
        answering(
            'call("hangs_and_answers", request).exec()', "return doubled(request)"
        ),
        {"hangs_and_answers": 1},
    ),
    "calls_an_ensemble": Kind(
        PLAIN,
        answering('call("ensemble", request).exec()', "return doubled(request)"),
        {"ensemble": 1},
    ),
    "calls_as_step": Kind(ensemble("good", "calls"), ""),
    "decoupled_calls": Kind(
        config(DECOUPLED),
        streaming(CALLS, "sender.send(doubled(request))"),
        CALLED,
    ),
    # Response caches.
    "cached": Kind(config(CACHED), GOOD),
    "cached_fails": Kind(config(CACHED), ANSWERS),
    "cached_few_values": Kind(config(CACHED, datatype="TYPE_BOOL"), GOOD),
    "cached_ensemble": Kind(ensemble("good", "child", more=CACHED), ""),
    "ensemble_of_cached": Kind(ensemble("good", "cached"), ""),
    "cached_calls": Kind(
        config(CACHED, datatype="TYPE_FP32"),
        answering('call("child", request).exec()', "return doubled(request)"),
        {"child": 1},
    ),
    "calls_cached": Kind(
        PLAIN,
        answering('call("cached", request).exec()', "return doubled(request)"),
        {"cached": 1},
    ),
}


def write_kinds(repository: Path) -> None:
    """Write the models of all kinds into an empty model repository."""
    for name, kind in KINDS.items():
        write_model(repository, name, kind.config, kind.code)
