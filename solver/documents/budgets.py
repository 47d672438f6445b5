"""Budget files: TOML, typed by hand, with a table for each network and what it may take."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from solver.documents.fields import DocumentModel, JsonList, Name, Size, Text, expected, read_size
from solver.documents.options import load_options
from solver.documents.read import read
from solver.errors import ArenaplanError, DocumentError
from solver.reports.budget import Allowance, Budget, Limits

__all__ = ["BudgetsDocument", "load_budgets", "read_allowance"]


def read_allowance(text: str) -> Allowance:
    """``1%``, ``0.5 %`` or a size, ``64KiB``. Raises ValueError, which says what to give."""
    if text.rstrip().endswith("%"):
        try:
            share = float(text.rstrip().removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share < 1e6:
            raise ValueError("give a share as 1%, or a size as 64KiB")
        return Allowance(share=share)
    try:
        return Allowance(bytes=read_size(text))
    except ValueError:
        raise ValueError("give a share as 1%, or a size as 64KiB") from None


def _allowance(value: Any) -> str:
    """Kept as text: what it means is read once the rest of the table is right."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    try:
        if not isinstance(text, str):
            raise ValueError
        read_allowance(text)
    except ValueError:
        raise expected("a share as 1%, or a size as 64KiB") from None
    return text


def _share(value: str) -> str:
    if not value.rstrip().endswith("%"):
        raise expected("a share as 5%")
    return value


_Allowance = Annotated[str, BeforeValidator(_allowance)]


_Choice = int | float | str | JsonList[Text]


class LimitsOfFile(DocumentModel):
    """The limits of a plan, or of one of its entry points."""

    max_arena: Size | None = Field(None, description="All memories together.")
    max_spaces: dict[Name, Size] = Field({}, description="Single memories, by name.")
    max_recompute: Annotated[_Allowance, AfterValidator(_share)] | None = Field(
        None, description="Modelled time of steps that run again, as a share: 5%."
    )
    max_growth: _Allowance | None = Field(None, description="Growth of the arena, as 1% or 64KiB.")


class BudgetOfFile(LimitsOfFile):
    """One network and its limits. Paths count from the directory of the file."""

    name: Name | None = Field(None, description="What reports call it; the name of the file if left out.")
    model: Name | None = Field(None, description="Graph, program, or model of another tool to plan.")
    plan: Name | None = Field(None, description="Plan to judge, instead of a model.")
    options: dict[str, Any] = Field({}, description="Options of planning, as in an options document.")
    training: dict[Name, _Choice] = Field(
        {}, description="How a model of another tool is trained: loss, optimizer, dim and others."
    )
    entries: JsonList[Text] = Field(
        (), description="Entry points to plan in one arena, as train and infer:batch=1."
    )
    entry_points: dict[Name, LimitsOfFile] = Field({}, description="Limits of single entry points, by name.")
    baseline: Name | None = Field(None, description="Plan that growth is counted from.")


class BudgetsDocument(DocumentModel):
    """Limits of networks. `options` hold for all of them, unless one says otherwise."""

    format: Literal["arenaplan.budgets"]
    version: Literal[1]
    options: dict[str, Any] = Field({}, description="Options of planning, for all networks.")
    budget: JsonList[BudgetOfFile] = Field(min_length=1)


def load_budgets(data: bytes) -> tuple[Budget, ...]:
    """The budgets of a file. Raises DocumentError, or OptionsError for an option out of range."""
    try:
        value = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"Byte {error.start} of the file is not UTF-8.", remedy="Save the file as UTF-8."
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DocumentError(f"The file is not TOML: {error}.", remedy="Correct it there.") from None
    document = read(BudgetsDocument, value, has_header=False)
    return tuple(_budget(k, one, document.options) for k, one in enumerate(document.budget))


def _budget(number: int, entry: BudgetOfFile, shared: Mapping[str, Any]) -> Budget:
    path = ("budget", number)
    if (entry.model is None) == (entry.plan is None):
        what = "neither a model nor a plan" if entry.model is None else "both a model and a plan"
        raise DocumentError(f"budget[{number}] has {what}.", remedy="Give one of the two.", path=path)
    grows = any(limits.max_growth is not None for limits in (entry, *entry.entry_points.values()))
    if (entry.baseline is None) == grows:
        raise DocumentError(
            f"budget[{number}] has one of baseline and max_growth.", remedy="Give both, or none.", path=path
        )
    if entry.plan is not None and entry.options:
        raise DocumentError(
            f"budget[{number}] has options for a plan that is made already.",
            remedy="Leave them out, or give the model.",
            path=(*path, "options"),
        )
    if entry.plan is not None and entry.training:
        raise DocumentError(
            f"budget[{number}] has training for a plan that is made already.",
            remedy="Leave it out, or give the model.",
            path=(*path, "training"),
        )
    if entry.plan is not None and entry.entries:
        raise DocumentError(
            f"budget[{number}] has entries for a plan that is made already.",
            remedy="Leave them out: the limits of its entry points stand in entry_points.",
            path=(*path, "entries"),
        )
    if entry.entry_points and entry.model is not None and not entry.entries:
        raise DocumentError(
            f"budget[{number}] has limits of entry points, and plans none.",
            remedy='Add entries = ["train", "infer:batch=1"], or leave out entry_points.',
            path=(*path, "entry_points"),
        )
    _check_limits(entry, f"budget[{number}]", path, has_others=bool(entry.entry_points))
    for name, limits in entry.entry_points.items():
        _check_limits(limits, f"Entry point {name!r:.80} of budget[{number}]", (*path, "entry_points", name))
    try:
        options = load_options({**shared, **entry.options})
    except ArenaplanError as error:
        # The options of all and of one are read together: an error leads to where the field stands.
        own = bool(error.path) and error.path[0] in entry.options
        where = (*path, "options") if own else ("options",)
        raise DocumentError(error.message, remedy=error.remedy, path=(*where, *error.path)) from error
    return Budget(
        name=entry.name or PurePath(entry.model or entry.plan or "").stem,
        model=entry.model,
        plan=entry.plan,
        options=options,
        baseline=entry.baseline,
        training=entry.training,
        entries=tuple(entry.entries),
        entry_points={name: Limits(**_limits(limits)) for name, limits in entry.entry_points.items()},
        **_limits(entry),
    )


def _check_limits(
    limits: LimitsOfFile, of: str, path: tuple[str | int, ...], *, has_others: bool = False
) -> None:
    """Raises DocumentError where nothing is limited, unless the budget `has_others`: of its entry points."""
    given = (limits.max_arena, limits.max_recompute, limits.max_growth)
    if not (has_others or limits.max_spaces) and all(limit is None for limit in given):
        raise DocumentError(
            f"{of} limits nothing.",
            remedy="Give max_arena, max_spaces, max_recompute or max_growth.",
            path=path,
        )


def _limits(limits: LimitsOfFile) -> dict[str, Any]:
    """The fields of `Limits`."""
    recompute, growth = limits.max_recompute, limits.max_growth
    return {
        "max_arena": limits.max_arena,
        "max_spaces": limits.max_spaces,
        "max_recompute": None if recompute is None else read_allowance(recompute).share,
        "max_growth": None if growth is None else read_allowance(growth),
    }
