"""Mutants that change nothing a caller can observe, with the reason: `./run mutate` counts them apart.

By module, the changed line before and after, and why the two do the same.
"""

from __future__ import annotations

__all__ = ["EQUIVALENT"]

EQUIVALENT: dict[str, dict[tuple[str, str], str]] = {
    "solver/accounting/bounds.py": {
        ("continue", "pass"): "a value that shares with no other adds its size to `saved` and takes it away",
    },
    "solver/accounting/clocks.py": {
        (
            "budgets = sorted({*proved, (max(loads(program)[0], default=0), 0)})",
            "budgets = sorted({*proved, (max(loads(program)[0], default=1), 0)})",
        ): "without levels there is one budget, whose bytes are not used",
    },
    "solver/accounting/gaps.py": {
        (
            "if not changes or changes[-1] < step.level:",
            "if not changes or changes[-1] <= step.level:",
        ): "a level that stands twice is counted twice by all versions behind it",
    },
    "solver/accounting/problem.py": {
        (
            "read_only = [b.value for b in step.bindings if b.access is Access.READ]",
            "read_only = [b.value for b in step.bindings if True]",
        ): "no later step defines what a step that may run again writes or updates",
    },
    "solver/layout/check/fast.py": {
        (
            "sharing = int(np.sort(start).searchsorted(end).sum()) - count * (count + 1) // 2",
            "sharing = int(np.sort(start).searchsorted(end).sum()) - count // (count + 1) // 2",
        ): "the number of pairs chooses between two checks with the same answer",
        (
            "sharing = int(np.sort(start).searchsorted(end).sum()) - count * (count + 1) // 2",
            "sharing = int(np.sort(start).searchsorted(end).sum()) + count * (count + 1) // 2",
        ): "the number of pairs chooses between two checks with the same answer",
        (
            "sharing = int(np.sort(start).searchsorted(end).sum()) - count * (count + 1) // 2",
            "sharing = int(np.sort(start).searchsorted(end).sum()) - count * (count - 1) // 2",
        ): "the number of pairs chooses between two checks with the same answer",
        (
            "sharing = int(np.sort(start).searchsorted(end).sum()) - count * (count + 1) // 2",
            "sharing = int(np.sort(start).searchsorted(end).sum()) - count * (count + 2) // 2",
        ): "the number of pairs chooses between two checks with the same answer",
        (
            "live = np.concatenate((live[end[live] > start[block[0]]], block))",
            "live = np.concatenate((live[end[live] >= start[block[0]]], block))",
        ): "rows that end where the block begins are compared with it, and meet nothing",
    },
    "solver/layout/check/sweep.py": {
        (
            "if below >= 0 and high[by_low[below - leaves]] > low[i]:",
            "if below >= 1 and high[by_low[below - leaves]] > low[i]:",
        ): "a neighbour is -1 or a leaf, and leaves begin with number 2",
    },
    "solver/passes/updates.py": {
        (
            "behind = np.full(len(program.values), -1)",
            "behind = np.full(len(program.values), 1)",
        ): "an update reads a gradient, which no step before the third computes",
    },
    "solver/passes/paging.py": {
        (
            "for tier, written in zip(tiers[1:], moved.written[1:], strict=True)",
            "for tier, written in zip(tiers[1:], moved.written[1:], strict=False)",
        ): "there is one space for each tier",
    },
    "solver/verify/accesses.py": {
        ("if low >= high:", "if low > high:"): "runs without bytes are in both maps at the same places",
    },
}
