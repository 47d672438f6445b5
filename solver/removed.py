"""Names that earlier versions had, each with one sentence that says what replaces it.

Every door asks `removed` before it says that it does not know a name, so an old command, option, field or
route answers with the same sentence everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["REMOVED", "removed"]

_BANKS: Final = (
    "Banks of ExecuTorch's memory map are no longer planned: leave out target and bytes_per_second, or let"
    " executorch.exir.banked_memory_planning place the tensors."
)
_STALE_READ: Final = (
    "Programs of ExecuTorch are no longer run to find stale reads: plan_memory and ProgramMemoryPlanningPass"
    " warn of them without running a program."
)

_WEBHOOK: Final = "Webhooks are no longer sent: follow the job's events, ask for it, or send Prefer: wait."
_OBJECTS: Final = "Results are no longer stored in S3: the database has all; the bucket can be emptied."

#: Ends the sentence that names a replacement in a plan.
_RULE: Final = "is by a rule that rewriting no longer has: it lowered the peak of no measured network."

#: Sentences by name, as users wrote it: a command, `--option`, field, route, setting, exporter or operator.
REMOVED: Final[Mapping[str, str]] = {
    "tflm": "Offsets for TensorFlow Lite Micro are no longer written: --to c-training trains and infers on"
    " microcontrollers, and `arenaplan solve --solver tflm-greedy` shows what TFLM's planner needs.",
    "executorch.target": _BANKS,
    "executorch.bytes_per_second": _BANKS,
    "executorch.find_stale_read": _STALE_READ,
    "executorch.StaleRead": _STALE_READ,
    "drop-identity": _RULE,
    "fuse-transpose": _RULE,
    "join-transposes": _RULE,
    "join-views": _RULE,
    **dict.fromkeys(("webhook", "ARENAPLAN_WEBHOOK_SECRET", "ARENAPLAN_WEBHOOK_ALLOW_PRIVATE"), _WEBHOOK),
    **dict.fromkeys(("ARENAPLAN_RESULT_URL", "ARENAPLAN_RESULT_BYTES"), _OBJECTS),
    "--plans": "Tables of plans are no longer made: plan each part of a range by itself, as --batch 1..7;"
    " `arenaplan explain --largest batch` says where a part ends.",
    "arenaplan audit": "Who did what is in the service's log: lines whose event is `audit`.",
    "ARENAPLAN_AUDIT_DAYS": "Set ARENAPLAN_USAGE_DAYS, for the usage of tenants; audit lines are in the log.",
    **dict.fromkeys(
        ("ARENAPLAN_CONNECTION_LIMIT_PER_ADDRESS", "ARENAPLAN_HEADER_SECONDS", "ARENAPLAN_BODY_SECONDS"),
        "Set it in the reverse proxy: slow clients, and the connections of one address, are bounded there.",
    ),
    "page/client.js": "The JavaScript client is no longer served: generate one from /openapi.json, or use"
    " page/service.js.",
}


def removed(name: str) -> str | None:
    """The sentence for a name that earlier versions had; None for any other."""
    return REMOVED.get(name)
