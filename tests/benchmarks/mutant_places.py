"""Where wrong changes are made to code, and which places are left out by rule."""

from __future__ import annotations

import ast
import contextlib
import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from parso.python.tree import Keyword

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

Place = tuple[int, int]
"""Line from 1, column from 0."""

_OPPOSITES: Final = {
    "Binary": ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul",
               "Pow_Mul", "BitOr_BitAnd", "BitAnd_BitOr"),
    "Comparison": ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt",
                   "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt", "Is_IsNot", "IsNot_Is"),
    "Unary": ("USub_UAdd", "Delete_Not"),
}  # fmt: skip
_OPERATORS: Final = (
    *(
        f"Replace{k}Operator_{pair}"
        for k, pairs in _OPPOSITES.items()
        for pair in pairs
    ),
    *("ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot", "NumberReplacer"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ZeroIterationForLoop"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
)
LEFT_OUT: Final = {
    "log": "texts for people: alerts and pages rely on metrics, not on a log line",
    "message": "what an exception or an assertion says; that it is raised stays in",
    "signature": "`*` or `/` between parameters is no operator",
    "strict": "zip(strict=…) checks lengths that are always equal",
    "chosen": "a constant or default made greater or less by one: limits, waits and grids"
    " are chosen, and a test of 10 s against 11 s would be a copy of the number",
    "cache": "the size of a cache: answers are the same with any",
    "copied": "one of more than 16 numbers of a table, which is copied from data sheets",
}
"""Places without a mutant, and why: nobody could notice it but by a copy of the code."""
EQUIVALENT: Final = {
    'exporter/features/slo/slo_collector.py: lately = self.burn_rate(now, WINDOWS["5m"]) or 0.0'
    ' -> lately = self.burn_rate(now, WINDOWS["5m"]) or -1.0': "both are below the rate",
    "exporter/features/slo/slo_collector.py: for missed in range(max(self._slot + 1, slot - self._size"
    " + 1), slot + 1): -> for missed in range(max(self._slot + 1, slot - self._size - 1), slot + 1):": "two slots are written twice, with the same totals",
    "exporter/output/exposition.py: if -_GO_EXPONENT < value < _GO_EXPONENT: -> if +_GO_EXPONENT"
    " < value < _GO_EXPONENT:": "the slow way to write a number gives the same text",
    "exporter/features/energy/attribution.py: self._smear = np.vstack((self._smear.reshape(-1,"
    " watts.size), smears))[kept] -> self._smear = np.vstack((self._smear.reshape(- 2, watts.size),"
    " smears))[kept]": "numpy takes any negative size for the unknown one",
    "exporter/features/energy/power_fit.py: if (found >= least).all(): -> if (found < least).all():": "the loop continues, with the same result",
}
"""Mutants that survived and change no behaviour, by path and lines; judged by hand."""
_LOGGERS: Final = ("log", "_log", "logger", "_logger")
_TABLE: Final = 16


class DeleteStatement(Operator):
    """Leave out a call whose value nobody takes, or an augmented assignment."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Return the one place where this can be done to `node`."""
        if node.type != "simple_stmt":
            return
        first = node.children[0]
        called = first.type == "atom_expr" and first.children[-1].type == "trailer"
        added = first.type == "expr_stmt" and first.children[1].type == "operator"
        added = added and first.children[1].value not in {"=", ":"}
        if (called and first.children[-1].children[0].value == "(") or added:
            yield first.start_pos, first.end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002 - there is but one
        """Replace the statement by `pass`."""
        first = node.children[0]
        node.children[0] = Keyword(
            "pass", first.start_pos, first.get_first_leaf().prefix
        )
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: the tests of cosmic-ray ask for these."""
        return ()


@dataclass(frozen=True)
class Mutant:
    """A changed line of a file."""

    path: str
    line: int
    before: str
    after: str
    code: str

    @property
    def name(self) -> str:
        """Name in the results."""
        return f"{self.line}: {self.path}: {self.before} -> {self.after}"

    @property
    def is_equivalent(self) -> bool:
        """True if it was found to change no behaviour."""
        return f"{self.path}: {self.before} -> {self.after}" in EQUIVALENT


_DELETE: Final = DeleteStatement()


def places(code: str) -> dict[Place, list[tuple[Operator, int]]]:
    """Where mutants can be made: for each place the operators and their occurrence."""
    operators = [get_operator(f"core/{name}")() for name in _OPERATORS]
    counts: defaultdict[Operator, int] = defaultdict(int)
    found: defaultdict[Place, list[tuple[Operator, int]]] = defaultdict(list)
    for node in ast_nodes(get_ast(code)):
        for operator in (*operators, _DELETE):
            for start, _ in operator.mutation_positions(node):
                found[start].append((operator, counts[operator]))
                counts[operator] += 1
    return found


def left_out(code: str) -> list[tuple[str, Place, Place]]:
    """Return the spans without mutants, each with its rule of LEFT_OUT."""
    tree = ast.parse(code)
    found = [
        (rule, _start(part), _end(part))
        for node in ast.walk(tree)
        for rule, part in _ruled(node)
    ]
    owners = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    for statement in itertools.chain.from_iterable(owner.body for owner in owners):  # type: ignore[attr-defined]
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
            found += [
                (rule, _start(number), _end(number))
                for rule, number in _numbers(statement.value)
            ]
    return found


def _start(node: ast.AST) -> Place:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> Place:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _ruled(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=value, attr=attr))):
            if attr == "log" or getattr(value, "id", "") in _LOGGERS:
                yield "log", node
        case ast.Raise(exc=ast.Call(args=args)):
            yield from (("message", argument) for argument in args)
        case ast.Assert(msg=ast.expr() as message):
            yield "message", message
        case ast.Call(func=ast.Name(id="zip"), keywords=keywords):
            yield from (("strict", word) for word in keywords if word.arg == "strict")
        case ast.Call(
            func=ast.Name(id="lru_cache") | ast.Attribute(attr="lru_cache"),
            keywords=keywords,
        ):
            yield from (("cache", word) for word in keywords if word.arg == "maxsize")


def _numbers(value: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    """The numbers of a constant or default that no behaviour fixes to one value."""
    numbers = [
        node
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and type(node.value) in {int, float}
    ]
    if isinstance(value, ast.Tuple | ast.List | ast.Set | ast.Dict):
        if len(numbers) > _TABLE:
            yield from (("copied", number) for number in numbers)
    elif not isinstance(value, ast.Compare | ast.ListComp | ast.GeneratorExp):
        yield from (("chosen", number) for number in numbers)


class _Bare(ast.NodeTransformer):
    """Without annotations, which are never evaluated."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast asks for this name

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)


def bare(code: str) -> str:
    """Return what of the code is run."""
    return ast.dump(_Bare().visit(ast.parse(code)))


def signatures(code: str) -> list[tuple[int, int]]:
    """Return how many parameters of each function are positional or keyword only."""
    return [
        (len(node.args.posonlyargs), len(node.args.kwonlyargs))
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def mutant(path: str, code: str, operator: Operator, occurrence: int) -> Mutant | None:
    """Return the mutant, None where nothing that is run would change."""
    changed = mutate_code(code, operator, occurrence)
    if changed is None or changed == code:
        return None
    with contextlib.suppress(SyntaxError):
        if bare(changed) != bare(code) and signatures(changed) == signatures(code):
            pairs = itertools.zip_longest(code.splitlines(), changed.splitlines())
            for line, (before, after) in enumerate(pairs, 1):
                if before != after:
                    if "TYPE_CHECKING" in before or "@dataclass" in before:
                        return None
                    texts = [(text or "").strip() for text in (before, after)]
                    return Mutant(path, line, *texts, changed)
    return None


def sampled(
    codes: dict[str, str], number: int, rng: random.Random
) -> tuple[list[Mutant], Counter[str]]:
    """Return mutants, each in a place of its own, and the places left out by rule."""
    candidates = []
    refused: Counter[str] = Counter()
    for path, code in codes.items():
        spans = left_out(code)
        for place, operators in sorted(places(code).items()):
            rule = next((r for r, first, end in spans if first <= place < end), None)
            if rule is None:
                candidates.append((path, operators))
            else:
                refused[rule] += 1
    rng.shuffle(candidates)
    made = (mutant(p, codes[p], *rng.choice(operators)) for p, operators in candidates)
    return list(itertools.islice(filter(None, made), number)), refused
