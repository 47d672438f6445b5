"""`./run device` with the compilers that are here: equal bits are counted, other bits are noticed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from solver.c_training import c_training_files
from solver.program import EntryKind
from tests.device.__main__ import Check
from tests.device.machines import Killed, Machine, boards, controls, first_machine, machines
from tests.device.networks import BARE, NETWORKS, Network
from tests.device.objects import CALL_GRAPH, Failed, called, check_symbols, stack_depth
from tests.support.every import ALL

Kernels = dict[tuple[str, ...], Path]

HOST = first_machine()
compiles = pytest.mark.skipif(bool(HOST.lacking), reason="needs gcc or clang")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, which writes call graphs")


def _network(networks: Iterable[Network], name: str) -> Network:
    return next(network for network in networks if network.name == name)


SMALL = _network(NETWORKS, "bias_only b16")


def _of_each_kind() -> list[Machine]:
    """A machine of each compiler and board; poisoned, with sanitizers, with arenas elsewhere, and killed."""
    kinds: dict[tuple[object, ...], Machine] = {}
    for machine in (*machines(), *boards()):
        flags = " ".join(machine.flags)
        kind = (type(machine), machine.compiler[0], "NET_POISON" in flags, "sanitize" in flags)
        kinds.setdefault(kind, machine)
    return list(kinds.values())


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """What is compiled, which all tests of this file share."""
    return {}


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory, kernels: Kernels) -> Check:
    networks = [SMALL, replace(SMALL, name="bare", bare=True)]
    check = Check(tmp_path_factory.mktemp("device"), networks, kernels=kernels)
    check.machine(HOST)
    assert (check.right, check.wrong) == (2, 0)
    return check


@compiles
@pytest.mark.parametrize("machine", _of_each_kind(), ids=lambda machine: machine.title)
def test_a_machine_leaves_the_same_bits(check: Check, machine: Machine) -> None:
    if lacking := machine.lacking:
        pytest.skip(f"{lacking} is not installed")
    before = check.right, check.wrong
    check.machine(machine)
    assert (check.right, check.wrong) == (before[0] + 1, before[1])


def _controls() -> list[Machine]:
    """One of each compiler: all that compute other numbers are told apart in the same way."""
    of_compilers: dict[str, Machine] = {}
    for machine in controls():
        of_compilers.setdefault(machine.compiler[0], machine)
    return list(controls()) if ALL else list(of_compilers.values())


@compiles
@pytest.mark.parametrize("machine", _controls(), ids=lambda machine: machine.title)
def test_a_machine_that_computes_other_numbers_is_noticed(check: Check, machine: Machine) -> None:
    if lacking := machine.lacking:
        pytest.skip(f"{lacking} is not installed")
    before = check.right, check.wrong
    check.machine(machine, differs=True)
    assert (check.right, check.wrong) == (before[0] + 1, before[1])


def test_names_of_networks_and_machines_are_unique() -> None:
    names = [network.name for network in (*NETWORKS, *BARE)]
    titles = [machine.title for machine in (*machines(), *boards(), *controls())]
    assert len(set(names)) == len(names)
    assert len(set(titles)) == len(titles)


@compiles
def test_a_machine_with_other_bits_counts(
    tmp_path: Path, kernels: Kernels, capsys: pytest.CaptureFixture[str]
) -> None:
    check = Check(tmp_path, [SMALL], kernels=kernels)
    check.machine(HOST)
    first = check.bits[SMALL.name]
    check.bits = {SMALL.name: replace(first, state="0" * 16)}
    check.machine(HOST)
    assert (check.right, check.wrong) == (1, 1)
    assert check.rows[HOST.title] == "#"
    assert first.digest in capsys.readouterr().out


@compiles
def test_values_that_share_bytes_leave_other_bits(tmp_path: Path, kernels: Kernels) -> None:
    check = Check(tmp_path, [SMALL], kernels=kernels)
    check.machine(HOST)
    (written,) = check.written
    plan, values = written.plan, written.plan.program.values
    stays = [entry.value for entry in plan.program.entry if entry.kind is EntryKind.CARRIED]
    after = max((v for v in stays if plan.offsets[v]), key=lambda v: plan.offsets[v])
    before = max(
        (v for v in stays if plan.offsets[v] + values[v].type.nbytes <= plan.offsets[after]),
        key=lambda v: plan.offsets[v],
    )
    end = plan.offsets[before] + values[before].type.nbytes
    overlapping = replace(plan, offsets=(*plan.offsets[:after], end - 4, *plan.offsets[after + 1 :]))
    (written.folder / "net.c").write_bytes(c_training_files(overlapping)["net.c"])
    machine = next(machine for machine in machines() if not machine.lacking and "-O2" in machine.flags)
    check.machine(machine)
    assert (check.right, check.wrong) == (1, 1)


@compiles
def test_a_state_that_was_not_saved_changes_the_bits_of_a_resumed_run(
    tmp_path: Path, kernels: Kernels
) -> None:
    check = Check(tmp_path, [SMALL], kernels=kernels)
    check.machine(HOST)
    (written,) = check.written
    source = (written.folder / "net.c").read_text(encoding="ascii")
    forgets = source.replace("if (places[k].is_first) get(", "if (k > 1u && places[k].is_first) get(")
    assert forgets != source
    (written.folder / "net.c").write_text(forgets, encoding="ascii")
    killed = next(machine for machine in machines() if isinstance(machine, Killed))
    check.machine(killed if not killed.lacking else replace(killed, compiler=HOST.compiler))
    assert (check.right, check.wrong) == (1, 1)


@compiles
def test_programs_that_do_not_compile_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = Check(tmp_path, [SMALL])
    check.machine(replace(HOST, flags=("-DAP_CONVOLUTION_H",)))
    assert check.wrong == 1
    assert "FAILED" in capsys.readouterr().out


def test_machines_that_are_not_installed_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check, absent = Check(tmp_path, []), next(boards())
    check.machine(absent)
    assert check.wrong == 0
    table = check.table([absent])
    assert f"SKIPPED {absent.title}" in table
    assert f"apt-get install --no-install-recommends {' '.join(sorted(absent.packages))}" in table


def test_a_board_without_enough_memory_is_refused_by_the_linker(tmp_path: Path) -> None:
    board = next(boards())
    if board.lacking:
        pytest.skip(f"{board.lacking} is not installed")
    network = _network(BARE, "transfer b1 in 256 KiB")
    smaller = replace(network, options={**network.options, "capacity": 240_000}, steps=1)
    written = smaller.write(tmp_path / "net")
    with pytest.raises(Failed, match="need more than RAM"):
        board.build(written, board.kernels(tmp_path / "kernels"))


@needs_gcc
@pytest.mark.parametrize(
    ("net", "kernels", "reason"),
    [
        ("void *malloc(unsigned long); void *net_step(void) { return malloc(8); }", "", "library: malloc"),
        ("float ap_k(float); float net_step(float x) { return ap_k(x); }",
         "float expf(float); float ap_k(float x) { return expf(x); }", "library: expf"),
        ("int net_step(void) { return 0; }", "int calls; int ap_k(void) { return ++calls; }",
         "kernels have variables: calls"),
        ("static int t[200]; int net_step(int k) { return t[k] += k; }", "", "more than 512 bytes"),
    ],
)  # fmt: skip
def test_forbidden_symbols_are_named(tmp_path: Path, net: str, kernels: str, reason: str) -> None:
    objects = _compiled(tmp_path, net, kernels)
    with pytest.raises(Failed, match=reason):
        check_symbols("nm", *objects, None)


@needs_gcc
@pytest.mark.parametrize(
    ("net", "kernels", "reason"),
    [
        ("int net_step(int n) { return n ? 2 * net_step(n - 1) + n * net_step(n / 2) : 1; }", "",
         "calls itself: net_step -> net_step"),
        ("int net_step(int (*f)(int)) { return f(1) + 1; }", "", "another file through a pointer"),
        ("int ap_k(int *); int net_step(int n) { int t[n]; return ap_k(t) + t[0]; }", "",
         "only the run knows"),
    ],
)  # fmt: skip
def test_stacks_without_a_bound_are_refused(tmp_path: Path, net: str, kernels: str, reason: str) -> None:
    file, _ = _compiled(tmp_path, net, kernels)
    with pytest.raises(Failed, match=reason):
        stack_depth(file, tmp_path / "kernels")


@needs_gcc
def test_the_stack_is_that_of_the_deepest_chain_of_calls(tmp_path: Path) -> None:
    leaf = "void use(int *); void ap_{}(void) {{ int t[{}]; use(t); }}"
    net = "void ap_a(void), ap_b(void); void net_step(void) { ap_a(); ap_b(); }"
    file, _ = _compiled(tmp_path, net, "void use(int *);" + leaf.format("a", 100) + leaf.format("b", 1000))
    assert 4000 < stack_depth(file, tmp_path / "kernels") < 4200


@needs_gcc
def test_a_call_through_a_pointer_is_one_of_the_static_functions_in_its_file(tmp_path: Path) -> None:
    kernels = """void use(int *); static void f(void) { int t[1000]; use(t); } static void g(void) { use(0); }
        static void (*const table[])(void) = {f, g}; void ap_k(int k) { table[k](); use(&k); }"""
    file, _ = _compiled(tmp_path, "void ap_k(int); void net_step(void) { ap_k(1); ap_k(0); }", kernels)
    assert 4000 < stack_depth(file, tmp_path / "kernels") < 4200


def _compiled(folder: Path, net: str, kernels: str) -> tuple[Path, Path]:
    """Object files of a network and its kernels."""
    (folder / "kernels").mkdir()
    objects = []
    for path, text in ((folder / "net.c", net), (folder / "kernels" / "kernels.c", kernels)):
        path.write_text(f"{text}\n", encoding="ascii")
        objects.append(path.with_suffix(".o"))
        called(
            ["gcc", "-O1", "-fno-pie", "-fno-builtin", CALL_GRAPH, "-c", path, "-o", objects[-1]],
            folder=path.parent,
        )
    return objects[0], objects[1]
