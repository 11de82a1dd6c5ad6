"""NVIDIA's AIPerf, in a virtual environment of its own, to compare with.

    python tests/benchmarks/aiperf.py        # installs it, and prints where it is

Nothing of it is imported here. It needs a tokenizer, which it would take from Hugging Face's
hub: it gets one of words, laid out as the hub's cache is, and works offline.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import venv
from pathlib import Path
from typing import Any, Final

from figures import require

VERSION: Final = "0.13.0"
FOLDER: Final = Path(__file__).parents[2] / "build" / f"aiperf-{VERSION}"
_COMMAND: Final = FOLDER / "bin" / "aiperf"
_HUB: Final = FOLDER / "hub"
_SNAPSHOT: Final = _HUB / "hub" / "models--local--words"
_SPECIAL: Final = ("<unk>", "<s>", "</s>")


def install() -> Path:
    """Return its command, installed where it is not."""
    if not _COMMAND.exists():
        venv.create(FOLDER, with_pip=True, symlinks=True)
        done = subprocess.run(
            [FOLDER / "bin" / "pip", "install", "--quiet", f"aiperf=={VERSION}"],
            check=False,
            capture_output=True,
            text=True,
        )
        require(
            found=_COMMAND.exists(),
            what=f"AIPerf {VERSION}: {done.stderr[-300:]}",
            how=f"pip install aiperf=={VERSION} into {FOLDER}",
        )
    _tokenizer()
    return _COMMAND


def _tokenizer() -> None:
    words = [*_SPECIAL, *(f"w{number}" for number in range(3000))]
    folder = _SNAPSHOT / "snapshots" / "words"
    folder.mkdir(parents=True, exist_ok=True)
    (_SNAPSHOT / "refs").mkdir(exist_ok=True)
    (_SNAPSHOT / "refs" / "main").write_text("words", "utf-8")
    model = {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(words)},
        "unk_token": _SPECIAL[0],
    }
    added = [
        {
            "id": number,
            "content": word,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for number, word in enumerate(_SPECIAL)
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Whitespace"},
        **dict.fromkeys(
            ("truncation", "padding", "normalizer", "post_processor", "decoder")
        ),
        "model": model,
    }
    named = dict(zip(("unk_token", "bos_token", "eos_token"), _SPECIAL, strict=True))
    named["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(named), "utf-8")


def profile(address: str, *, rate: float, requests: int) -> dict[str, Any]:
    """Send streamed chats at even times; return what it reports, and `cpu_seconds`."""
    command = install()
    environment = {**os.environ, "HF_HOME": str(_HUB), "HF_HUB_OFFLINE": "1"}
    before = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(command, "profile", "--model-names", "chatty"),
                *("--endpoint-type", "chat", "--streaming"),
                *("--url", f"http://{address}", "--arrival-pattern", "constant"),
                *("--request-rate", f"{rate:g}", "--request-count", str(requests)),
                *("--use-server-token-count", "--tokenizer", "local/words"),
                *("--isl", "10", "--no-gpu-telemetry", "--no-server-metrics"),
                *("--ui", "none", "--output-artifact-dir", folder),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env=environment,
        )
        report = Path(folder) / "profile_export_aiperf.json"
        if not report.exists():
            raise RuntimeError(f"AIPerf has no report: {done.stdout[-2000:]}")
        found: dict[str, Any] = json.loads(report.read_text("utf-8"))
    return {**found, "cpu_seconds": cpu_seconds() - before}


def cpu_seconds() -> float:
    """Processor time of all children that have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(install())
