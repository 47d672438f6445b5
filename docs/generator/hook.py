"""MkDocs adds the generated pages, which lie in ``build/docs``. This runs in the environment of the site."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every page that ``python -m docs.generator`` has written."""
    folder = Path(config.config_file_path).parent / "build/docs"
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files
