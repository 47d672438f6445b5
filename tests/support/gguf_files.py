"""Files of weights as llama.cpp's own package writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np


def write_gguf(path: Path, tensors: Mapping[str, tuple[Any, str]], *, alignment: int = 32) -> None:
    """Floats by name, each with the type that it is kept in; arrays of bytes are packed already."""
    writer = gguf.GGUFWriter(path, "test")
    writer.add_custom_alignment(alignment)
    for name, (values, word) in tensors.items():
        kind = gguf.GGMLQuantizationType[word]
        data = values if values.dtype == np.uint8 else gguf.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
