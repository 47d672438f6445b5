"""The documentation names every setting, command, option and target of `./run`; its links and paths hold."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from docs.generator import PAGES
from service.cli.commands import app
from service.problems import CATALOGUE
from service.settings import Settings
from solver import errors
from solver.documents import SCHEMAS
from solver.graph.ops import OPERATOR_NAMES, SEQUENCES
from solver.layout import SOLVERS
from solver.options import REQUEST_OPTIONS
from solver.removed import REMOVED

#: README stays a page that is read in one go.
README_LINES = 150

#: Fenced blocks, and targets of links inside the project.
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


@pytest.fixture(scope="module")
def written(root: Path, tracked: tuple[Path, ...]) -> Mapping[Path, str]:
    """Pages written by hand, relative to the root."""
    return {path: (root / path).read_text(encoding="utf-8") for path in tracked if path.suffix == ".md"}


@pytest.fixture(scope="module")
def generated() -> Mapping[Path, str]:
    """Pages made from the code, as if they were committed."""
    return {Path("docs", name): page() for name, page in PAGES.items()}


def page(generated: Mapping[Path, str], name: str) -> str:
    return generated[Path("docs/reference", name)]


def test_readme_is_short(root: Path) -> None:
    assert len((root / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_settings(generated: Mapping[Path, str]) -> None:
    rows = set(re.findall(r"^\| `(ARENAPLAN_[A-Z_]+)`", page(generated, "settings.md"), re.MULTILINE))
    assert rows == {f"ARENAPLAN_{name.upper()}" for name in Settings.model_fields}


def test_no_setting_is_made_up(
    root: Path, written: Mapping[Path, str], generated: Mapping[Path, str]
) -> None:
    """Beside the service's settings there are those of `./run`, of the compose file, of clients
    and of commands that ask a service, and those that were removed."""
    known = {f"ARENAPLAN_{name.upper()}" for name in Settings.model_fields} | REMOVED.keys()
    of_run = set(re.findall(r"ARENAPLAN_[A-Z]+", (root / "run").read_text(encoding="utf-8")))
    compose = (root / "deploy/compose.yaml").read_text(encoding="utf-8")
    asking = [root / "clients/connections.py", root / "service/cli/remote.py"]
    clients = "".join(path.read_text(encoding="utf-8") for path in asking)
    known |= of_run | set(re.findall(r"ARENAPLAN_[A-Z_]+", clients))
    known |= set(re.findall(r"ARENAPLAN_[A-Z_]+", compose))
    named = {
        (str(path), name)
        for path, text in {**written, **generated}.items()
        for name in re.findall(r"ARENAPLAN_[A-Z_]*[A-Z]", text)
    }
    # deploy/README.md has ARENAPLAN_NAME=value, for any of them.
    assert {(path, name) for path, name in named if name not in {*known, "ARENAPLAN_NAME"}} == set()


def test_commands(generated: Mapping[Path, str], root: Path) -> None:
    commands = vars(get_command(app))["commands"]
    headings = set(re.findall(r"^## arenaplan (\w+)", page(generated, "cli.md"), re.MULTILINE))
    assert headings == set(commands)
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert {
        name for name in commands if f"`{name}`" not in readme and f"arenaplan {name}" not in readme
    } == set()


def test_every_command_is_shown_in_use(written: Mapping[Path, str]) -> None:
    """`serve` never ends; pages start it with `./run serve`."""
    guides = "".join(text for path, text in written.items() if path.parts[0] == "docs")
    shown = set(re.findall(r"(?:^(?:\$ )?arenaplan|\./run) (\w+)", guides, re.MULTILINE))
    assert set(vars(get_command(app))["commands"]) - shown == set()


def test_plan_options(generated: Mapping[Path, str]) -> None:
    rows = set(re.findall(r"^\| `([a-z_]+)`", page(generated, "options.md"), re.MULTILINE))
    assert {*REQUEST_OPTIONS} - rows == set()


def test_operators(generated: Mapping[Path, str], written: Mapping[Path, str]) -> None:
    names = {*OPERATOR_NAMES, *SEQUENCES}
    rows = set(re.findall(r"^\| `([A-Z]\w+)`", page(generated, "operators.md"), re.MULTILINE))
    assert rows == names
    words = set(re.findall(r"\w+", written[Path("docs/reference/graphs.md")]))
    assert names - words == set()


def test_solvers(written: Mapping[Path, str]) -> None:
    text = written[Path("docs/explanation/layout-search.md")].partition("## Solvers by name")[2]
    assert set(SOLVERS) - set(re.findall(r"`([a-z\d-]+)`", text)) == set()


def test_errors_and_problems(generated: Mapping[Path, str]) -> None:
    assert {
        name
        for name in errors.__all__
        if name[0].isupper() and f"`{name}`" not in page(generated, "errors.md")
    } == set()
    assert {code for code in CATALOGUE if f"{{ #{code} }}" not in page(generated, "problems.md")} == set()


def test_documents(generated: Mapping[Path, str]) -> None:
    for name, schema in SCHEMAS.items():
        text = page(generated, f"documents/{name.replace('_', '-')}.md")
        assert {field for field in schema["properties"] if f"| `{field}`" not in text} == set()


def test_rows_and_words_of_plan_documents(generated: Mapping[Path, str]) -> None:
    """Rows are arrays, so their page says what stands where; words are all there."""
    text = page(generated, "documents/plan.md")
    entry = text.partition("## EntryOfPlan")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\d) \| `(\w+)`", entry, re.MULTILINE) == [
        ("0", "value"), ("1", "kind"), ("2", "reference"),
    ]  # fmt: skip
    assert 'One of `"fed"`, `"constant"`, `"carried"`, `"held"`.' in text


def test_run(root: Path, generated: Mapping[Path, str]) -> None:
    usage = (root / "run").read_text(encoding="utf-8").split("TEXT")[1]
    targets = re.findall(r"^  ([a-z]+) ", usage, re.MULTILINE)
    assert {name for name in targets if f"`./run {name}`" not in page(generated, "run.md")} == set()


def test_every_room_has_a_role(root: Path, written: Mapping[Path, str]) -> None:
    text = written[Path("docs/explanation/architecture.md")].partition("## Where a file belongs")[2]
    rooms = {
        f"{package}.{path.stem}"
        for package in ("solver", "service")
        for path in (root / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    named = set(re.findall(r"`((?:solver|service)\.\w+)`", text))
    assert named == {name for name in rooms if "__" not in name}


def test_files_that_are_named_exist(root: Path, written: Mapping[Path, str]) -> None:
    """Relative to the core or to the project."""
    pages = [
        text
        for path, text in written.items()
        if path.parts[:2] == ("docs", "explanation") or path.name in ("CONTRIBUTING.md", "add.md")
    ]
    named = set(re.findall(r"`((?:\w+/)+\w+(?:\.py|\.json)?)`", "".join(pages)))
    assert "training/derive.py" in named
    assert {
        name for name in named if not any((base / name).exists() for base in (root, root / "solver"))
    } == set()


def test_links_lead_somewhere(root: Path, written: Mapping[Path, str], generated: Mapping[Path, str]) -> None:
    broken = [
        f"{path}: {target}"
        for path, text in {**written, **generated}.items()
        for target in LINK.findall(CODE.sub("", text))
        for found in [Path(os.path.normpath(path.parent / target))]
        if not (root / found).exists() and found not in generated
    ]
    assert broken == []


def test_readme_needs_no_site(written: Mapping[Path, str], generated: Mapping[Path, str], root: Path) -> None:
    """Every file that README links to exists without a build."""
    links = LINK.findall(CODE.sub("", written[Path("README.md")]))
    assert links
    assert [link for link in links if not (root / link).exists()] == []


def test_site_has_every_page(root: Path, written: Mapping[Path, str], generated: Mapping[Path, str]) -> None:
    """`./run docs` checks the same and more, and needs an environment of its own."""
    text = (root / "mkdocs.yml").read_text(encoding="utf-8")
    entries = set(re.findall(r"([\w./-]+\.md)$", text, re.MULTILINE))
    pages = {
        path.relative_to("docs").as_posix() for path in {**written, **generated} if path.parts[0] == "docs"
    }
    decisions = {name for name in pages if name.startswith("explanation/decisions/0")}
    assert entries - {"explanation/decisions/0*.md"} == pages - decisions
    index = written[Path("docs/explanation/decisions/index.md")]
    assert {name for name in decisions if f"({Path(name).name})" not in index} == set()


def test_site_fetches_nothing(root: Path) -> None:
    """No font, script or style from elsewhere: the theme's own are off, and pages bring none."""
    settings = yaml.load((root / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    assert settings["theme"]["font"] is False
    assert settings["extra"]["generator"] is False
    assert any("privacy" in plugin for plugin in settings["plugins"])
    assert "extra_javascript" not in settings
