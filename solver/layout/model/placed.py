"""A layout of bare buffers: the problem, the offsets, and the certificate. What a plan is to a graph."""

from __future__ import annotations

from dataclasses import dataclass, field

from solver.layout.model.options import Rules
from solver.layout.model.problem import Layout, LayoutProblem, Proof, Reserved, Status
from solver.memories import Tier
from solver.options import LAYOUT_OPTIONS, documented

__all__ = [
    "Alignment",
    "Certificate",
    "LayoutOptions",
    "Pin",
    "PlacedBuffers",
    "PlacedHomes",
    "PlacedMemory",
]


@dataclass(frozen=True, slots=True)
class Pin:
    """The buffer or value `name` begins at this byte of its memory."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """The buffers or values of this name begin at multiples of `bytes`, a power of two."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good an arena is, and why that is known.

    `lower_bound` bytes are needed by every layout; under the ``max-load`` proof they are live at
    `witness_step`, which anyone can add up. ``solver`` means a complete search closed the optimality gap.
    """

    status: Status
    proof: Proof | None
    lower_bound: int
    witness_step: int | None
    solver: str


@documented(LAYOUT_OPTIONS)
@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """The options of a layout. None leaves the choice to the solver.

    Without `deadline_seconds` and `race` the layout is the same on every machine.
    """

    solver: str = LAYOUT_OPTIONS["solver"].default
    capacity: int | None = LAYOUT_OPTIONS["capacity"].default
    alignment: int | None = LAYOUT_OPTIONS["alignment"].default
    deadline_seconds: float | None = LAYOUT_OPTIONS["deadline_seconds"].default
    work: int | None = LAYOUT_OPTIONS["work"].default
    seed: int = LAYOUT_OPTIONS["seed"].default
    threads: int = LAYOUT_OPTIONS["threads"].default
    race: bool = LAYOUT_OPTIONS["race"].default
    target_gap: float = LAYOUT_OPTIONS["target_gap"].default
    rules: Rules = field(default_factory=Rules)
    pins: tuple[Pin, ...] = LAYOUT_OPTIONS["pins"].default
    alignments: tuple[Alignment, ...] = LAYOUT_OPTIONS["alignments"].default
    reserved: tuple[Reserved, ...] = LAYOUT_OPTIONS["reserved"].default
    memories: tuple[Tier, ...] = LAYOUT_OPTIONS["memories"].default
    place: tuple[str, ...] = LAYOUT_OPTIONS["place"].default


@dataclass(frozen=True, slots=True)
class PlacedMemory:
    """One of several memories: the `peak` of its layout, and how good that is."""

    memory: Tier
    peak: int
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class PlacedHomes:
    """The home of each buffer, by number of `memories`, and the nanoseconds that all accesses take.

    `bound` are proved for every choice of homes; `checked` of them follow from `rows`, each a memory, a step
    and a multiplier in parts of `denominator`, as `solver.accounting.homes` says.
    """

    homes: tuple[int, ...]
    memories: tuple[PlacedMemory, ...]
    accesses: int
    bound: int
    checked: int
    denominator: int
    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class PlacedBuffers:
    """`problem` is the one that was solved, with the options' capacity and alignment.

    `digest` is SHA-256 over the canonical JSON without the digest itself, in hexadecimal, once the
    layout has one; `deterministic` is false when wall time decided the result. With several memories `homes`
    says where each buffer lies: offsets count from the beginning of its memory, and peak and certificate are
    those of all memories together, for these homes.
    """

    problem: LayoutProblem
    options: LayoutOptions
    layout: Layout
    certificate: Certificate
    deterministic: bool
    digest: str = ""
    homes: PlacedHomes | None = None

    @property
    def gap(self) -> float:
        """``peak / lower_bound - 1``; 0.0 where nothing needs to be placed."""
        bound = self.certificate.lower_bound
        return self.layout.peak / bound - 1.0 if bound else 0.0
