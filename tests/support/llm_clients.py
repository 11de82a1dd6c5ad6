"""Clients of the demo's language model that keep books of its tokens."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3


class Clients:
    """Ask for streamed answers, several at a time, and add up what these say.

    `input` and `output` are the tokens of all answers.
    """

    def __init__(self, server: Any) -> None:
        self.input = self.output = 0
        self._server = server
        self._lock = threading.Lock()
        self._pool = urllib3.PoolManager(maxsize=24)

    def ask(self, number: int, *, tokens: int = 20, at_once: int = 4) -> None:
        """Ask so often, for so many tokens."""
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda place: self._one(place, tokens), range(number)))

    def _one(self, place: int, tokens: int) -> None:
        reply = self._pool.request(
            "POST",
            f"http://{self._server.http}/v2/models/llm/generate_stream",
            json={
                "text_input": " ".join(["word"] * (place % 7 + 1)),
                "stream": True,
                "sampling_parameters": json.dumps(
                    {"max_tokens": tokens, "ignore_eos": True}
                ),
            },
            timeout=30,
        )
        assert reply.status == 200, reply.data
        events = [
            json.loads(line.removeprefix(b"data: "))
            for line in reply.data.split(b"\n\n")
            if line.strip()
        ]
        with self._lock:
            self.input += events[0]["num_input_tokens"]
            self.output += sum(event["num_output_tokens"] for event in events)
