"""Small wrong changes of a module: what a tired author might have written instead.

Comparisons, arithmetic, logic, constants, the order of arguments, statements left out. Not touched are
docstrings, annotations, strings and formatted messages: what is said, not what is done.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["Mutant", "mutants"]

#: What stands for an operator in the source, and what is written instead.
_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_SWAPPED_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Calls of these mean the same with their arguments in the other order, or fail at once.
_SYMMETRIC = frozenset({"min", "max", "isinstance", "zip", "print", "getattr", "hasattr", "cast"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change at a line (from 1), and the whole module with it."""

    line: int
    before: str
    after: str

    @property
    def change(self) -> tuple[str, str]:
        """The changed lines before and after, without their indentation: the same wherever they stand."""
        lines = self.diff("").splitlines()[1:]
        before, after = ([line[1:].strip() for line in lines if line[0] == sign] for sign in "-+")
        return "\n".join(before), "\n".join(after)

    def diff(self, name: str) -> str:
        """Unified, without context."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), name, name, n=0, lineterm=""
        )
        return "\n".join(list(lines)[2:])


def mutants(source: str) -> tuple[Mutant, ...]:
    """All mutants of a module, each still Python, in the order of their lines; O(n) for each of them.

    Raises SyntaxError where the module itself is not Python.
    """
    given = source.encode()
    starts = [0]
    for line in given.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    made: dict[str, int] = {}
    for change in _changes(ast.parse(source)):
        first, last, replacement = change.span(starts, given)
        after = (given[:first] + replacement + given[last:]).decode()
        if after != source and _is_python(after):
            made.setdefault(after, change.line)
    return tuple(sorted((Mutant(line, source, after) for after, line in made.items()), key=lambda m: m.line))


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Change:
    """The text between two positions (line from 1, byte from 0) becomes another one.

    With a pattern, only its first match does. A NUL in the replacement stands for the text that was there.
    """

    start: Position
    end: Position
    replacement: str
    pattern: str | None = None

    @property
    def line(self) -> int:
        return self.start[0]

    def span(self, starts: list[int], given: bytes) -> tuple[int, int, bytes]:
        first, last = (starts[line - 1] + byte for line, byte in (self.start, self.end))
        text = given[first:last].decode()
        if self.pattern is None:
            return first, last, self.replacement.replace("\0", text).encode()
        return first, last, re.sub(self.pattern, self.replacement, text, count=1).encode()


def _start(node: ast.expr | ast.stmt) -> Position:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> Position:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


#: Parts of a node in which nothing is done.
_PASSED_OVER = frozenset({"annotation", "returns", "decorator_list", "bases", "exc", "type_params", "msg"})


def _changes(tree: ast.AST) -> Iterator[_Change]:
    """Of everything below a node that does something."""
    for field, value in ast.iter_fields(tree):
        for node in value if isinstance(value, list) else [value]:
            if field in _PASSED_OVER or not isinstance(node, ast.AST) or _is_said(node):
                continue
            if type(node) in _CHANGES:
                yield from _CHANGES[type(node)](node)
            yield from _changes(node)


def _is_said(node: ast.AST) -> bool:
    """Text, imports, and limits with a name, such as ``MOST = 4000``: one more of them is not wrong."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name.isupper()
    return False


def _compared(node: ast.Compare) -> Iterator[_Change]:
    for (left, right), operator in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
        pattern, others = _COMPARISONS[type(operator)]
        for other in others:
            yield _Change(_end(left), _start(right), other, pattern)


def _calculated(node: ast.BinOp) -> Iterator[_Change]:
    if type(node.op) in _ARITHMETIC:
        pattern, other = _ARITHMETIC[type(node.op)]
        yield _Change(_end(node.left), _start(node.right), other, pattern)


def _augmented(node: ast.AugAssign) -> Iterator[_Change]:
    if type(node.op) in _ARITHMETIC:
        pattern, other = _ARITHMETIC[type(node.op)]
        yield _Change(_end(node.target), _start(node.value), other, pattern)
    yield from _removed(node)


def _joined(node: ast.BoolOp) -> Iterator[_Change]:
    word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in pairwise(node.values):
        yield _Change(_end(left), _start(right), other, rf"\b{word}\b")


def _signed(node: ast.UnaryOp) -> Iterator[_Change]:
    patterns: dict[type[ast.unaryop], str] = {ast.Not: r"not\s+", ast.USub: "-"}
    if type(node.op) in patterns:
        yield _Change(_start(node), _start(node.operand), "", patterns[type(node.op)])


def _conditional(node: ast.If | ast.While | ast.IfExp) -> Iterator[_Change]:
    if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # these have changes of their own
        yield _Change(_start(node.test), _end(node.test), "(not (\0))")


def _filtered(node: ast.comprehension) -> Iterator[_Change]:
    for test in node.ifs:
        yield _Change(_start(test), _end(test), "True")


def _constant(node: ast.Constant) -> Iterator[_Change]:
    match node.value:
        case bool(value):
            yield _Change(_start(node), _end(node), str(not value))
        case int(value):
            yield _Change(_start(node), _end(node), str(value + 1))


def _called(node: ast.Call) -> Iterator[_Change]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _SWAPPED_NAMES:
        yield _Change(_start(node.func), _end(node.func), _SWAPPED_NAMES[name])
    match node.args:
        case [first, second, *_] if name not in _SYMMETRIC:
            texts = ast.unparse(first), ast.unparse(second)
            starred = any(isinstance(one, ast.Starred) for one in (first, second))
            if not starred and texts[0] != texts[1]:
                yield _Change(_start(first), _end(second), f"{texts[1]}, {texts[0]}")


def _removed(node: ast.stmt) -> Iterator[_Change]:
    yield _Change(_start(node), _end(node), "pass")


def _assigned(node: ast.Assign) -> Iterator[_Change]:
    """A name that is never bound would be found by anything: left out is what changes an object."""
    if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
        yield from _removed(node)


_CHANGES: dict[type[ast.AST], Callable[[Any], Iterator[_Change]]] = {
    ast.Compare: _compared,
    ast.BinOp: _calculated,
    ast.AugAssign: _augmented,
    ast.BoolOp: _joined,
    ast.UnaryOp: _signed,
    ast.If: _conditional,
    ast.While: _conditional,
    ast.IfExp: _conditional,
    ast.comprehension: _filtered,
    ast.Constant: _constant,
    ast.Call: _called,
    ast.Assign: _assigned,
    ast.Expr: _removed,
    ast.Raise: _removed,
    ast.Continue: _removed,
    ast.Break: _removed,
}
