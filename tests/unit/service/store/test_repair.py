"""Damage: it is named with its remedy, and what can be read is saved."""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from service.problems import Problem
from service.store import Store, open_store, upgrade
from service.store.repair import examine, recover
from service.store.schema import METADATA, blobs, graphs, jobs, results
from tests.support.postgres import running_postgres

PAGE = 4096
ROWS = 400


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with jobs, requests of some pages, and graphs; closed."""
    file = tmp_path_factory.mktemp("whole") / "jobs.db"
    with contextlib.closing(open_store(f"sqlite:///{file}")) as store:
        upgrade(store)
        bodies = [random.Random(k).randbytes(10 + 100 * k % 9000) for k in range(ROWS)]
        keys = [{"tenant": "t", "digest": hashlib.sha256(body).hexdigest()} for body in bodies]
        with store.transaction() as connection:
            sizes = [{"size": len(body), "touched": 1.0, "body": body} for body in bodies]
            connection.execute(blobs.insert(), [key | size for key, size in zip(keys, sizes, strict=True)])
            stored = {"media_type": "application/json", "created": 1.0}
            connection.execute(graphs.insert(), [key | stored for key in keys])
            connection.execute(jobs.insert(), [job_row(k, key["digest"]) for k, key in enumerate(keys)])
    return file


@pytest.fixture
def file(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copy(whole, tmp_path))


#: A process that reads a database, says so, and keeps it open until it is told to end.
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("select * from alembic_version").fetchall()
print(flush=True)
input()
"""


def job_row(k: int, request: str) -> dict[str, object]:
    return {
        "id": f"{k:032x}", "tenant": "t", "subject": "s", "task": "plan", "work": "plan", "state": "queued",
        "revision": 1, "created": float(k), "attempts": 0, "size": 1, "request": request, "cancel": False,
        "progress": {"stage": "layout", "k": k},
    }  # fmt: skip


def overwrite(file: Path, *pages: int) -> None:
    with file.open("r+b") as handle:
        for page in pages:
            handle.seek(PAGE * (page - 1))
            handle.write(random.Random(page).randbytes(PAGE))


def pages_of(file: Path) -> int:
    return file.stat().st_size // PAGE


def contents(file: Path) -> dict[str, set[tuple[object, ...]]]:
    """All rows of each table, as SQLite has them; but for the state of a job, which may have been ended."""
    columns = {table.name: [column.name for column in table.columns] for table in METADATA.sorted_tables}
    columns["jobs"] = ["id", "tenant", "subject", "task", "work", "created", "progress", "attempts", "size"]
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return {
            name: set(connection.execute(f"select {', '.join(names)} from {name}"))
            for name, names in columns.items()
        }


def opened(file: Path) -> contextlib.closing[Store]:
    return contextlib.closing(open_store(f"sqlite:///{file}"))


def damage_of(file: Path) -> str:
    with opened(file) as store:
        return examine(store) or ""


def test_a_whole_file_is_left_alone(file: Path) -> None:
    before = file.read_bytes()
    assert damage_of(file) == ""
    assert list(recover(file)) == [f"{file} is not damaged: nothing was changed."]
    assert file.read_bytes() == before


def test_there_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    assert "arenaplan database upgrade" in damage_of(file)
    assert not file.exists()
    with pytest.raises(ValueError, match="There is no file"):
        list(recover(file))


@pytest.mark.parametrize("seed", range(4))
def test_what_can_be_read_is_saved(file: Path, seed: int) -> None:
    """Every row of the new file is one of the old, and most are there: a page holds at most 40 of these."""
    before, size = contents(file), pages_of(file)
    pages = random.Random(seed).sample(range(2, size + 1), 2 * seed + 1)
    overwrite(file, *pages)
    damaged = file.read_bytes()
    assert "is damaged: " in damage_of(file)
    assert damage_of(file).endswith(
        "Run `arenaplan database recover`: it saves what can be read, and keeps the file."
    )

    lines = list(recover(file))
    kept = Path(lines[-1].removeprefix("The damaged file is kept as ").removesuffix("."))
    assert kept.read_bytes() == damaged
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert damage_of(file) == ""
    for name, rows in contents(file).items():
        assert rows <= before[name]
        assert len(rows) >= 0.9 * len(before[name])
        assert any(line.startswith(f"{name}: {len(rows):,} rows") for line in lines)
    with opened(file) as store, store.transaction(reads=True) as connection:
        known = select(blobs.c.digest)
        for column in (jobs.c.request, jobs.c.graph):
            lost = select(func.count()).where(jobs.c.state == "queued", column.not_in(known))
            assert connection.execute(lost).scalar_one() == 0


def test_a_file_of_which_nothing_can_be_read(file: Path) -> None:
    overwrite(file, 1)
    assert "file is not a database" in damage_of(file)
    list(recover(file))
    assert damage_of(file) == ""
    assert not any(contents(file).values())


def test_a_file_in_use_is_left_alone(file: Path) -> None:
    """Another process has it open; its locks are its own."""
    overwrite(file, pages_of(file) // 2)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ValueError, match="in use: stop the service"):
            list(recover(file))
        holder.communicate(b"\n")
    assert list(recover(file))


async def test_a_store_lets_go_of_a_damaged_file_and_takes_up_the_next(file: Path) -> None:
    """It writes no more to it, and answers with the remedy; nobody has to start it again."""
    with opened(file) as store:
        query = select(func.count()).select_from(results)
        assert await store.read(lambda connection: connection.execute(query).scalar_one()) == 0
        overwrite(file, *range(2, pages_of(file) + 1))
        for _ in range(2):
            with pytest.raises(Problem) as caught:
                await store.write(lambda connection: connection.execute(select(jobs)).all())
            assert caught.value.extensions == {"reason": "damaged"}
            assert "`arenaplan database recover`" in caught.value.remedy
            assert "Retry-After" in caught.value.headers
        list(recover(file))
        assert await store.write(lambda connection: connection.execute(query).scalar_one()) == 0
        assert store.trouble is None


async def test_wrong_bytes_that_look_right(file: Path) -> None:
    """What our code stumbles over in a damaged file is damage; in a whole one it is a mistake of ours."""
    with opened(file) as store:

        def stumble(_connection: object) -> None:
            raise ValueError("'gone' is not a valid State")

        with pytest.raises(ValueError, match="gone"):
            await store.read(stumble)
        overwrite(file, 8)
        with pytest.raises(Problem) as caught:
            await store.read(stumble)
        assert caught.value.extensions == {"reason": "damaged"}


def test_damage_of_postgresql_is_named() -> None:
    """Its own tools mend it: a page of a table is overwritten while the server is stopped."""
    with running_postgres("fsync=off") as server:
        url = server.new_database()
        with contextlib.closing(open_store(url)) as store:
            upgrade(store)
            assert examine(store) is None
            with store.transaction() as connection:
                connection.execute(
                    graphs.insert(), [{"tenant": "t", "digest": "d", "media_type": "x", "created": 1.0}]
                )
                table = connection.execute(text("select pg_relation_filepath('graphs')")).scalar_one()
        server.stop()
        overwrite(server.data / table, 1)
        server.start()
        with contextlib.closing(open_store(url)) as store:
            finding = examine(store) or ""
            assert "damaged: invalid page in block 0" in finding
            assert "Restore a backup" in finding
            with store.transaction() as connection:
                connection.execute(text("drop table graphs"))
            assert "The table graphs lacks created, digest, media_type, tenant" in (examine(store) or "")
