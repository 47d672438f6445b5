"""Hypothesis profiles: repeatable by default, random and long where ARENAPLAN_FUZZ says how many examples."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# No deadline: shared machines stall for longer than any example takes.
_SLOW_MACHINE = (HealthCheck.too_slow,)

settings.register_profile(
    "default",
    derandomize=True,
    max_examples=50,
    deadline=None,
    database=None,
    suppress_health_check=_SLOW_MACHINE,
)
settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("ARENAPLAN_FUZZ") or 2000),
    deadline=None,
    print_blob=True,
    phases=tuple(Phase),
    suppress_health_check=_SLOW_MACHINE,
)
settings.load_profile("fuzz" if os.environ.get("ARENAPLAN_FUZZ") else "default")
