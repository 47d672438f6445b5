"""A plan as a C header: sizes, offsets, checks at compile time, the arenas, and tables to run the steps by.

    spaces     MNIST_ARENA_BYTES_SRAM, MNIST_ARENA_ALIGNMENT_...   one array each, where kernels work in it
    values     MNIST_OFFSET_CONV1_WEIGHT, MNIST_BYTES_..., MNIST_VALUE_...
    checks     each value lies in its space, on its alignment; the types of C have the sizes planned with
    tables     spaces, values, steps, bindings, what holds at the start and at the end of an iteration

Of a deployment the spaces and the persistent values stand once, and everything else for each entry point,
with its name behind the prefix:

    persistent MNIST_OFFSET_CONV1_WEIGHT, MNIST_BYTES_CONV1_WEIGHT
    train      MNIST_TRAIN_OFFSET_CONV1_OUT, MNIST_TRAIN_VALUE_CONV1_WEIGHT, mnist_train_steps
    infer      MNIST_INFER_OFFSET_CONV1_OUT, MNIST_INFER_VALUE_CONV1_WEIGHT, mnist_infer_steps
    all        mnist_entry_points, a row for each with its tables

It compiles as C11 and as C++17. Names of macros begin with what they are for, so that no name of a value can
meet one of ours; names of values that differ in nothing but what C cannot spell get a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from solver.errors import OptionsError
from solver.names import c_comment, c_identifiers, c_string
from solver.program import EntryKind, ReservedRange, held_lives

if TYPE_CHECKING:  # the other exporters know no plans, and their callers wait for every import
    from solver.graph.types import TensorType
    from solver.plan import Deployment, Plan

__all__ = ["c_header_files", "dump_c_header"]

#: The C type of an element, and its bytes. C has no float of two bytes, and no type of one byte that is true
#: or false everywhere: these are unsigned integers.
_TYPES: Final = {
    "float32": ("float", 4),
    "float64": ("double", 8),
    "int32": ("int32_t", 4),
    "int64": ("int64_t", 8),
    "uint8": ("uint8_t", 1),
    "bool": ("uint8_t", 1),
    "float16": ("uint16_t", 2),
    "bfloat16": ("uint16_t", 2),
    "int8": ("int8_t", 1),
}

#: A run of a plan's program, by its purpose. Explicit programs are training steps as a rule.
_RUNS: Final = {
    "train": "training step",
    "infer": "inference",
    "evaluate": "evaluation",
    "run": "training step",
}

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")
_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)

#: Bits of a step's flags.
_DUE, _NOTHING_TO_DO = 1, 2


def dump_c_header(plan: Plan | Deployment, prefix: str | None = None) -> bytes:
    """Everything in one header. Linear; about 800 bytes a value.

    `prefix` begins every name, the name of the graph if it is left out. Raises OptionsError for one that C
    cannot spell.
    """
    header = _Header(plan, prefix)
    return _text([*header.head(), *_joined(map(header.space, range(len(header.spaces)))), *header.tail()])


def c_header_files(plan: Plan | Deployment, stem: str, prefix: str | None = None) -> dict[str, bytes]:
    """The same by file name: ``stem.h``, and one ``stem.space.h`` for each space where there are several.

    The first includes the others. Raises what `dump_c_header` raises.
    """
    header = _Header(plan, prefix)
    if len(header.spaces) == 1:
        return {f"{stem}.h": dump_c_header(plan, prefix)}
    names = [f"{stem}.{name.lower()}.h" for name in header.spaces]
    includes = [f'#include "{name}"' for name in names]
    files = {f"{stem}.h": _text([*header.head(), *includes, "", *header.tail()])}
    for number, name in enumerate(names):
        guard = f"{header.prefix}_FILE_OF_{header.spaces[number]}"
        note = f"/* One space of {stem}.h, which includes this file; include that one. */"
        body = [
            note,
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            *header.space(number),
            f"#endif /* {guard} */",
        ]
        files[name] = _text(body)
    return files


def _macros(names: Iterable[str]) -> list[str]:
    return c_identifiers(names, capitals=True)


class _Header:
    """The parts of a header: what stands once, and a `_Program` for each program that runs in the arenas."""

    def __init__(self, planned: Plan | Deployment, prefix: str | None) -> None:
        from solver.plan import Deployment

        if prefix is not None and not _PREFIX.fullmatch(prefix):
            raise OptionsError(
                f"{prefix!r:.80} cannot begin names in C.",
                remedy="Give a letter, followed by letters, digits and underscores.",
                path=("prefix",),
            )
        self.deployment = planned if isinstance(planned, Deployment) else None
        self.name = planned.name if isinstance(planned, Deployment) else planned.graph
        self.planned = planned
        self.prefix = (prefix or _named_after(self.name)).upper()
        self.lower = self.prefix.lower()
        self.wide = any(size > 0xFFFFFFFF for size in planned.sizes)
        self.persistent: list[str] = []
        if isinstance(planned, Deployment):
            self.persistent = _macros(row.name for row in planned.persistent)
            names = _entry_point_names([entry_point.name for entry_point in planned.entry_points])
            self.programs = [
                _Program(
                    self,
                    entry_point.plan,
                    f"{self.prefix}_{name}",
                    {row.values[k]: c for row, c in zip(planned.persistent, self.persistent, strict=True)},
                )
                for k, (entry_point, name) in enumerate(zip(planned.entry_points, names, strict=True))
            ]
        else:
            names = []
            self.programs = [_Program(self, planned, self.prefix, {})]
        self.entry_points = names
        programs = [one.plan.program for one in self.programs]
        self.planned_spaces = programs[0].spaces
        self.spaces = _macros(space.name for space in self.planned_spaces)
        steps = [(program, step) for program in programs for step in program.steps]
        self.kernels = list(dict.fromkeys(program.kernel(step) for program, step in steps))
        self.slots = list(dict.fromkeys(b.slot for _, step in steps for b in step.bindings))
        self.phases = list(dict.fromkeys(step.phase.word for _, step in steps))

    # ------------------------------------------------------------------------------------ parts

    def head(self) -> Iterator[str]:
        planned, p = self.planned, self.prefix
        producer = c_comment(planned.producer or "arenaplan")
        yield f"/* {c_comment(self.name)}: the memory of {self._purpose()}."
        yield f" * Made by {producer} from plan {planned.digest}; do not edit."
        yield " *"
        yield " * Include this file wherever an address is needed. Exactly one source file defines"
        yield f" * {p}_IMPLEMENTATION before it includes it: arenas and tables are defined there."
        yield f" * {p}_PLACEMENT_<space>, if defined, stands in front of the definition of an arena, as in"
        yield f' * #define {p}_PLACEMENT_{self.spaces[0]} __attribute__((section(".sram")))'
        yield f" * With {p}_NAMES defined as well, tables of names are there, for messages and for logs."
        if self.deployment is not None:
            yield " *"
            yield " * Run one entry point at a time, each to its end. Persistent values stay from one run to"
            yield " * the next, whichever entry point runs. All other bytes belong to the entry point that"
            yield " * runs: feed it before a run, and take its outputs before the next run."
        yield " */"
        yield f"#ifndef {p}_PLAN_H"
        yield f"#define {p}_PLAN_H"
        yield ""
        yield "#include <stddef.h>"
        yield "#include <stdint.h>"
        yield ""
        yield "#ifdef __cplusplus"
        yield f"#define {p}_ALIGNAS(bytes) alignas(bytes)"
        yield f"#define {p}_CHECK(condition, text) static_assert(condition, text)"
        yield 'extern "C" {'
        yield "#else"
        yield f"#define {p}_ALIGNAS(bytes) _Alignas(bytes)"
        yield f"#define {p}_CHECK(condition, text) _Static_assert(condition, text)"
        yield "#endif"
        yield ""
        yield f'#define {p}_DIGEST "{planned.digest}"'
        yield f"#define {p}_TOTAL_BYTES {self.size(planned.arena_bytes)}"
        if self.deployment is not None:
            yield f"#define {p}_PERSISTENT_BYTES {self.size(self.deployment.persistent_bytes)}"
            yield f"#define {p}_ENTRY_POINTS {len(self.programs)}u"
            for k, name in enumerate(self.entry_points):
                yield f"#define {p}_ENTRY_POINT_{name} {k}u"
        for one in self.programs:
            yield f"#define {one.prefix}_LEVELS {one.plan.duration}u"
            yield f"#define {one.prefix}_PERIOD {one.plan.program.period}u /* iterations for each update */"
            if self.deployment is not None:
                whole = self.size(one.plan.arena_bytes)
                yield f"#define {one.prefix}_TOTAL_BYTES {whole} /* persistent ones included */"
                yield f'{p}_CHECK({one.prefix}_TOTAL_BYTES <= {p}_TOTAL_BYTES, "it runs in the arenas");'
        yield ""
        used = {_dtype(one.plan.program.values[value].type) for one in self.programs for value in one.values}
        for dtype in sorted(used):
            name, size = _TYPES[dtype]
            yield f'{p}_CHECK(sizeof({name}) == {size}, "{dtype} is {name}");'
        yield ""

    def _purpose(self) -> str:
        from solver.plan import Plan, purpose_of_plan

        if isinstance(self.planned, Plan):
            return f"one {_RUNS[purpose_of_plan(self.planned)]}"
        names = ", ".join(c_comment(entry_point.name) for entry_point in self.planned.entry_points)
        return f"its entry points ({names}), which share it"

    def alignment(self, number: int) -> int:
        """The alignment of a space: the largest that a value in it is asked to have."""
        alignments = [self.planned_spaces[number].alignment]
        for one in self.programs:
            program, options = one.plan.program, one.plan.options
            asked = options.constraints.rules(program).alignments.items()
            alignments += [size for value, size in asked if program.values[value].space == number]
        return max(alignments)

    def reserved(self, number: int) -> Sequence[ReservedRange]:
        """The reserved ranges of a space below its end."""
        plan = self.programs[0].plan
        ranges = plan.options.constraints.rules(plan.program).reserved[number]
        return [range_ for range_ in ranges if range_.low < self.planned.sizes[number]]

    def space(self, number: int) -> Iterator[str]:
        p, name = self.prefix, self.spaces[number]
        space, size = self.planned_spaces[number], self.planned.sizes[number]
        yield f"/* ---- space {c_comment(space.name)} ---- */"
        yield ""
        yield f"#define {p}_SPACE_{name} {number}u"
        yield f"#define {p}_ARENA_BYTES_{name} {self.size(size)}"
        alignment = self.alignment(number)
        yield f"#define {p}_ARENA_ALIGNMENT_{name} {alignment}u"
        for range_ in self.reserved(number):
            yield f"/* Bytes [{range_.low}, {range_.high}) of it are reserved: no value lies there. */"
        if not space.addressable:
            yield "/* Kernels do not reach it: steps copy to and from it. Offsets count from the beginning of"
            yield " * the storage that it stands for, so there is no array. */"
        elif size:
            text = f"{c_string(space.name)} has addresses here"
            yield f'{p}_CHECK(SIZE_MAX >= {p}_ARENA_BYTES_{name}, "{text}");'
            yield f"#ifndef {p}_PLACEMENT_{name}"
            yield f"#define {p}_PLACEMENT_{name}"
            yield "#endif"
            array = f"{self.lower}_space_{name.lower()}[{p}_ARENA_BYTES_{name}]"
            yield f"{p}_ALIGNAS({alignment}) extern uint8_t {array};"
            yield f"#ifdef {p}_IMPLEMENTATION"
            yield f"{p}_ALIGNAS({alignment}) {p}_PLACEMENT_{name} uint8_t {array};"
            yield "#endif"
        yield ""
        if self.deployment is not None:
            plan = self.programs[0].plan
            for row, identifier in zip(self.deployment.persistent, self.persistent, strict=True):
                if plan.program.values[row.values[0]].space == number:
                    yield from self._persistent(plan, row.values[0], row.name, identifier, name)
            yield ""
        for one in self.programs:
            yield from one.of_space(number, name)
            yield ""

    def _persistent(self, plan: Plan, value: int, name: str, identifier: str, space: str) -> Iterator[str]:
        info = plan.program.values[value]
        shape = "x".join(map(str, info.type.shape)) or "scalar"
        yield f"/* {c_comment(name)}: {info.kind.word}, {_elements(info.type, shape)}, persistent */"
        yield from self.place(self.prefix, identifier, plan, value, space)

    def place(self, prefix: str, name: str, plan: Plan, value: int, space: str) -> Iterator[str]:
        """The offset and the bytes of a value, with what is checked about them."""
        type_ = plan.program.values[value].type
        yield f"#define {prefix}_OFFSET_{name} {self.size(plan.offsets[value])}"
        yield f"#define {prefix}_BYTES_{name} {self.size(type_.nbytes)}"
        end = f"{prefix}_OFFSET_{name} + {prefix}_BYTES_{name} <= {self.prefix}_ARENA_BYTES_{space}"
        yield f'{self.prefix}_CHECK({end}, "{name} lies in its space");'
        _, size = _TYPES[_dtype(type_)]
        if size > 1:
            fits = f"{prefix}_OFFSET_{name} % {size}u == 0"
            yield f'{self.prefix}_CHECK({fits}, "{name} lies where its elements may");'

    def tail(self) -> Iterator[str]:
        p, lower = self.prefix, self.lower
        yield "/* ---- tables ---- */"
        yield ""
        for what, words in (("KERNEL", self.kernels), ("SLOT", self.slots), ("PHASE", self.phases)):
            for k, name in enumerate(_macros(words)):
                yield f"#define {p}_{what}_{name} {k}u"
        for k, word in enumerate(_ACCESSES):
            yield f"#define {p}_ACCESS_{word.upper()} {k}u"
        held = any(one.holds for one in self.programs)
        for k, word in enumerate(_ENTRIES if held else _ENTRIES[:-1]):
            yield f"#define {p}_ENTRY_{word.upper()} {k}u"
        for k, dtype in enumerate(_TYPES):
            yield f"#define {p}_DTYPE_{dtype.upper()} {k}u"
        yield f"#define {p}_STEP_IS_DUE {_DUE}u /* runs in the last iteration of each update only */"
        yield f"#define {p}_STEP_IS_DONE {_NOTHING_TO_DO}u /* all its results are views: nothing to do */"
        yield ""
        yield f"typedef uint{64 if self.wide else 32}_t {lower}_size;"
        yield ""
        for name, fields in (*_STRUCTS, *([_ENTRY_POINT] if self.deployment is not None else [])):
            yield f"typedef struct {lower}_{name} {{"
            for type_, field, note in fields:
                yield f"    {type_.replace('$', lower)} {field};" + (f" /* {note} */" if note else "")
            yield f"}} {lower}_{name};"
            yield ""
        tables = [*self._tables()]
        for prefix, name, type_, rows in tables:
            yield f"#define {prefix}_{name.upper()} {len(rows)}u"
            if rows:
                yield f"extern const {type_} {prefix.lower()}_{name}[{prefix}_{name.upper()}];"
        if self.deployment is not None:
            yield f"extern const {lower}_planned_entry_point {lower}_entry_points[{p}_ENTRY_POINTS];"
        yield ""
        yield f"#ifdef {p}_IMPLEMENTATION"
        for prefix, name, type_, rows in tables:
            if rows:
                yield f"const {type_} {prefix.lower()}_{name}[{prefix}_{name.upper()}] = {{"
                yield from (f"    {row}," for row in rows)
                yield "};"
        if self.deployment is not None:
            yield f"const {lower}_planned_entry_point {lower}_entry_points[{p}_ENTRY_POINTS] = {{"
            yield from (f"    {one.row()}," for one in self.programs)
            yield "};"
        yield f"#endif /* {p}_IMPLEMENTATION */"
        yield ""
        yield f"#ifdef {p}_NAMES"
        named = [*self._names()]
        for prefix, name, texts in named:
            if texts:
                yield f"extern const char *const {prefix.lower()}_{name}_names[{len(texts)}];"
        yield f"#ifdef {p}_IMPLEMENTATION"
        for prefix, name, texts in named:
            if texts:
                yield f"const char *const {prefix.lower()}_{name}_names[{len(texts)}] = {{"
                yield from (f'    "{c_string(text)}",' for text in texts)
                yield "};"
        yield "#endif"
        yield f"#endif /* {p}_NAMES */"
        yield ""
        yield "#ifdef __cplusplus"
        yield "} /* extern C */"
        yield "#endif"
        yield f"#endif /* {p}_PLAN_H */"

    def _tables(self) -> Iterator[tuple[str, str, str, list[str]]]:
        """Prefix, name, type and rows of each table."""
        spaces = []
        numbered = zip(self.planned_spaces, self.planned.sizes, self.spaces, strict=True)
        for number, (space, size, name) in enumerate(numbered):
            base = f"{self.lower}_space_{name.lower()}" if space.addressable and size else "NULL"
            spaces.append(f"{{{base}, {self.size(size)}, {self.alignment(number)}u}}")
        yield self.prefix, "spaces", f"{self.lower}_planned_space", spaces
        for one in self.programs:
            for name, type_, rows in one.tables():
                yield one.prefix, name, type_, rows

    def _names(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Prefix, name and texts of each table of names."""
        names = [(one.prefix, one.names()) for one in self.programs]
        for name in ("value", "step"):
            yield from ((prefix, name, texts[name]) for prefix, texts in names)
        yield self.prefix, "kernel", self.kernels
        yield self.prefix, "slot", self.slots
        if self.deployment is not None:
            entry_points = [entry_point.name for entry_point in self.deployment.entry_points]
            yield self.prefix, "entry_point", entry_points
        yield from ((prefix, "operation", texts["operation"]) for prefix, texts in names)

    def size(self, size: int) -> str:
        return f"{size}ull" if self.wide else f"{size}u"


class _Program:
    """The parts of a header that each program has.

    Values that no step touches have no place, and are left out.
    Values that are `persistent` in a deployment have the identifier that the header has for them. Those that
    the program only holds for others are left out there.
    """

    def __init__(self, header: _Header, plan: Plan, prefix: str, persistent: Mapping[int, str]) -> None:
        program = plan.program
        self.header = header
        self.plan = plan
        self.prefix = prefix
        self.persistent = persistent
        held = {entry.value for entry in program.entry if entry.kind is EntryKind.HELD}
        left_out = held & persistent.keys()
        self.spans = held_lives(program, plan.holds)
        self.values = tuple(value for value in self.spans if value not in left_out)
        self.holds = bool(held - left_out)
        self.number = {value: k for k, value in enumerate(self.values)}
        own = [value for value in self.values if value not in persistent]
        labels = (program.values[value].label for value in own)
        names = _macros([*persistent.values(), *labels])[len(persistent) :]
        self.identifiers = {**persistent, **dict(zip(own, names, strict=True))}

    def of_space(self, number: int, space: str) -> Iterator[str]:
        """The values that lie in a space. Of persistent ones the number: the header has their places."""
        program, p = self.plan.program, self.prefix
        for value in self.values:
            info, name, span = program.values[value], self.identifiers[value], self.spans[value]
            if info.space != number:
                continue
            if value not in self.persistent:
                shape = "x".join(map(str, info.type.shape)) or "scalar"
                life = f"levels {span.start} to {span.end - 1}"
                type_ = _elements(info.type, shape)
                yield f"/* {c_comment(info.label)}: {info.kind.word}, {type_}, {life} */"
            yield f"#define {p}_VALUE_{name} {self.number[value]}u"
            if value not in self.persistent:
                yield from self.header.place(p, name, self.plan, value, space)

    def tables(self) -> list[tuple[str, str, list[str]]]:
        """Name, type and rows of each table."""
        header, plan, program = self.header, self.plan, self.plan.program
        dtypes = {dtype: k for k, dtype in enumerate(_TYPES)}
        slot, kernel, phase = (
            {name: k for k, name in enumerate(names)}
            for names in (header.slots, header.kernels, header.phases)
        )
        views = {(alias.step, alias.value) for alias in program.aliases if alias.view}
        values: list[str] = []
        steps: list[str] = []
        bindings: list[str] = []
        for value in self.values:
            where, type_, span = program.values[value].space, program.values[value].type, self.spans[value]
            sizes = f"{header.size(plan.offsets[value])}, {header.size(type_.nbytes)}"
            values.append(f"{{{sizes}, {span.start}u, {span.end - 1}u, {where}u, {dtypes[_dtype(type_)]}u}}")
        for t, step in enumerate(program.steps):
            defined = [b.value for b in step.bindings if b.access.defines]
            flags = _DUE * step.due
            if defined and all((t, value) in views for value in defined):
                flags |= _NOTHING_TO_DO
            figures = (kernel[program.kernel(step)], phase[step.phase.word], flags, step.operation)
            row = ", ".join(f"{x}u" for x in (*figures, step.level, step.until, len(bindings)))
            bound = [b for b in step.bindings if b.value in self.number]
            steps.append(f"{{{row}, {len(bound)}u}}")
            for b in bound:
                access = _ACCESSES.index(b.access.word)
                bindings.append(f"{{{self.number[b.value]}u, {slot[b.slot]}u, {access}u}}")
        entry = [
            f"{{{self.number[e.value]}u, {_ENTRIES.index(e.kind.word)}u}}"
            for e in program.entry
            if e.value in self.number
        ]
        exit_ = [f"{self.number[e.value]}u" for e in program.exit if e.value in self.number]
        lower = header.lower
        return [
            ("values", f"{lower}_planned_value", values),
            ("steps", f"{lower}_planned_step", steps),
            ("bindings", f"{lower}_planned_binding", bindings),
            ("entry", f"{lower}_planned_entry", entry),
            ("exit", "uint32_t", exit_),
        ]

    def row(self) -> str:
        """This program in the table of entry points."""
        tables = [(name, len(rows)) for name, _, rows in self.tables()]
        lower = self.prefix.lower()
        bases = [f"{lower}_{name}" if count else "NULL" for name, count in tables]
        counts = [f"{count}u" for _, count in tables]
        plan = self.plan
        figures = (f"{plan.duration}u", f"{plan.program.period}u", self.header.size(plan.arena_bytes))
        return f"{{{', '.join((*bases, *counts, *figures))}}}"

    def names(self) -> dict[str, Sequence[str]]:
        """The names of its values, its steps and its operations."""
        program = self.plan.program
        return {
            "value": [program.values[value].label for value in self.values],
            "step": program.step_labels,
            "operation": [node.operation.id for node in program.operations],
        }


def _entry_point_names(names: Sequence[str]) -> list[str]:
    """An identifier for each entry point, which no word of the header's own can be read out of.

    ``NET_A_OFFSET_X`` is the offset of X in entry point A, so one that is called ``a_offset`` gets a number.
    """
    plain = (
        f"ENTRY_POINT_{k}" if _WORDS & {*identifier.split("_")} else identifier
        for k, identifier in enumerate(_UNSAFE.sub("_", name).upper() for name in names)
    )
    return _macros(plain)


_ACCESSES: Final = ("read", "write", "update", "scratch")
_ENTRIES: Final = ("fed", "constant", "carried", "held")
#: With what names of the header's own begin, behind the prefix and the entry point.
_WORDS: Final = frozenset(
    {
        "ACCESS", "ALIGNAS", "ARENA", "BINDINGS", "BYTES", "CHECK", "DIGEST", "DTYPE", "ENTRY", "EXIT",
        "FILE", "IMPLEMENTATION", "KERNEL", "LEVELS", "NAMES", "OFFSET", "OPERATION", "PERIOD",
        "PERSISTENT", "PHASE", "PLACEMENT", "PLAN", "PLANNED", "SIZE", "SLOT", "SPACE", "SPACES", "STEP",
        "STEPS", "TOTAL", "VALUE", "VALUES",
    }
)  # fmt: skip

#: Rows of the tables: type, field, what it is; ``$`` stands for the prefix.
_STRUCTS: Final[Sequence[tuple[str, Sequence[tuple[str, str, str]]]]] = (
    (
        "planned_space",
        (
            ("uint8_t *", "base", "NULL where kernels do not reach it, or it is empty"),
            ("$_size", "bytes", ""),
            ("uint32_t", "alignment", "of the base and of every value, in bytes"),
        ),
    ),
    (
        "planned_value",
        (
            ("$_size", "offset", "from the base of its space"),
            ("$_size", "bytes", ""),
            ("uint32_t", "first", "the first level on which its bytes are held"),
            ("uint32_t", "last", "the last one"),
            ("uint16_t", "space", ""),
            ("uint16_t", "dtype", ""),
        ),
    ),
    (
        "planned_step",
        (
            ("uint16_t", "kernel", ""),
            ("uint8_t", "phase", ""),
            ("uint8_t", "flags", ""),
            ("uint32_t", "operation", "steps of one operation have the same attributes"),
            ("uint32_t", "level", "steps of one level may run at the same time"),
            ("uint32_t", "until", "later for copies that run beside other steps"),
            ("uint32_t", "first_binding", ""),
            ("uint32_t", "bindings", ""),
        ),
    ),
    (
        "planned_binding",
        (
            ("uint32_t", "value", ""),
            ("uint16_t", "slot", "what the kernel calls it"),
            ("uint16_t", "access", ""),
        ),
    ),
    ("planned_entry", (("uint32_t", "value", ""), ("uint32_t", "kind", "what holds it at the start"))),
)

#: A row of the table of entry points.
_ENTRY_POINT: Final[tuple[str, Sequence[tuple[str, str, str]]]] = (
    "planned_entry_point",
    (
        ("const $_planned_value *", "values", "tables are NULL where they are empty"),
        ("const $_planned_step *", "steps", ""),
        ("const $_planned_binding *", "bindings", ""),
        ("const $_planned_entry *", "entry", ""),
        ("const uint32_t *", "exit", ""),
        ("uint32_t", "value_count", ""),
        ("uint32_t", "step_count", ""),
        ("uint32_t", "binding_count", ""),
        ("uint32_t", "entry_count", ""),
        ("uint32_t", "exit_count", ""),
        ("uint32_t", "levels", ""),
        ("uint32_t", "period", "iterations for each update"),
        ("$_size", "bytes", "that it runs in, persistent ones included"),
    ),
)


def _dtype(type_: TensorType) -> str:
    """The element type of the table: bytes where elements are packed."""
    return type_.dtype.value if type_.storage is None else "uint8"


def _elements(type_: TensorType, shape: str) -> str:
    stored = "" if type_.storage is None else f" stored as {type_.storage}"
    return f"{type_.dtype.value} {shape}{stored}"


def _named_after(graph: str) -> str:
    name = _UNSAFE.sub("_", graph)[:40].strip("_")
    return name if name[:1].isalpha() else f"PLAN_{name}".rstrip("_")


def _joined(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    for part in parts:
        yield from part


def _text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
