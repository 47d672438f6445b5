"""One program of a plan as functions in C: what it is fed, its run, and its outputs.

    train      net_feed_image         net_step          net_softmax_out
    infer      net_feed_infer_image   net_infer         net_output_infer_softmax_out

A plan of one program, and the entry point named ``train``, have the short names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from solver.c_kernels import C_TYPES, KERNELS, Call, table, task_of
from solver.errors import OptionsError
from solver.graph.types import DType, TensorType
from solver.names import c_identifiers
from solver.plan import Plan
from solver.plan.deployment import Purpose
from solver.program import EntryKind, Kind, Program, Step, expiring

__all__ = ["Fed", "Function", "Names", "Tables", "arena", "c_type"]

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

    def __init__(self) -> None:
        self._taken = {*_RESERVED, _SHORT["train"]}
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


@dataclass(frozen=True, slots=True)
class Fed:
    """What a caller feeds: the name of the function that takes it, its label, and the values that hold it."""

    name: str
    label: str
    places: Sequence[int]


class Function:
    """One program of a plan. `entry_point` is its name, empty for a plan of one program; `counter` the number
    of its iterations among those of the file.
    """

    def __init__(
        self, plan: Plan, purpose: Purpose, names: Names, tables: Tables, counter: int, entry_point: str = ""
    ) -> None:
        self.plan, self.purpose, self.entry_point = plan, purpose, entry_point
        self.program: Program = plan.program
        is_short = entry_point in ("", "train")
        #: What follows ``net_`` in the name of the function that runs the program.
        self.name = names.short(purpose) if is_short else names.of_entry_point(entry_point)
        #: What stands in front of names of values.
        self.front = "" if is_short else f"{self.name}_"
        self.counter, self.iterations = counter, f"iterations[{counter}]"
        self._names, self.tables = names, tables
        self.sources: set[str] = set()
        self.steps = [self._step(step) for step in self.program.steps]
        losses = [e.value for e in self.program.exit if self.program.values[e.value].kind is Kind.LOSS]
        self.loss = losses[0] if losses and purpose != "infer" else None

    def name_values(self) -> None:
        """Give names in C to what is fed and to outputs, once all functions have theirs."""
        values = self.program.values
        by_reference: dict[int, list[int]] = {}
        for entry in self.program.entry:
            if entry.kind is EntryKind.FED:
                by_reference.setdefault(entry.reference, []).append(entry.value)
        labels = [self.label(places) for places in by_reference.values()]
        names = self._names.of_values(f"feed_{self.front}", labels)
        self.fed = [Fed(*row) for row in zip(names, labels, by_reference.values(), strict=True)]
        stays = {e.reference for e in self.program.entry if e.kind is not EntryKind.FED}
        results = [
            e.value
            for e in self.program.exit
            if e.value != self.loss and e.reference not in stays and "@" not in values[e.value].label
        ]
        front = f"output_{self.front}" if self.front else ""
        names = self._names.of_values(front, (values[value].label for value in results))
        #: The outputs by their names in C.
        self.results = dict(zip(names, results, strict=True))

    def label(self, places: Iterable[int]) -> str:
        """The shortest label of a value's places, which is its own."""
        return min((self.program.values[value].label for value in places), key=len)

    # ----------------------------------------------------------------------------------- steps

    def address(self, value: int, *, cast: bool = True) -> str:
        row = self.program.values[value]
        place = f"{arena(row.space)} + {self.plan.offsets[value]}u"
        return f"(({C_TYPES[row.type.dtype]} *)(void *)({place}))" if cast else f"({place})"

    def _step(self, step: Step) -> str:
        kernel = KERNELS[self.program.kernel(step)]
        value_of = {binding.slot: binding.value for binding in step.bindings}
        if step.reference is None:
            source, target = value_of["x0"], value_of["y0"]
            if not self._is_addressable(source):
                return self._paged_in(source, self.address(target))
            if not self._is_addressable(target):
                return self._paged_out(target, self.address(source))
        task = task_of(self.program, step)
        self.sources.add(kernel.file_of(task))
        call = Call(
            task,
            lambda slot: self.address(value_of[slot]),
            self.tables.name,
            self.iterations,
            self._update(),
        )
        written = kernel.write(call)
        return (
            f"if ({self.iterations} % {self.program.period}u == 0u) {{ {written} }}" if step.due else written
        )

    def _update(self) -> str:
        """The number of the update that the iteration belongs to, from 1."""
        period = self.program.period
        return self.iterations if period == 1 else f"({self.iterations} + {period - 1}u) / {period}u"

    def _is_addressable(self, value: int) -> bool:
        return self.program.spaces[self.program.values[value].space].addressable

    def _paged_in(self, value: int, to: str) -> str:
        row = self.program.values[value]
        return f"net_page_in({row.space}, {self.plan.offsets[value]}u, {to}, {row.type.nbytes}u);"

    def _paged_out(self, value: int, source: str) -> str:
        row = self.program.values[value]
        return f"net_page_out({row.space}, {self.plan.offsets[value]}u, {source}, {row.type.nbytes}u);"

    # ----------------------------------------------------------------------------------- texts

    @property
    def kind(self) -> str:
        """The type of the result of a run."""
        return "int" if self.loss is None else "float"

    def type_of(self, value: int) -> TensorType:
        return self.program.values[value].type

    def feed_heads(self) -> Iterator[str]:
        for fed in self.fed:
            yield f"void net_{fed.name}(const {c_type(self.type_of(fed.places[0]))} *values)"

    def result_heads(self) -> Iterator[str]:
        for name, value in self.results.items():
            if self._is_addressable(value):
                yield f"const {c_type(self.type_of(value))} *net_{name}(void)"
            else:
                yield f"void net_{name}({c_type(self.type_of(value))} *to)"

    def feeds(self) -> Iterator[str]:
        """The functions that take what is fed."""
        for head, fed in zip(self.feed_heads(), self.fed, strict=True):
            writes = [
                f"ap_copy({self.address(value)}, values, {self.program.values[value].type.nbytes}u);"
                if self._is_addressable(value)
                else self._paged_out(value, "values")
                for value in fed.places
            ]
            yield f"{head}\n{{\n    {' '.join(writes)}\n}}"

    def outputs(self) -> Iterator[str]:
        """The functions that give outputs."""
        for head, value in zip(self.result_heads(), self.results.values(), strict=True):
            body = (
                f"return {self.address(value)};"
                if self._is_addressable(value)
                else self._paged_in(value, "to")
            )
            yield f"{head} {{ {body} }}"

    def run(self) -> str:
        """The function that runs the program once."""
        unstarted = "NET_NOT_STARTED" if self.loss is None else "AP_INFINITY - AP_INFINITY"
        lines = [f"if (!started) return {unstarted};", f"{self.iterations} += 1u;"]
        ends = expiring(self.program)
        for t, step in enumerate(self.steps):
            lines += [step, *self._ended(ends.get(self.program.steps[t].level, ()), t)]
        lines.append(self._answer())
        body = "\n".join(f"    {line}" for line in lines)
        return f"{self.kind} net_{self.name}(void)\n{{\n{body}\n}}"

    def _answer(self) -> str:
        if self.loss is None:
            return "return NET_OK;"
        if self._is_addressable(self.loss):
            return f"return *{self.address(self.loss)};"
        return f"float loss; {self._paged_in(self.loss, '&loss')} return loss;"

    def _ended(self, values: Iterable[int], t: int) -> Iterator[str]:
        """The end of each of these values, behind step t, if it is the last of its level."""
        steps = self.program.steps
        if t + 1 < len(steps) and steps[t + 1].level == steps[t].level:
            return
        for value in values:
            nbytes = self.program.values[value].type.nbytes
            if self._is_addressable(value) and nbytes:
                yield f"NET_ENDS({self.address(value, cast=False)}, {nbytes}u);"

    def test(self) -> Iterator[str]:
        """The part of the self-test: a run on fixed numbers, whose results are hashed. Integers are zeros."""
        for fed in self.fed:
            for value in fed.places:
                row = self.program.values[value]
                floats = int(row.type.dtype is DType.FLOAT32)
                yield f"fill({row.space}, {self.plan.offsets[value]}u, {row.type.nbytes}u, {floats});"
        if self.loss is None:
            yield f"(void)net_{self.name}();"
        else:
            yield f"{{ const float loss = net_{self.name}(); hash = hashed(hash, &loss, 4u); }}"
        for value in filter(self._is_addressable, self.results.values()):
            yield f"hash = hashed(hash, {self.address(value)}, {self.program.values[value].type.nbytes}u);"


def arena(space: int) -> str:
    return f"arena{space}"
