"""Settings of the service, for the commands that need them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from service.cli.console import Exit, fail
from service.settings import Settings, unknown_settings
from solver.removed import removed

__all__ = ["settings"]


def settings(given: Mapping[str, Any]) -> Settings:
    """Settings from the environment, with `given` on top; ends with a message when one is none or wrong."""
    for name, near in unknown_settings(os.environ).items():
        meant = f"; did you mean {near}?" if near else ". The page Settings of the documentation lists them."
        sentence = removed(name)
        fail(f"{name}: {sentence}" if sentence else f"{name} is not a setting{meant}", Exit.USAGE)
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if not name:  # settings that do not fit together
            fail(f"{first['msg'].removeprefix('Value error, ')}.", Exit.USAGE)
        wrong = f"must be {first['msg']}" if first["type"] == "wanted" else first["msg"]
        fail(f"Setting {name} (ARENAPLAN_{name.upper()}): {wrong}.", Exit.USAGE)
