"""The attackers, as a process of their own: honest clients shall not wait for them.

Prints how often each attack was tried, and how often it got what is to be refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

from attacks import ATTACKS, Attack, Target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="a JSON object")
    parser.add_argument("seconds", type=float)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--core", type=int, help="the only one that they use")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    os.nice(19)  # on a machine of its own it would take no time from the sidecar
    named = json.loads(arguments.target)
    target = Target(**{key: tuple(where) for key, where in named.items()})
    chosen = [each for each in ATTACKS if each.name in arguments.names]
    until = time.monotonic() + arguments.seconds
    with ThreadPoolExecutor(len(chosen)) as threads:
        results = threads.map(lambda each: tried(each, target, until), chosen)
        print(json.dumps({a.name: r for a, r in zip(chosen, results, strict=True)}))


def tried(attack: Attack, target: Target, until: float) -> tuple[int, int]:
    """Attempts, and those that were let through."""
    number = let_through = 0
    with contextlib.closing(attack.attempts(target)) as attempts:
        while time.monotonic() < until:
            let_through += next(attempts)
            number += 1
            time.sleep(1 / attack.per_second)
    return number, let_through


if __name__ == "__main__":
    main()
