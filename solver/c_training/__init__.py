"""A plan of the target `c` as C11 that trains: one call a step, every address a constant.

    net.h           what a program calls; its comments are the reference
    net.c           the arenas, the steps in their order, weights by name, saving and loading
    net_weights.c   first values, where they are embedded
    kernels/        the C files of the kernels that are used, as they are in `solver.c_kernels.sources`

Nothing is allocated, and no function of a library is called. The same plan gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from solver.c_kernels import C_TYPES, KERNELS, SOURCES, Call, refusals, table, task_of
from solver.errors import OptionsError
from solver.graph.types import DType
from solver.names import c_comment, c_identifiers, c_string
from solver.plan import Plan
from solver.program import EntryKind, Kind, Program, Step, expiring

__all__ = ["c_training_files"]

#: C files that others need.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "movement": ("elementwise",),
    "normalization": ("elementwise",),
}

#: Offsets in the C files have 32 bits.
_MAX_BYTES: Final = 2**32

#: A saved state begins with these, the version in the order of the machine's bytes, and the plan's digest.
_MAGIC: Final = b"NETSTATE"
_VERSION: Final = 1

#: What follows ``net_`` in the names of functions that every program has.
_RESERVED: Final = (
    "init", "step", "iteration", "read", "write", "save", "load", "hash", "self_hash", "self_test", "update",
    "weights", "page_in", "page_out",
)  # fmt: skip

_ALWAYS: Final = ("product", "scalar")


def c_training_files(
    plan: Plan, first: Mapping[int, bytes] | None = None, *, embeds: bool = True
) -> dict[str, bytes]:
    """The files by their paths. `first` has the first contents of persistent values, by number: as an array
    in C if it `embeds` them, else as a file that `net_load` reads on little-endian machines; without them the
    program begins with zeros.

    Raises OptionsError for a plan of another target, and for what C has no type or kernel for. Linear.
    """
    _check(plan)
    writer = _Writer(plan)
    embeds = embeds and first is not None
    files = {
        "net.h": writer.header(embeds=embeds),
        "net.c": writer.source(),
        "Makefile": _template("Makefile"),
        "CMakeLists.txt": _template("CMakeLists.txt"),
        "README.md": writer.readme(),
        "example.c": writer.example(embeds=embeds, loads=first is not None and not embeds),
    }
    if embeds and first is not None:
        files["net_weights.c"] = writer.weights(first)
    for name in (*sorted(writer.sources), *_ALWAYS):
        files[f"kernels/{name}.c"] = (SOURCES / f"{name}.c").read_text(encoding="ascii")
    for header in sorted(SOURCES.glob("*.h")):
        files[f"kernels/{header.name}"] = header.read_text(encoding="ascii")
    written = {name: text.encode() for name, text in files.items()}
    if first is not None and not embeds:
        written["net_weights.bin"] = writer.saved_state(first)
    return written


def _check(plan: Plan) -> None:
    if plan.options.target != "c":
        raise OptionsError(
            f"The plan is for target {plan.options.target!r}, whose kernels need other memory than C's.",
            remedy="Plan the graph for C: `arenaplan plan graph.json --target c -o plan.json`.",
        )
    for label, reason in refusals(plan.program):
        raise OptionsError(
            f"Step {label!r} has no kernel in C: {reason}.", remedy="Plan again with this version."
        )
    for value in plan.program.values:
        if value.type.dtype not in C_TYPES:
            raise OptionsError(
                f"{value.label!r} is {value.type.dtype.value}, which C has no type for.",
                remedy="Plan without the option `storage`.",
            )
    for space, size in zip(plan.program.spaces, plan.sizes, strict=True):
        if size >= _MAX_BYTES:
            raise OptionsError(
                f"Memory {space.name!r} has {size:,} bytes, and offsets in the C files end at 4 GiB.",
                remedy="Plan a smaller batch.",
            )


@dataclass
class _Writer:
    plan: Plan
    sources: set[str] = field(default_factory=set)
    tables: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        program = self.plan.program
        self.program: Program = program
        self.steps = [self._step(t, step) for t, step in enumerate(program.steps)]
        for name in list(self.sources):
            self.sources.update(_NEEDED.get(name, ()))
        self.sources.difference_update(_ALWAYS)
        by_reference: dict[int, list[int]] = {}
        for entry in program.entry:
            by_reference.setdefault(entry.reference, []).append(entry.value)
        kinds = {entry.reference: entry.kind for entry in program.entry}
        fed = {
            self._named(p): p for reference, p in by_reference.items() if kinds[reference] is EntryKind.FED
        }
        #: What the caller feeds: its places by identifier.
        self.fed = dict(zip(c_identifiers(fed), fed.items(), strict=True))
        #: The places of what stays, by its name.
        self.persistent = {
            self._named(p): p
            for reference, p in by_reference.items()
            if kinds[reference] is not EntryKind.FED
        }
        results = [
            e.value
            for e in program.exit
            if program.values[e.value].kind is not Kind.LOSS
            and kinds.get(e.reference) not in (EntryKind.CARRIED, EntryKind.CONSTANT)
            and "@" not in program.values[e.value].label
        ]
        names = c_identifiers(
            (program.values[value].label for value in results), (*_RESERVED, *(f"feed_{n}" for n in self.fed))
        )
        self.results = dict(zip(names, results, strict=True))
        #: Names of the memories in macros.
        self.memories = c_identifiers(
            (space.name for space in program.spaces), ("STATE", "SAVED"), capitals=True
        )
        losses = [e.value for e in program.exit if program.values[e.value].kind is Kind.LOSS]
        self.loss = losses[0] if losses else None

    def _named(self, places: Iterable[int]) -> str:
        """The shortest label of a value's places, which is its own."""
        return min((self.program.values[value].label for value in places), key=len)

    # ----------------------------------------------------------------------------------- steps

    def address(self, value: int, cast: bool = True) -> str:
        row = self.program.values[value]
        place = f"{_arena(row.space)} + {self.plan.offsets[value]}u"
        return f"(({C_TYPES[row.type.dtype]} *)(void *)({place}))" if cast else f"({place})"

    def _step(self, t: int, step: Step) -> str:
        kernel = KERNELS[self.program.kernel(step)]
        value_of = {binding.slot: binding.value for binding in step.bindings}
        spaces = self.program.spaces
        if step.reference is None:
            source, target = value_of["x0"], value_of["y0"]
            nbytes = self.program.values[source].type.nbytes
            ends = [self.program.values[v].space for v in (source, target)]
            if not spaces[ends[0]].addressable:
                at = self.plan.offsets[source]
                return f"net_page_in({ends[0]}, {at}u, {self.address(target)}, {nbytes}u);"
            if not spaces[ends[1]].addressable:
                at = self.plan.offsets[target]
                return f"net_page_out({ends[1]}, {at}u, {self.address(source)}, {nbytes}u);"

        def constant(type_: str, members: Iterable[int | str]) -> str:
            name = f"t{len(self.tables)}"
            self.tables.append(table(name, type_, members))
            return name

        task = task_of(self.program, step)
        self.sources.add(kernel.file_of(task))
        call = Call(task, lambda slot: self.address(value_of[slot]), constant)
        written = kernel.write(call)
        return f"if (iteration % NET_MICRO_BATCHES == 0u) {{ {written} }}" if step.due else written

    # ----------------------------------------------------------------------------------- files

    def header(self, *, embeds: bool) -> str:
        program, plan = self.program, self.plan
        sizes = "\n".join(
            f"#define NET_{name}_BYTES {size}u /* {c_comment(space.name)} */"
            for name, space, size in zip(self.memories, program.spaces, plan.sizes, strict=True)
        )
        feeds = "\n".join(
            f"void net_feed_{name}(const {self._type(places[0])} *values);"
            f" /* {c_comment(label)}: {self._shape(places[0])} */\n"
            f"#define NET_ELEMENTS_{name} {max(1, program.values[places[0]].type.elements)}u"
            for name, (label, places) in self.fed.items()
        )
        results = "\n".join(
            f"const {self._type(value)} *net_{name}(void); /* {self._shape(value)}, until the next step */"
            for name, value in self.results.items()
        )
        weights = "extern const unsigned char net_weights[NET_STATE_BYTES];\n" if embeds else ""
        run = "float net_step(void);" if self.loss is not None else "void net_step(void);"
        paging = _PAGING if any(not space.addressable for space in program.spaces) else ""
        return _filled(
            "net.h",
            name=c_comment(plan.graph),
            digest=plan.digest,
            sizes=sizes,
            period=program.period,
            state=self._state_bytes(),
            count=len(self.persistent),
            names="\n".join(self._names()),
            feeds=feeds,
            results=results,
            weights=weights,
            run=run,
            paging=paging,
        )

    def _type(self, value: int) -> str:
        type_ = C_TYPES[self.program.values[value].type.dtype]
        return "float" if type_ == "ap_f32" else type_

    def _shape(self, value: int) -> str:
        return f"{list(self.program.values[value].type.shape)}"

    def _state_bytes(self) -> int:
        return sum(self.program.values[places[0]].type.nbytes for places in self.persistent.values())

    def _names(self) -> Iterator[str]:
        """A line for each value that stays: its name as a string in C, type and shape."""
        for name, places in self.persistent.items():
            written = f'"{c_string(name)}"'.replace("*/", "*\\057").replace("/*", "\\057*")
            yield f"   {written} {self._type(places[0])} {self._shape(places[0])}"

    def readme(self) -> str:
        """The README of the folder."""
        addressable = [
            name for name, space in zip(self.memories, self.program.spaces, strict=True) if space.addressable
        ]
        return _filled(
            "README.md",
            name=c_comment(self.plan.graph),
            bytes=f"{self.plan.arena_bytes:,}",
            memory=addressable[0],
        )

    def source(self) -> str:
        program, plan = self.program, self.plan
        arenas = "\n".join(
            f"NET_PLACE_{self.memories[k]} static NET_ALIGNED unsigned char {_arena(k)}[{max(1, size)}];"
            for k, (space, size) in enumerate(zip(program.spaces, plan.sizes, strict=True))
            if space.addressable
        )
        places = "\n".join(
            f"#ifndef NET_PLACE_{name}\n#define NET_PLACE_{name}\n#endif"
            for name, space in zip(self.memories, program.spaces, strict=True)
            if space.addressable
        )
        rows = "\n".join(f"    {row}," for row in self._rows())
        feeds = "\n\n".join(self._feeds())
        results = "\n\n".join(
            f"const {self._type(value)} *net_{name}(void) {{ return {self.address(value)}; }}"
            for name, value in self.results.items()
        )
        ends = expiring(program)
        steps = "\n".join(
            f"    {line}"
            for t, step in enumerate(self.steps)
            for line in (step, *self._ended(ends.get(program.steps[t].level, ()), t))
        )
        unstarted = "return AP_INFINITY - AP_INFINITY;" if self.loss is not None else "return;"
        leaves = f"return *{self.address(self.loss)};" if self.loss is not None else ""
        return _filled(
            "net.c",
            places=places,
            arenas=arenas,
            hosted="\n".join(self._hosted()),
            tables="\n".join(self.tables),
            rows=rows,
            feeds=feeds,
            results=results,
            steps=steps,
            kind="float" if self.loss is not None else "void",
            leaves=leaves,
            fills="\n".join(self._fills()),
            unstarted=unstarted,
            get=self._moved(reads=True),
            put=self._moved(reads=False),
            clear=_CLEAR,
        )

    def _ended(self, values: Iterable[int], t: int) -> Iterator[str]:
        """The end of each of these values, behind step t, if it is the last of its level."""
        steps = self.program.steps
        if t + 1 < len(steps) and steps[t + 1].level == steps[t].level:
            return
        for value in values:
            row = self.program.values[value]
            if self.program.spaces[row.space].addressable and row.type.nbytes:
                yield f"NET_ENDS({self.address(value, cast=False)}, {row.type.nbytes}u);"

    def _hosted(self) -> Iterator[str]:
        """Memories that another program brings, slower ones too, and the copies to and from these."""
        spaces = self.program.spaces
        yield f"unsigned char {', '.join(f'*{_arena(k)}' for k in range(len(spaces)))};"
        slow = [k for k, space in enumerate(spaces) if not space.addressable]
        if slow:
            moves = (("in", "void *to", "to, {} + at"), ("out", "const void *from", "{} + at, from"))
            for way, argument, ends in moves:
                copies = " ".join(
                    f"if (memory == {k}) ap_copy({ends.format(_arena(k))}, bytes);" for k in slow
                )
                yield f"void net_page_{way}(int memory, uint32_t at, {argument}, uint32_t bytes)"
                yield f"{{\n    {copies}\n}}"

    def _moved(self, *, reads: bool) -> str:
        """Statements that copy the bytes of place p from, or to, each memory."""
        lines = []
        for k, space in enumerate(self.program.spaces):
            ends = f"to, {_arena(k)} + p->offset" if reads else f"{_arena(k)} + p->offset, from"
            if space.addressable:
                lines.append(f"    if (p->memory == {k}) ap_copy({ends}, p->bytes);")
            elif reads:
                lines.append(f"    if (p->memory == {k}) net_page_in({k}, p->offset, to, p->bytes);")
            else:
                lines.append(f"    if (p->memory == {k}) net_page_out({k}, p->offset, from, p->bytes);")
        return "\n".join(lines)

    def _rows(self) -> Iterator[str]:
        at = 0
        for name, places in self.persistent.items():
            nbytes = self.program.values[places[0]].type.nbytes
            for k, value in enumerate(places):
                space = self.program.values[value].space
                first = int(k == 0)
                numbers = f"{space}, {self.plan.offsets[value]}u, {nbytes}u, {at}u, {first}"
                yield f'{{"{c_string(name)}", {numbers}}}'
            at += nbytes

    def _feeds(self) -> Iterator[str]:
        for name, (_, places) in self.fed.items():
            writes = []
            for value in places:
                row = self.program.values[value]
                if self.program.spaces[row.space].addressable:
                    writes.append(f"ap_copy({self.address(value)}, values, {row.type.nbytes}u);")
                else:
                    at = self.plan.offsets[value]
                    writes.append(f"net_page_out({row.space}, {at}u, values, {row.type.nbytes}u);")
            type_ = self._type(places[0])
            yield f"void net_feed_{name}(const {type_} *values)\n{{\n    {' '.join(writes)}\n}}"

    def _fills(self) -> Iterator[str]:
        """Calls that fill what is fed with the numbers of the self-test; integers are zeros."""
        for _, places in self.fed.values():
            for value in places:
                row = self.program.values[value]
                if not self.program.spaces[row.space].addressable:
                    continue
                floats = row.type.dtype is DType.FLOAT32
                nbytes = row.type.nbytes
                yield f"    fill({self.address(value)}, {nbytes}u, {int(floats)});"

    def first_values(self, first: Mapping[int, bytes]) -> bytes:
        return b"".join(first[places[0]] for places in self.persistent.values())

    def saved_state(self, first: Mapping[int, bytes]) -> bytes:
        """The first values as `net_save` writes them on a little-endian machine, before any iteration."""
        version, iteration = _VERSION.to_bytes(4, "little"), bytes(4)
        return b"".join((_MAGIC, version, self.plan.digest.encode(), iteration, self.first_values(first)))

    def weights(self, first: Mapping[int, bytes]) -> str:
        data = self.first_values(first)
        rows = [", ".join(f"{byte}" for byte in data[i : i + 24]) for i in range(0, len(data), 24)]
        body = ",\n    ".join(rows)
        return _filled("net_weights.c", values=body)

    def example(self, *, embeds: bool, loads: bool) -> str:
        arrays, calls = [], []
        for name, (_, places) in self.fed.items():
            arrays.append(f"static {self._type(places[0])} input_{name}[NET_ELEMENTS_{name}];")
            calls.append(f"        net_feed_{name}(input_{name});")
        step = (
            '        printf("%.9g\\n", (double)net_step());'
            if self.loss is not None
            else "        net_step();"
        )
        if loads:
            arrays.append("static unsigned char state[NET_SAVED_BYTES];")
        begin = _LOAD if loads else f"    net_init({'net_weights' if embeds else '0'});"
        return _filled("example.c", arrays="\n".join(arrays), begin=begin, calls="\n".join(calls), step=step)


def _arena(space: int) -> str:
    return f"arena{space}"


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="ascii")


def _filled(template: str, /, **texts: object) -> str:
    """A template with a text in the place of each ``@name@``."""
    return re.sub(r"@(\w+)@", lambda match: str(texts[match[1]]), _template(template))


_TEMPLATES: Final = Path(__file__).with_name("templates")

_CLEAR: Final = """static void clear(const place *p)
{
    static const unsigned char zeros[64] = {0};
    place part = *p;
    for (uint32_t at = 0; at < p->bytes; at += (uint32_t)sizeof zeros) {
        part.offset = p->offset + at;
        part.bytes = p->bytes - at < sizeof zeros ? p->bytes - at : (uint32_t)sizeof zeros;
        put(&part, zeros);
    }
}
"""

_LOAD: Final = """    FILE *file = fopen("net_weights.bin", "rb");
    if (!file || fread(state, 1, sizeof state, file) != sizeof state || net_load(state, sizeof state)) {
        fputs("net_weights.bin is not the saved state of this plan\\n", stderr);
        return 1;
    }
    fclose(file);"""

_PAGING: Final = """
/* Slower memory, which your program provides: `memory` is its number, `at` a byte of it. */
void net_page_in(int memory, uint32_t at, void *to, uint32_t bytes);
void net_page_out(int memory, uint32_t at, const void *from, uint32_t bytes);
"""
