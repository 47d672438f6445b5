"""Tensors in the banks of ExecuTorch's `TargetMemoryMap`: memories with capacities, fast and slow ones.

    tcm, 64 KiB      [ states ][ activations that are read and written most ]
    sram, 512 KiB    [ states ][ what is left                               ]

A tensor whose memory a pass of the user has chosen stays there. The others get the homes that make the least
of modelled time: accessed bytes, by the speed of their bank. Memories that the map does not declare have no
capacity, and nothing goes there unasked.

All methods stand on one time line, one behind the other, and states live through all of it. A layout on that
line serves each method, and it stays one when what always lives moves to the bottom:

    address   | activations |xx state xx| activations |   ─►   |xx state xx| activations | activations |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from solver.accounting import HomeItem, HomeProblem
from solver.errors import CapacityError, OptionsError
from solver.exporters.executorch_graph import accesses, names_of
from solver.layout import Buffer, Deadline, Layout, LayoutProblem, Lifespan, Outcome, max_load
from solver.layout.api import solve
from solver.schedules.homes.refine import Unhoused, housed

__all__ = ["Bank", "Graph", "MemoryMap", "Placement", "State", "Tenant", "lodged", "memory_map", "placement"]

#: How many times as long an access takes in a bank as in the one before, where the caller gives no speeds.
SLOWDOWN: Final = 10

#: Upper limit for the time of an access divided by that in the fastest bank: sums stay in 64 bits.
MAX_SLOWDOWN: Final = 10**6


@dataclass(frozen=True, slots=True)
class Bank:
    """A memory of `nbytes` bytes. Its tensors lie on multiples of `alignment` bytes."""

    name: str
    nbytes: int
    memory: int
    alignment: int


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Banks in the order of the caller, and the time of an accessed byte in each one, in any unit.

    Of each bank `padding` bytes are left free.
    """

    banks: tuple[Bank, ...]
    times: tuple[int, ...]
    padding: int = 0

    def number(self, memory: int) -> int | None:
        """The position of a bank by the number of its memory; None for a memory that is not declared."""
        return next((k for k, bank in enumerate(self.banks) if bank.memory == memory), None)

    def with_capacities(self, nbytes: Sequence[int]) -> MemoryMap:
        return replace(
            self, banks=tuple(replace(b, nbytes=n) for b, n in zip(self.banks, nbytes, strict=True))
        )

    def time(self, accessed: int, bank: int) -> int:
        return accessed * self.times[bank]

    def alignment(self, memory: int, default: int) -> int:
        k = self.number(memory)
        return default if k is None else self.banks[k].alignment

    def whole(self, nbytes: int) -> int:
        """The bytes that lie in any bank without a change of what is aligned behind them."""
        return _up(nbytes, math.lcm(*(bank.alignment for bank in self.banks)))


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tensor, or bytes that are taken: live in `span`, `accessed` bytes are read and written in all.

    `memory` is the only one that it may lie in, if there is one.
    """

    label: str
    nbytes: int
    span: Lifespan
    accessed: int = 0
    memory: int | None = None


def memory_map(
    target: Any, alignment: int, padding: int = 0, bytes_per_second: Mapping[str, float] | None = None
) -> MemoryMap:
    """The banks of a `TargetMemoryMap` for tensors that are aligned to `alignment` bytes.

    `bytes_per_second` is by the names of the banks; without it
    each bank is ten times as slow as the one before. Raises OptionsError for a bank whose alignment is no
    multiple of `alignment`, and for speeds that are not those of the banks.
    """
    if not hasattr(target, "banks"):
        raise OptionsError(
            f"The memory map is of type {type(target).__name__}, which has no banks.",
            remedy="Pass target=TargetMemoryMap([Bank('sram', 524288, 1)]), both of"
            " executorch.exir.banked_memory_planning.",
        )
    banks = []
    for bank in target.banks:
        if bank.alignment is not None and bank.alignment % alignment:
            raise OptionsError(
                f"Bank {bank.name!r} has an alignment of {bank.alignment} bytes, and tensors have one of"
                f" {alignment}.",
                remedy=f"Give the bank a multiple of {alignment}, or none.",
            )
        banks.append(Bank(bank.name, bank.size, bank.mem_id, bank.alignment or alignment))
    if bytes_per_second is None:
        return MemoryMap(tuple(banks), tuple(SLOWDOWN**k for k in range(len(banks))), padding)
    names = [bank.name for bank in banks]
    if set(bytes_per_second) != set(names) or not all(map(_is_speed, bytes_per_second.values())):
        speeds = ", ".join(f"{name!r}: {rate!r}" for name, rate in bytes_per_second.items())
        raise OptionsError(
            f"Speeds are {{{speeds}}}, but the banks are {', '.join(names)}, and each needs a positive one.",
            remedy=f"Pass bytes_per_second={{{', '.join(f'{name!r}: 1e9' for name in names)}}}.",
        )
    # Of the fastest bank a thousand: whole numbers that differ where speeds do.
    fastest = max(bytes_per_second.values())
    times = tuple(round(1000 * min(fastest / bytes_per_second[name], MAX_SLOWDOWN)) for name in names)
    return MemoryMap(tuple(banks), times, padding)


def _is_speed(rate: object) -> bool:
    return isinstance(rate, (int, float)) and not isinstance(rate, bool) and 0 < rate < math.inf


def lodged(tenants: Sequence[Tenant], banks: MemoryMap, deadline: Deadline) -> tuple[list[int], list[int]]:
    """The memory and the offset of each tenant: least modelled time, within all capacities.

    Raises CapacityError, with the banks that are too small and the bytes that they need. Tenants of memories
    that are not declared must not be among them. Cost: `solver.schedules.homes`, and a layout of each bank.
    """
    sized = [tenant for tenant in tenants if tenant.nbytes]
    result = _housed(sized, banks, deadline) if sized else ((), [])
    if isinstance(result, Unhoused):
        raise _too_small(sized, banks, deadline, proved=result.proved)
    places = zip(*result, strict=True)
    # What has no bytes may lie anywhere.
    rows = [next(places) if t.nbytes else (banks.number(t.memory or 0) or 0, 0) for t in tenants]
    return [banks.banks[k].memory for k, _ in rows], [offset for _, offset in rows]


def _housed(
    tenants: Sequence[Tenant], banks: MemoryMap, deadline: Deadline
) -> tuple[tuple[int, ...], list[int]] | Unhoused:
    """The number of the bank and the offset of each tenant."""
    every = range(len(banks.banks))
    only = [every if t.memory is None else (banks.number(t.memory),) for t in tenants]
    problem = HomeProblem(
        tuple(
            HomeItem(
                t.nbytes, (t.span,), tuple(banks.time(t.accessed, k) if k in ways else None for k in every)
            )
            for t, ways in zip(tenants, only, strict=True)
        ),
        tuple(max(0, bank.nbytes - banks.padding) for bank in banks.banks),
    )

    def lay_out(k: int, inside: tuple[int, ...], start: Layout | None) -> Outcome:
        bank = banks.banks[k]
        buffers = (Buffer(str(i), tenants[i].nbytes, tenants[i].span, bank.alignment) for i in inside)
        return solve(LayoutProblem(tuple(buffers), problem.capacities[k]), deadline=deadline, incumbent=start)

    alignments = [math.lcm(*(banks.banks[k].alignment for k in ways if k is not None)) for ways in only]
    result = housed(problem, alignments, lay_out, deadline)
    if isinstance(result, Unhoused):
        return result
    offsets = [0] * len(tenants)
    for k, outcome in enumerate(result.outcomes):
        inside = [i for i, home in enumerate(result.homes) if home == k]
        for i, offset in zip(inside, outcome.layout.offsets if outcome.layout else (), strict=True):
            offsets[i] = offset
    return result.homes, offsets


def _too_small(
    tenants: Sequence[Tenant], banks: MemoryMap, deadline: Deadline, *, proved: bool
) -> CapacityError:
    """Says which tensors do not fit, and capacities with which they do: those are tried."""
    load, live = _peak(tenants)
    have = sum(bank.nbytes for bank in banks.banks)
    names = ", ".join(f"{bank.name!r} {bank.nbytes:,}" for bank in banks.banks)
    message = f"The tensors do not fit into the banks ({names} bytes): {load:,} bytes are live at once"
    enough = [bank.nbytes for bank in banks.banks]
    for k, bank in enumerate(banks.banks):
        must, live_there = _peak([t for t in tenants if t.memory == bank.memory])
        must += banks.padding
        if live_there and must > bank.nbytes:
            enough[k] = must
            load, live, have = must, live_there, bank.nbytes
            message = (
                f"Bank {bank.name!r} (mem_id {bank.memory}) has {bank.nbytes:,} bytes: tensors that must lie"
                f" there take {must:,} at once"
            )
    needed = _capacities(tenants, banks, enough, deadline)
    larger = [
        f"{bank.name!r} {nbytes:,}"
        for bank, nbytes in zip(banks.banks, needed, strict=True)
        if nbytes != bank.nbytes
    ]
    return CapacityError(
        f"{message}; the largest is {live[0][0]!r}, {live[0][1]:,} bytes.",
        remedy=f"Give {' and '.join(larger)} bytes.",
        required=load,
        available=have,
        live_at_peak=live,
        proved=proved,
    )


def _capacities(
    tenants: Sequence[Tenant], banks: MemoryMap, enough: list[int], deadline: Deadline
) -> list[int]:
    """Capacities in which the tenants fit: those of `enough`, with as little more as one bank allows."""
    everything = banks.padding + sum(
        -(-t.nbytes // 64) * 64 + max(b.alignment for b in banks.banks) for t in tenants
    )

    def fits(capacities: Sequence[int]) -> tuple[tuple[int, ...], list[int]] | None:
        result = _housed(tenants, banks.with_capacities(capacities), deadline)
        return None if isinstance(result, Unhoused) else result

    if fits(enough):
        return enough
    for k in reversed(range(len(enough))):
        candidate = [everything if j == k else nbytes for j, nbytes in enumerate(enough)]
        if (result := fits(candidate)) is None:
            continue
        ends = [o + t.nbytes for t, home, o in zip(tenants, *result, strict=True) if home == k]
        tight = [
            max(ends, default=0) + banks.padding if j == k else nbytes for j, nbytes in enumerate(enough)
        ]
        return tight if fits(tight) else candidate
    return [max(nbytes, everything) for nbytes in enough]


def _peak(tenants: Sequence[Tenant]) -> tuple[int, list[tuple[str, int]]]:
    """The most bytes that live at once, and what lives then, the largest first."""
    some = [t for t in tenants if t.nbytes]
    if not some:
        return 0, []
    bound = max_load(LayoutProblem(tuple(Buffer(str(k), t.nbytes, t.span, 1) for k, t in enumerate(some))))
    step = bound.witness_step or 0
    live = [(t.label, t.nbytes) for t in some if t.span.start <= step < t.span.end]
    return bound.bytes, sorted(live, key=lambda row: -row[1])


@dataclass(frozen=True, slots=True)
class Graph:
    """Tensors to be planned, and the bytes that others take at the bottom of each memory, by its number."""

    specs: Sequence[Any]
    graph_module: Any
    reserved: Sequence[int]


@dataclass(frozen=True, slots=True)
class State:
    """Tensors of several graphs that are the same bytes, and the memory that they must lie in, if any."""

    name: str
    specs: Sequence[Any]
    memory: int | None


@dataclass(frozen=True, slots=True)
class Placement:
    """The memory of each state; for each graph, memory and offset of tensors by `id`, above the states."""

    states: list[int]
    graphs: list[dict[int, tuple[int, int]]]
    time: int


def placement(
    graphs: Sequence[Graph], states: Sequence[State], banks: MemoryMap, deadline: Deadline
) -> Placement:
    """Homes and offsets for all graphs of a program; tensors in memories that are not declared have none.

    States are to be placed in their order, below all else. Raises as `lodged`.
    """
    counts = [accesses(graph.graph_module) for graph in graphs]
    rows: list[tuple[int | None, Any, Tenant]] = []  # the number of the graph, the tensor, what it needs
    start = 0
    for number, graph in enumerate(graphs):
        inside = list(_tenants(graph, counts[number], start, banks))
        rows += [(number, spec, tenant) for spec, tenant in inside]
        start = max([start + 1, *(tenant.span.end for _, tenant in inside)])
    for state in states:
        nbytes = state.specs[0].allocated_memory
        accessed = nbytes * sum(count[id(spec)] for count in counts for spec in state.specs)
        span = Lifespan(0, max(1, start))
        rows.append((None, state, Tenant(state.name, banks.whole(nbytes), span, accessed, state.memory)))
    rows = [row for row in rows if row[2].memory is None or banks.number(row[2].memory) is not None]
    tenants = [tenant for _, _, tenant in rows]
    memories, offsets = lodged(tenants, banks, deadline)
    homes = [banks.number(memory) or 0 for memory in memories]
    chosen = {id(owner): memory for (_, owner, _), memory in zip(rows, memories, strict=True)}
    return Placement(
        [chosen.get(id(state), state.memory or 0) for state in states],
        [_above(number, rows, memories, offsets) for number in range(len(graphs))],
        sum(banks.time(tenant.accessed, home) for tenant, home in zip(tenants, homes, strict=True)),
    )


def _tenants(
    graph: Graph, counts: Mapping[int, int], start: int, banks: MemoryMap
) -> Iterator[tuple[Any, Tenant]]:
    """The tensors of a graph that begins at level `start`, and, without one, what is taken in the banks."""
    roots = [spec for spec in graph.specs if spec.storage_base is None]
    length = 1 + max((spec.lifetime[1] for spec in roots if None not in spec.lifetime), default=0)
    for bank in banks.banks:
        if bank.memory < len(graph.reserved) and (nbytes := graph.reserved[bank.memory]):
            span = Lifespan(start, start + length)
            yield None, Tenant("branches and loops", banks.whole(nbytes), span, 0, bank.memory)
    names = names_of(graph.graph_module)
    for spec in roots:
        first, last = (0, length - 1) if None in spec.lifetime else spec.lifetime
        accessed = spec.allocated_memory * max(1, counts[id(spec)])
        span = Lifespan(start + first, start + last + 1)
        name = names.get(id(spec), "a tensor")
        yield spec, Tenant(name, spec.allocated_memory, span, accessed, spec.mem_id)


def _above(
    number: int,
    rows: Sequence[tuple[int | None, Any, Tenant]],
    memories: Sequence[int],
    offsets: Sequence[int],
) -> dict[int, tuple[int, int]]:
    """Memory and offset of the tensors of a graph once what lives all the time has moved to the bottom."""
    below: dict[int, list[tuple[int, int]]] = {}
    for (owner, spec, tenant), memory, offset in zip(rows, memories, offsets, strict=True):
        if owner is None or (owner == number and spec is None):
            below.setdefault(memory, []).append((offset, tenant.nbytes))
    places = {}
    for (owner, spec, _), memory, offset in zip(rows, memories, offsets, strict=True):
        if owner == number and spec is not None:
            above = sum(nbytes for at, nbytes in below.get(memory, ()) if at > offset)
            places[id(spec)] = memory, offset + above
    return places


def _up(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment
