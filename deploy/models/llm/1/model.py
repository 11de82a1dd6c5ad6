"""A scripted language model: real scheduling and times, made-up text.

As in an engine with continuous batching, all running requests share each step; a step that
admits requests reads their prompts first, and all others wait for it. The cache holds each
admitted request's prompt and its longest answer. A request that does not fit waits, with all
requests behind it.
"""

import json
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb  # pyright: ignore[reportMissingImports]
from markov import Markov

DEFAULT_MAX_TOKENS = 16
PREFIX_BLOCK_TOKENS = 16
MOST_PREFIX_BLOCKS = 4096
TIMES = ("prefill_ms", "prefill_ms_per_token", "decode_ms", "decode_ms_per_request")
FIRST_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
FIRST_BUCKETS += (1.0, 2.5, 5.0, 7.5, 10.0)
GAP_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


WEIGHTS = np.full((64, 64), 1 / 64, np.float32)
"""Of a multiplication that takes some ten microseconds, on one core."""


class PrefixCache:
    """The beginnings of the latest prompts, in whole blocks. It shortens no time."""

    def __init__(self):
        self.blocks = OrderedDict()

    def look_up(self, words):
        """Return how many of the prompt's first tokens were found; keep all of it."""
        found = 0
        for end in range(PREFIX_BLOCK_TOKENS, len(words) + 1, PREFIX_BLOCK_TOKENS):
            beginning = hash(tuple(words[:end]))
            if beginning in self.blocks:
                found = end
            self.blocks[beginning] = None
            self.blocks.move_to_end(beginning)
        while len(self.blocks) > MOST_PREFIX_BLOCKS:
            self.blocks.popitem(last=False)
        return found


@dataclass(eq=False)
class Request:
    """A request, from its arrival to its last token."""

    sender: object
    prompt_tokens: int
    words: list
    finish_reason: str
    most_tokens: int
    streamed: bool
    arrived: float = field(default_factory=time.monotonic)
    sent: int = 0
    last: float = 0.0

    @property
    def cache_tokens(self):
        """Tokens of the cache that it reserves while it runs."""
        return self.prompt_tokens + self.most_tokens

    @property
    def is_done(self):
        return self.sent == len(self.words)


class TritonPythonModel:
    """A decoupled model: `execute` only queues, a thread answers step by step."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {
            name: float(value["string_value"])
            for name, value in config["parameters"].items()
        }
        self.times = tuple(parameters[name] / 1000 for name in TIMES)
        self.compute_ratio = parameters.get("compute_ratio", 0.0)
        self.most_running = int(parameters["most_running"])
        self.cache_tokens = int(parameters["cache_tokens"])
        self.markov = Markov(Path(__file__).with_name("corpus.txt").read_text("utf-8"))
        self.metrics = Metrics(args["model_name"], args["model_version"])
        self.prefixes = PrefixCache()
        self.waiting = deque()
        self.running = []
        self.changed = threading.Condition()
        self.stopping = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def finalize(self):
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.thread.join()

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                accepted = self.read(request, sender)
            except ValueError as error:
                refused = pb.InferenceResponse(error=pb.TritonError(str(error)))
                sender.send(refused, flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            with self.changed:
                self.waiting.append(accepted)
                self.changed.notify()

    def read(self, request, sender):
        """Return the parsed request with its answer, equal for equal prompts.

        Raises:
            ValueError: prompt and answer do not fit into the cache.
        """
        prompt = given(request, "text_input", b"").decode("utf-8", "replace")
        sampling = json.loads(given(request, "sampling_parameters", b"{}"))
        most = int(sampling.get("max_tokens", DEFAULT_MAX_TOKENS))
        asked = prompt.split()
        tokens = max(len(asked), 1)
        if not 1 <= most <= self.cache_tokens - tokens:
            raise ValueError(
                f"found {tokens} tokens of text_input and max_tokens {most}; max_tokens is"
                f" at least 1, and both have room in a cache of {self.cache_tokens}"
            )
        ignore_end = bool(sampling.get("ignore_eos", False))
        self.metrics.prefix(tokens, self.prefixes.look_up(asked))
        words, ended = self.markov.answer(prompt, most, ignore_end=ignore_end)
        streamed = bool(given(request, "stream", False))
        reason = "stop" if ended else "length"
        return Request(sender, tokens, words, reason, most, streamed)

    def run(self):
        """Run steps at absolute times, so that a late step does not delay those after it."""
        due = 0.0
        while True:
            with self.changed:
                if not self.running and not self.waiting:
                    self.metrics.show(0, 0, 0.0)
                    self.changed.wait_for(lambda: self.waiting or self.stopping)
                    due = time.monotonic()
                if self.stopping:
                    return
                admitted = self.admit()
            seconds = self.step_seconds(admitted)
            due += seconds
            compute_until(due - (1.0 - self.compute_ratio) * seconds)
            time.sleep(max(0.0, due - time.monotonic()))
            self.running += admitted
            for request in self.running:
                request.last = self.answer(request)
            self.running = [one for one in self.running if not one.is_done]
            used = sum(one.cache_tokens for one in self.running) / self.cache_tokens
            self.metrics.show(len(self.running), len(self.waiting), used)

    def admit(self):
        """Admit waiting requests in order, until slots or cache are used up."""
        admitted = []
        free = self.cache_tokens - sum(one.cache_tokens for one in self.running)
        while self.waiting and len(self.running) + len(admitted) < self.most_running:
            if self.waiting[0].cache_tokens > free:
                break
            free -= self.waiting[0].cache_tokens
            admitted.append(self.waiting.popleft())
        return admitted

    def step_seconds(self, admitted):
        """Return the seconds of one step, in which the prompts of `admitted` are read."""
        prefill, prefill_token, decode, decode_request = self.times
        seconds = 0.0
        if admitted:
            prompts = sum(one.prompt_tokens for one in admitted)
            seconds += prefill + prefill_token * prompts
        if self.running:
            seconds += decode + decode_request * len(self.running)
        return seconds

    def answer(self, request):
        """Send the next token of a request; return the time of that, in seconds."""
        if request.sender.is_cancelled():
            request.sent = len(request.words)
            request.sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return request.last
        request.sent += 1
        now = time.monotonic()
        self.metrics.token(request, now)
        if request.streamed:
            send(request, request.words[request.sent - 1 : request.sent])
        elif request.is_done:
            send(request, request.words)
        return now


def compute_until(end):
    """Use a core until then, as the layers of a network would: prefill and decode take power."""
    while time.monotonic() < end:
        np.matmul(WEIGHTS, WEIGHTS)


def send(request, words):
    """Send a response with some words; the last has the reason and the final flag."""
    done = request.is_done
    counts = request.prompt_tokens, len(words)
    outputs = [
        text("text_output", "".join(words)),
        text("finish_reason", request.finish_reason if done else ""),
        pb.Tensor("num_input_tokens", np.array([counts[0]], np.uint32)),
        pb.Tensor("num_output_tokens", np.array([counts[1]], np.uint32)),
    ]
    flags = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL if done else 0
    request.sender.send(pb.InferenceResponse(outputs), flags=flags)


def text(name, value):
    """Return a string tensor of one value."""
    return pb.Tensor(name, np.array([value.encode()], np.object_))


def given(request, name, default):
    """Return the single value of an optional input."""
    tensor = pb.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy().reshape(-1)[0]


class Metrics:
    """The metrics of vLLM, under its names.

    A call that the server refuses can end the server: only rises of counters, only
    finite numbers.
    """

    def __init__(self, model, version):
        self.labels = {"model": model, "version": version}
        # The server refuses a metric whose family was freed, and shows no freed metric.
        self.kept = []
        self.prompt = self.metric("prompt_tokens_total", "COUNTER", "Prompt tokens.")
        self.generated = self.metric(
            "generation_tokens_total", "COUNTER", "Generated tokens."
        )
        self.first = self.metric(
            "time_to_first_token_seconds",
            "HISTOGRAM",
            "Time from arrival to the first token.",
            buckets=list(FIRST_BUCKETS),
        )
        self.gap = self.metric(
            "time_per_output_token_seconds",
            "HISTOGRAM",
            "Time between two tokens of a request.",
            buckets=list(GAP_BUCKETS),
        )
        self.queries = self.metric(
            "prefix_cache_queries_total", "COUNTER", "Prompt tokens looked up."
        )
        self.hits = self.metric(
            "prefix_cache_hits_total", "COUNTER", "Prompt tokens found."
        )
        # Each request has room for its longest answer before it starts: always 0.
        self.metric("num_preemptions_total", "COUNTER", "Requests that started over.")
        self.shown = {
            self.metric("num_requests_running", "GAUGE", "Requests that run."): 0,
            self.metric("num_requests_waiting", "GAUGE", "Requests that wait."): 0,
            self.metric("kv_cache_usage_perc", "GAUGE", "Cache in use, 0 to 1."): 0,
        }

    def metric(self, name, kind, description, **options):
        family = pb.MetricFamily(
            name=f"vllm:{name}",
            description=description,
            kind=getattr(pb.MetricFamily, kind),
        )
        metric = family.Metric(labels=self.labels, **options)
        self.kept += [family, metric]
        return metric

    def prefix(self, tokens, found):
        """Count the tokens of a prompt, and those that the prefix cache had."""
        self.queries.increment(tokens)
        if found:
            self.hits.increment(found)

    def token(self, request, now):
        """Count a token of a request."""
        self.generated.increment(1)
        if request.sent == 1:
            self.prompt.increment(request.prompt_tokens)
            self.first.observe(now - request.arrived)
        else:
            self.gap.observe(now - request.last)

    def show(self, *values):
        """Set the gauges of running and waiting requests, and of the cache's used share."""
        for (gauge, before), value in zip(
            list(self.shown.items()), values, strict=True
        ):
            if value != before:
                gauge.set(value)
                self.shown[gauge] = value
