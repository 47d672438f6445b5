"""A plan of the target `c` as C11 that trains: one call a step, every address a constant.

    net.h           what a program calls; its comments are the reference
    net.c           the arenas, the steps of each entry point, weights by name, saving and loading
    net_weights.c   first values, where they are embedded
    kernels/        the C files of the kernels that are used, as they are in `solver.c_kernels.sources`

Nothing is allocated, and no function of a library is called. The same plan gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from solver.c_kernels import C_TYPES, SOURCES, refusals
from solver.c_training.functions import Function, Names, Tables, arena, c_type
from solver.errors import OptionsError
from solver.graph.ops import lookup
from solver.graph.types import TensorType
from solver.names import c_comment, c_identifiers, c_string
from solver.plan import Deployment, EntryPoint, Plan, PlannedSizes, purpose_of_plan
from solver.program import EntryKind, Initial, Kind, Phase, Program

__all__ = ["Persistent", "c_training_files", "entry_points_of", "functions_of", "persistent_values"]

#: C files that others need.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "movement": ("elementwise",),
    "normalization": ("elementwise",),
}

_ALWAYS: Final = ("activation", "product", "scalar")

#: Offsets in the C files have 32 bits.
_MAX_BYTES: Final = 2**32

#: A saved state begins with these, the version in the order of the machine's bytes, and the plan's digest.
_MAGIC: Final = b"NETSTATE"
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Persistent:
    """A value that stays from one run to the next: its type, and its places as memory and offset.

    Its first contents are those of `value` in the program of the entry point `owner`, both by number.
    """

    name: str
    type: TensorType
    places: tuple[tuple[int, int], ...]
    owner: int
    value: int
    is_constant: bool


def c_training_files(
    planned: Plan | Deployment,
    first: Mapping[str, bytes] | None = None,
    *,
    embeds: bool = True,
    at: Mapping[int, Plan] = MappingProxyType({}),
) -> dict[str, bytes]:
    """The files by their paths. `first` has the first contents of persistent values, by name: as an array
    in C if it `embeds` them, else as a file that `net_load` reads on little-endian machines; without them the
    program begins as net.h says. It has those of constants, too; without them the program that brings the
    memories writes constants. `at` has the plan at each size of the range that it serves; without them the
    files are for the size planned.

    Raises OptionsError for a plan of another target, for what C has no type or kernel for, and for entry
    points that C has no names for. Linear.
    """
    writer = _Writer(planned, at, first or {})
    if not writer.persistent or writer.persistent[0].name not in writer.first:
        first = None
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
    for name in (*writer.sources(), *_ALWAYS):
        files[f"kernels/{name}.c"] = (SOURCES / f"{name}.c").read_text(encoding="ascii")
    for header in sorted(SOURCES.glob("*.h")):
        files[f"kernels/{header.name}"] = header.read_text(encoding="ascii")
    written = {name: text.encode() for name, text in files.items()}
    if first is not None and not embeds:
        written["net_weights.bin"] = writer.saved_state(first)
    return written


def functions_of(
    planned: Plan | Deployment, at: Mapping[int, Plan] = MappingProxyType({})
) -> tuple[Function, ...]:
    """The functions of each entry point, or of the program of a plan. Raises OptionsError as
    `c_training_files`.
    """
    names, tables = Names(_set_size(planned)), Tables()
    functions, counters = list[Function](), dict[tuple[str, bool], int]()
    for entry_point in entry_points_of(planned):
        _check(entry_point)
        trains = entry_point.purpose == "train"
        counts = (entry_point.model if trains else entry_point.name, trains)
        counter = counters.setdefault(counts, len(counters))
        name = entry_point.name if isinstance(planned, Deployment) else ""
        functions.append(Function(entry_point.plan, entry_point.purpose, names, tables, counter, name, at))
    for function in functions:
        function.name_values()
    return tuple(functions)


def persistent_values(planned: Plan | Deployment, *, constants: bool = False) -> tuple[Persistent, ...]:
    """Weights, statistics and optimizer variables, in the order in which they are saved; or the `constants`
    of the graph: literals, tables, masks. A weight that is not trained is none. Linear.
    """
    return tuple(row for row in _staying(planned) if row.is_constant == constants)


def _staying(planned: Plan | Deployment) -> tuple[Persistent, ...]:
    if isinstance(planned, Deployment):
        programs = [_Stays(entry_point.plan) for entry_point in planned.entry_points]
        return tuple(_persistent(row.name, row.values, programs) for row in planned.persistent)
    stays = _Stays(planned)
    values = planned.program.values
    rows = []
    for places in stays.values.values():
        if stays.entry[places[0]].kind is EntryKind.HELD:
            continue  # for other entry points, which are not here
        name = min((values[value].label for value in places), key=len)
        rows.append(_persistent(name, places[:1], [stays]))
    return tuple(rows)


class _Stays:
    """The values that a program leaves to the next run, by their number in the reference."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.entry = {entry.value: entry for entry in plan.program.entry if entry.kind is not EntryKind.FED}
        self.values: dict[int, list[int]] = {}
        for entry in self.entry.values():
            self.values.setdefault(entry.reference, []).append(entry.value)


def _persistent(name: str, values: Iterable[int], programs: Iterable[_Stays]) -> Persistent:
    """A persistent value by its number in each program."""
    places, owners, is_constant = list[tuple[int, int]](), list[tuple[int, int]](), False
    for k, (value, stays) in enumerate(zip(values, programs, strict=True)):
        entry, rows = stays.entry[value], stays.plan.program.values
        places += ((rows[v].space, stays.plan.offsets[v]) for v in stays.values[entry.reference])
        if entry.kind is not EntryKind.HELD:
            owners.append((k, value))
            is_constant = rows[value].kind is Kind.CONSTANT
    return Persistent(name, rows[value].type, tuple(dict.fromkeys(places)), *owners[0], is_constant)


def entry_points_of(planned: Plan | Deployment) -> tuple[EntryPoint, ...]:
    """The entry points; the program of a plan that has none is one without a name."""
    if isinstance(planned, Deployment):
        return planned.entry_points
    return (EntryPoint("", planned.graph, purpose_of_plan(planned), planned),)


def _check(entry_point: EntryPoint) -> None:
    plan = entry_point.plan
    if plan.options.target != "c":
        raise OptionsError(
            f"The plan is for target {plan.options.target!r}, whose kernels need other memory than C's.",
            remedy="Plan the graph for C: `arenaplan plan graph.json --target c -o plan.json`.",
        )
    where = f" of entry point {entry_point.name!r}" if entry_point.name else ""
    for label, reason in refusals(plan.program):
        raise OptionsError(
            f"Step {label!r}{where} has no kernel in C: {reason}.", remedy="Plan again with this version."
        )
    for value in plan.program.values:
        if value.type.dtype not in C_TYPES:
            raise OptionsError(
                f"{value.label!r}{where} is {value.type.dtype.value}, which C has no type for.",
                remedy="Plan without the option `storage`.",
            )
    for space, size in zip(plan.program.spaces, plan.sizes, strict=True):
        if size >= _MAX_BYTES:
            raise OptionsError(
                f"Memory {space.name!r} has {size:,} bytes, and offsets in the C files end at 4 GiB.",
                remedy="Plan a smaller batch.",
            )


class _Writer:
    """The texts of the files of a plan."""

    def __init__(
        self, planned: Plan | Deployment, at: Mapping[int, Plan], first: Mapping[str, bytes]
    ) -> None:
        self.planned, self.at, self.first = planned, at, first
        self.functions = functions_of(planned, at)
        self.persistent = persistent_values(planned)
        self.spaces = self.functions[0].body.program.spaces
        self.sizes = planned.sizes
        self.counters = len({function.iterations for function in self.functions})
        #: Names of the memories in macros.
        self.memories = c_identifiers(
            (space.name for space in self.spaces), ("STATE", "SAVED"), capitals=True
        )
        self.name = planned.name if isinstance(planned, Deployment) else planned.graph

    def sources(self) -> list[str]:
        """The C files of the kernels that are used, beside those that always are."""
        used = {source for function in self.functions for source in function.sources()}
        for name in list(used):
            used.update(_NEEDED.get(name, ()))
        return sorted(used.difference(_ALWAYS))

    # ---------------------------------------------------------------------------------- header

    def header(self, *, embeds: bool) -> str:
        sizes = "\n".join(
            f"#define NET_{name}_BYTES {size}u /* {c_comment(space.name)} */"
            for name, space, size in zip(self.memories, self.spaces, self.sizes, strict=True)
        )
        weights = f"extern const unsigned char net_weights[{self._state_array()}];\n" if embeds else ""
        paging = _PAGING if any(not space.addressable for space in self.spaces) else ""
        periods = "\n".join(
            f"#define NET_{function.front.upper()}MICRO_BATCHES {function.body.program.period}u"
            for function in self.functions
            if function.purpose == "train"
        )
        return _filled(
            "net.h",
            name=c_comment(self.name),
            run=" or ".join(f"net_{function.name}" for function in self.functions),
            digest=self.planned.digest,
            sizes=sizes,
            periods=f"/* Iterations that make one update of the weights */\n{periods}\n" if periods else "",
            counters=self.counters,
            sizes_served=self._sizes_served(),
            state=self._state_bytes(),
            count=len(self.persistent),
            names="\n".join(self._names()),
            weights=weights,
            runs="\n".join(self._declarations(function) for function in self.functions),
            paging=paging,
        )

    def _declarations(self, function: Function) -> str:
        """The part of net.h for one entry point."""
        several = isinstance(self.planned, Deployment)
        title = (
            f"/* ---- {c_comment(function.entry_point)}: {_TITLES[function.purpose]} ---- */\n"
            if several
            else ""
        )
        body = function.body
        fed = [body.type_of(places[0]) for places in body.fed]
        feeds = "\n".join(
            f"{head}; /* {c_comment(label)}: {', '.join((_shape(type_), *(r.allowed for r in ranges)))} */\n"
            f"#define {_elements(name)} {max(1, type_.elements)}u"
            for head, label, name, type_, ranges in zip(
                function.feed_heads(), function.labels, function.feeds, fed, body.ranges, strict=True
            )
        )
        until = "run of any entry point" if several else "step" if function.purpose == "train" else "run"
        outputs = "\n".join(
            f"{head}; /* {_shape(body.type_of(value))}, until the next {until} */"
            for head, value in zip(function.result_heads(), body.results, strict=True)
        )
        return "\n".join(
            (
                title + feeds,
                "",
                f"/* {_RUNS[function.purpose]} */",
                f"{function.run_head()};",
                f"{_count(function)}; /* how many there were */",
                outputs,
                "",
            )
        )

    def _state_bytes(self) -> int:
        return sum(row.type.nbytes for row in self.persistent)

    def _names(self) -> Iterator[str]:
        """A line for each value that stays: its name as a string in C, type, shape, start if it is not 0."""
        for row in self.persistent:
            written = f'"{c_string(row.name)}"'.replace("*/", "*\\057").replace("/*", "\\057*")
            start = self._start(row)
            yield f"   {written} {c_type(row.type)} {_shape(row.type)}{f', {start:g}' if start else ''}"

    def _start(self, row: Persistent) -> float:
        """What a value begins as behind net_init(0): 0 if nothing says that it is another number."""
        program = entry_points_of(self.planned)[row.owner].plan.program
        initial = program.initial.get(row.value, Initial("zeros"))
        if initial.scheme in ("zeros", "ones", "constant"):
            return {"zeros": 0.0, "ones": 1.0}.get(initial.scheme, initial.value)
        return float(program.values[row.value].origin in program.once("units", _units))

    def readme(self) -> str:
        """The README of the folder."""
        addressable = [
            name for name, space in zip(self.memories, self.spaces, strict=True) if space.addressable
        ]
        return _filled(
            "README.md",
            name=c_comment(self.name),
            bytes=f"{self.planned.arena_bytes:,}",
            memory=addressable[0],
        )

    def _state_array(self) -> str:
        return "NET_STATE_BYTES" if self._state_bytes() else "1"

    # ---------------------------------------------------------------------------------- source

    def source(self) -> str:
        arenas = "\n".join(
            f"NET_PLACE_{self.memories[k]} static NET_ALIGNED unsigned char {arena(k)}[{max(1, size)}];"
            for k, (space, size) in enumerate(zip(self.spaces, self.sizes, strict=True))
            if space.addressable
        )
        places = "\n".join(
            f"#ifndef NET_PLACE_{name}\n#define NET_PLACE_{name}\n#endif"
            for name, space in zip(self.memories, self.spaces, strict=True)
            if space.addressable
        )
        functions = self.functions
        runs = [function.run_function() for function in functions]  # they name tables
        feeds = [text for function in functions for text in function.feed_functions()]
        constants = "\n".join(self._constants())
        texts = "".join((*runs, *feeds))
        return _filled(
            "net.c",
            places=places,
            constants=constants,
            ranges=_IN_RANGE if "in_range(" in texts else "",
            arenas=arenas,
            hosted="\n".join(self._hosted()),
            tables="\n".join(functions[0].tables.lines()),
            rows="\n".join(f"    {row}," for row in self._rows()),
            feeds="\n\n".join(feeds),
            results="\n\n".join(text for function in functions for text in function.result_functions()),
            runs="\n\n".join(runs),
            counts="\n".join(f"{_count(f)} {{ return {f.iterations}; }}" for f in functions),
            tests="\n".join(f"    {line}" for function in functions for line in function.test()),
            get=self._moved(reads=True),
            put=self._moved(reads=False),
            clear=_CLEAR,
            begins="\n".join(self._begins()),
            size=self._size(),
            largest=f"    size = {max(self.at)}u;\n" if self.at else "",
        )

    # ----------------------------------------------------------------------------------- sizes

    def _sizes_served(self) -> str:
        """The declaration of the function that chooses a size, for plans of a range."""
        served = None if isinstance(self.planned, Deployment) else self.planned.planned_sizes
        if served is None:
            return ""
        each, most = served.ranges[0], served.most[0]
        if not self.at:
            ranges = ", ".join(map(str, served.ranges))
            return f"\n/* The plan serves {ranges}, these files {_sizes_text(served)} */\n"
        text = _SIZES.format(
            name=_set_size(self.planned), of=c_comment(each.name), least=min(self.at), most=most
        )
        refused = [size for size in range(min(self.at), most) if size not in self.at]
        return text + (f"/* Not served: {', '.join(map(str, refused))} */\n" if refused else "")

    def _size(self) -> str:
        """The size of what runs next, and the function that chooses it."""
        if not self.at or isinstance(self.planned, Deployment) or self.planned.planned_sizes is None:
            return ""
        name, most = _set_size(self.planned), max(self.at)
        refused = [size for size in range(min(self.at), most) if size not in self.at]
        tests = [
            f"chosen < {min(self.at)}u",
            f"chosen > {most}u",
            *(f"chosen == {size}u" for size in refused),
        ]
        return (
            f"static uint32_t size = {most}u;\n\nint net_{name}(uint32_t chosen)\n{{\n"
            f"    if ({' || '.join(tests)}) return NET_NO_SUCH_SIZE;\n"
            "    size = chosen;\n    return NET_OK;\n}\n"
        )

    def _begins(self) -> Iterator[str]:
        """The end of all that the program's own memories hold, before first values are put there."""
        yield "#ifndef NET_HOSTED"
        for k, (space, size) in enumerate(zip(self.spaces, self.sizes, strict=True)):
            if space.addressable:
                yield f"    NET_ENDS({arena(k)}, {size}u);"
        yield "#endif"

    def _hosted(self) -> Iterator[str]:
        """Memories that another program brings, slower ones too, and the copies to and from these."""
        yield f"unsigned char {', '.join(f'*{arena(k)}' for k in range(len(self.spaces)))};"
        slow = [k for k, space in enumerate(self.spaces) if not space.addressable]
        if slow:
            moves = (("in", "void *to", "to, {} + at"), ("out", "const void *from", "{} + at, from"))
            for way, argument, ends in moves:
                copies = " ".join(
                    f"if (memory == {k}) ap_copy({ends.format(arena(k))}, bytes);" for k in slow
                )
                yield f"void net_page_{way}(int memory, uint32_t at, {argument}, uint32_t bytes)"
                yield f"{{\n    {copies}\n}}"

    def _moved(self, *, reads: bool) -> str:
        """Statements that copy the bytes of place p from, or to, each memory."""
        lines = []
        for k, space in enumerate(self.spaces):
            ends = f"to, {arena(k)} + p->offset" if reads else f"{arena(k)} + p->offset, from"
            if space.addressable:
                lines.append(f"    if (p->memory == {k}) ap_copy({ends}, p->bytes);")
            elif reads:
                lines.append(f"    if (p->memory == {k}) net_page_in({k}, p->offset, to, p->bytes);")
            else:
                lines.append(f"    if (p->memory == {k}) net_page_out({k}, p->offset, from, p->bytes);")
        return "\n".join(lines)

    def _constants(self) -> Iterator[str]:
        """The constants as arrays of unsigned integers, and the function that writes them to their places."""
        copies = list[str]()
        rows = [row for row in persistent_values(self.planned, constants=True) if row.name in self.first]
        for k, row in enumerate(rows):
            size = 1 if row.type.storage else row.type.dtype.itemsize
            numbers = [f"{n:#x}u" for n in np.frombuffer(self.first[row.name], f"<u{size}").tolist()]
            lines = ",\n    ".join(", ".join(numbers[i : i + 10]) for i in range(0, len(numbers), 10))
            yield f"/* {c_comment(row.name)}: {_shape(row.type)} */"
            yield f"static const uint{8 * size}_t constant{k}[] = {{\n    {lines or 0}\n}};"
            for space, offset in row.places:
                here = self.spaces[space].addressable
                copy = f"ap_copy({arena(space)} +" if here else f"net_page_out({space},"
                copies.append(f"    {copy} {offset}u, constant{k}, {row.type.nbytes}u);")
        yield "\n".join(("static void put_constants(void)\n{", *copies, "}\n"))

    def _rows(self) -> Iterator[str]:
        at = 0
        for row in self.persistent:
            for k, (space, offset) in enumerate(row.places):
                start = np.full(8 // row.type.dtype.itemsize, self._start(row), row.type.dtype.numpy)
                pattern = int.from_bytes(start.astype(start.dtype.newbyteorder("<")).tobytes(), "little")
                numbers = f"{space}, {offset}u, {row.type.nbytes}u, {at}u, {int(k == 0)}, {pattern:#x}u"
                yield f'{{"{c_string(row.name)}", {numbers}}}'
            at += row.type.nbytes
        if not self.persistent:  # C has no empty arrays
            yield '{"", 0, 0u, 0u, 0u, 0, 0u}'

    # ----------------------------------------------------------------------------------- others

    def first_values(self, first: Mapping[str, bytes]) -> bytes:
        return b"".join(first[row.name] for row in self.persistent)

    def weights(self, first: Mapping[str, bytes]) -> str:
        data = self.first_values(first) or bytes(1)
        rows = [", ".join(f"{byte}" for byte in data[i : i + 24]) for i in range(0, len(data), 24)]
        body = ",\n    ".join(rows)
        return _filled("net_weights.c", size=self._state_array(), values=body)

    def saved_state(self, first: Mapping[str, bytes]) -> bytes:
        """The first values as `net_save` writes them on a little-endian machine, before any iteration."""
        version, iterations = _VERSION.to_bytes(4, "little"), bytes(4 * self.counters)
        head = b"".join((_MAGIC, version, self.planned.digest.encode(), iterations))
        state = head + self.first_values(first)
        return state + _check_sum(state).to_bytes(4, "little")

    def example(self, *, embeds: bool, loads: bool) -> str:
        arrays, calls = [], []
        for function in self.functions:
            for feed, places in zip(function.feeds, function.body.fed, strict=True):
                type_ = c_type(function.body.type_of(places[0]))
                name = f"input_{feed.removeprefix('feed_')}"
                arrays.append(f"static {type_} {name}[{_elements(feed)}];")
                calls.append(f"        net_{feed}({name});")
            run = f"net_{function.name}()"
            calls.append(
                f'        printf("%.9g\\n", (double){run});'
                if function.returns_loss
                else f"        (void){run};"
            )
        if loads:
            arrays.append("static unsigned char state[NET_SAVED_BYTES];")
        begin = _LOAD if loads else f"    net_init({'net_weights' if embeds else '0'});"
        return _filled("example.c", arrays="\n".join(arrays), begin=begin, calls="\n".join(calls))


def _count(function: Function) -> str:
    """The head of the function that gives the number of iterations."""
    return f"uint32_t net_iteration{f'_{function.name}' if function.front else ''}(void)"


def _elements(feed: str) -> str:
    """The macro that has the number of elements that a function takes."""
    return f"NET_ELEMENTS_{feed.removeprefix('feed_')}"


def _set_size(planned: Plan | Deployment) -> str:
    """The name of the function that chooses a size, of the first dimension that has a range."""
    served = None if isinstance(planned, Deployment) else planned.planned_sizes
    return c_identifiers([f"set_{served.names[0] if served else 'batch'}"])[0]


def _sizes_text(sizes: PlannedSizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.largest.items())


def _units(program: Program) -> set[str]:
    """The names of operands that begin as 1 if nothing is known of them: scales and running variances."""
    return {
        program.values[binding.value].origin
        for step in program.steps
        if step.phase is Phase.FORWARD and step.reference is not None
        for binding in step.bindings
        if binding.slot in {f"x{i}" for i in lookup(program.kernel(step)).unit_inputs}
    }


def _check_sum(data: bytes) -> int:
    """CRC-32C (Castagnoli) of bytes, as net.c has it. About a second for 10 MB."""
    table, crc = list(range(256)), 0xFFFFFFFF
    for _ in range(8):
        table = [entry >> 1 ^ (0x82F63B78 if entry & 1 else 0) for entry in table]
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _shape(type_: TensorType) -> str:
    return f"{list(type_.shape)}"


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="ascii")


def _filled(template: str, /, **texts: object) -> str:
    """A template with a text in the place of each ``@name@``."""
    return re.sub(r"@(\w+)@", lambda match: str(texts[match[1]]), _template(template))


_TEMPLATES: Final = Path(__file__).with_name("templates")

#: What an entry point is there for, and what a run of it does, as net.h says it.
_TITLES: Final = {"train": "a training step", "infer": "outputs", "evaluate": "a loss"}
_RUNS: Final = {
    "train": "One iteration. Where it is the last micro-batch of an update, weights change. Without net_init"
    " the result is NaN.",
    "infer": "One run. Nothing that stays changes. Returns NET_OK or NET_NOT_STARTED.",
    "evaluate": "One run, which trains nothing, and its loss. Without net_init the result is NaN.",
}

_SIZES: Final = """
/* The {of} of all that is fed and run from now on: {least} to {most}, which net_init sets. Shorter arrays
   are fed to the same functions. What the plan does not serve changes nothing: NET_NO_SUCH_SIZE. */
int net_{name}(uint32_t size);
"""

_IN_RANGE: Final = """/* Whether integers lie in [least, most] or are `ignored`: NET_UNCHECKED leaves it out.
   `size` is their bytes, -1 for int8_t. */
static int in_range(const void *values, int size, uint32_t count, int64_t least, int64_t most,
                    int64_t ignored)
{
#ifndef NET_UNCHECKED
    for (uint32_t k = 0; k < count; k++) {
        const int64_t value = size == 8   ? ((const int64_t *)values)[k]
                              : size == 4 ? ((const int32_t *)values)[k]
                              : size == 1 ? ((const uint8_t *)values)[k]
                                          : ((const int8_t *)values)[k];
        if ((value < least || value > most) && value != ignored) return 0;
    }
#else
    (void)values, (void)size, (void)count, (void)least, (void)most, (void)ignored;
#endif
    return 1;
}

"""

_CLEAR: Final = """static void clear(const place *p)
{
    unsigned char start[64];
    place part = *p;
    for (uint32_t i = 0; i < (uint32_t)sizeof start; i += 8u) ap_copy(start + i, &p->start, 8u);
    for (uint32_t at = 0; at < p->bytes; at += (uint32_t)sizeof start) {
        part.offset = p->offset + at;
        part.bytes = p->bytes - at < sizeof start ? p->bytes - at : (uint32_t)sizeof start;
        put(&part, start);
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
