"""The demo's language model with times so long that a server's and a client's are small."""

from __future__ import annotations

import shutil
from pathlib import Path

import urllib3
from prometheus_client.parser import text_string_to_metric_families
from waiting import patience

MODEL = Path(__file__).parents[2] / "deploy" / "models" / "llm"
PREFILL, PREFILL_TOKEN, DECODE, DECODE_REQUEST = 0.020, 0.0005, 0.010, 0.001
PLACES, CACHE = 8, 4000
PARAMETERS = {
    "prefill_ms": 1e3 * PREFILL,
    "prefill_ms_per_token": 1e3 * PREFILL_TOKEN,
    "decode_ms": 1e3 * DECODE,
    "decode_ms_per_request": 1e3 * DECODE_REQUEST,
    "most_running": PLACES,
    "cache_tokens": CACHE,
}


def slow_llm(folder: Path) -> Path:
    """A model repository of it."""
    shutil.copytree(MODEL, folder / "llm")
    config = folder / "llm" / "config.pbtxt"
    kept = config.read_text("utf-8").partition("parameters [")[0]
    values = (
        f'{{ key: "{name}" value: {{ string_value: "{value:g}" }} }}'
        for name, value in PARAMETERS.items()
    )
    config.write_text(f"{kept}parameters [ {', '.join(values)} ]", "utf-8")
    return folder


def metric(server, name):
    """The value on Triton's page, of a histogram its count."""
    page = urllib3.request(
        "GET", f"http://{server.metrics}/metrics", timeout=patience(60)
    ).data.decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == f"vllm:{name}":
                return sample.value
    raise KeyError(name)
