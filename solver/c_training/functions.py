"""One program of a plan as functions in C: what it is fed, its run, and its outputs.

    train      net_feed_image         net_step          net_softmax_out
    infer      net_feed_infer_image   net_infer         net_output_infer_softmax_out

A plan of one program, and the entry point named ``train``, have the short names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from solver.c_kernels import C_TYPES, KERNELS, Call, table, task_of
from solver.errors import OptionsError
from solver.graph.ops.base import IndexRange
from solver.graph.types import DType, TensorType
from solver.names import c_identifiers
from solver.plan import Plan
from solver.plan.deployment import Purpose
from solver.program import EntryKind, Kind, Step, expiring, indices

__all__ = ["Body", "Function", "Names", "Tables", "arena", "c_type", "merged"]


#: What follows ``net_`` in the names of functions that every program has.
_RESERVED: Final = (
    "init", "iteration", "read", "write", "save", "load", "hash", "self_hash", "self_test",
    "weights", "page_in", "page_out",
)  # fmt: skip

#: The function of a program that has the short names.
_SHORT: Final[Mapping[Purpose, str]] = {
    "train": "step",
    "infer": "infer",
    "evaluate": "evaluate",
    "run": "run",
}


class Names:
    """The names of a program in C, without ``net_`` in front: each is there once."""

    def __init__(self, *reserved: str) -> None:
        self._taken = {*_RESERVED, *reserved, _SHORT["train"]}
        self._entry_points: dict[str, str] = {}

    def short(self, purpose: Purpose) -> str:
        """The name of the function that runs a program which has the short names."""
        self._taken.add(_SHORT[purpose])
        return _SHORT[purpose]

    def of_entry_point(self, name: str) -> str:
        """The name of the function that runs an entry point. Raises OptionsError where it cannot have one."""
        (plain,) = c_identifiers((name,))
        remedy = "Plan it under another name, as --entry infer:name=camera."
        if not re.search("[A-Za-z0-9]", plain) or not name.isascii():
            raise OptionsError(f"Entry point {name!r:.200} cannot be spelled in C.", remedy=remedy)
        other = self._entry_points.setdefault(plain, name)
        if other != name:
            raise OptionsError(
                f"Entry points {other!r:.200} and {name!r:.200} are both net_{plain} in C.",
                remedy=remedy,
            )
        own = (plain, f"iteration_{plain}")
        for each in own:
            if each in self._taken:
                raise OptionsError(
                    f"Entry point {name!r:.200} needs the name net_{each} in C, which another function has.",
                    remedy=remedy,
                )
        self._taken.update(own)
        return plain

    def of_values(self, front: str, labels: Iterable[str]) -> list[str]:
        """For each label a name that begins with `front`, and that no other has. Linear."""
        reserved = {name.removeprefix(front) for name in self._taken if name.startswith(front)}
        names = [f"{front}{name}" for name in c_identifiers(labels, reserved)]
        self._taken.update(names)
        return names


def c_type(type_: TensorType) -> str:
    """The type of an element, for callers."""
    name = C_TYPES[type_.dtype]
    return "float" if name == "ap_f32" else name


class Tables:
    """The constant structs of a program, each once."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, tuple[int | str, ...]], str] = {}

    def name(self, type_: str, members: Iterable[int | str]) -> str:
        """The name of a constant of this type with these members."""
        return self._names.setdefault((type_, tuple(members)), f"t{len(self._names)}")

    def lines(self) -> Iterator[str]:
        for (type_, members), name in self._names.items():
            yield table(name, type_, members)


class Body:
    """Statements of the program of one plan. Constant structs are named by `tables`; without these each
    statement stands behind its own.
    """

    def __init__(self, plan: Plan, iterations: str, tables: Tables | None) -> None:
        self.plan, self.program = plan, plan.program
        self._iterations, self._tables = iterations, tables
        self._ends, self._indices = expiring(self.program), indices(self.program)
        self.sources: set[str] = set()
        values = self.program.values
        by_reference: dict[int, list[int]] = {}
        for entry in self.program.entry:
            if entry.kind is EntryKind.FED:
                by_reference.setdefault(entry.reference, []).append(entry.value)
        #: The places of each value that a caller feeds, and the ranges of its elements: of all, as no kernel
        #: here cuts integers into parts.
        self.fed, fed = tuple(by_reference.values()), self._indices.fed
        self.ranges = [[*dict(fed.get(values[places[0]].origin, ()))] for places in self.fed]
        losses = [e.value for e in self.program.exit if values[e.value].kind is Kind.LOSS]
        self.loss = losses[0] if losses else None
        stays = {e.reference for e in self.program.entry if e.kind is not EntryKind.FED}
        self.results = tuple(
            e.value
            for e in self.program.exit
            if e.value != self.loss and e.reference not in stays and "@" not in values[e.value].label
        )

    def label(self, places: Iterable[int]) -> str:
        """The shortest label of a value's places, which is its own."""
        return min((self.program.values[value].label for value in places), key=len)

    def type_of(self, value: int) -> TensorType:
        return self.program.values[value].type

    def is_addressable(self, value: int) -> bool:
        return self.program.spaces[self.program.values[value].space].addressable

    def step(self, t: int) -> list[str]:
        """The statement of a step behind its constants, and marks of what ends with it."""
        step, constants = self.program.steps[t], list[str]()
        written = self._step(t, step, constants)
        return [*constants, written, *self._ended(t)]

    def feed(self, k: int) -> list[str]:
        """Statements that check `values` and copy them to the places of what is fed."""
        test = partial(_in_range, "values", self.type_of(self.fed[k][0]))
        return [f"if (!{test(row)}) {{ return NET_OUT_OF_RANGE; }}" for row in self.ranges[k]] + [
            f"ap_copy({self._address(value)}, values, {self.type_of(value).nbytes}u);"
            if self.is_addressable(value)
            else self._paged_out(value, "values")
            for value in self.fed[k]
        ]

    def output(self, k: int) -> list[str]:
        """The statement that returns the address of an output, or copies it from slower memory to `to`."""
        value = self.results[k]
        if self.is_addressable(value):
            return [f"return {self._address(value)};"]
        return [self._paged_in(value, "to")]

    def answer(self) -> list[str]:
        """The statement that returns the loss, or without one that the run is done."""
        if self.loss is None:
            return ["return NET_OK;"]
        if self.is_addressable(self.loss):
            return [f"return *{self._address(self.loss)};"]
        return [f"float loss; {self._paged_in(self.loss, '&loss')} return loss;"]

    def fills(self) -> list[str]:
        """Statements that fill what is fed with the numbers of the self-test; integers are zeros."""
        return [
            f"fill({self.program.values[value].space}, {self.plan.offsets[value]}u,"
            f" {self.type_of(value).nbytes}u, {int(self.type_of(value).dtype is DType.FLOAT32)});"
            for places in self.fed
            for value in places
        ]

    def hashes(self) -> list[str]:
        """Statements that add outputs to the hash of the self-test."""
        return [
            f"hash = hashed(hash, {self._address(value)}, {self.type_of(value).nbytes}u);"
            for value in filter(self.is_addressable, self.results)
        ]

    # ------------------------------------------------------------------------------------ parts

    def _address(self, value: int, *, cast: bool = True) -> str:
        row = self.program.values[value]
        place = f"{arena(row.space)} + {self.plan.offsets[value]}u"
        return f"(({C_TYPES[row.type.dtype]} *)(void *)({place}))" if cast else f"({place})"

    def _step(self, t: int, step: Step, constants: list[str]) -> str:
        kernel = KERNELS[self.program.kernel(step)]
        value_of = {binding.slot: binding.value for binding in step.bindings}
        if step.reference is None:
            source, target = value_of["x0"], value_of["y0"]
            if not self.is_addressable(source):
                return self._paged_in(source, self._address(target))
            if not self.is_addressable(target):
                return self._paged_out(target, self._address(source))

        def local(type_: str, members: Iterable[int | str]) -> str:
            constants.append(table(f"t{len(constants)}", type_, members).removeprefix("static "))
            return f"t{len(constants) - 1}"

        task = task_of(self.program, step)
        self.sources.add(kernel.file_of(task))
        call = Call(
            task,
            lambda slot: self._address(value_of[slot]),
            local if self._tables is None else self._tables.name,
            self._iterations,
            self._update(),
        )
        written = kernel.write(call)
        for slot, range_ in self._indices.computed.get(t, ()):
            test = _in_range(self._address(value_of[slot]), self.type_of(value_of[slot]), range_)
            result = "NET_OUT_OF_RANGE" if self.loss is None else "AP_INFINITY - AP_INFINITY"
            written = f"if (!{test}) {{ NET_OUTSIDE({t + 1}u); return {result}; }} {written}"
        due = f"if ({self._iterations} % {self.program.period}u == 0u)"
        return f"{due} {{ {written} }}" if step.due else written

    def _update(self) -> str:
        """The number of the update that the iteration belongs to, from 1."""
        period = self.program.period
        return self._iterations if period == 1 else f"({self._iterations} + {period - 1}u) / {period}u"

    def _paged_in(self, value: int, to: str) -> str:
        row = self.program.values[value]
        return f"net_page_in({row.space}, {self.plan.offsets[value]}u, {to}, {row.type.nbytes}u);"

    def _paged_out(self, value: int, source: str) -> str:
        row = self.program.values[value]
        return f"net_page_out({row.space}, {self.plan.offsets[value]}u, {source}, {row.type.nbytes}u);"

    def _ended(self, t: int) -> Iterator[str]:
        """The end of each value that ends with step t, if it is the last of its level."""
        steps = self.program.steps
        if t + 1 < len(steps) and steps[t + 1].level == steps[t].level:
            return
        for value in self._ends.get(steps[t].level, ()):
            nbytes = self.type_of(value).nbytes
            if self.is_addressable(value) and nbytes:
                yield f"NET_ENDS({self._address(value, cast=False)}, {nbytes}u);"


class Function:
    """One program of a plan. `entry_point` is its name, empty for a plan of one program; `counter` the number
    of its iterations among those of the file. `at` has the plan at each size that it serves.
    """

    def __init__(
        self,
        plan: Plan,
        purpose: Purpose,
        names: Names,
        tables: Tables,
        counter: int,
        entry_point: str = "",
        at: Mapping[int, Plan] = MappingProxyType({}),
    ) -> None:
        self.purpose, self.entry_point = purpose, entry_point
        is_short = entry_point in ("", "train")
        #: What follows ``net_`` in the name of the function that runs the program.
        self.name = names.short(purpose) if is_short else names.of_entry_point(entry_point)
        #: What stands in front of names of values.
        self.front = "" if is_short else f"{self.name}_"
        self.counter, self.iterations = counter, f"iterations[{counter}]"
        self._names, self.tables = names, tables
        self._at = {size: Body(there, self.iterations, None) for size, there in at.items()}
        self.body = Body(plan, self.iterations, tables)
        self.returns_loss = self.body.loss is not None

    def name_values(self) -> None:
        """Give names in C to what is fed and to outputs, once all functions have theirs."""
        body = self.body
        self.labels = [body.label(places) for places in body.fed]
        #: Without ``net_``.
        self.feeds = self._names.of_values(f"feed_{self.front}", self.labels)
        results = [body.label((value,)) for value in body.results]
        self.results = self._names.of_values(f"output_{self.front}" if self.front else "", results)

    # ------------------------------------------------------------------------------------ texts

    def sources(self) -> set[str]:
        """The C files of the kernels, once the run is written."""
        return set().union(*(body.sources for body in (self.body, *self._at.values())))

    def run_head(self) -> str:
        return f"{'float' if self.returns_loss else 'int'} net_{self.name}(void)"

    def feed_heads(self) -> Iterator[str]:
        for k, (name, places) in enumerate(zip(self.feeds, self.body.fed, strict=True)):
            result = "int" if self.body.ranges[k] else "void"
            yield f"{result} net_{name}(const {c_type(self.body.type_of(places[0]))} *values)"

    def result_heads(self) -> Iterator[str]:
        for name, value in zip(self.results, self.body.results, strict=True):
            type_ = c_type(self.body.type_of(value))
            if self.body.is_addressable(value):
                yield f"const {type_} *net_{name}(void)"
            else:
                yield f"void net_{name}({type_} *to)"

    def feed_functions(self) -> Iterator[str]:
        """The functions that take what is fed."""
        for k, head in enumerate(self.feed_heads()):
            end = "\n    return NET_OK;" if self.body.ranges[k] else ""
            yield f"{head}\n{{\n    {' '.join(self._sized(partial(Body.feed, k=k)))}{end}\n}}"

    def result_functions(self) -> Iterator[str]:
        """The functions that give outputs."""
        for k, head in enumerate(self.result_heads()):
            yield f"{head} {{ {' '.join(self._sized(partial(Body.output, k=k)))} }}"

    def run_function(self) -> str:
        """The function that runs the program once."""
        unstarted = "AP_INFINITY - AP_INFINITY" if self.returns_loss else "NET_NOT_STARTED"
        lines = [f"if (!started) return {unstarted};", f"{self.iterations} += 1u;"]
        for t in range(len(self.body.program.steps)):
            lines += self._sized(partial(Body.step, t=t))
        lines += self._sized(Body.answer)
        body = "\n".join(f"    {line}" for line in lines)
        return f"{self.run_head()}\n{{\n{body}\n}}"

    def test(self) -> Iterator[str]:
        """The part of the self-test: a run on fixed numbers, whose results are hashed."""
        yield from self.body.fills()
        if self.returns_loss:
            yield f"{{ const float loss = net_{self.name}(); hash = hashed(hash, &loss, 4u); }}"
        else:
            yield f"(void)net_{self.name}();"
        yield from self.body.hashes()

    def _sized(self, write: Callable[[Body], list[str]]) -> list[str]:
        """Statements of the program; where it serves several sizes, those that fit `size`."""
        if not self._at:
            return write(self.body)
        texts = {size: write(body) for size, body in self._at.items()}
        return [merged(texts)] if any(texts.values()) else []


def _in_range(address: str, type_: TensorType, range_: IndexRange) -> str:
    """The C expression that says whether all elements of an array are in a range."""
    ignored = range_.least if range_.ignored is None else range_.ignored
    size = -1 if type_.dtype is DType.INT8 else type_.dtype.itemsize
    return f"in_range({address}, {size}, {type_.elements}u, {range_.least}, {range_.most}, {ignored})"


def arena(space: int) -> str:
    return f"arena{space}"


#: Numbers that may depend on the size: whole ones, and those that are written as floats. Not those in names.
_NUMBER: Final = re.compile(r"(?<![\w.])(\d+)(u|\.0f)?(?![\w.])")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Sizes up to `most`, and their statements."""

    most: int
    texts: tuple[str, ...]


def merged(texts: Mapping[int, Sequence[str]]) -> str:
    """Statements at each size of a range as one text: numbers that grow with the size become expressions.

        size 1      ap_softmax_forward(&t0, ..., 10u)        size <= 1u
        size 2      ap_softmax_forward(&t0, ..., 120u)   \\
        size 3      ap_softmax_forward(&t0, ..., 180u)   /   else: ap_softmax_forward(&t0, ..., 60u * size)

    At each size there are definitions of constants, which end with ``;`` and begin with ``const``, and behind
    them a statement. Every expression is checked at every size; where none fits, sizes get statements of
    their own. Linear in the texts.
    """
    pieces = list(_pieces(texts))
    *branches, last = [f"{{ {' '.join(piece.texts)} }}" for piece in pieces]
    if not branches:
        only = pieces[0].texts
        return only[0] if len(only) == 1 else last
    conditions = [
        f"if (size <= {piece.most}u) {branch}" for piece, branch in zip(pieces, branches, strict=False)
    ]
    return " else ".join((*conditions, last))


def _pieces(texts: Mapping[int, Sequence[str]]) -> Iterator[_Piece]:
    """Runs of sizes, the smallest first, each as long as expressions fit. The last one is extended down."""
    sizes = sorted(texts, reverse=True)
    pieces, start = list[_Piece](), 0
    while start < len(sizes):
        end = start + 1
        run = _Run(sizes[start], texts[sizes[start]])
        while end < len(sizes) and run.takes(sizes[end], texts[sizes[end]]):
            end += 1
        pieces.append(_Piece(sizes[start], run.texts()))
        start = end
    yield from reversed(pieces)


class _Run:
    """Texts that differ in numbers alone, which are linear in the size."""

    def __init__(self, size: int, texts: Sequence[str]) -> None:
        self._size = size
        self._skeletons = [_NUMBER.sub(_gap, text) for text in texts]
        self._numbers = [[int(match[1]) for match in _NUMBER.finditer(text)] for text in texts]
        self._suffixes = [[match[2] or "" for match in _NUMBER.finditer(text)] for text in texts]
        self._slopes: list[list[int]] | None = None

    def takes(self, size: int, texts: Sequence[str]) -> bool:
        """Whether the texts at this size have the form of the others; if so they are among them."""
        if [_NUMBER.sub(_gap, text) for text in texts] != self._skeletons:
            return False
        numbers = [[int(match[1]) for match in _NUMBER.finditer(text)] for text in texts]
        less = self._size - size
        slopes = self._slopes
        if slopes is None:
            differences = [
                [most - here for most, here in zip(row, there, strict=True)]
                for row, there in zip(self._numbers, numbers, strict=True)
            ]
            if any(difference % less for row in differences for difference in row):
                return False
            slopes = [[difference // less for difference in row] for row in differences]
        at_size = [
            [most - slope * less for most, slope in zip(row, steps, strict=True)]
            for row, steps in zip(self._numbers, slopes, strict=True)
        ]
        if at_size != numbers:
            return False
        self._slopes = slopes
        return True

    def texts(self) -> tuple[str, ...]:
        return tuple(self._text(k) for k in range(len(self._skeletons)))

    def _text(self, k: int) -> str:
        slopes = self._slopes[k] if self._slopes else [0] * len(self._numbers[k])
        rows = zip(self._numbers[k], slopes, self._suffixes[k], strict=True)
        written = iter(
            [_expression(most - slope * self._size, slope, most, suffix) for most, slope, suffix in rows]
        )
        text = re.sub("\0[^\0]*\0", lambda _: next(written), self._skeletons[k])
        return text if any(slopes) or not text.startswith("const ") else f"static {text}"


def _gap(match: re.Match[str]) -> str:
    return f"\0{match[2] or ''}\0"


def _expression(constant: int, slope: int, number: int, suffix: str) -> str:
    if not slope:
        return f"{number}{suffix}"
    product = "size" if slope == 1 else f"{abs(slope)}u * size" if abs(slope) != 1 else "size"
    if slope < 0:
        text = f"{constant}u - {product}"
    elif constant:
        text = f"{product} {'+' if constant > 0 else '-'} {abs(constant)}u"
    else:
        text = product
    return f"(float)({text})" if suffix == ".0f" else f"({text})"
