"""A server like vLLM's, with its health, version and metrics page, that answers two words."""

from __future__ import annotations

from typing import Self

from openai_server import DONE, OpenAiServer, Scripted, Write, delta, usage

WORDS = ("Guten", " Tag")
PAGE = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="chatty"} 3.0
vllm:num_requests_running{engine="1",model_name="chatty"} 1.0
vllm:num_requests_waiting{engine="0",model_name="chatty"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="chatty"} 0.75
vllm:kv_cache_usage_perc{engine="1",model_name="other"} 0.5
vllm:num_preemptions_total{engine="0",model_name="chatty"} 7.0
vllm:prefix_cache_queries_total{engine="0",model_name="chatty"} 100.0
vllm:prefix_cache_hits_total{engine="0",model_name="chatty"} 60.0
vllm:prompt_tokens_total{engine="0",model_name="chatty"} %d
vllm:generation_tokens_total{engine="0",model_name="chatty"} %d
"""


class ScriptedVllm:
    """A server whose page counts the tokens of all requests, those of a test's clients too."""

    def __init__(self):
        self.status, self.pause, self.others = 200, 0.0, 0
        self.answered = 0
        self.server = OpenAiServer(lambda *_: self.answer())
        self.server.pages |= {
            "/health": (200, b""),
            "/version": (200, b'{"version": "0.11.2"}'),
        }
        self.count()

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    def answer(self):
        if self.status != 200:
            return Scripted([Write(b'{"error": "no"}')], self.status)
        self.answered += 1
        self.count()
        words = [
            Write(delta(content=WORDS[0])),
            Write(delta(content=WORDS[1]), self.pause),
        ]
        return Scripted([*words, Write(usage(9, 2)), Write(DONE)])

    def serve_others(self, requests):
        self.others += requests
        self.count()

    def count(self):
        requests = self.answered + self.others
        self.server.pages["/metrics"] = 200, PAGE % (9 * requests, 2 * requests)

    def target(self, **more):
        url = f"http://{self.server.address}"
        return {"kind": "openai", "url": url, "metrics": f"{url}/metrics", **more}
