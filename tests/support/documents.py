"""A valid graph document, ways to break it, and what each break must be called."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from solver import errors
from solver.errors import ArenaplanError

__all__ = ["BAD_GRAPHS", "BAD_TEXTS", "BadGraph", "BadText", "graph_document", "mutated"]

Document = dict[str, Any]


def graph_document() -> Document:
    """Two Gemms with a tied bias, categorical cross-entropy, every kind of operand."""
    return {
        "format": "arenaplan.graph",
        "version": 1,
        "name": "small",
        "batch": 4,
        "operands": [
            {"name": "image", "role": "input", "shape": ["batch", 2, 3], "dtype": "float32"},
            {"name": "label", "role": "label", "shape": ["batch", 5], "dtype": "float32"},
            {
                "name": "flat.shape",
                "role": "constant",
                "shape": [2],
                "dtype": "int64",
                "initializer": {"kind": "values", "values": [-1, 6]},
            },
            {
                "name": "fc1.weight",
                "role": "parameter",
                "shape": [6, 5],
                "dtype": "float32",
                "trainable": True,
                "initializer": {"kind": "he_normal", "seed": 1},
            },
            {"name": "bias", "role": "parameter", "shape": [5], "dtype": "float32"},
            {"name": "fc2.weight", "role": "parameter", "shape": [5, 5], "dtype": "float32"},
            {"name": "hidden", "role": "intermediate", "shape": ["batch", 5]},
        ],
        "operations": [
            {"name": "flatten", "type": "Reshape", "inputs": ["image", "flat.shape"], "outputs": ["flat"]},
            {
                "name": "fc1",
                "type": "Gemm",
                "inputs": ["flat", "fc1.weight", "bias"],
                "outputs": ["hidden"],
                "attributes": {"activation": "Relu"},
            },
            {
                "name": "fc2",
                "type": "Gemm",
                "inputs": ["hidden", "fc2.weight", "bias"],
                "outputs": ["logits"],
            },
            {"name": "softmax", "type": "Softmax", "inputs": ["logits"], "outputs": ["probabilities"]},
            {
                "name": "cross-entropy",
                "type": "CategoricalCrossEntropy",
                "inputs": ["probabilities", "label"],
                "outputs": ["loss"],
            },
        ],
        "loss": "loss",
        "outputs": ["probabilities"],
        "optimizer": {"type": "Adam", "learning_rate": 0.001},
        "trainable": "all",
    }


_MISSING = object()


def mutated(pointer: str, value: Any) -> Document:
    """The valid document with one value replaced, added (``-`` appends) or, for ..., taken out."""
    document = graph_document()
    *parents, last = [int(part) if part.isdigit() else part for part in pointer.split("/")[1:]]
    target: Any = document
    for part in parents:
        target = target[part]
    if value is ...:
        del target[last]
    elif last == "-":
        target.append(value)
    else:
        target[last] = copy.deepcopy(value)
    return document


@dataclass(frozen=True, slots=True)
class BadText:
    """A text that is no acceptable JSON: where it must be pointed to, and words that must be said."""

    id: str
    data: bytes
    pointer: str
    words: tuple[str, ...]


BAD_TEXTS: tuple[BadText, ...] = (
    BadText("empty", b"", "", ("empty",)),
    BadText("blank", b" \n\t", "", ("empty",)),
    BadText("not-json", b"graph: small", "", ("not JSON", "line 1, column 1")),
    BadText("cut-off", b'{"format": "arenaplan.graph",\n "name"', "", ("not JSON", "line 2")),
    BadText("trailing", b"{} {}", "", ("not JSON", "Extra data", "column 4")),
    BadText("control-character", b'{"name": "a\nb"}', "", ("not JSON", "control character")),
    BadText("nan", b'{"optimizer": {"learning_rate": NaN}}', "/optimizer/learning_rate", ("NaN", "finite")),
    BadText("infinity", b'{"a": [1, -Infinity]}', "/a/1", ("-Infinity", "line 1, column 11")),
    BadText("overflow", b'{"a": [1,\n 1e999]}', "/a/1", ("1e999", "line 2, column 2")),
    BadText("huge-integer", b'{"batch": ' + b"9" * 5000 + b"}", "/batch", ("more than 1,000 digits",)),
    BadText("duplicate", b'{"name": 1,\n "b": {"c": 1, "c": 2}}', "/b/c", ('"c"', "twice", "line 2")),
    BadText("escaped-duplicate", b'{"ab": 1, "\\u0061b": 2}', "/ab", ("twice",)),
    BadText("not-utf8", b'{"name": "\xff"}', "", ("UTF-8", "Byte 10")),
    BadText("utf16", '{"name": 1}'.encode("utf-16-le"), "", ("not JSON",)),
    BadText("byte-order-mark", b"\xef\xbb\xbf{}", "", ("byte order mark",)),
    BadText("half-surrogate", b'{"name": "\\ud800"}', "", ("surrogate",)),
    BadText("deep-lists", b"[" * 100_000, "/0/0/0/0/0/0/0/0", ("deeper than 64", "line 1, column 65")),
    BadText("deep-objects", b'{"a":' * 65 + b"1" + b"}" * 65, "/a/a/a/a/a/a/a/a", ("deeper than 64",)),
    BadText("list", b"[]", "", ("a list, not an object", "arenaplan.graph")),
    BadText("string", b'"graph"', "", ("a string, not an object",)),
    BadText("null", b"null", "", ("null, not an object",)),
)


@dataclass(frozen=True, slots=True)
class BadGraph:
    """One change to the valid document, and the error that it must lead to."""

    id: str
    change: Callable[[], Document]
    error: type[ArenaplanError]
    pointer: str
    words: tuple[str, ...]

    @property
    def data(self) -> bytes:
        return json.dumps(self.change()).encode()


def _bad(
    id_: str, pointer: str, value: Any, error: type[ArenaplanError], *words: str, at: str | None = None
) -> BadGraph:
    return BadGraph(id_, lambda: mutated(pointer, value), error, pointer if at is None else at, words)


_DOCUMENT, _OTHER = errors.DocumentError, errors.OtherFormatError
_FORMS = (
    _bad("no-format", "/format", ..., _DOCUMENT, "does not say what it is", '"format": "arenaplan.graph"'),
    _bad("wrong-format", "/format", "arenaplan.plan", _OTHER, "'arenaplan.plan'", "'arenaplan.graph'"),
    _bad("no-version", "/version", ..., _DOCUMENT, "no version", '"version": 1'),
    _bad("wrong-version", "/version", 2, _DOCUMENT, "Version 2", "Known versions: 1"),
    _bad("text-version", "/version", "1", _DOCUMENT, "Version '1'"),
    _bad("true-version", "/version", True, _DOCUMENT, "Version true"),
    _bad("unknown-field", "/operators", [], _DOCUMENT, "operators", "unknown", "Did you mean 'operations'"),
    _bad("unknown-operand-field", "/operands/0/shap", [1], _DOCUMENT, "operands[0].shap", "'shape'"),
    _bad("unknown-operation-field", "/operations/1/kind", "x", _DOCUMENT, "unknown", "type"),
    _bad("unknown-initializer-field", "/operands/3/initializer/sed", 1, _DOCUMENT, "Did you mean 'seed'"),
    _bad("unknown-trainable-field", "/trainable", {"first": 1}, _DOCUMENT, '{"last": count}'),
    _bad("no-name", "/name", ..., _DOCUMENT, "name is missing"),
    _bad("no-operands", "/operands", ..., _DOCUMENT, "operands is missing"),
    _bad("null-operands", "/operands", None, _DOCUMENT, "null", "a list"),
    _bad("no-operand-name", "/operands/0/name", ..., _DOCUMENT, "operands[0].name is missing"),
    _bad("no-role", "/operands/0/role", ..., _DOCUMENT, "operands[0].role is missing"),
    _bad("number-name", "/name", 5, _DOCUMENT, "name is 5", "a string"),
    _bad("list-operand", "/operands/0", [], _DOCUMENT, "operands[0] is a list", "an object"),
    _bad("string-inputs", "/operations/1/inputs", "flat", _DOCUMENT, "'flat'", "a list"),
    _bad("number-input", "/operations/1/inputs/0", 7, _DOCUMENT, "operations[1].inputs[0] is 7", "string"),
    _bad("control-name", "/operands/0/name", "a\u001b[2J", _DOCUMENT, "control characters"),
    _bad("long-name", "/operands/0/name", "a" * 1025, _DOCUMENT, "at most 1024"),
    _bad("unknown-role", "/operands/0/role", "inputs", _DOCUMENT, "Did you mean 'input'", "'parameter'"),
    _bad("unknown-dtype", "/operands/0/dtype", "float16", _DOCUMENT, "'float16'", "'float32'", "'bool'"),
    _bad("text-batch", "/batch", "4", _DOCUMENT, "batch is '4'", "an integer"),
    _bad("fraction-batch", "/batch", 4.0, _DOCUMENT, "batch is 4.0", "an integer"),
    _bad("true-batch", "/batch", True, _DOCUMENT, "batch is true", "an integer"),
    _bad("scalar-shape", "/operands/0/shape", 4, _DOCUMENT, "list of dimensions"),
    _bad("fraction-dimension", "/operands/4/shape", [5.0], _DOCUMENT, "integers"),
    _bad("true-dimension", "/operands/4/shape", [True], _DOCUMENT, "integers"),
    _bad("nested-dimension", "/operands/4/shape", [[5]], _DOCUMENT, "integers"),
    _bad("rank", "/operands/4/shape", [1] * 33, _DOCUMENT, "at most 32"),
    _bad("text-trainable", "/operands/3/trainable", "yes", _DOCUMENT, "true or false"),
    _bad("trainable-input", "/operands/0/trainable", True, _DOCUMENT, "'image'", "only parameters"),
    _bad("true-attribute", "/operations/1/attributes/transB", True, _DOCUMENT, "1 or 0"),
    _bad("null-attribute", "/operations/1/attributes/transB", None, _DOCUMENT, "a string or a list"),
    _bad("nested-attribute", "/operations/1/attributes/transB", [[1]], _DOCUMENT, "a string or a list"),
    _bad("huge-attribute", "/operations/1/attributes/transB", 2**63, _DOCUMENT, "64 bits"),
    _bad("number-loss", "/loss", 1, _DOCUMENT, "loss is 1", "scalar operand"),
    _bad("text-optimizer", "/optimizer", "Adam", _DOCUMENT, "'Adam'", "an object"),
    _bad("nameless-optimizer", "/optimizer/type", ..., _DOCUMENT, "optimizer.type is missing"),
    _bad("text-rate", "/optimizer/learning_rate", "0.1", _DOCUMENT, "optimizer.learning_rate", "a number"),
    _bad("huge-rate", "/optimizer/learning_rate", 10**400, _DOCUMENT, "64 bits"),
    _bad("long-attribute", "/operations/1/attributes/activation", "a" * 1025, _DOCUMENT, "at most 1024"),
    _bad("many-numbers", "/operations/1/attributes/pads", [0] * 1025, _DOCUMENT, "at most 1024"),
    _bad("long-loss", "/loss", "a" * 1025, _DOCUMENT, "scalar operand"),
    _bad("unprintable-field", "/a\nb", 1, _DOCUMENT, "a\\nb is an unknown field"),
    _bad("number-trainable", "/trainable", 3, _DOCUMENT, '"all"', '{"last": count}'),
    _bad("negative-last", "/trainable", {"last": -1}, _DOCUMENT, "at least 0", at="/trainable/last"),
    _bad("true-last", "/trainable", {"last": True}, _DOCUMENT, "an integer", at="/trainable/last"),
)

_VALUES = "/operands/2/initializer"
_INITIALIZERS = (
    _bad("unknown-kind", "/operands/3/initializer/kind", "he", _DOCUMENT, "'he'", "'he_normal'"),
    _bad("initialised-input", "/operands/0/initializer", {"kind": "zeros"}, _DOCUMENT, "'image'", "Only"),
    _bad("both-values", f"{_VALUES}/base64", "AA==", _DOCUMENT, "both values and base64", at=_VALUES),
    _bad("no-values", f"{_VALUES}/values", ..., _DOCUMENT, "no values", at=_VALUES),
    _bad("few-values", f"{_VALUES}/values", [6], _DOCUMENT, "int64[2], 2 elements", "1 values"),
    _bad("nested-values", f"{_VALUES}/values", [[-1], [6]], _DOCUMENT, "flat", at=f"{_VALUES}/values/0"),
    _bad("fraction-value", f"{_VALUES}/values", [-1, 6.0], _DOCUMENT, "6.0", at=f"{_VALUES}/values/1"),
    _bad("true-value", f"{_VALUES}/values", [-1, True], _DOCUMENT, "int64", at=f"{_VALUES}/values/1"),
    _bad("value-range", f"{_VALUES}/values", [2**63, 6], _DOCUMENT, "int64", at=f"{_VALUES}/values/0"),
    _bad("scalar-values", f"{_VALUES}/values", 6, _DOCUMENT, "a list"),
    _bad("stray-scale", f"{_VALUES}/scale", 2.0, _DOCUMENT, "has no scale", "values and base64"),
    _bad("random-integers", _VALUES, {"kind": "he_normal"}, _DOCUMENT, "int64", at=f"{_VALUES}/kind"),
    _bad("no-scale", "/operands/4/initializer", {"kind": "normal"}, _DOCUMENT, "lacks scale",
         at="/operands/4/initializer/scale"),
    _bad("no-value", "/operands/4/initializer", {"kind": "constant"}, _DOCUMENT, "lacks value",
         at="/operands/4/initializer/value"),
    _bad("zero-scale", "/operands/4/initializer", {"kind": "normal", "scale": 0}, _DOCUMENT,
         "greater than 0", at="/operands/4/initializer/scale"),
    _bad("float32-range", "/operands/4/initializer", {"kind": "constant", "value": 1e39}, _DOCUMENT,
         "float32", at="/operands/4/initializer/value"),
    _bad("float32-value-range", "/operands/4/initializer", {"kind": "values", "values": [0, 1, 2, 3, 1e39]},
         _DOCUMENT, "1e+39", "float32", at="/operands/4/initializer/values/4"),
    _bad("integer-constant", _VALUES, {"kind": "constant", "value": 1.5}, _DOCUMENT, "int64",
         at=f"{_VALUES}/value"),
    _bad("sha256", "/operands/4/initializer", {"kind": "file", "file": "w", "offset": 0, "sha256": "00"},
         _DOCUMENT, "'00'", "[0-9a-f]{64}", at="/operands/4/initializer/sha256"),
    _bad("negative-seed", "/operands/3/initializer/seed", -1, _DOCUMENT, "at least 0"),
    _bad("huge-seed", "/operands/3/initializer/seed", 2**63, _DOCUMENT, "at most"),
    _bad("base64-length", _VALUES, {"kind": "values", "base64": "AAAA"}, _DOCUMENT, "16 bytes",
         "decode to 3 bytes", at=f"{_VALUES}/base64"),
    _bad("base64-alphabet", _VALUES, {"kind": "values", "base64": "A A*"}, _DOCUMENT, "not base64",
         at=f"{_VALUES}/base64"),
    _bad("base64-padding", _VALUES, {"kind": "values", "base64": "AAA"}, _DOCUMENT, "not base64",
         at=f"{_VALUES}/base64"),
    _bad("base64-unicode", _VALUES, {"kind": "values", "base64": "é"}, _DOCUMENT, "not base64",
         at=f"{_VALUES}/base64"),
)  # fmt: skip

_GEMM = {"name": "extra", "type": "Gemm", "inputs": ["hidden", "lonely"], "outputs": ["extra.out"]}
_PARAMETER = {"name": "spare", "role": "parameter", "shape": [3], "dtype": "float32"}
_GRAPHS = (
    _bad("unknown-operator", "/operations/1/type", "Gem", errors.UnknownOperatorError, "'Gem'", "Gemm"),
    _bad("unknown-attribute", "/operations/1/attributes/trans_b", 1, errors.AttributeRuleError,
         "'fc1' (Gemm)", "'trans_b'", "transB"),
    _bad("attribute-choice", "/operations/1/attributes/activation", "Gelu", errors.AttributeRuleError,
         "'Gelu'", "Relu6"),
    _bad("attribute-kind", "/operations/1/attributes/alpha", "1", errors.AttributeRuleError, "'alpha'"),
    _bad("shape-mismatch", "/operands/5/shape", [4, 5], errors.ShapeMismatchError, "'fc2' (Gemm)",
         "fc2.weight is float32[4, 5]", "hidden is float32[4, 5]", at="/operations/2"),
    _bad("declared-mismatch", "/operands/6/shape", ["batch", 6], errors.ShapeMismatchError, "'hidden'",
         "[4, 6]", "[4, 5]"),
    _bad("declared-dtype", "/operands/6/dtype", "float64", errors.ShapeMismatchError, "float64", "float32"),
    _bad("dtype-mismatch", "/operands/4/dtype", "float64", errors.ShapeMismatchError, "'fc1' (Gemm)",
         "bias is float64[5]", at="/operations/1"),
    _bad("input-count", "/operations/1/inputs", ["flat", "fc1.weight", "bias", "bias"],
         errors.ShapeMismatchError, "2 to 3 inputs"),
    _bad("output-count", "/operations/1/outputs", ["hidden", "more"], errors.ShapeMismatchError, "1 output"),
    _bad("cycle", "/operations/1/inputs/0", "probabilities", errors.CyclicGraphError,
         "fc1 -> fc2 -> softmax -> fc1", at="/operations/1"),
    _bad("own-output", "/operations/1/inputs/0", "hidden", errors.CyclicGraphError, "fc1 -> fc1",
         at="/operations/1"),
    _bad("undefined-input", "/operations/2/inputs/0", "later", errors.DanglingOperandError,
         "'fc2' (Gemm)", "'later'", "nothing defines"),
    _bad("use-before-def", "/operations/1/outputs/0", "elsewhere", errors.UseBeforeDefError,
         "'hidden'", at="/operations/2/inputs/0"),
    _bad("dangling-operand", "/operands/-", {**_PARAMETER, "role": "input"}, errors.DanglingOperandError,
         "'spare' (input)", at="/operands/7"),
    _bad("dangling-output", "/outputs/0", "nothing", errors.DanglingOperandError, "'nothing'"),
    _bad("two-defs", "/operations/2/outputs/0", "hidden", errors.DuplicateDefError, "'fc1'", "'fc2'"),
    _bad("defined-input", "/operations/1/outputs/0", "image", errors.DuplicateDefError, "'fc1'", "input"),
    _bad("duplicate-operand", "/operands/5/name", "bias", errors.DuplicateNameError, "'bias'", "twice"),
    _bad("duplicate-operation", "/operations/2/name", "fc1", errors.DuplicateNameError, "'fc1'", "twice"),
    _bad("empty-name", "/operands/0/name", "", errors.GraphError, "not empty"),
    _bad("at-sign", "/operations/1/outputs/0", "hidden@grad", errors.GraphError, "'@'"),
    _bad("unused-trainable", "/operands/-", _PARAMETER, errors.TrainableError, "'spare'", at="/operands/7"),
    _bad("dangling-input", "/operations/-", _GEMM,
         errors.DanglingOperandError, "'lonely'", at="/operations/5/inputs/1"),
    _bad("unknown-trainable", "/trainable", ["bias", "image"], errors.TrainableError, "'image'",
         at="/trainable/1"),
    _bad("repeated-trainable", "/trainable", ["bias", "bias"], errors.DuplicateNameError, "'bias'",
         at="/trainable/1"),
    _bad("two-losses", "/loss", ["loss", "logits"], errors.LossError, "2 losses", "Add"),
    _bad("unknown-loss", "/loss", "los", errors.LossError, "'los'"),
    _bad("input-loss", "/loss", "image", errors.LossError, "not defined by any operation"),
    _bad("vector-loss", "/loss", "logits", errors.LossError, "float32[4, 5]", "scalar"),
    _bad("zero-dimension", "/operands/4/shape", [0], errors.ShapeMismatchError, "the bias does not broadcast",
         at="/operations/1"),
    _bad("negative-dimension", "/operands/3/shape", [6, -5], errors.DimensionError, "-5 at axis 1",
         at="/operands/3/shape/1"),
    _bad("huge-dimension", "/operands/4/shape", [10**400], errors.DimensionError, "2**63 - 1",
         at="/operands/4/shape/0"),
    _bad("huge-bytes", "/operands/3/shape", [2**31, 2**31], errors.DimensionError, f"{2**64:,}",
         "2**63 - 1", at="/operands/3/shape"),
    _bad("no-shape", "/operands/0/shape", ..., errors.DimensionError, "'image' (input)", at="/operands/0"),
    _bad("no-dtype", "/operands/3/dtype", ..., errors.DimensionError, "'fc1.weight'", at="/operands/3"),
    _bad("constant-without-values", "/operands/2/initializer", ..., errors.GraphError, "'flat.shape'",
         at="/operands/2"),
    _bad("no-batch", "/batch", ..., errors.BatchError, "symbolic batch", "Set `batch`",
         at="/operands/0/shape/0"),
    _bad("zero-batch", "/batch", 0, errors.BatchError, "batch is 0", "positive"),
    _bad("negative-batch", "/batch", -4, errors.BatchError, "batch is -4"),
    _bad("huge-batch", "/batch", 2**62, errors.DimensionError, "2**63 - 1", at="/operands/0/shape"),
    _bad("other-symbol", "/operands/0/shape", ["N", 2, 3], errors.BatchError, "'N'", '"batch"',
         at="/operands/0/shape/0"),
    _bad("trainable-state", "/operands/-", {**_PARAMETER, "role": "state", "trainable": True},
         errors.DocumentError, "'spare' (state)", "trainable", at="/operands/7/trainable"),
    _bad("unused-state", "/operands/-", {**_PARAMETER, "role": "state"}, errors.DanglingOperandError,
         "'spare' (state)", at="/operands/7"),
    _bad("rules", "/training", [1], errors.DocumentError, "training"),
    _bad("unknown-rule", "/training", {"clip": 1.0}, errors.DocumentError, "clip", at="/training/clip"),
    _bad("clip-as-text", "/training", {"clip_global_norm": "1"}, errors.DocumentError,
         at="/training/clip_global_norm"),
    _bad("clip-of-zero", "/training", {"clip_global_norm": 0}, errors.AttributeRuleError,
         "'clip_global_norm'", "greater than 0", at="/training/clip_global_norm"),
    _bad("scale-of-zero", "/training", {"loss_scale": 0.0}, errors.AttributeRuleError, "'loss_scale'",
         at="/training/loss_scale"),
    _bad("scale-as-flag", "/training", {"loss_scale": True}, errors.DocumentError, at="/training/loss_scale"),
    _bad("no-micro-batches", "/training", {"accumulate": 0}, errors.AttributeRuleError, "'accumulate'",
         at="/training/accumulate"),
    _bad("half-a-micro-batch", "/training", {"accumulate": 1.5}, errors.DocumentError,
         at="/training/accumulate"),
    _bad("skip-as-number", "/training", {"skip_non_finite": 1}, errors.DocumentError,
         at="/training/skip_non_finite"),
    _bad("no-operations", "/operations", [], errors.GraphError, "no operations"),
    _bad("unknown-optimizer", "/optimizer/type", "Adm", errors.GraphError, "'Adm'", "Adam"),
    _bad("unknown-hyper-parameter", "/optimizer/momentum", 0.9, errors.AttributeRuleError, "'momentum'"),
    _bad("negative-rate", "/optimizer/learning_rate", -1, errors.AttributeRuleError, "greater than 0"),
)  # fmt: skip

#: Every rule of graph documents that a change of one value can break.
BAD_GRAPHS: tuple[BadGraph, ...] = (*_FORMS, *_INITIALIZERS, *_GRAPHS)
