"""Hypothesis profiles: repeatable by default, random and long where ARENAPLAN_FUZZ says how many examples.

BLAS and PyTorch have one thread, unless the environment says otherwise. What compares with PyTorch runs
under ``-m parity`` only, and may not skip there.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import c_objects
from tests.support.postgres import Postgres, missing_programs, running_postgres

# BLAS and PyTorch read these when they are loaded, which is later than this. On a shared machine threads wait
# for each other: training small models takes ten times as long with two of them as with one.
for _library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# A shell starts what runs in the background with Ctrl-C ignored, and commands that tests interrupt would
# inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test touches what a service of this user keeps; removed when the process ends.
_STATE = tempfile.TemporaryDirectory(prefix="arenaplan-tests-")
os.environ["XDG_STATE_HOME"] = _STATE.name

# The process that starts others first makes this folder for all of them.
_OBJECTS = tempfile.TemporaryDirectory(prefix="arenaplan-objects-")
os.environ.setdefault(c_objects.FOLDER, _OBJECTS.name)

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


#: Files that take the longest, longest first. Files are dealt out to processes in this order, so that none of
#: these begins when all others have ended.
LONGEST = (
    "docs/test_examples.py",
    "unit/verdict/test_explain.py",
    "integration/test_cli.py",
    "properties/test_edited_plans.py",
    "integration/test_device.py",
    "unit/examples/gallery/test_gallery.py",
    "properties/test_entry_points.py",
    "unit/pytorch_steps/test_budget.py",
    "unit/importers/pytorch/test_operators.py",
    "unit/arenaplan/test_torch.py",
    "unit/c_training/test_c_training.py",
    "properties/test_measures.py",
    "properties/test_remedies.py",
    "unit/executor/test_sizes.py",
    "unit/c_kernels/test_operators.py",
    "architecture/test_image.py",
    "contract/test_contract.py",
    "unit/service/cli/test_verdicts.py",
    "unit/executor/kernels/test_values.py",
    "unit/executor/kernels/test_operator_facts.py",
    "integration/test_database_trouble.py",
    "integration/test_telemetry.py",
    "integration/test_server.py",
    "unit/c_training/test_ranges.py",
    "properties/test_pure_operations.py",
    "properties/test_recompute_in_place.py",
    "integration/test_demo.py",
    "integration/test_install.py",
)


def _parity(config: pytest.Config) -> bool:
    return re.search(r"\bparity\b", str(config.option.markexpr)) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what needs PyTorch, unless it is asked for: other tests' environment does not have it.

    The longest files come first.
    """
    order = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    if not _parity(config):
        apart = [item for item in items if item.get_closest_marker("parity")]
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if not item.get_closest_marker("parity")]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a comparison need not be imported to find that out."""
    asked = _parity(config) and collection_path.name.startswith("test_")
    return True if asked and b"mark.parity" not in collection_path.read_bytes() else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A comparison that skips compares nothing: it fails."""
    report = yield
    if report.skipped and item.get_closest_marker("parity"):
        report.outcome, report.longrepr = "failed", f"skipped, which no comparison may be: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests, each of which takes a database of its own."""
    if reason := missing_programs():
        pytest.skip(reason)
    with running_postgres("fsync=off") as server:
        yield server
