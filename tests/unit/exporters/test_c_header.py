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
from solver.exporters.c_header import c_header_files, c_identifiers, dump_c_header
from solver.graph import DType, TensorType
from solver.plan import Plan, PlanOptions
from solver.program import Tier
from solver.training import Block, BlockOperation, build_program
from solver.verify import check_accesses
from tests.support.graphs import chain, convolutional
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


def compiled(folder: Path, files: Mapping[str, bytes], first: str, prefix: str, standard: str) -> Path:
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
    command = [compiler, option, "-Wall", "-Wextra", "-Werror", "-c", str(source), "-o", str(made)]
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
    assert c_identifiers(["a.b", "a_b", "a_b_2", "A-B", ""]) == ["A_B", "A_B_3", "A_B_2", "A_B_4", "_"]


@given(st.lists(st.text(st.sampled_from("aAbB.-_12"), max_size=4), max_size=40))
def test_identifiers_are_unique(names: list[str]) -> None:
    found = c_identifiers(names)
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[A-Z0-9_]+", name) for name in found)
