"""Logs of what a runtime touched: checked against a plan, or written by our own executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from service.cli import training
from service.cli.console import print_json, print_line, read_document, write_document
from solver import documents, executor
from solver.executor import AccessFault, MemoryAccess
from solver.plan import Plan

__all__ = ["check", "read_log", "record"]

#: Faults that are printed; --json has all of them.
_MOST_PRINTED: Final = 20


def read_log(path: Path, plan: Plan) -> list[MemoryAccess]:
    return documents.load_accesses(read_document(path), plan)


def check(plan: Plan, log: Sequence[MemoryAccess], *, as_json: bool) -> bool:
    """Print what is wrong with the accesses; true when nothing is."""
    faults = executor.check_accesses(plan, log)
    if as_json:
        print_json({"accesses": len(log), "right": not faults, "faults": [_facts(one) for one in faults]})
        return not faults
    for fault in faults[:_MOST_PRINTED]:
        again = f" ({fault.count:,} times)" if fault.count > 1 else ""
        print_line(f"line {fault.line}: {fault.rule.value}: {fault.detail}{again}")
    if len(faults) > _MOST_PRINTED:
        print_line(f"{len(faults) - _MOST_PRINTED} more")
    if faults:
        print_line(f"Wrong are {sum(fault.count for fault in faults):,} of {len(log):,} accesses.")
    else:
        print_line(f"All {len(log):,} accesses are as planned.")
    return not faults


def _facts(fault: AccessFault) -> dict[str, Any]:
    return asdict(fault) | {"rule": fault.rule.value}


def record(
    graph: Path,
    plan: Plan,
    output: Path,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    steps: int,
    seed: int,
) -> None:
    """Train in the plan's arena, and write what the steps touch. `choices` are those for models."""
    network = training.read_graph(graph, plan, choices)
    accesses = executor.logged_accesses(network, plan, steps=steps, seed=seed)
    write_document(output, b"".join(documents.dump_accesses(accesses, plan)))
