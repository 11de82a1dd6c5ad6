"""Make the peers' environments, each apart, under build/peers (about 5 GB, minutes).

    python tests/benchmarks/peers/install.py [PEER ...]

Their pinned requirements lie beside this file; they need Python 3.11.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = ("whylogs", "alibi_detect", "nannyml", "evidently")
OTHERS = ("mlserver",)
"""Those that drift is not held against, made where they are named."""
ENVIRONMENTS = HERE.parents[2] / "build" / "peers"


def main(wanted: list[str]) -> int:
    """Install what is not there yet; the value is the exit status."""
    unknown = sorted(set(wanted) - {*PEERS, *OTHERS})
    if unknown:
        print(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS + OTHERS)}")
        return 2
    for peer in wanted or PEERS:
        target = ENVIRONMENTS / peer
        if (target / ".ready").exists():
            continue
        print(f"{peer} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-r", str(HERE / f"{peer}.txt")], check=True)
        (target / ".ready").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
