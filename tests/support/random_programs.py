"""Random explicit programs: blocks that are written again, read and carried over, and permissions."""

from __future__ import annotations

import random

from solver.training import BlockOperation, BlockProgram, build_program
from tests.support.programs import block

__all__ = ["random_program"]


def random_program(seed: int) -> BlockProgram:
    """Up to eight operations on blocks of up to 800 bytes. A third of what they write was written before."""
    rng = random.Random(seed)
    fed, constant = ["x0", "x1"][: rng.randint(1, 2)], ["w0", "w1"][: rng.randint(0, 2)]
    sizes = {name: rng.choice([64, 64 * rng.randint(1, 12), rng.randint(1, 800)]) for name in fed + constant}
    known, made, results = [*constant, *fed], list[str](), list[str]()
    operations = []
    for t in range(rng.randint(3, 8)):
        reads = rng.sample(known, min(len(known), rng.randint(1, 3)))
        if t == 0:
            reads = [*dict.fromkeys((*fed, *reads))]
        writes: dict[str, None] = {}
        for _ in range(rng.choice([1, 1, 1, 2])):
            others = rng.choices([made, constant, []], [3, 1, 6])[0]
            name = rng.choice(others) if others else f"a{len(made)}"
            if name not in sizes:
                made.append(name)
                like = rng.random() < 0.4
                sizes[name] = sizes[reads[0]] if like else rng.choice([64, rng.randint(1, 800)])
                results += [name] * (rng.random() < 0.15)
            writes[name] = None
        known += [name for name in writes if name not in known]
        sources = [name for name in reads if name not in writes]
        targets = [name for name in writes if name not in reads]
        permitted = [(a, b) for a, b in zip(targets, sources, strict=False) if sizes[a] == sizes[b]]
        workspace = rng.choice([0, 0, 0, rng.randint(1, 300)])
        operations.append(
            BlockOperation(f"o{t}", tuple(reads), tuple(writes), "any", tuple(permitted), workspace)
        )
    touched = {name for operation in operations for name in operation.touched}
    blocks = [
        block(name, size, fed=name in fed, kept=name in results)
        for name, size in sizes.items()
        if name in touched
    ]
    return build_program("random", blocks, operations)
