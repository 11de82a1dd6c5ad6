"""Which call gets which behaviour: rules that can change while the server runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeVar, get_args

from fake_triton.behaviours import (
    Behaviour,
    CounterFault,
    Delivery,
    Frozen,
    NotReady,
    Shifted,
    TensorFault,
    Zeroed,
)
from fake_triton.counters import shifted, zeroed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fake_triton.counters import Counters
    from fake_triton.journal import Operation, Protocol, Scripted

    Snapshot = Mapping[tuple[str, str], Counters]

_B = TypeVar("_B")

COUNTER_FAULTS: Final[tuple[type, ...]] = get_args(CounterFault)
TENSOR_FAULTS: Final[tuple[type, ...]] = get_args(TensorFault)
_ONLY_FOR: Final[tuple[tuple[tuple[type, ...], frozenset[str]], ...]] = (
    (TENSOR_FAULTS, frozenset({"infer"})),
    (COUNTER_FAULTS, frozenset({"statistics", "metrics"})),
    ((NotReady,), frozenset({"server_live", "server_ready", "model_ready"})),
)


class Rule:
    """A scripted reply; a context manager that removes it at the end of the block."""

    def __init__(
        self,
        script: Script,
        on: On,
        behaviours: tuple[Behaviour, ...],
        *,
        times: int | None,
        snapshot: Snapshot,
    ) -> None:
        self.on = on
        self.behaviours = behaviours
        self.snapshot = snapshot
        self.left = times
        self.used = 0
        """How many calls it has answered."""
        self._script = script

    def remove(self) -> None:
        """Take it out of the script; nothing happens if it is out already."""
        self._script.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@dataclass(frozen=True, slots=True)
class On:
    """The calls a reply is for: an operation, on a model or all, on a port or all."""

    script: Script
    operation: Scripted
    model: str | None = None
    protocol: Protocol | None = None

    def reply(self, *behaviours: Behaviour, times: int | None = None) -> Rule:
        """Answer these calls so, from now on or for the next `times` of them.

        Replies with `times` are used up in the order given, before any without; among
        those without, the latest wins. No behaviour at all means: behave well.
        ValueError for a behaviour that the operation cannot show.
        """
        for behaviour in behaviours:
            _check(self.operation, behaviour)
        return self.script.add(self, behaviours, times)

    def covers(self, operation: Operation, protocol: Protocol) -> bool:
        """Whether calls of this kind are meant, whatever the model."""
        return self.operation in ("any", operation) and self.protocol in (
            None,
            protocol,
        )


def _check(operation: Scripted, behaviour: Behaviour) -> None:
    for kinds, allowed in _ONLY_FOR:
        if isinstance(behaviour, kinds) and operation not in allowed:
            raise ValueError(
                f"{type(behaviour).__name__} cannot be shown by {operation!r}, "
                f"only by {', '.join(sorted(allowed))}"
            )


def _falsifies(rule: Rule) -> bool:
    return any(isinstance(item, COUNTER_FAULTS) for item in rule.behaviours)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the script says about one call."""

    behaviours: tuple[Behaviour, ...] = ()
    counter_rules: tuple[Rule, ...] = ()

    def find(self, kind: type[_B]) -> _B | None:
        """The last behaviour of this kind."""
        found = [item for item in self.behaviours if isinstance(item, kind)]
        return found[-1] if found else None

    @property
    def delivery(self) -> Delivery | None:
        """How the bytes are to arrive."""
        found = [item for item in self.behaviours if isinstance(item, Delivery)]
        return found[-1] if found else None

    @property
    def tensor_faults(self) -> tuple[TensorFault, ...]:
        """What is made wrong in the tensors, in order."""
        return tuple(item for item in self.behaviours if isinstance(item, TensorFault))

    def counters(self, name: str, version: str, counted: Counters) -> Counters:
        """What a model version's counters are made to look like."""
        for rule in self.counter_rules:
            if rule.on.model in (None, name):
                return _falsified(rule, name, version, counted)
        return counted


def _falsified(rule: Rule, name: str, version: str, counted: Counters) -> Counters:
    for fault in rule.behaviours:
        match fault:
            case Frozen():
                counted = rule.snapshot.get((name, version), counted)
            case Zeroed():
                counted = zeroed(counted)
            case Shifted(by=by):
                counted = shifted(counted, by)
    return counted


class Script:
    """All rules of one server. Thread-safe."""

    def __init__(self, snapshot: Callable[[Scripted], Snapshot]) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._snapshot = snapshot

    def add(self, on: On, behaviours: tuple[Behaviour, ...], times: int | None) -> Rule:
        """Put a rule in; Frozen ones take their counters now."""
        frozen = any(isinstance(item, Frozen) for item in behaviours)
        snapshot = self._snapshot(on.operation) if frozen else {}
        rule = Rule(self, on, behaviours, times=times, snapshot=snapshot)
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Take one rule out."""
        with self._lock:
            self._rules = [kept for kept in self._rules if kept is not rule]

    def clear(self) -> None:
        """Take every rule out: the server behaves well."""
        with self._lock:
            self._rules = []

    def plan(self, operation: Operation, protocol: Protocol, model: str) -> Plan:
        """What to do with this call; limited rules that are used lose one use.

        A statistics or metrics call is about every model, so rules that falsify the
        counters of one model join in whatever model the call names.
        """
        with self._lock:
            chosen: Rule | None = None
            used: list[Rule] = []
            for rule in self._in_order():
                if not rule.on.covers(operation, protocol):
                    continue
                if rule.on.model in (None, model):
                    chosen = rule
                    used.append(rule)
                    break
                if _falsifies(rule):
                    used.append(rule)
            for rule in used:
                self._use(rule)
        falsifying = tuple(rule for rule in used if _falsifies(rule))
        return Plan(chosen.behaviours if chosen else (), falsifying)

    def _in_order(self) -> list[Rule]:
        limited = [rule for rule in self._rules if rule.left is not None]
        lasting = [rule for rule in self._rules if rule.left is None]
        return limited + lasting[::-1]

    def _use(self, rule: Rule) -> None:
        rule.used += 1
        if rule.left is not None:
            rule.left -= 1
            if rule.left <= 0:
                self._rules = [kept for kept in self._rules if kept is not rule]
