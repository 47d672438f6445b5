"""The collector of examples: what counts as a block, a command, and the same output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.examples_in_pages import Block, Command, blocks, commands, matches

PAGE = """# Page

```python
a = 1
```

```text title="prints"
1
```

    ```python
    indented = "only shown"
    ```

```
plain
```
"""


def test_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert list(blocks(page)) == [
        Block("python", "", "a = 1\n", 4),
        Block("text", "prints", "1\n", 8),
        Block("", "", "plain\n", 16),
    ]


def test_commands() -> None:
    found = list(commands("$ true\n$ false  # exit code 1 it fails\nout\nmore\n"))
    assert found == [Command("true", 0, ""), Command("false", 1, "out\nmore\n")]


def test_a_console_block_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match="begins with '\\$ ', not with 'output'"):
        list(commands("output\n$ true\n"))


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb\n", "a  \nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n...\n", "a\n", True),
        ("...\nc\n", "a\nb\nc\n", True),
        ("...\nb\n", "a\nb\nc\n", False),
        ("took ... s (1)\n", "took 0.3 s (1)\n", True),
        ("took ... s\n", "took 0.3 s\nmore\n", False),
    ],
)
def test_matches(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) == same
