"""The C header compiles without a warning as C and as C++, and its .bss is the arena."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import pipeline
from solver.documents import load_accesses
from solver.errors import OptionsError
from solver.exporters.c_header import c_header_files, dump_c_header
from solver.graph import DType, TensorType
from solver.names import c_identifiers
from solver.plan import Deployment, Plan, PlanOptions, persistent_rows
from solver.program import Tier
from solver.training import Block, BlockOperation, build_program
from solver.verify import check_accesses
from tests.support.entry_points import requested, small_deployment
from tests.support.graphs import Sketch, chain, convolutional
from tests.support.small_plans import cases

COMPILERS = {"c11": ("gcc", "-std=c11", ".c"), "c++17": ("g++", "-std=c++17", ".cpp")}


@pytest.fixture(scope="module")
def simple() -> Plan:
    return pipeline.plan(chain((4, 3, 2), 2, optimizer="Adam"))


@pytest.fixture(scope="module")
def paged() -> Plan:
    whole = pipeline.plan(convolutional(2))
    room = whole.arena_bytes * 9 // 10
    tiers = (Tier("sram", room, 10**9, 10**9), Tier("flash", 1 << 24, 10**8, 10**8))
    return pipeline.plan(convolutional(2), PlanOptions(tiers=tiers))


def compiled(
    folder: Path, files: Mapping[str, bytes], first: str, prefix: str, standard: str, *warnings: str
) -> Path:
    """The object of a source file that defines everything in the header."""
    compiler, option, suffix = COMPILERS[standard]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    for name, text in files.items():
        (folder / name).write_bytes(text)
    source = folder / f"source{suffix}"
    lines = [f"#define {prefix}_IMPLEMENTATION", f"#define {prefix}_NAMES", f'#include "{first}"']
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    made = source.with_suffix(".o")
    command = [compiler, option, "-Wall", "-Wextra", "-Werror", *warnings, "-c", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return made


def symbols(made: Path) -> dict[str, tuple[str, int]]:
    """Type and size of each symbol of an object."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    listing = subprocess.run(
        ["nm", "-S", str(made)], capture_output=True, text=True, encoding="utf-8", check=True
    ).stdout
    rows = re.findall(r"^\w+ (\w+) (\w) (\w+)$", listing, re.MULTILINE)
    return {name: (kind, int(size, 16)) for size, kind, name in rows}


@pytest.mark.parametrize("standard", COMPILERS)
def test_bss_is_the_arena(tmp_path: Path, simple: Plan, standard: str) -> None:
    found = symbols(compiled(tmp_path, {"plan.h": dump_c_header(simple, "net")}, "plan.h", "NET", standard))
    zeroed = {name: size for name, (kind, size) in found.items() if kind in "bB"}
    assert zeroed == {"net_space_arena": simple.arena_bytes}
    assert {"net_values", "net_steps", "net_bindings", "net_entry", "net_exit"} <= set(found)


@pytest.mark.parametrize("standard", COMPILERS)
def test_one_file_a_space(tmp_path: Path, paged: Plan, standard: str) -> None:
    files = c_header_files(paged, "plan", "net")
    assert list(files) == ["plan.h", "plan.sram.h", "plan.flash.h"]
    found = symbols(compiled(tmp_path, files, "plan.h", "NET", standard))
    zeroed = {name: size for name, (kind, size) in found.items() if kind in "bB"}
    assert zeroed == {"net_space_sram": paged.sizes[0]}
    assert f"#define NET_ARENA_BYTES_FLASH {paged.sizes[1]}u" in files["plan.flash.h"].decode()


def test_without_the_definition_nothing_is_allocated(tmp_path: Path, simple: Plan) -> None:
    text = b"#undef P_IMPLEMENTATION\n" + dump_c_header(simple, "p")
    assert symbols(compiled(tmp_path, {"plan.h": text}, "plan.h", "P", "c11")) == {}


def test_a_wrong_offset_does_not_compile(tmp_path: Path, simple: Plan) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    text = dump_c_header(simple, "p").decode()
    wrong = re.sub(r"(#define P_OFFSET_W1) \d+u", rf"\1 {simple.arena_bytes}u", text)
    assert wrong != text
    source = tmp_path / "plan.c"
    source.write_text(wrong, encoding="utf-8")
    command = ["gcc", "-std=c11", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode != 0
    assert "W1 lies in its space" in done.stderr


def test_a_program_that_uses_the_arena_runs(tmp_path: Path, simple: Plan) -> None:
    """The tables say where each value lies, and the base is on its boundary."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "plan.h").write_bytes(dump_c_header(simple, "net"))
    (tmp_path / "main.c").write_text(
        """#define NET_IMPLEMENTATION
#define NET_NAMES
#include "plan.h"
#include <stdio.h>
int main(void) {
    for (unsigned i = 0; i < NET_VALUES; i++) {
        const net_planned_value *value = &net_values[i];
        printf("%s %u %u\\n", net_value_names[i], (unsigned)value->offset, (unsigned)value->bytes);
    }
    return (int)((uintptr_t)net_spaces[0].base % NET_ARENA_ALIGNMENT_ARENA);
}
""",
        encoding="utf-8",
    )
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [str(tmp_path / "main")], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0
    program = simple.program
    lines = {
        f"{value.label} {offset} {value.type.nbytes}"
        for value, offset in zip(program.values, simple.offsets, strict=True)
    }
    assert set(done.stdout.splitlines()) == lines


#: What a runtime prints of each binding before it calls a kernel: see docs/how-to/accesses.md.
LOGGING = """#define NET_IMPLEMENTATION
#define NET_NAMES
#include "plan.h"
#include <stdio.h>

static void log_step(unsigned t) {
    const net_planned_step *step = &net_steps[t];
    for (unsigned writes = 0; writes < 2; writes++) {
        for (unsigned k = 0; k < step->bindings; k++) {
            const net_planned_binding *binding = &net_bindings[step->first_binding + k];
            const net_planned_value *value = &net_values[binding->value];
            unsigned reads = binding->access == NET_ACCESS_READ || binding->access == NET_ACCESS_UPDATE;
            if (writes ? binding->access != NET_ACCESS_READ : reads) {
                printf("{\\"step\\": %u, \\"access\\": \\"%s\\", \\"offset\\": %lu, \\"bytes\\": %lu}\\n", t,
                       writes ? "write" : "read", (unsigned long)value->offset, (unsigned long)value->bytes);
            }
        }
    }
}

int main(int count, char **arguments) {
    (void)arguments;
    for (unsigned t = 0; t < NET_STEPS; t++) {
        if (count == 1 || t != 0) { /* with an argument, the first step is left out */
            log_step(t);
        }
    }
    return 0;
}
"""


def test_a_runtime_logs_what_it_touches_by_the_tables(tmp_path: Path, simple: Plan) -> None:
    """Positions of steps, offsets and bytes in the header are those of the plan."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "plan.h").write_bytes(dump_c_header(simple, "net"))
    (tmp_path / "main.c").write_text(LOGGING, encoding="utf-8")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    right, wrong = (
        subprocess.run([str(tmp_path / "main"), *more], capture_output=True, check=True).stdout
        for more in ((), ("x",))
    )
    assert check_accesses(simple, load_accesses(right, simple)) == ()
    found = check_accesses(simple, load_accesses(wrong, simple))
    assert found[0].writer_in_plan == simple.program.step_labels[0]


def test_headers_of_all_kinds_of_plans_stand_side_by_side(tmp_path: Path) -> None:
    """Paged, repeated, in place, side by side, of all targets: in one source file, without a warning."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source, size = [], 0
    for k, case in enumerate(cases()):
        (tmp_path / f"p{k}.h").write_bytes(dump_c_header(case.plan, f"p{k}"))
        source.append(f'#define P{k}_IMPLEMENTATION\n#define P{k}_NAMES\n#include "p{k}.h"\n')
        reached = zip(case.plan.program.spaces, case.plan.sizes, strict=True)
        size += sum(nbytes for space, nbytes in reached if space.addressable)
    (tmp_path / "all.c").write_text("".join(source), encoding="utf-8")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "all.c"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    assert sum(n for kind, n in symbols(tmp_path / "all.o").values() if kind in "bB") == size


def test_the_same_plan_gives_the_same_bytes(simple: Plan) -> None:
    again = pipeline.plan(chain((4, 3, 2), 2, optimizer="Adam"))
    assert dump_c_header(simple) == dump_c_header(again)


def test_names_that_c_cannot_spell(tmp_path: Path) -> None:
    """They end no comment and no string, and stay apart."""
    names = ["a.b", "a_b", "a_b_2", "a/b", 'x*/ "y" \\', "é", "/*", "??/", "1", "A.B"]
    blocks = [Block(name, TensorType((8,), DType.UINT8), fed=True) for name in names] + [
        Block("out", TensorType((8,), DType.UINT8), kept=True)
    ]
    operations = [BlockOperation('op "*/', tuple(names), ("out",), "ker*/nel")]
    made = pipeline.plan_program(build_program("9 // nets */", blocks, operations))
    text = dump_c_header(made)
    compiled(tmp_path, {"plan.h": text}, "plan.h", "PLAN_9____NETS", "c11")
    compiled(tmp_path, {"plan.h": text}, "plan.h", "PLAN_9____NETS", "c++17")


@pytest.mark.parametrize("prefix", ["", "3x", "a-b", "é", "x y"])
def test_a_prefix_that_c_cannot_spell_is_refused(simple: Plan, prefix: str) -> None:
    with pytest.raises(OptionsError, match="cannot begin names in C"):
        dump_c_header(simple, prefix)


def test_identifiers() -> None:
    assert c_identifiers(["a.b", "a_b", "a_b_2", "A-B", ""], capitals=True) == [
        "A_B",
        "A_B_3",
        "A_B_2",
        "A_B_4",
        "_",
    ]


@given(st.lists(st.text(st.sampled_from("aAbB.-_12"), max_size=4), max_size=40))
def test_identifiers_are_unique(names: list[str]) -> None:
    found = c_identifiers(names, capitals=True)
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[A-Z0-9_]+", name) for name in found)


# ------------------------------------------------------------------------------------ entry points


@pytest.fixture(scope="module")
def several() -> Deployment:
    return small_deployment()


@pytest.mark.parametrize("standard", COMPILERS)
def test_entry_points_share_one_arena(tmp_path: Path, several: Deployment, standard: str) -> None:
    header = {"plan.h": dump_c_header(several, "net")}
    found = symbols(compiled(tmp_path, header, "plan.h", "NET", standard, "-Wconversion", "-Wpedantic"))
    zeroed = {name: size for name, (kind, size) in found.items() if kind in "bB"}
    assert zeroed == {"net_space_arena": several.arena_bytes}
    tables = {"values", "steps", "bindings", "entry", "exit"}
    names = {f"net_{entry}_{table}" for entry in ("train", "infer", "evaluate") for table in tables}
    assert names | {"net_entry_points"} <= set(found)


@pytest.mark.parametrize("standard", COMPILERS)
def test_one_entry_point_by_itself(tmp_path: Path, several: Deployment, standard: str) -> None:
    """Its values of others have a place as well, and are held."""
    header = {"plan.h": dump_c_header(several["infer"].plan, "net")}
    found = symbols(compiled(tmp_path, header, "plan.h", "NET", standard))
    assert found["net_space_arena"][1] == several["infer"].plan.arena_bytes
    assert "#define NET_ENTRY_HELD 3u" in header["plan.h"].decode()
    assert "NET_ENTRY_HELD" not in dump_c_header(several["train"].plan, "net").decode()


def test_persistent_values_stand_once(several: Deployment) -> None:
    text = dump_c_header(several, "net").decode()
    for row in persistent_rows(several):
        name = c_identifiers([row.name], capitals=True)[0]
        assert re.findall(rf"^#define NET_\w*OFFSET_{name} (\d+)u$", text, re.MULTILINE) == [str(row.offset)]
        assert f"#define NET_TRAIN_VALUE_{name} " in text
    assert "NET_INFER_VALUE_W1 " in text
    assert "NET_INFER_VALUE_W1_FIRST_MOMENT" not in text, "infer holds what only training uses"
    assert f"#define NET_PERSISTENT_BYTES {several.persistent_bytes}u" in text
    assert "#define NET_TRAIN_OFFSET_H1_GRAD " in text or "#define NET_TRAIN_OFFSET_H1 " in text


def test_a_program_that_asks_the_table_of_entry_points(tmp_path: Path, several: Deployment) -> None:
    """For each entry point the table has its steps, and the places of all values that they bind."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "plan.h").write_bytes(dump_c_header(several, "net"))
    (tmp_path / "main.c").write_text(
        """#define NET_IMPLEMENTATION
#define NET_NAMES
#include "plan.h"
#include <stdio.h>
int main(void) {
    for (unsigned e = 0; e < NET_ENTRY_POINTS; e++) {
        const net_planned_entry_point *entry = &net_entry_points[e];
        for (uint32_t t = 0; t < entry->step_count; t++) {
            const net_planned_step *step = &entry->steps[t];
            for (uint32_t k = 0; k < step->bindings; k++) {
                const net_planned_binding *one = &entry->bindings[step->first_binding + k];
                const net_planned_value *value = &entry->values[one->value];
                printf("%s %u %s %s %u\\n", net_entry_point_names[e], (unsigned)t,
                       net_kernel_names[step->kernel], net_slot_names[one->slot], (unsigned)value->offset);
            }
        }
    }
    return 0;
}
""",
        encoding="utf-8",
    )
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [str(tmp_path / "main")], capture_output=True, text=True, encoding="utf-8", check=True
    )
    expected = [
        f"{entry.name} {t} {entry.plan.program.kernel(step)} {b.slot} {entry.plan.offsets[b.value]}"
        for entry in several.entry_points
        for t, step in enumerate(entry.plan.program.steps)
        for b in step.bindings
    ]
    assert done.stdout.splitlines() == expected


def test_a_wrong_size_of_an_entry_point_does_not_compile(tmp_path: Path, several: Deployment) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    text = dump_c_header(several, "p").decode()
    wrong = re.sub(r"(#define P_INFER_TOTAL_BYTES) \d+u", rf"\1 {several.arena_bytes + 1}u", text)
    assert wrong != text
    (tmp_path / "plan.c").write_text(wrong, encoding="utf-8")
    command = ["gcc", "-std=c11", "-fsyntax-only", str(tmp_path / "plan.c")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode != 0
    assert "it runs in the arenas" in done.stderr


HOSTILE = (
    "a",
    "a_offset",
    "A",
    "offset",
    "values",
    "entry",
    "point",
    "1",
    "a b",
    "*/",
    "a/b",
    "é",
    "space_arena",
)


@pytest.mark.parametrize("standard", COMPILERS)
def test_entry_points_and_values_of_any_name(tmp_path: Path, standard: str) -> None:
    """No macro is defined twice, whichever words of the header names are made of."""
    s = Sketch("x")
    h = s.op("Gemm", [s.input("OFFSET_x", 2, 3), s.parameter("VALUE_1", 3, 3)], "a_offset_x")
    s.op("MeanSquaredError", [h, s.label("offset_offset_x", 2, 3)], "BYTES")
    graph = s.graph("BYTES")
    deployment = pipeline.plan_deployment("x", [requested(name, graph) for name in HOSTILE])
    text = dump_c_header(deployment, "net")
    defined = re.findall(rb"^#define (\w+)", text, re.MULTILINE)
    once = [name for name in defined if name not in {b"NET_ALIGNAS", b"NET_CHECK"}]
    assert len(once) == len(set(once))
    compiled(tmp_path, {"plan.h": text}, "plan.h", "NET", standard, "-Wconversion")


def test_models_that_tie_nothing_keep_their_names(tmp_path: Path) -> None:
    """A persistent value of one model may be spelt in C as another one's own value is."""
    s = Sketch("x")
    h = s.op("Gemm", [s.input("a.w", 2, 3), s.parameter("w", 3, 3)], "a_w")
    s.op("MeanSquaredError", [h, s.label("t", 2, 3)], "loss")
    graph = s.graph("loss")
    entries = [requested("one", graph, "train", "a"), requested("two", graph, "train", "b")]
    deployment = pipeline.plan_deployment("x", entries)
    compiled(tmp_path, {"plan.h": dump_c_header(deployment, "net")}, "plan.h", "NET", "c11", "-Wconversion")
