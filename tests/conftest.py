"""Hypothesis profiles: repeatable by default, random and long where ARENAPLAN_FUZZ says how many examples.

One BLAS thread, unless the environment says otherwise.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# BLAS reads it when NumPy is loaded, which is later than this. On a shared machine its threads wait for each
# other: training small models takes ten times as long with two of them as with one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

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
