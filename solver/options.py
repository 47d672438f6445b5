"""Every option of plans, layouts and imports, declared once: its values, help, default, example and results.

`solver.plan.PlanOptions` and `solver.layout.LayoutOptions` take their defaults from here,
`solver.documents.options` its models and JSON Schemas, and with them HTTP and the reference pages; the
command line takes its options, and a query those of a posted model. So all of them show the same sentences.
Nothing is imported, as help has to be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

__all__ = [
    "CONSTRAINTS",
    "DEPLOYMENT_OPTIONS",
    "IMPORT_OPTIONS",
    "LAYOUT_OPTIONS",
    "LAYOUT_RULES",
    "MEASURES",
    "PLAN_OPTIONS",
    "REQUEST_OPTIONS",
    "Kind",
    "Option",
    "Result",
    "documented",
    "flag_of",
    "former_option",
    "requested_as",
]

#: Which values an option takes. A count is a whole number between bounds, a size is bytes or text as 24MiB,
#: a real, seconds and a share (0.005, or 0.5%) are numbers of at least 0, a switch is on or off. Offsets and
#: alignments are bytes by name, ranges are bytes from one to before another. Sizes are a count, or a range of
#: counts as 1..32; dims are sizes by name.
Kind = Literal[
    "word", "words", "integer", "count", "power of two", "size", "real", "seconds", "share", "switch",
    "tiers", "memories", "costs", "rules", "measures", "offsets", "alignments", "ranges", "sizes", "dims",
]  # fmt: skip

#: What an option may change.
Result = Literal["plan", "curve", "verdict", "validation", "layout"]

T = TypeVar("T", bound=type)


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `flag` is its name on the command line, where that is another one, and `metavar` stands for
    its value in help. A count is at least `least` and at most `most`. `words` are the values of a word that
    has no others, `example` is a value as JSON has it, and `changes` the results for which it can be chosen.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    least: int = 1
    most: int | None = None
    flag: str = ""
    metavar: str | None = None
    words: tuple[str, ...] = ()
    example: Any = True
    changes: tuple[Result, ...] = ()

    @property
    def unit(self) -> str:
        """The unit of its numbers, if they have one."""
        return {"size": "bytes", "power of two": "bytes", "seconds": "seconds"}.get(self.kind, "")

    @property
    def is_list(self) -> bool:
        """Whether it is written once for each of its values."""
        return self.kind in ("words", "tiers", "memories", "offsets", "alignments", "ranges")


#: Names of the options that constrain places.
CONSTRAINTS: Final = ("pins", "alignments", "reserved")

#: Options that curves and verdicts do not take: these are about one program in one memory.
_OF_PLAN_ALONE: Final = ("tiers", "memories", "place", *CONSTRAINTS)


def _by_name(changes: tuple[Result, ...], options: Iterable[Option]) -> Mapping[str, Option]:
    """The options by name, with the results that they change."""
    alone = tuple(result for result in changes if result in ("plan", "layout"))
    return MappingProxyType(
        {o.name: replace(o, changes=alone if o.name in _OF_PLAN_ALONE else changes) for o in options}
    )


#: In the order of `solver.layout.SOLVERS`.
_SOLVERS: Final = (
    *("portfolio", "greedy", "search", "branch-and-bound", "cp-sat", "bump", "first-fit", "wic"),
    *("nntrainer-basic", "nntrainer-v1", "nntrainer-v3", "tflm-greedy", "executorch-greedy", "best-fit"),
    "skyline",
)
_SOLVER: Final = (
    "Layout solver: portfolio; greedy, search, branch-and-bound, cp-sat or skyline; or one of other systems:"
    " bump, first-fit, best-fit, wic, nntrainer-basic, nntrainer-v1, nntrainer-v3, tflm-greedy or"
    " executorch-greedy."
)

#: Constraints on places, of plans and of layouts.
_PINS: Final = Option(
    "pins",
    "offsets",
    "Values, or buffers, that begin at a byte of their memory, as conv1.weight=8KiB; repeatable.",
    (),
    flag="pin",
    metavar="NAME=OFFSET",
    example=["conv1.weight=8KiB"],
)
_ALIGNMENTS: Final = Option(
    "alignments",
    "alignments",
    "Values, or buffers, that begin at a multiple of a power of two, as conv*=4096; repeatable.",
    (),
    flag="align",
    metavar="NAME=BYTES",
    example=["conv*=4096"],
)
_RESERVED: Final = Option(
    "reserved",
    "ranges",
    "Bytes of the memory in which nothing may lie, as 0..8KiB; repeatable.",
    (),
    flag="reserve",
    metavar="LOW..HIGH",
    example=["0..8KiB"],
)

_MEMORIES: Final = Option(
    "memories",
    "memories",
    "Memories that kernels reach, one by one, as tcm=512KiB,read=4GB/s,write=4GB/s or"
    " psram=8MiB,read=80MB/s,write=60MB/s; repeatable. Each value or buffer gets a home in one of them, at"
    " least modelled time.",
    (),
    flag="memory",
    metavar="MEMORY",
    example=["tcm=512KiB,read=4GB/s,write=4GB/s", "psram=8MiB,read=80MB/s,write=60MB/s"],
)

_PLACE: Final = Option(
    "place",
    "words",
    "The memory that a value or a buffer must lie in, as conv1.weight=tcm or *@grad=psram; repeatable; the"
    " last one that names a value counts.",
    (),
    metavar="NAME=MEMORY",
    example=["conv1.weight=tcm", "*@grad=psram"],
)

#: In the order of `PlanOptions`.
PLAN_OPTIONS: Final = _by_name(
    ("plan", "curve", "verdict"),
    (
        Option(
            "target",
            "word",
            "Runtime whose memory is planned: reference, c, onert, nntrainer, singa or singa-relu.",
            "reference",
            words=("reference", "c", "onert", "nntrainer", "singa", "singa-relu", "program"),
            example="c",
        ),
        Option("solver", "word", _SOLVER, "portfolio", words=_SOLVERS, example="cp-sat"),
        Option("batch", "count", "Value of the symbolic batch, in place of the graph's own.", example=32),
        Option(
            "alignment",
            "power of two",
            "Alignment of each place in bytes, a power of two; 64 at least where steps run again or values"
            " are paged.",
            most=2**20,
            example=64,
        ),
        Option(
            "capacity",
            "size",
            "Most bytes of the arena, as 24MiB; a larger plan is an error.",
            example="24MiB",
        ),
        Option(
            "deadline_seconds",
            "seconds",
            "Most seconds of the search; without it the plan is the same on every machine.",
            flag="deadline",
            metavar="SECONDS",
            example=5,
        ),
        Option(
            "scratch_budget",
            "size",
            "Most bytes of scratch of one step, as 256KiB.",
            2 * 1024 * 1024,
            example="256KiB",
        ),
        Option(
            "update",
            "word",
            "When gradients are applied: immediate or end.",
            "immediate",
            words=("immediate", "end"),
            example="end",
        ),
        Option(
            "parallelism",
            "count",
            "Most steps that run at the same time, on one concurrency level; 1 to 64.",
            1,
            most=64,
            metavar="COUNT",
            example=4,
        ),
        Option("in_place", "switch", "Operands in the memory of others, where that is safe.", False),
        Option("rewrite", "switch", "Equivalent operations, where they lower the peak.", False),
        Option(
            "chunked_head",
            "switch",
            "The last product and its cross-entropy in chunks within the scratch budget: the logits are never"
            " whole. Results round differently.",
            False,
        ),
        Option(
            "sub_ranges",
            "switch",
            "In place also the parts that Slice, Split and Concat take from others or put into them.",
            False,
        ),
        Option("recompute", "switch", "Steps run again, where the capacity asks for it.", False),
        Option("order", "switch", "Another order of the steps, where it lowers the peak.", False),
        Option(
            "tiers",
            "tiers",
            "Memories of the device, one by one, as sram=512KiB or"
            " flash=1GiB,read=45MB/s,write=20MB/s,latency=100us; repeatable. Kernels run in the first; values"
            " that do not fit are paged out to the others.",
            (),
            flag="tier",
            metavar="TIER",
            example=["sram=512KiB", "flash=1GiB,read=45MB/s,write=20MB/s,latency=100us"],
        ),
        _MEMORIES,
        _PLACE,
        Option(
            "costs",
            "costs",
            "How long each step takes: roofline (a model, the default), a costs document, or on the command"
            " line measured.",
            metavar="COSTS",
            example="roofline",
        ),
        Option(
            "storage",
            "word",
            "Type in which activations wait for the backward pass, rounded: float16 or bfloat16.",
            metavar="TYPE",
            words=("float16", "bfloat16"),
            example="bfloat16",
        ),
        Option(
            "frozen_storage",
            "word",
            "Storage of weights that are not trained, rounded: float16, bfloat16, int8 or int4; integers with"
            " the elements of a group, 32 by default, and with zero points, as int4:64:zero-points.",
            metavar="STORAGE",
            example="int4:64:zero-points",
        ),
        Option(
            "tile_bytes",
            "size",
            "Weights that are not trained are cut into tiles of at most so many bytes, as 4MiB: paging moves"
            " them tile by tile.",
            metavar="BYTES",
            example="4MiB",
        ),
        Option(
            "fit_scratch", "switch", "A smaller scratch budget, where scratch would make the peak.", False
        ),
        _PINS,
        _ALIGNMENTS,
        _RESERVED,
    ),
)

#: The measures that `only` chooses from. A plan has them as switches of its options.
MEASURES: Final = ("in_place", "sub_ranges", "order", "fit_scratch", "recompute")

_BATCH: Final = Option(
    "batch",
    "sizes",
    "Value of the symbolic batch, in place of the graph's own; or a range, as 1..32: one plan, of the largest"
    " batch, that serves all of them.",
    metavar="COUNT",
    example="1..32",
)

#: The options that a user gives: the measures are chosen by the planner, unless one of the first two says so.
REQUEST_OPTIONS: Final = _by_name(
    ("plan", "curve", "verdict"),
    (
        Option(
            "as_written",
            "switch",
            "Plan the program as it stands: no measure is taken, and the capacity is only checked.",
            False,
        ),
        Option(
            "only",
            "measures",
            "Choose the measures by hand, as in-place,order: in_place, sub_ranges, order, fit_scratch and"
            " recompute. Left out, the planner takes what changes no bit: what costs no time, and with a"
            " capacity or tiers what makes the plan fit.",
            metavar="MEASURES",
            words=MEASURES,
            example=["in_place", "order"],
        ),
        *(
            _BATCH if option.name == "batch" else option
            for option in PLAN_OPTIONS.values()
            if option.name not in MEASURES
        ),
        Option(
            "dims",
            "dims",
            "Sizes of other symbolic dimensions of a document, by name; or ranges of them, as for the batch.",
            flag="dim",
            example={"seq": "16..512"},
        ),
    ),
)

#: What makes a deployment of several programs, beside the options of each of their plans.
DEPLOYMENT_OPTIONS: Final = _by_name(
    ("plan",),
    (
        Option(
            "entries",
            "words",
            "Entry points of one arena: train, infer or evaluate, as infer:batch=1 or"
            " infer:batch=1,name=camera; of several models encoder.infer. Repeatable.",
            (),
            flag="entry",
            metavar="ENTRY",
            example=["train", "infer:batch=1"],
        ),
        Option(
            "ties",
            "words",
            "Values that two models have in common, as a.encoder.*=b.encoder.*. Repeatable.",
            (),
            flag="tie",
            metavar="NAMES=NAMES",
            example=["a.encoder.*=b.encoder.*"],
        ),
    ),
)

#: In the order of `LayoutOptions`.
LAYOUT_OPTIONS: Final = _by_name(
    ("layout",),
    (
        Option("solver", "word", _SOLVER, "portfolio", words=_SOLVERS, example="cp-sat"),
        Option(
            "capacity",
            "size",
            "Most bytes of the peak, as 1MiB, in place of the problem's own; else minimise.",
            example="1MiB",
        ),
        Option(
            "alignment",
            "power of two",
            "Least alignment of every buffer in bytes, a power of two.",
            most=2**20,
            example=64,
        ),
        Option(
            "deadline_seconds",
            "seconds",
            "Most seconds of the search; without it the layout is the same on every machine.",
            flag="deadline",
            metavar="SECONDS",
            example=5,
        ),
        Option(
            "work",
            "count",
            "Most buffers and sections that the search looks at; left out: the default, or until the"
            " deadline.",
            least=0,
            example=1_000_000,
        ),
        Option("seed", "count", "Seed of the search.", 0, least=0, most=2**62 - 1, example=1),
        Option(
            "threads",
            "count",
            "Threads of the search; they change the time, never the answer.",
            2,
            most=64,
            example=4,
        ),
        Option(
            "race", "switch", "Take the first answer of any thread, which may differ from run to run.", False
        ),
        Option(
            "target_gap",
            "share",
            "Part of the lower bound, as 0.005 or on the command line 0.5%, that the peak may be above it"
            " when the search stops.",
            0.0,
            metavar="GAP",
            most=10**6,
            example=0.005,
        ),
        Option("rules", "rules", "Rules of the exact search, on or off."),
        _PINS,
        _ALIGNMENTS,
        _RESERVED,
        _MEMORIES,
        _PLACE,
    ),
)

#: Rules of the exact search, each of which only saves work; in the order of `Rules`.
LAYOUT_RULES: Final = _by_name(
    ("layout",),
    (
        Option(name, "switch", text, True)
        for name, text in (
            ("plateaus", "Branch on any local-minimum plateau, not the lowest only."),
            ("gaps", "Force waste at once."),
            ("symmetry", "Try identical buffers once."),
            ("transposition", "Remember which placements were refuted."),
            ("decomposition", "Solve parts that share no buffer one by one."),
            ("weights", "Prefer sections that failed before."),
            ("restarts", "Start over with other priorities."),
            ("peel", "Set aside buffers that always fit last."),
            ("fill", "Fail where a niche of the skyline cannot be filled."),
            ("span", "Place a buffer at once that exactly spans a niche."),
            ("walls", "Try buffers first that lean on a wall of a niche, in part of the runs."),
            ("jumps", "Go back at once to a choice that a failure depends on."),
            ("promotion", "Below an incumbent, try kinds earlier that were placed too late before."),
            ("structure", "Place at once the buffers that a theorem places: equal sizes, chains, nests."),
        )
    ),
)

#: How a model of another tool, which holds no training, is trained.
IMPORT_OPTIONS: Final = _by_name(
    ("plan", "curve", "verdict", "validation"),
    (
        Option(
            "loss",
            "word",
            "Of a model: cross-entropy, soft-cross-entropy, binary-cross-entropy, kl-divergence, mse, l1"
            " or huber, of its first output; none for an inference. Left out, an output of the model that is"
            " one number is the loss; without one, it is an inference.",
            metavar="LOSS",
            words=(
                "cross-entropy",
                "soft-cross-entropy",
                "binary-cross-entropy",
                "kl-divergence",
                "mse",
                "l1",
                "huber",
                "none",
            ),
            example="cross-entropy",
        ),
        Option(
            "output",
            "word",
            "Of a model: the output that the loss is of, or any other tensor that the model computes.",
            flag="output-name",
            metavar="NAME",
            example="logits",
        ),
        Option(
            "class_axis",
            "integer",
            "Of a model: the axis of classes; 1 of images, else the last one.",
            metavar="AXIS",
            example=1,
        ),
        Option(
            "optimizer",
            "word",
            "Optimizer: sgd, adam, adamw, rmsprop, adagrad; or sgd,momentum=0.9. Takes the place of a"
            " document's own.",
            metavar="NAME",
            example="sgd,momentum=0.9",
        ),
        Option("learning_rate", "real", "Learning rate of the optimizer.", metavar="RATE", example=0.01),
        Option(
            "micro_batches",
            "count",
            "Iterations of one update, each with a batch of its own; their gradients are averaged.",
            metavar="COUNT",
            example=4,
        ),
        Option(
            "trainable",
            "word",
            "What is trained: all, last:2 operations, or names as head.*,fc.bias.",
            metavar="SET",
            example="last:2",
        ),
        Option(
            "frozen",
            "word",
            "Of a model: names and patterns of weights that are not trained.",
            metavar="NAMES",
            example="head.*",
        ),
        Option(
            "dim",
            "words",
            "Of a model: the size of a dimension that it leaves open, or a range, as seq=16..512; of a"
            " document: that of a dimension among its dims. Repeatable.",
            metavar="NAME=SIZE",
            example=["seq=16..512"],
        ),
        Option(
            "input",
            "words",
            "Of a model: the value of an input in every step, as sr=16000; repeatable.",
            metavar="NAME=VALUE",
            example=["sr=16000"],
        ),
        Option(
            "batch_norm",
            "word",
            "Of a model: train or frozen; left out, as the model says.",
            metavar="MODE",
            words=("train", "frozen"),
            example="frozen",
        ),
        Option(
            "weights",
            "word",
            "First values: reference (they stay in the model's file), none (drawn at random), or on the"
            " command line a .safetensors, .gguf or .npz file that has them by name.",
            metavar="WHERE",
            words=("reference", "none"),
            example="none",
        ),
        Option(
            "freeze_before",
            "words",
            "Of a model: a tensor that becomes an input; what leads to it is not imported. Repeatable.",
            metavar="NAME",
            example=["features"],
        ),
        Option(
            "keep_outputs",
            "word",
            "Of a model: outputs that can be read after a step, as logits,mask; or all.",
            metavar="NAMES",
            example="logits,mask",
        ),
    ),
)


def requested_as(name: str) -> str:
    """The option that a user gives for one of a plan: `only` for every measure."""
    return "only" if name in MEASURES else name


def former_option(name: str, called: str, only: str, scratch_budget: str) -> tuple[str, str]:
    """The message and the remedy where a measure is asked for by an option of its own, as it once was.

    `called` is that option as the caller writes it; `only` and `scratch_budget` are what the caller writes
    to choose the measure by hand, and to set the scratch budget.
    """
    if name == "fit_scratch":
        message = f"The option {called} has gone: it changes rounding, so no plan takes it by itself."
        return message, f"Ask for it by {only}, or set {scratch_budget}."
    message = f"The option {called} has gone: a plan takes what changes no bit and is needed."
    return message, f"Leave it out, or choose by hand: {only}."


def flag_of(name: str) -> str:
    """An option on the command line, as ``--scratch-budget``; of any other name, the same spelling."""
    name = requested_as(name)
    for options in (REQUEST_OPTIONS, LAYOUT_OPTIONS, IMPORT_OPTIONS, DEPLOYMENT_OPTIONS):
        if name in options and options[name].flag:
            return f"--{options[name].flag}"
    return f"--{name.replace('_', '-')}"


def documented(options: Mapping[str, Option]) -> Callable[[T], T]:
    """A decorator that adds a line for each option to the docstring of the class that has them as fields."""

    def add(kind: T) -> T:
        lines = [f"    {option.name}: {option.help}" for option in options.values()]
        kind.__doc__ = "\n".join([(kind.__doc__ or "").rstrip(), "", *lines])
        return kind

    return add
