"""The pass `paging`: memories that are kept, bit for bit; what cannot be; copies that the proof refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from solver.accounting import elapsed, paging_problem, traffic
from solver.documents import dump_plan, load_graph, load_plan
from solver.errors import CapacityError, OptionsError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.paging_file import PagingFile
from solver.graph import DType, TensorType, TrainableGraph, TrainingRules
from solver.layout import Deadline
from solver.passes import Levels, Order, Paging
from solver.pipeline import plan, plan_program, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import COPY, EntryKind, Program, Step, Tier, lent, loads
from solver.reports.records import paging
from solver.training import Block, BlockOperation, build_program, derive
from solver.verify import prove
from tests.support import graphs as support
from tests.support.operator_graphs import attention, convolved, elementwise
from tests.support.sequence_graphs import classifier
from tests.support.term_oracle import certified

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

#: Transfers of a kilobyte take as long as a small step.
FLASH = Tier("flash", 2**24, 400_000_000, 200_000_000, 100)


#: The second layer's values are a result.
tower = partial(support.tower, outputs=("h1",))


def ordered(graph: TrainableGraph, parallelism: int = 1) -> Program:
    return Levels(parallelism).run(Order().run(derive(graph)))


def tiers(size: int, *slower: Tier) -> tuple[Tier, ...]:
    return (Tier("sram", size), *(slower or (FLASH,)))


def between(graph: TrainableGraph, share: float, ahead: int = 0, parallelism: int = 1) -> int:
    """A size between the smallest that can be kept and the peak."""
    program = ordered(graph, parallelism)
    low = paging_problem(program, ahead).smallest
    return low + round(share * (max(loads(program)[0]) - low))


def is_copy(plan: Plan, step: Step) -> bool:
    return plan.program.kernel(step) == COPY


NETWORKS = [
    (tower(), {}),
    (tower(dropout=True), {}),
    (tower(tied=True), {}),
    (tower(optimizer="Adam"), {"in_place": True}),
    (tower(optimizer="Adam"), {"parallelism": 2}),
    (tower(), {"update": "end", "in_place": True, "parallelism": 2}),
    (tower(training=TrainingRules(clip_global_norm=0.5)), {}),
    (tower(training=TrainingRules(accumulate=2), optimizer="SGD", momentum=0.9), {}),
    (attention(), {}),
    (elementwise(), {"in_place": True}),
    (convolved(), {}),
    (classifier(), {}),
]
NAMES = [
    "plain", "dropout", "tied", "adam in place", "two at a time", "updates at the end", "clipped",
    "micro-batches", "attention", "elementwise", "convolved", "lstm",
]  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize(("graph", "options"), NETWORKS, ids=NAMES)
def test_plans_keep_the_first_tier_and_compute_the_same_bits(
    graph: TrainableGraph, options: dict[str, object], share: float
) -> None:
    size = between(graph, share, parallelism=int(str(options.get("parallelism", 1))))
    size += size // 10  # where values come back into their own bytes, layout may need a little more
    made = plan(graph, PlanOptions(tiers=tiers(size), **options))  # type: ignore[arg-type]  # options by name
    assert made.sizes[0] <= size
    report = validate(graph, made, steps=3)
    assert report.identical
    assert not report.violations
    if not options and size < max(loads(ordered(graph))[0]):
        assert any(is_copy(made, step) for step in made.program.steps)


@pytest.mark.parametrize("ahead", [0, 1, 2, 4])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_every_lookahead_keeps_the_budget(monkeypatch: pytest.MonkeyPatch, ahead: int, share: float) -> None:
    monkeypatch.setattr("solver.passes.paging.LOOKAHEADS", (ahead,))
    graph = tower(6, optimizer="Adam")
    size = between(graph, share, ahead)
    paged = Paging(tiers=tiers(size)).run(ordered(graph))
    assert max(loads(paged)[0]) <= size
    made = plan(graph, PlanOptions(tiers=tiers(size + size // 20)))
    assert validate(graph, made, steps=2).identical


def test_a_plan_without_tiers_knows_nothing_of_them() -> None:
    program = ordered(tower())
    assert Paging().run(program) is program
    made = plan(tower())
    assert paging(made) is None
    assert b"tiers" not in dump_plan(made)


def test_what_fits_stays_where_it_is() -> None:
    graph = tower()
    alone = plan(graph)
    made = plan(graph, PlanOptions(tiers=tiers(alone.arena_bytes)))
    assert made.sizes == (alone.arena_bytes, 0)
    assert made.program.steps == alone.program.steps
    assert [space.name for space in made.program.spaces] == ["sram", "flash"]
    found = paging(made)
    assert found is not None
    assert (found.moved, found.copies, found.time) == (0, (), found.compute)


def test_the_record_has_the_figures_of_the_copies() -> None:
    graph = tower(optimizer="Adam")
    given = tiers(between(graph, 0.3))
    made = plan(graph, PlanOptions(tiers=given))
    found = paging(made)
    assert found is not None
    copies = [step for step in made.program.steps if is_copy(made, step)]
    assert len(found.copies) == len(copies)
    assert found.moved == sum(copy.nbytes for copy in found.copies)
    moved = traffic(made.program)
    assert (found.moved_in, found.moved_out) == (moved.moved_in, moved.moved_out)
    assert found.tiers[1].written == moved.moved_out
    assert found.time == elapsed(made.program, given) >= found.compute
    assert found.moved <= found.bound * 1.001
    assert found.moved <= found.baseline
    assert load_plan(dump_plan(made)) == made
    assert prove(reference_of(graph, made.options), made) == ()


def test_values_leave_for_the_first_tier_with_room() -> None:
    graph = tower()
    size = between(graph, 0.2)
    both = plan(graph, PlanOptions(tiers=tiers(size, Tier("dram", 4096, 10**9, 10**9), FLASH)))
    assert 0 < both.sizes[1] <= 4096
    assert both.sizes[2] > 0
    assert validate(graph, both, steps=2).identical
    channels = {
        both.program.operations[s.operation].attributes["channel"]
        for s in both.program.steps
        if is_copy(both, s)
    }
    assert channels == {1, 2}


def test_where_no_layout_fits_more_leaves_until_one_does() -> None:
    """The live values fit each time; three layouts in a row have a few bytes too many."""
    made = plan(attention(), PlanOptions(tiers=tiers(6456, Tier("slow", 2**30, 10**8, 10**8))))
    assert made.sizes[0] <= 6456
    assert validate(attention(), made, steps=1).identical


def test_weights_may_stay_in_slower_memory_or_lend_their_bytes() -> None:
    graph = tower(optimizer="Adam")
    made = plan(graph, PlanOptions(tiers=tiers(between(graph, 0.0))))
    away = [e for e in made.program.entry if made.program.values[e.value].space]
    assert any(e.kind is EntryKind.CARRIED for e in away)
    with Trainer(graph, made) as trainer:
        trainer.step(synthetic_batch(graph, 0, 1))
        assert trainer.read("w0").shape == (16, 16)
    # The first weight is read at both ends of the iteration: it comes back into its own bytes.
    lending = (
        plan(tower(8), PlanOptions(tiers=tiers(between(tower(8), share)))) for share in (0.0, 0.2, 0.4)
    )
    assert any(lent(each.program) for each in lending)


def test_recomputation_leaves_less_to_move() -> None:
    graph = tower(8)
    slow = Tier("flash", 2**24, 1_000_000, 1_000_000, 1000)
    given = tiers(between(graph, 0.2), slow)
    alone = plan(graph, PlanOptions(tiers=given))
    both = plan(graph, PlanOptions(tiers=given, recompute=True))
    ours, theirs = paging(both), paging(alone)
    assert ours is not None
    assert theirs is not None
    assert ours.moved < theirs.moved
    assert theirs.compute < ours.least_time <= ours.time < theirs.time
    assert any(".again1" in label for label in both.program.step_labels)
    assert validate(graph, both, steps=2).identical


def test_of_the_budgets_that_values_in_place_allow_the_fastest_plan_is_taken() -> None:
    graph = support.tower(4)
    times = []
    for in_place in (False, True):
        made = plan(graph, PlanOptions(tiers=tiers(between(graph, 0.0)), in_place=in_place))
        (record,) = (record for record in made.records if record.name == "paging")
        times.append(int(record.facts["nanoseconds"]))
    assert times[1] < times[0]


def test_the_example_moves_what_was_measured() -> None:
    """11,217,152 bytes are touched at once; 14 MB take 19.1 MB moved."""
    graph = load_graph((EXAMPLES / "mnist.json").read_bytes(), batch=32)
    made = plan(graph, PlanOptions(batch=32, tiers=tiers(14_000_000, Tier("flash", 2**30, 10**8, 10**8))))
    found = paging(made)
    assert found is not None
    assert found.moved <= 19_130_000
    assert found.bound >= 19_110_000
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(batch=32, tiers=tiers(11_217_151, Tier("flash", 2**30, 10**8, 10**8))))
    assert caught.value.required == 11_217_152
    assert caught.value.proved


def test_a_deadline_that_has_passed_gives_the_greedy_answer() -> None:
    graph = tower()
    size = between(graph, 0.3)
    found = Paging(tiers=tiers(size)).apply(ordered(graph), Deadline(at=0.0))
    assert not found.complete
    assert max(loads(found.program)[0]) <= size


# ------------------------------------------------------------------------------------------- bad input


def test_tiers_are_for_targets_that_page_and_no_other_capacity() -> None:
    given = tiers(4096)
    for target in ("onert", "nntrainer", "singa"):
        with pytest.raises(OptionsError, match="memory of one kind"):
            plan(tower(), PlanOptions(target=target, tiers=given))
    with pytest.raises(OptionsError, match="Both a capacity and tiers"):
        plan(tower(), PlanOptions(capacity=4096, tiers=given))
    block = Block("a", TensorType((4,), DType.UINT8))
    blocks = build_program("p", [block], [BlockOperation("w", (), ("a",), "")])
    with pytest.raises(OptionsError, match="Both a capacity and tiers"):
        plan_program(blocks, PlanOptions(capacity=4096, tiers=given))
    assert plan_program(blocks, PlanOptions(tiers=given)).sizes == (64, 0)


def test_a_first_tier_that_is_too_small_is_proved_to_be() -> None:
    graph = tower()
    smallest = paging_problem(ordered(graph), 0).smallest
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(tiers=tiers(smallest - 1)))
    error = caught.value
    assert (error.required, error.available, error.proved) == (smallest, smallest - 1, True)
    assert "'sram'" in error.message
    assert error.path == ("tiers", 0, "bytes")
    assert error.live_at_peak


def test_slower_tiers_that_are_too_small_are_named() -> None:
    """With the value, the bytes that are missing, and a remedy that works."""
    graph = tower()
    size = between(graph, 0.2)
    with pytest.raises(CapacityError, match="has 64") as caught:
        plan(graph, PlanOptions(tiers=tiers(size, replace(FLASH, bytes=64))))
    error = caught.value
    assert any(f"'{name}'" in error.message for name, _ in error.live_at_peak)
    assert f"Give 'flash' {error.excess:,} bytes more" in error.remedy
    assert (error.path, error.available, error.proved) == (("tiers", 1, "bytes"), 64, False)
    made = plan(graph, PlanOptions(tiers=tiers(size, replace(FLASH, bytes=error.required))))
    assert made.sizes[1] <= error.required


def test_many_small_slower_tiers_that_hold_enough_together_but_no_value_each() -> None:
    """The sum of what they lack is nothing; one of them must be as large as the value that leaves."""
    graph = tower()
    many = tuple(replace(FLASH, name=f"b{k}", bytes=1024) for k in range(30))
    with pytest.raises(CapacityError, match=r"No slower tier has room for '\w+' \(2,048 bytes\)") as caught:
        plan(graph, PlanOptions(tiers=tiers(between(graph, 0.6), *many)))
    error = caught.value
    assert error.excess > 0
    number = error.path[1]
    assert isinstance(number, int)
    assert many[number - 1].name in error.remedy
    larger = (*many[: number - 1], replace(FLASH, name="b", bytes=error.required), *many[number:])
    assert plan(graph, PlanOptions(tiers=tiers(between(graph, 0.6), *larger))).sizes[number]


def test_where_slower_memory_is_scarce_what_takes_least_of_it_leaves() -> None:
    """Hardly more than what is over on the fullest level has to be away at once."""
    for graph in (tower(), elementwise(), attention()):
        program = ordered(graph)
        size, peak = between(graph, 0.5), max(loads(program)[0])
        slow = replace(FLASH, bytes=(peak - size) * 115 // 100)
        paged = Paging(tiers=tiers(size, slow)).run(program)
        assert max(loads(paged)[0]) <= size
        assert peak - size <= max(loads(paged)[1]) <= slow.bytes


# -------------------------------------------------------------------------------------- the paging file


def test_a_file_in_the_place_of_slower_memory_trains_alike_and_counts(tmp_path: Path) -> None:
    graph = tower(optimizer="Adam")
    made = plan(graph, PlanOptions(tiers=tiers(between(graph, 0.1))))
    moved = traffic(made.program)
    report = validate(graph, made, steps=3, paging_file=tmp_path / "paged")
    assert report.identical
    assert (report.paged_in, report.paged_out) == (3 * moved.moved_in, 3 * moved.moved_out)
    assert not list(tmp_path.iterdir())
    with Trainer(graph, made) as plain, Trainer(graph, made, paging_file=tmp_path / "paged") as filed:
        for step in (1, 2):
            batch = synthetic_batch(graph, 0, step)
            assert plain.step(batch) == filed.step(batch)
        assert not list(tmp_path.iterdir())  # nothing that a kill could leave behind
        assert made.sizes[1] in sizes_of_open_files(tmp_path)
        for name in ("w0", "w4", "h1", "loss"):
            assert (plain.read(name) == filed.read(name)).all()
    assert not list(tmp_path.iterdir())


def sizes_of_open_files(folder: Path) -> list[int]:
    """Of those that lie, or lay, in a folder."""
    there = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return [entry.stat().st_size for entry in there if folder in entry.readlink().parents]


def test_a_name_that_cannot_be_taken_back_goes_at_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unlink: Callable[..., None] = Path.unlink

    def refusing(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "The file is open")

    monkeypatch.setattr(Path, "unlink", refusing)
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    file = PagingFile(tmp_path / "paged", 100, 0xFF)
    assert (tmp_path / "paged").stat().st_size == 100
    monkeypatch.setattr(Path, "unlink", unlink)
    file.close()
    file.close()
    assert not list(tmp_path.iterdir())
    with PagingFile(tmp_path / "other", 100, 0xFF):
        assert not list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    graph = tower()
    made = plan(graph, PlanOptions(tiers=tiers(between(graph, 0.1))))
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(PlanError, match="exists"):
        validate(graph, made, steps=1, paging_file=tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "precious"
    with pytest.raises(PlanError, match="cannot be made: No such file or directory"):
        Trainer(graph, made, paging_file=tmp_path / "no" / "where")
    with pytest.raises(PlanError, match="no slower memory"):
        validate(graph, plan(graph), steps=1, paging_file=tmp_path / "other")


@pytest.mark.parametrize("writes", [0, 40])
def test_a_full_disk_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, writes: int) -> None:
    """Whether it is full from the beginning or in the middle of training: nothing is left behind."""
    graph = tower()
    made = plan(graph, PlanOptions(tiers=tiers(between(graph, 0.1))))
    left = [writes]
    write: Callable[..., int] = os.pwrite

    def failing(file: int, data: bytes, position: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(file, data[: max(1, len(data) // 2)], position)

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(PlanError, match="cannot be written: No space left on device") as caught:
        validate(graph, made, steps=100, paging_file=tmp_path / "paged")
    assert "room" in caught.value.remedy
    assert not list(tmp_path.iterdir())


# ----------------------------------------------------------------------------- copies that are wrong


@pytest.fixture(scope="module")
def paged() -> tuple[Program, Plan]:
    """The reference, and a plan in which an activation leaves and is back, with copies beside steps."""
    graph = tower(6)
    given = PlanOptions(tiers=tiers(between(graph, 0.4, 2)))
    return reference_of(graph, given), plan(graph, given)


def rules(reference: Program, made: Plan) -> set[str]:
    return {violation.rule for violation in prove(reference, made)}


def test_a_tier_that_is_too_small_for_its_arena_is_named(paged: tuple[Program, Plan]) -> None:
    reference, made = paged
    first, second = made.options.tiers
    less = replace(made.options, tiers=(replace(first, bytes=made.sizes[0] - 1), second))
    assert rules(reference, replace(made, options=less)) == {"capacity"}


@pytest.mark.parametrize("home", [0, 2])
def test_copies_that_have_no_time_are_named(paged: tuple[Program, Plan], home: int) -> None:
    """Values of slower memory lie in the first tier, or in one that says as little of its speed."""
    reference, made = paged
    program = made.program
    spaces = (*program.spaces, replace(program.spaces[1], name="mute"))
    values = tuple(replace(v, space=home) if v.space == 1 else v for v in program.values)
    end = made.sizes[0]
    offsets = tuple(
        offset + end if value.space == 1 and home == 0 else offset
        for value, offset in zip(program.values, made.offsets, strict=True)
    )
    large = replace(made.options.tiers[0], bytes=2**30)
    options = replace(made.options, tiers=(large, FLASH, Tier("mute", 2**30)))
    moved = replace(program, spaces=spaces, values=values)
    plan_ = replace(
        made,
        program=moved,
        options=options,
        offsets=offsets,
        sizes=(*made.sizes, 0),
        certificates=(*made.certificates, made.certificates[1]),
    )
    details = [v.detail for v in prove(reference, certified(plan_)) if v.rule == "record"]
    words = "copies inside tier 'sram'" if home == 0 else "neither says how fast that is"
    assert any(words in detail for detail in details)
