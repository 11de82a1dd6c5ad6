"""Which call gets which behaviour: rules that can change while the server runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeVar, get_args

from fake_triton.behaviours import (
    Behaviour,
    Delivery,
    NotReady,
    TensorFault,
)

if TYPE_CHECKING:
    from fake_triton.journal import Operation, Protocol, Scripted

_B = TypeVar("_B")

TENSOR_FAULTS: Final[tuple[type, ...]] = get_args(TensorFault)
_ONLY_FOR: Final[tuple[tuple[tuple[type, ...], frozenset[str]], ...]] = (
    (TENSOR_FAULTS, frozenset({"infer"})),
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
    ) -> None:
        self.on = on
        self.behaviours = behaviours
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What the script says about one call."""

    behaviours: tuple[Behaviour, ...] = ()

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


class Script:
    """All rules of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def add(self, on: On, behaviours: tuple[Behaviour, ...], times: int | None) -> Rule:
        """Put a rule in."""
        rule = Rule(self, on, behaviours, times=times)
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
        """What to do with this call; a limited rule that is used loses one use."""
        with self._lock:
            for rule in self._in_order():
                if rule.on.covers(operation, protocol) and rule.on.model in (
                    None,
                    model,
                ):
                    self._use(rule)
                    return Plan(rule.behaviours)
        return Plan()

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
