"""Reads the subset of Dockerfile syntax that the project's Dockerfile uses."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Instruction", "Stage", "read_stages", "stage_named"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """`keyword` in capitals; `arguments` with line continuations joined."""

    keyword: str
    arguments: str

    def command(self) -> list[str]:
        """The exec form (a JSON list), with or without options before it."""
        words: list[str] = json.loads(self.arguments[self.arguments.index("[") :])
        return words


@dataclass(frozen=True, slots=True)
class Stage:
    """From one FROM to the next; the first stage, without a base, holds the ARGs before any FROM."""

    base: str
    instructions: tuple[Instruction, ...]

    def all(self, keyword: str) -> list[Instruction]:
        return [instruction for instruction in self.instructions if instruction.keyword == keyword]

    def only(self, keyword: str) -> Instruction:
        (found,) = self.all(keyword)
        return found

    def environment(self) -> dict[str, str]:
        """All ENV pairs; `$PATH` and the like are left as they stand."""
        words = (word for instruction in self.all("ENV") for word in shlex.split(instruction.arguments))
        return dict(word.split("=", 1) for word in words)


def read_instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = (line.split(None, 1) for line in joined.splitlines())
    return [Instruction(keyword.upper(), arguments) for keyword, arguments in pairs]


def read_stages(path: Path) -> list[Stage]:
    stages = [Stage("", ())]
    for instruction in read_instructions(path.read_text(encoding="utf-8")):
        if instruction.keyword == "FROM":
            stages.append(Stage(instruction.arguments, ()))
        else:
            stages[-1] = Stage(stages[-1].base, (*stages[-1].instructions, instruction))
    return stages


def stage_named(stages: list[Stage], name: str) -> Stage:
    """A stage with what it takes from those it is based on, the oldest instruction first."""
    (found,) = (stage for stage in stages if stage.base.endswith(f" AS {name}"))
    parent = found.base.split()[0]
    if not any(stage.base.endswith(f" AS {parent}") for stage in stages):
        return found
    return Stage(found.base, stage_named(stages, parent).instructions + found.instructions)
