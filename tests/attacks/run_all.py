"""Attacks sidecars while honest clients use them, and reports what those saw (`make attack`).

    make attack                                  each attack in turn, on two of our own
    make attack ARGS="--all --seconds 600"       all at once, in 512 MiB where possible
    make attack ARGS="--url http://localhost:8003 --tap localhost:8004"

Exit 1 where an honest client was kept out, an attack got what is to be refused, or
memory or probes went beyond their limits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from attacked_sidecars import Attacked, attacked
from attacks import ATTACKS, Target
from control_groups import NoGroupError, limited
from honest_clients import HonestClients, Reader, Seen, Tally
from web_files import trusting_authority

from pages import page_html, page_text
from pages.blocks import Document, Paragraph, Section, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

LIMIT_BYTES: Final = 512 << 20
"""Of memory, as the shipped deployment has it."""
SECONDS: Final = 8.0
QUIET_SECONDS: Final = 20.0
"""Of some 40 probes, whose mean time is what those under attack are compared with."""
BUSY_SECONDS: Final = 20.0
"""Of honest load before the first quiet spell: memory that it leaves is no attack's."""
RECOVERY_SECONDS: Final = 45.0
"""Until what waits has expired and memory is given back."""
IN_TIME_SECONDS: Final = 1.0
POSTS_SHARE: Final = 0.99
LEAST_SCRAPES: Final = 30
"""Of an attack, or its share of scrapes in time says little."""
RESIDENT_BYTES: Final = 300e6
KEPT_BYTES: Final = 20e6
"""Limit of what is resident in the last quiet spell beyond the first."""
PROBE_RATIO: Final = 2.0
"""Limit of the mean time of a probe over that of the first quiet spell."""
QUIET: Final = "quiet"
_ATTACKER: Final = Path(__file__).with_name("attacker.py")
_PRIORITY: Final = (
    "Attackers run at the lowest priority: a real one has a machine of its own."
)
_HEADS: Final = (
    "attack", "tried", "let through", "scrapes in 1 s", "slowest", "posts taken",
    "not serving", "probe", "resident",
)  # fmt: skip


@dataclass(frozen=True)
class Spell:
    """Attacks, and what honest clients saw meanwhile."""

    name: str
    tried: int
    let_through: int
    seen: Seen
    load: float = 0.0
    """The machine's load average over a minute, at the end."""

    @property
    def figures(self) -> dict[str, object]:
        """Return what was seen, as JSON values."""
        seen = self.seen
        return {
            "attack": self.name,
            "tried": self.tried,
            "let_through": self.let_through,
            "load_average": round(self.load, 2),
            "not_serving": seen.not_serving,
            "probe_ms": round(seen.probe_seconds * 1e3, 2),
            "resident_mb": round(seen.resident_bytes / 1e6, 1),
            **{kind: tally.figures for kind, tally in seen.tallies.items()},
        }

    @property
    def faults(self) -> list[str]:
        """Return the faults, one sentence each."""
        tallies = self.seen.tallies
        scrapes = tallies["scrape"]
        late = sum(seconds > IN_TIME_SECONDS for seconds in scrapes.seconds)
        posts = [kind for kind in tallies if kind != "scrape"]
        return [
            *(["attempts were let through"] if self.let_through else []),
            *(
                [f"{late} of {scrapes.tried} scrapes took over a second"]
                if late
                else []
            ),
            *([f"scrapes failed {_most(scrapes)}"] if scrapes.failures else []),
            *(
                f"{kind} posts were refused {_most(tallies[kind])}"
                for kind in posts
                if tallies[kind].share() < POSTS_SHARE
            ),
            *(["triton_model_serving was 0"] if self.seen.not_serving else []),
        ]

    def faults_beside(self, before: Spell) -> list[str]:
        """Return the faults, compared with the first quiet spell."""
        scrapes, resident = self.seen.tallies["scrape"].tried, self.seen.resident_bytes
        probe, usual = self.seen.probe_seconds, before.seen.probe_seconds
        kept = resident - before.seen.resident_bytes
        is_quiet = self.name == QUIET
        faults = list(self.faults)
        if not is_quiet and scrapes < LEAST_SCRAPES:
            faults.append(f"{scrapes} scrapes were tried; want {LEAST_SCRAPES}")
        if not is_quiet and probe > PROBE_RATIO * usual:
            faults.append(f"probes took {probe / usual:.1f} times as long as before")
        if math.isnan(probe) and not math.isnan(usual):
            faults.append("no probe ended")
        if resident > RESIDENT_BYTES:
            faults.append(
                f"{resident / 1e6:.0f} MB were resident; "
                f"want at most {RESIDENT_BYTES / 1e6:.0f}"
            )
        if is_quiet and kept > KEPT_BYTES:
            faults.append(
                f"{kept / 1e6:.0f} MB more were resident than before; "
                f"want at most {KEPT_BYTES / 1e6:.0f}"
            )
        return faults

    @property
    def row(self) -> list[str]:
        """The row of the report's table."""
        tallies = dict(self.seen.tallies)
        scrapes, probe = tallies.pop("scrape"), self.seen.probe_seconds
        return [
            self.name,
            str(self.tried),
            str(self.let_through),
            f"{scrapes.share(IN_TIME_SECONDS):.1%} of {scrapes.tried}",
            f"{scrapes.worst * 1e3:.0f} ms",
            ", ".join(f"{kind} {t.share():.1%}" for kind, t in tallies.items()) or "-",
            str(self.seen.not_serving),
            "-" if math.isnan(probe) else f"{probe * 1e3:.1f} ms",
            f"{self.seen.resident_bytes / 1e6:.0f} MB",
        ]


def _most(tally: Tally) -> str:
    """The most frequent failures."""
    return str(dict(tally.failures.most_common(3)))


def spell(
    sidecar: Attacked,
    clients: HonestClients,
    names: Sequence[str],
    seconds: float,
    core: int | None = None,
) -> Spell:
    """Attack for so long, from one core if given; without names it is a quiet time."""
    target = sidecar.target
    where = {k: getattr(target, k) for k in ("web", "tap", "grpc")}
    known = json.dumps({key: value for key, value in where.items() if value})
    options = [] if core is None else [f"--core={core}"]
    command = [sys.executable, str(_ATTACKER), *options, known, str(seconds), *names]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with contextlib.ExitStack() as stack:
        if names:
            attacker = stack.enter_context(
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, text=True, env=environment
                )
            )
            stack.callback(attacker.kill)
        seen = clients.spell(seconds)
        output = attacker.communicate()[0] if names else "{}"
    counted = json.loads(output).values()
    return Spell(
        (names[0] if len(names) == 1 else f"all {len(names)} at once")
        if names
        else QUIET,
        sum(tried for tried, _ in counted),
        sum(through for _, through in counted),
        seen,
        os.getloadavg()[0],
    )


def spells(
    sidecar: Attacked,
    groups: Iterable[Sequence[str]],
    seconds: float,
    core: int | None = None,
) -> Generator[Spell]:
    """Honest load, a quiet time, the attacks in turn, and a quiet time again."""
    clients = HonestClients(sidecar.target, sidecar.reader)
    clients.warm_up(BUSY_SECONDS)
    time.sleep(RECOVERY_SECONDS)
    yield spell(sidecar, clients, (), QUIET_SECONDS)
    for names in groups:
        yield spell(sidecar, clients, names, seconds, core)
    time.sleep(RECOVERY_SECONDS)
    yield spell(sidecar, clients, (), QUIET_SECONDS)


def reserved_core() -> int:
    """Return a core that this process, and those that it starts, no longer use."""
    *ours, reserved = sorted(os.sched_getaffinity(0))
    if not ours:
        raise SystemExit("--apart wants at least two cores")
    os.sched_setaffinity(0, ours)
    return reserved


def chosen(target: Target, only: str) -> list[str]:
    """The names of the attacks that fit the target and the filter."""
    return [
        each.name
        for each in ATTACKS
        if only in each.name and getattr(target, each.needs) is not None
    ]


def faults_of(found: Mapping[str, Sequence[Spell]]) -> list[str]:
    """Every fault of every sidecar, with the spell in which it was seen."""
    return [
        f"{sidecar}, {each.name}: {fault}"
        for sidecar, several in found.items()
        for each in several
        for fault in each.faults_beside(several[0])
    ]


def report(found: Mapping[str, Sequence[Spell]], notes: Sequence[str]) -> Document:
    """Return the faults of all spells; the first of each sidecar is a quiet one."""
    faults = faults_of(found)
    return Document(
        "Attacks on a sidecar",
        [
            Verdict("bad", "; ".join(faults))
            if faults
            else Verdict("good", "Every honest client was served."),
            *(
                Section(name, [Table(_HEADS, [each.row for each in several])])
                for name, several in found.items()
            ),
            *(Paragraph(note, soft=True) for note in (_PRIORITY, *notes)),
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="of a sidecar that runs already")
    parser.add_argument("--tap", help="its HTTP tap, host:port")
    parser.add_argument("--grpc", help="its gRPC tap, host:port")
    parser.add_argument("--cafile", help="the authority of its certificate")
    parser.add_argument("--authorization", default="", help="the header for its pages")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="each attack")
    parser.add_argument("--all", action="store_true", help="all attacks at once")
    parser.add_argument("--only", default="", help="part of the attacks' names")
    parser.add_argument(
        "--apart",
        action="store_true",
        help="attackers on one core, everything else on the others, when quiet as well",
    )
    parser.add_argument("--html", type=Path, help="write the report as a page")
    parser.add_argument("--json", type=Path, help="write the figures")
    arguments = parser.parse_args()
    notes: list[str] = []
    core = reserved_core() if arguments.apart else None
    if core is not None:
        notes.append("Attackers have one core, and everything else the other ones.")
    found: dict[str, list[Spell]] = {}
    for context in _sidecars(arguments, notes):
        with context as sidecar:
            names = chosen(sidecar.target, arguments.only)
            groups = [names] if arguments.all else [[name] for name in names]
            several = found.setdefault(sidecar.name, [])
            for each in spells(sidecar, groups, arguments.seconds, core):
                several.append(each)
                print(f"{sidecar.name}: {' | '.join(each.row)}", file=sys.stderr)
                if arguments.json:
                    arguments.json.write_text(json.dumps(figures(found), indent=1))
    document = report(found, notes)
    print(page_text.render(document))
    if arguments.html:
        arguments.html.write_text(page_html.render(document), "utf-8")
    if arguments.json:
        written = {
            "command": f"make attack ARGS={shlex.join(sys.argv[1:])!r}",
            "revision": _revision(),
            **figures(found),
            "notes": notes,
            "faults": faults_of(found),
        }
        arguments.json.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    return int(bool(faults_of(found)))


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(
        command, cwd=_ATTACKER.parent, capture_output=True, text=True, check=False
    ).stdout.strip()


def figures(found: Mapping[str, Sequence[Spell]]) -> dict[str, object]:
    """Return what was seen of every sidecar, and how busy the machine was."""
    return {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "sidecars": {
            name: [each.figures for each in several] for name, several in found.items()
        },
    }


def _sidecars(
    arguments: argparse.Namespace, notes: list[str]
) -> Generator[contextlib.AbstractContextManager[Attacked]]:
    if arguments.url:
        yield contextlib.nullcontext(_of_others(arguments))
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for tls in (False, True):
            yield _in_a_group(folder / ("tls" if tls else "plain"), tls, notes)


@contextlib.contextmanager
def _in_a_group(folder: Path, tls: bool, notes: list[str]) -> Generator[Attacked]:
    """A sidecar of ours, in as much memory as deployed where the machine allows that."""
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(limited(LIMIT_BYTES))
        except NoGroupError as error:
            notes.append(f"Without a limit of memory: {error}.")
            yield stack.enter_context(attacked(folder, tls=tls))
            return
        sidecar = stack.enter_context(attacked(folder, tls=tls, within=group.within))
        yield sidecar
        notes.append(
            f"{sidecar.name}: in a control group of {LIMIT_BYTES >> 20} MiB, of which "
            f"{group.peak_bytes / 2**20:.0f} were charged at most; {group.kills} kills."
        )


def _of_others(arguments: argparse.Namespace) -> Attacked:
    url = urlsplit(arguments.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    web = (url.hostname or "localhost", port)
    taps = {
        name: (host, int(number))
        for name in ("tap", "grpc")
        if (given := getattr(arguments, name))
        for host, _, number in [given.rpartition(":")]
    }
    tls = trusting_authority(arguments.cafile) if url.scheme == "https" else None
    reader = Reader(web, tls, arguments.authorization)
    # Strangers speak TLS as well.
    files = (arguments.cafile or "",) if tls else ()
    return Attacked(arguments.url, Target((*web, *files), **taps), reader)


if __name__ == "__main__":
    sys.exit(main())
