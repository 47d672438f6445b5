"""JSON Schemas of the documents, as `solver.documents.schema` generated them from the models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["SCHEMAS"]

#: Kind of document (``graph``, ``options``, ``plan``, ``buffers``, ``layout``, ...) -> its JSON Schema.
SCHEMAS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {path.stem: json.loads(path.read_bytes()) for path in sorted(Path(__file__).parent.glob("*.json"))}
)
