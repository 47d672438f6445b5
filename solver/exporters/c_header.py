"""A plan as a C header: sizes, offsets, checks at compile time, the arenas, and tables to run the steps by.

    spaces     MNIST_ARENA_BYTES_SRAM, MNIST_ARENA_ALIGNMENT_...   one array each, where kernels work in it
    values     MNIST_OFFSET_CONV1_WEIGHT, MNIST_BYTES_..., MNIST_VALUE_...
    checks     each value lies in its space, on its alignment; the types of C have the sizes planned with
    tables     spaces, values, steps, bindings, what holds at the start and at the end of an iteration

It compiles as C11 and as C++17. Names of macros begin with what they are for, so that no name of a value can
meet one of ours; names of values that differ in nothing but what C cannot spell get a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from solver.errors import OptionsError
from solver.program import held_lives

if TYPE_CHECKING:  # the other exporters know no plans, and their callers wait for every import
    from solver.plan import Plan

__all__ = ["c_header_files", "c_identifiers", "dump_c_header"]

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

#: Compilers take more, people do not.
_MAX_NAME_CHARACTERS: Final = 120
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")
_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)

#: Bits of a step's flags.
_DUE, _NOTHING_TO_DO = 1, 2


def dump_c_header(plan: Plan, prefix: str | None = None) -> bytes:
    """Everything in one header. Linear; about 800 bytes a value.

    `prefix` begins every name, the name of the graph if it is left out. Raises OptionsError for one that C
    cannot spell.
    """
    parts = _Header(plan, prefix)
    return _text([*parts.head(), *_joined(map(parts.space, range(len(parts.spaces)))), *parts.tail()])


def c_header_files(plan: Plan, stem: str, prefix: str | None = None) -> dict[str, bytes]:
    """The same by file name: ``stem.h``, and one ``stem.space.h`` for each space where there are several.

    The first includes the others. Raises what `dump_c_header` raises.
    """
    parts = _Header(plan, prefix)
    if len(parts.spaces) == 1:
        return {f"{stem}.h": dump_c_header(plan, prefix)}
    names = [f"{stem}.{name.lower()}.h" for name in parts.spaces]
    includes = [f'#include "{name}"' for name in names]
    files = {f"{stem}.h": _text([*parts.head(), *includes, "", *parts.tail()])}
    for number, name in enumerate(names):
        guard = f"{parts.prefix}_FILE_OF_{parts.spaces[number]}"
        note = f"/* One space of {stem}.h, which includes this file; include that one. */"
        body = [
            note,
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            *parts.space(number),
            f"#endif /* {guard} */",
        ]
        files[name] = _text(body)
    return files


def c_identifiers(names: Iterable[str]) -> list[str]:
    """For each name one in capitals that C can spell, all of them different; the first comer keeps its own.

    The same names in the same order give the same identifiers. Linear.
    """
    taken: set[str] = set()
    identifiers = []
    plain = [_UNSAFE.sub("_", name).upper()[:_MAX_NAME_CHARACTERS] or "_" for name in names]
    reserved = set(plain)
    counts: dict[str, int] = {}
    for name in plain:
        chosen = name
        while chosen in taken:
            # A name that another value has by itself is left to that one.
            counts[name] = counts.get(name, 1) + 1
            numbered = f"{name}_{counts[name]}"
            chosen = name if numbered in reserved else numbered
        taken.add(chosen)
        identifiers.append(chosen)
    return identifiers


class _Header:
    """The parts of a header; values that no step touches have no place, and are left out."""

    def __init__(self, plan: Plan, prefix: str | None) -> None:
        if prefix is not None and not _PREFIX.fullmatch(prefix):
            raise OptionsError(
                f"{prefix!r:.80} cannot begin names in C.",
                remedy="Give a letter, followed by letters, digits and underscores.",
                path=("prefix",),
            )
        program = plan.program
        self.plan = plan
        self.prefix = (prefix or _named_after(plan.graph)).upper()
        self.lower = self.prefix.lower()
        self.spaces = c_identifiers(space.name for space in program.spaces)
        self.spans = held_lives(program, plan.holds)
        self.values = tuple(self.spans)
        self.number = {value: k for k, value in enumerate(self.values)}
        names = c_identifiers(program.values[value].label for value in self.values)
        self.names = dict(zip(self.values, names, strict=True))
        self.wide = any(size > 0xFFFFFFFF for size in plan.sizes)

    # ------------------------------------------------------------------------------------ parts

    def head(self) -> Iterator[str]:
        plan, p = self.plan, self.prefix
        yield f"/* {_comment(plan.graph)}: the memory of one training step."
        yield f" * Made by {_comment(plan.producer or 'arenaplan')} from plan {plan.digest}; do not edit."
        yield " *"
        yield " * Include this file wherever an address is needed. Exactly one source file defines"
        yield f" * {p}_IMPLEMENTATION before it includes it: arenas and tables are defined there."
        yield f" * {p}_PLACEMENT_<space>, if defined, stands in front of the definition of an arena, as in"
        yield f' * #define {p}_PLACEMENT_{self.spaces[0]} __attribute__((section(".sram")))'
        yield f" * With {p}_NAMES defined as well, tables of names are there, for messages and for logs."
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
        yield f'#define {p}_DIGEST "{plan.digest}"'
        yield f"#define {p}_TOTAL_BYTES {self._size(plan.arena_bytes)}"
        yield f"#define {p}_LEVELS {plan.duration}u"
        yield f"#define {p}_PERIOD {plan.program.period}u /* iterations for each update */"
        yield ""
        used = sorted({plan.program.values[value].type.dtype.value for value in self.values})
        for dtype in used:
            name, size = _TYPES[dtype]
            yield f'{p}_CHECK(sizeof({name}) == {size}, "{dtype} is {name}");'
        yield ""

    def space(self, number: int) -> Iterator[str]:
        plan, p, name = self.plan, self.prefix, self.spaces[number]
        space, size = plan.program.spaces[number], plan.sizes[number]
        yield f"/* ---- space {_comment(space.name)} ---- */"
        yield ""
        yield f"#define {p}_SPACE_{name} {number}u"
        yield f"#define {p}_ARENA_BYTES_{name} {self._size(size)}"
        yield f"#define {p}_ARENA_ALIGNMENT_{name} {space.alignment}u"
        if not space.addressable:
            yield "/* Kernels do not reach it: steps copy to and from it. Offsets count from the beginning of"
            yield " * the storage that it stands for, so there is no array. */"
        elif size:
            text = f"{_c_text(space.name)} has addresses here"
            yield f'{p}_CHECK(SIZE_MAX >= {p}_ARENA_BYTES_{name}, "{text}");'
            yield f"#ifndef {p}_PLACEMENT_{name}"
            yield f"#define {p}_PLACEMENT_{name}"
            yield "#endif"
            array = f"{self.lower}_space_{name.lower()}[{p}_ARENA_BYTES_{name}]"
            yield f"{p}_ALIGNAS({space.alignment}) extern uint8_t {array};"
            yield f"#ifdef {p}_IMPLEMENTATION"
            yield f"{p}_ALIGNAS({space.alignment}) {p}_PLACEMENT_{name} uint8_t {array};"
            yield "#endif"
        yield ""
        for value in self.values:
            if plan.program.values[value].space == number:
                yield from self._value(value, name)
        yield ""

    def _value(self, value: int, space: str) -> Iterator[str]:
        p, name, info = self.prefix, self.names[value], self.plan.program.values[value]
        span = self.spans[value]
        shape = "x".join(map(str, info.type.shape)) or "scalar"
        life = f"levels {span.start} to {span.end - 1}"
        yield f"/* {_comment(info.label)}: {info.kind.word}, {info.type.dtype.value} {shape}, {life} */"
        yield f"#define {p}_VALUE_{name} {self.number[value]}u"
        yield f"#define {p}_OFFSET_{name} {self._size(self.plan.offsets[value])}"
        yield f"#define {p}_BYTES_{name} {self._size(info.type.nbytes)}"
        end = f"{p}_OFFSET_{name} + {p}_BYTES_{name} <= {p}_ARENA_BYTES_{space}"
        yield f'{p}_CHECK({end}, "{name} lies in its space");'
        _, size = _TYPES[info.type.dtype.value]
        if size > 1:
            yield f'{p}_CHECK({p}_OFFSET_{name} % {size}u == 0, "{name} lies where its elements may");'

    def tail(self) -> Iterator[str]:
        p, lower, program = self.prefix, self.lower, self.plan.program
        kernels = list(dict.fromkeys(program.kernel(step) for step in program.steps))
        slots = list(dict.fromkeys(b.slot for step in program.steps for b in step.bindings))
        phases = list(dict.fromkeys(step.phase.word for step in program.steps))
        yield "/* ---- tables ---- */"
        yield ""
        for what, words in (("KERNEL", kernels), ("SLOT", slots), ("PHASE", phases)):
            for k, name in enumerate(c_identifiers(words)):
                yield f"#define {p}_{what}_{name} {k}u"
        for k, word in enumerate(_ACCESSES):
            yield f"#define {p}_ACCESS_{word.upper()} {k}u"
        for k, word in enumerate(_ENTRIES):
            yield f"#define {p}_ENTRY_{word.upper()} {k}u"
        for k, dtype in enumerate(_TYPES):
            yield f"#define {p}_DTYPE_{dtype.upper()} {k}u"
        yield f"#define {p}_STEP_IS_DUE {_DUE}u /* runs in the last iteration of each update only */"
        yield f"#define {p}_STEP_IS_DONE {_NOTHING_TO_DO}u /* all its results are views: nothing to do */"
        yield ""
        yield f"typedef uint{64 if self.wide else 32}_t {lower}_size;"
        yield ""
        for name, fields in _STRUCTS:
            yield f"typedef struct {lower}_{name} {{"
            for type_, field, note in fields:
                yield f"    {type_.replace('$', lower)} {field};" + (f" /* {note} */" if note else "")
            yield f"}} {lower}_{name};"
            yield ""
        tables = self._tables(kernels, slots, phases)
        for name, type_, rows in tables:
            yield f"#define {p}_{name.upper()} {len(rows)}u"
            if rows:
                yield f"extern const {type_} {lower}_{name}[{p}_{name.upper()}];"
        yield ""
        yield f"#ifdef {p}_IMPLEMENTATION"
        for name, type_, rows in tables:
            if rows:
                yield f"const {type_} {lower}_{name}[{p}_{name.upper()}] = {{"
                yield from (f"    {row}," for row in rows)
                yield "};"
        yield f"#endif /* {p}_IMPLEMENTATION */"
        yield ""
        yield f"#ifdef {p}_NAMES"
        named = self._names(kernels, slots)
        for name, texts in named:
            if texts:
                yield f"extern const char *const {lower}_{name}_names[{len(texts)}];"
        yield f"#ifdef {p}_IMPLEMENTATION"
        for name, texts in named:
            if texts:
                yield f"const char *const {lower}_{name}_names[{len(texts)}] = {{"
                yield from (f'    "{_c_text(text)}",' for text in texts)
                yield "};"
        yield "#endif"
        yield f"#endif /* {p}_NAMES */"
        yield ""
        yield "#ifdef __cplusplus"
        yield "} /* extern C */"
        yield "#endif"
        yield f"#endif /* {p}_PLAN_H */"

    # ----------------------------------------------------------------------------------- tables

    def _tables(
        self, kernels: Sequence[str], slots: Sequence[str], phases: Sequence[str]
    ) -> list[tuple[str, str, list[str]]]:
        plan, program, lower = self.plan, self.plan.program, self.lower
        dtypes = {dtype: k for k, dtype in enumerate(_TYPES)}
        slot, kernel, phase = (
            {name: k for k, name in enumerate(names)} for names in (slots, kernels, phases)
        )
        views = {(alias.step, alias.value) for alias in program.aliases if alias.view}
        spaces: list[str] = []
        values: list[str] = []
        steps: list[str] = []
        bindings: list[str] = []
        for space, size, name in zip(program.spaces, plan.sizes, self.spaces, strict=True):
            base = f"{lower}_space_{name.lower()}" if space.addressable and size else "NULL"
            spaces.append(f"{{{base}, {self._size(size)}, {space.alignment}u}}")
        for value in self.values:
            where, type_, span = program.values[value].space, program.values[value].type, self.spans[value]
            sizes = f"{self._size(plan.offsets[value])}, {self._size(type_.nbytes)}"
            values.append(
                f"{{{sizes}, {span.start}u, {span.end - 1}u, {where}u, {dtypes[type_.dtype.value]}u}}"
            )
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
        return [
            ("spaces", f"{lower}_planned_space", spaces),
            ("values", f"{lower}_planned_value", values),
            ("steps", f"{lower}_planned_step", steps),
            ("bindings", f"{lower}_planned_binding", bindings),
            ("entry", f"{lower}_planned_entry", entry),
            ("exit", "uint32_t", exit_),
        ]

    def _names(self, kernels: Sequence[str], slots: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
        program = self.plan.program
        return [
            ("value", [program.values[value].label for value in self.values]),
            ("step", program.step_labels),
            ("kernel", kernels),
            ("slot", slots),
            ("operation", [node.operation.id for node in program.operations]),
        ]

    def _size(self, size: int) -> str:
        return f"{size}ull" if self.wide else f"{size}u"


_ACCESSES: Final = ("read", "write", "update", "scratch")
_ENTRIES: Final = ("fed", "constant", "carried")

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


def _named_after(graph: str) -> str:
    name = _UNSAFE.sub("_", graph)[:40].strip("_")
    return name if name[:1].isalpha() else f"PLAN_{name}".rstrip("_")


def _comment(text: str) -> str:
    """Text inside a comment: it can neither end it nor seem to begin another one."""
    return _printable(text).replace("*/", "* /").replace("/*", "/ *")


def _printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in text)


def _c_text(text: str) -> str:
    """The inside of a string literal: three octal digits for each byte that is not plain."""
    plain = {ord(c): c for c in map(chr, range(32, 127)) if c not in '"\\?'}
    return "".join(plain.get(byte, f"\\{byte:03o}") for byte in text.encode())


def _joined(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    for part in parts:
        yield from part


def _text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
