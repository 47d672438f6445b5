"""Programs in C in wrong hands: odd names, calls out of order, other plans' states, unfit compilers."""

from __future__ import annotations

import ctypes
import math
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from solver.c_training import c_training_files
from solver.errors import OptionsError
from solver.executor import c_files
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Tier
from solver.targets import TARGETS
from tests.support.graphs import Sketch, chain

compiles = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

STRICT = ("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wpedantic", "-Wshadow", "-Wundef", "-Wcast-qual")
CODES = {
    "OK": 0, "NO_SUCH_NAME": 1, "OTHER_SIZE": 2, "OTHER_PLAN": 3, "NOT_STARTED": 4, "OTHER_BITS": 5,
    "NO_STATE": 6, "OTHER_BYTE_ORDER": 7, "NO_SUCH_SIZE": 8, "OUT_OF_RANGE": 9,
    "DAMAGED": 10,
}  # fmt: skip
#: Where a saved state has what: magic, version, digest of the plan, iteration, values; then a check sum.
VERSION_AT, PLAN_AT, VALUES_AT = 8, 12, 80

#: Keywords, digits, functions of the API, names that fold to one identifier, Unicode, trigraphs, long names.
FEEDS = ["int", "0_x", "0_x_2", "_" * 120, "target"]
WEIGHT, LONG = '0w.中\\"??/ */', "é" * 400


def odd_names() -> TrainableGraph:
    s = Sketch('evil */ /* ??/ \\ "name" 中 @steps@')
    hidden = s.op("Gemm", [s.input("int", 2, 3), s.parameter(WEIGHT, 3, 3)], "step")
    last = s.op("Gemm", [hidden, s.parameter("x_y", 3, 3)], "init")
    pairs = ((last, "0.x"), (hidden, "0_x"), (hidden, LONG), (last, "target"))
    losses = [
        s.op("MeanSquaredError", [values, s.label(label, 2, 3)], f"loss of {k}")
        for k, (values, label) in enumerate(pairs)
    ]
    sums = [s.op("Add", losses[:2], "a"), s.op("Add", losses[2:], "b")]
    s.op("Add", sums, "loss")
    return s.graph(trainable=[WEIGHT, "x_y"])


def for_c(graph: TrainableGraph, **options: object) -> Plan:
    asked = PlanOptions(target="c", **options)  # type: ignore[arg-type]  # options by name
    return plan_requested(graph, RequestedOptions(asked))


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a network with odd names, and a library of them."""
    written = write(tmp_path_factory.mktemp("odd"), c_files(for_c(odd_names())))
    sources = [*written.glob("net*.c"), *written.glob("kernels/*.c")]
    compile_(written, "gcc", *STRICT, "-O1", "-shared", "-fPIC", *sources, "-o", written / "net.so")
    return written


def compile_(folder: Path, compiler: str, *arguments: str | Path) -> None:
    command = [compiler, "-std=c11", "-ffp-contract=off", f"-I{folder}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert not done.returncode, done.stderr[-2000:]


def refusal(folder: Path, compiler: str, flags: Sequence[str]) -> str:
    """The complaints of a compiler about the program with these flags; empty if it has nothing to say."""
    command = [compiler, "-std=c11", *flags, f"-I{folder}", "-fsyntax-only", str(folder / "net.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


class Net:
    """A library that has only just been loaded: its arena is zeros, and nothing has begun."""

    def __init__(self, folder: Path, copy: Path) -> None:
        copy.write_bytes((folder / "net.so").read_bytes())  # the same file would be the same library
        self.library = ctypes.CDLL(str(copy))
        self.library.net_step.restype = ctypes.c_float
        self.library.net_hash.restype = ctypes.c_uint64
        header = (folder / "net.h").read_text(encoding="ascii")
        sizes = re.findall(r"#define NET_(\w+)_BYTES (\d+)u", header)
        self.saved_bytes = VALUES_AT + 4 + next(int(size) for name, size in sizes if name == "STATE")

    def begin(self) -> None:
        weights = (ctypes.c_ubyte * 1).in_dll(self.library, "net_weights")
        assert self.library.net_init(ctypes.byref(weights)) == CODES["OK"]

    def step(self) -> float:
        for name in FEEDS:
            self.library[f"net_feed_{name}"]((ctypes.c_float * 6)(*[0.25 * k for k in range(6)]))
        return float(self.library.net_step())

    def read(self, name: str, nbytes: int = 36) -> tuple[int, bytes]:
        place = (ctypes.c_ubyte * 64)()
        return int(self.library.net_read(name.encode(), place, ctypes.c_size_t(nbytes))), bytes(place)[:36]

    def write(self, name: str, values: bytes) -> int:
        return int(self.library.net_write(name.encode(), values, ctypes.c_size_t(len(values))))

    def save(self, nbytes: int | None = None) -> tuple[int, bytes]:
        size = self.saved_bytes if nbytes is None else nbytes
        place = (ctypes.c_ubyte * (self.saved_bytes + 8))()
        return int(self.library.net_save(place, ctypes.c_size_t(size))), bytes(place)[: self.saved_bytes]

    def load(self, state: bytes) -> int:
        return int(self.library.net_load(state, ctypes.c_size_t(len(state))))


@compiles
def test_codes_are_those_of_the_header(folder: Path) -> None:
    header = (folder / "net.h").read_text(encoding="ascii")
    assert {name: int(code) for name, code in re.findall(r"NET_(\w+) = (\d+),? +/?\*? ?", header)} == {
        name: code for name, code in CODES.items() if name != "OK"
    }
    assert "NET_OK = 0" in header


@compiles
def test_odd_names_can_be_called_and_read(folder: Path, tmp_path: Path) -> None:
    header = (folder / "net.h").read_text(encoding="ascii")
    assert re.findall(r"void net_feed_(\w+)\(", header) == FEEDS
    net = Net(folder, tmp_path / "net.so")
    net.begin()
    assert math.isfinite(net.step())
    for name in (WEIGHT, "x_y"):
        code, values = net.read(name)
        assert (code, len(values)) == (CODES["OK"], 36)
        assert any(values)
    assert net.write("x_y", bytes(36)) == CODES["OK"]
    assert net.read("x_y") == (CODES["OK"], bytes(36))


@compiles
def test_the_example_is_built_by_make_and_by_cmake(folder: Path, tmp_path: Path) -> None:
    copy = write(tmp_path, c_files(for_c(odd_names()), "blob"))
    tools = [["make", "CFLAGS=-O1 -Werror"]]
    if shutil.which("cmake"):
        tools += [["cmake", "-B", "build"], ["cmake", "--build", "build"]]
    for command in tools:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr[-2000:]
    for program in ("./example", "build/example") if shutil.which("cmake") else ("./example",):
        done = subprocess.run([program], cwd=copy, capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stdout.split())) == (0, 10)
    (copy / "net_weights.bin").write_bytes((copy / "net_weights.bin").read_bytes()[:-1])
    done = subprocess.run(["./example"], cwd=copy, capture_output=True, text=True, check=False)
    assert (done.returncode, "not the saved state" in done.stderr) == (1, True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_everything_is_c_plus_plus_too(folder: Path) -> None:
    for source in [*folder.glob("*.c"), *folder.glob("kernels/*.c")]:
        command = ["g++", "-std=c++17", "-xc++", "-Wall", f"-I{folder}", "-fsyntax-only", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr[-2000:]


@compiles
def test_nothing_happens_before_net_init(folder: Path, tmp_path: Path) -> None:
    net = Net(folder, tmp_path / "net.so")
    before = net.library.net_hash()
    assert math.isnan(net.step())
    assert net.library.net_hash() == before
    assert net.library.net_iteration() == 0
    assert net.read("x_y")[0] == CODES["NOT_STARTED"]
    assert net.write("x_y", bytes(36)) == CODES["NOT_STARTED"]
    assert net.save() == (CODES["NOT_STARTED"], bytes(net.saved_bytes))


@compiles
def test_names_and_sizes_are_checked(folder: Path, tmp_path: Path) -> None:
    net = Net(folder, tmp_path / "net.so")
    net.begin()
    assert net.read("x_y", 35)[0] == net.write("x_y", bytes(37)) == CODES["OTHER_SIZE"]
    for name in ("", "x", "x_yz", "int", WEIGHT[:-1]):
        assert net.read(name)[0] == net.write(name, bytes(36)) == CODES["NO_SUCH_NAME"]
    assert net.save(net.saved_bytes - 1) == (CODES["OTHER_SIZE"], bytes(net.saved_bytes))


@compiles
def test_states_of_others_are_refused_and_change_nothing(folder: Path, tmp_path: Path) -> None:
    net = Net(folder, tmp_path / "net.so")
    net.begin()
    net.step()
    code, state = net.save()
    assert code == CODES["OK"]
    expected = net.step(), net.library.net_hash()
    assert net.load(state) == CODES["OK"]

    def changed(at: int, values: bytes) -> bytes:
        return state[:at] + values + state[at + len(values) :]

    version = state[VERSION_AT:PLAN_AT]
    for other, name in (
        *((state[:size], "OTHER_SIZE") for size in (0, 7, VALUES_AT - 1, VALUES_AT, len(state) - 1)),
        (state + b"\0", "OTHER_SIZE"),
        (changed(0, b"n"), "NO_STATE"),
        (bytes(len(state)), "NO_STATE"),
        (changed(VERSION_AT, b"\2\0\0\2"), "NO_STATE"),
        (changed(VERSION_AT, version[::-1]), "OTHER_BYTE_ORDER"),
        (changed(PLAN_AT, b"?"), "OTHER_PLAN"),
        (changed(VALUES_AT - 5, b"?"), "OTHER_PLAN"),
        (changed(VALUES_AT + 9, b"?"), "DAMAGED"),
    ):
        assert net.load(other) == CODES[name], name
    assert (net.step(), net.library.net_hash()) == expected


@compiles
def test_the_file_of_first_values_is_a_state_of_its_plan(folder: Path, tmp_path: Path) -> None:
    net = Net(folder, tmp_path / "net.so")
    net.begin()
    code, state = net.save()
    assert (code, state) == (CODES["OK"], c_files(for_c(odd_names()), "blob")["net_weights.bin"])
    other = c_files(for_c(odd_names(), update="end"), "blob")["net_weights.bin"]
    assert net.load(other) == CODES["OTHER_PLAN"]


@compiles
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_that_compute_otherwise_are_refused(folder: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    assert refusal(folder, compiler, ["-ffreestanding"]) == ""
    for flag in ("-ffast-math", "-Ofast", "-ffinite-math-only"):
        assert "leave it out" in refusal(folder, compiler, [flag])
    if platform.machine() == "x86_64":
        assert "FLT_EVAL_METHOD" in refusal(folder, compiler, ["-m32", "-mno-sse", "-ffreestanding"])
    assert "32 bits" in refusal(folder, compiler, ["-D__SIZE_MAX__=65535u", "-ffreestanding"])


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"c"}))
def test_plans_of_other_targets_are_refused(target: str) -> None:
    made = plan_requested(chain((8, 6, 4), 2), RequestedOptions(PlanOptions(target=target)))
    with pytest.raises(OptionsError, match=f"for target '{target}'") as caught:
        c_files(made)
    assert "--target c" in caught.value.remedy


def test_values_in_sixteen_bits_are_refused() -> None:
    with pytest.raises(OptionsError, match="keeps values as they are"):
        for_c(chain((8, 6, 4), 2), storage="float16")
    stored = plan_requested(chain((8, 600, 4), 64), RequestedOptions(PlanOptions(storage="bfloat16")))
    with pytest.raises(OptionsError, match=r"which C has no type for|has no kernel in C"):
        c_training_files(replace(stored, options=replace(stored.options, target="c")))


def test_offsets_of_more_than_32_bits_are_refused() -> None:
    made = for_c(chain((8, 6, 4), 2))
    with pytest.raises(OptionsError, match="has 4,294,967,296 bytes"):
        c_training_files(replace(made, sizes=(2**32,)))
    assert c_training_files(replace(made, sizes=(2**32 - 64,)))


def test_memories_have_names_of_their_own() -> None:
    tiers = (Tier("saved-1", 4096), Tier("saved", 2**20, 45_000_000, 20_000_000))
    made = plan_requested(
        chain((8, 6, 4), 2), RequestedOptions(PlanOptions(target="c", tiers=tiers), automatic=False)
    )
    header = c_training_files(made)["net.h"].decode()
    names = re.findall(r"#define NET_(\w+_BYTES)", header)
    assert len(set(names)) == len(names)
    assert "/* saved-1 */" in header
