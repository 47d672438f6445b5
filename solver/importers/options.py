"""Options of an import: how the model is trained, how large its dimensions are, which weights it
starts with.

Files of other tools hold a network and rarely its training, so every importer takes the same choices.
"""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from solver.errors import GraphError, LossError, OptionsError, TrainableError
from solver.graph import OptimizerSpec, Role, TrainableGraph, TrainingRules
from solver.graph.rules import MAX_ACCUMULATE
from solver.importers.text import argument, some
from solver.options import IMPORT_OPTIONS
from solver.training.optimizers import OPTIMIZER_NAMES, optimizer_rules

__all__ = [
    "DOCUMENT_CHOICES",
    "LOSSES",
    "NO_LOSS",
    "TRAIN_FLOAT_FIRST",
    "ImportOptions",
    "Imported",
    "check_inference",
    "import_options",
    "matching_parameters",
    "training_fields",
]

#: Word of a caller -> operator, its attributes, and what its label is: classes, or of the prediction's type.
LOSSES: Final[Mapping[str, tuple[str, Mapping[str, int], Literal["classes", "same"]]]] = {
    "cross-entropy": ("CategoricalCrossEntropy", {"from_logits": 1, "sparse": 1}, "classes"),
    "soft-cross-entropy": ("CategoricalCrossEntropy", {"from_logits": 1}, "same"),
    "binary-cross-entropy": ("BinaryCrossEntropy", {"from_logits": 1}, "same"),
    "kl-divergence": ("KLDivergence", {"from_logits": 1}, "same"),
    "mse": ("MeanSquaredError", {}, "same"),
    "l1": ("MeanAbsoluteError", {}, "same"),
    "huber": ("Huber", {}, "same"),
}

#: Word of a caller for a model that is not trained.
NO_LOSS: Final = "none"

#: The remedy for a model whose weights are quantised.
TRAIN_FLOAT_FIRST: Final = (
    "Train the float model that it was made from, and quantise what was trained; or plan an inference, with"
    " --loss none."
)

#: Option of pairs -> its nouns: of a name, and of a value.
_PAIRS: Final[Mapping[str, tuple[str, str]]] = {"dim": ("dimension", "size"), "input": ("input", "value")}
#: Digits of a size: any number of 64 bits.
_SIZE_DIGITS: Final = 19
#: Values of inputs in the spellings of Python and of C, in lower case; JSON has others for some.
_SPELLINGS: Final[Mapping[str, float]] = {
    "true": True, "false": False, "nan": math.nan, "inf": math.inf, "-inf": -math.inf,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Choices for one import.

    `loss` is a word of `LOSSES`, `NO_LOSS` for an inference, or None where an output of the model is the
    loss, if one of them can be. It is taken of `output`, the first one if that is None, with the classes at
    `class_axis`; None means axis 1 of images (four axes and more) and the last axis otherwise. `trainable` is
    "all", a number of operations from the back, or names and patterns of names as ``head.*``; parameters that
    match one of `frozen` are not trained whatever it says. `dims` are sizes of dimensions that the model
    leaves open, by name, or by place, as ``x[0]``; `batch` is that of the first axis of the inputs. `inputs`
    are values of inputs that are the same in each step, which are no inputs then: numbers, or nested lists of
    them. `batch_norm` is "train", "frozen", or None for what the model says. Without `weights` the first
    values are drawn. The tensors named in `freeze_before` become inputs of the graph; what leads to them
    alone is not imported. The outputs of the model in `keep_outputs`, or "all", are outputs of the graph:
    they can be read after a step. Without these, an inference has the one that `output` names, or all.
    """

    loss: str | None = None
    output: str | None = None
    class_axis: int | None = None
    optimizer: OptimizerSpec = field(default_factory=lambda: OptimizerSpec("SGD"))
    rules: TrainingRules = field(default_factory=TrainingRules)
    trainable: Literal["all"] | int | tuple[str, ...] = "all"
    frozen: tuple[str, ...] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    batch_norm: Literal["train", "frozen"] | None = None
    weights: bool = True
    freeze_before: tuple[str, ...] = ()
    keep_outputs: Literal["all"] | tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported model, and what the caller should know about it, a sentence each.

    `constants` are floating tensors of the file that are no parameters of the graph, with the number of
    their elements: constants, and weights that the loss does not depend on. None where the graph has all.
    `tables` are parameters with names or values of tables, which programs compute and training does not.
    """

    graph: TrainableGraph
    notes: tuple[str, ...] = ()
    constants: Mapping[str, int] | None = None
    tables: tuple[str, ...] = ()

    def frozen(self, names: Iterable[str]) -> Imported:
        """The same model, of which parameters that match one of the names and patterns are not trained.

        Raises TrainableError for one that matches no parameter, and where nothing is left to train.
        """
        parameters = [o.id for o in self.graph.operands.values() if o.role is Role.PARAMETER]
        frozen: set[str] = set()
        for name in names:
            exact = [name] if name in parameters else []
            frozen.update(exact or matching_parameters(name, parameters, path=("frozen",)))
        trainable = tuple(name for name in self.graph.trainable if name not in frozen)
        if frozen and not trainable:
            raise TrainableError(
                "Everything that would be trained is frozen.",
                remedy="Leave a parameter out of --frozen.",
                path=("frozen",),
            )
        return replace(self, graph=self.graph.with_spec(trainable=trainable)) if frozen else self

    @property
    def summary(self) -> str:
        """A sentence on what is trained: all floating tensors but statistics, or nothing in an inference."""
        graph, constants = self.graph, self.constants
        if graph.loss is None:
            outputs = some(graph.outputs, quoted=True)
            return f"An inference, as no --loss says how it is trained. Its outputs: {outputs}."
        operands = graph.operands.values()
        frozen = {
            operand.id: operand.type.elements
            for operand in operands
            if operand.dtype.is_floating and operand.id not in graph.trained
            if operand.role is Role.PARAMETER or (operand.role is Role.CONSTANT and constants is None)
        }
        rest = frozen | {name: size for name, size in (constants or {}).items() if name not in graph.trained}
        larger = [name for name, size in rest.items() if size > 1]
        single = [name for name, size in rest.items() if size == 1]
        trained, untrained = len(graph.trainable), len(larger)
        text = (
            f"{trained} {'tensor' if trained == 1 else 'tensors'} trained, {untrained} floating"
            f" {'tensor' if untrained == 1 else 'tensors'} not trained{': ' if larger else ''}{some(larger)}"
        )
        if single:
            text += f"; {len(single)} of one element not trained: {some(single, 3)}"
        tables = [name for name in self.tables if name in graph.trained]
        if tables and len(tables) < trained:
            patterns = ",".join(re.sub(r",|^\s|\s$", "?", name) for name in tables)
            remedy = f"--frozen {argument(patterns)} leaves it untrained"
            text += f"; looks like a table: {some(tables)} ({remedy})"
        return f"{text}."


#: Choices that say how a model is trained, by the field of `ImportOptions`.
_OF_TRAINING: Final[Mapping[str, str]] = {
    "optimizer": "optimizer",
    "rules": "micro-batches",
    "trainable": "trainable",
    "frozen": "frozen",
    "class_axis": "class-axis",
}


def check_inference(options: ImportOptions, reason: str) -> None:
    """Raises LossError, with the reason why there is no loss, for choices that say how a model is trained."""
    untouched = ImportOptions()
    for name, option in _OF_TRAINING.items():
        if getattr(options, name) != getattr(untouched, name):
            raise LossError(
                f"{reason}, and --{option} is for models that are trained.",
                remedy=f"Name one with --loss: {', '.join(LOSSES)}. Or leave --{option} out, to infer.",
            )


def matching_parameters(
    pattern: str,
    parameters: Sequence[str],
    quantised: Collection[str] = (),
    path: tuple[str, ...] = ("trainable",),
) -> list[str]:
    """The parameters that a name or a pattern of names chooses.

    Raises TrainableError where there is none: `quantised` weights are never trained.
    """
    matching = [name for name in parameters if name == pattern or fnmatch.fnmatchcase(name, pattern)]
    if matching:
        return matching
    packed = [name for name in quantised if fnmatch.fnmatchcase(name, pattern)]
    if packed:
        raise TrainableError(
            f"{packed[0]!r:.80} is quantised, and quantised weights are not trained.",
            remedy=TRAIN_FLOAT_FIRST,
            path=path,
        )
    raise TrainableError(
        f"No parameter is called {pattern!r:.80}.", remedy=f"The model has {some(parameters)}.", path=path
    )


# ------------------------------------------------------------------------------------ from words of a caller


def import_options(words: Mapping[str, Any], *, batch: int | None = None) -> ImportOptions:
    """Choices from what a command line or a query says; numbers may be text.

    `loss` (a word of `LOSSES`, or ``none``), `output`, `class_axis`, `optimizer` (a name, or a name and
    numbers as ``sgd,momentum=0.9``),
    `learning_rate`, `micro_batches`, `trainable` (``all``, ``last:2``, or names and patterns, separated by
    commas), `frozen` (names and patterns), `dim` (``name=size``, or a list of them), `input` (``name=value``,
    or a list of them), `batch_norm` (``train``, ``frozen``), `weights` (``reference``, ``none``),
    `freeze_before` (a tensor's name, or a list of them), `keep_outputs` (``all``, or names, separated by
    commas). Raises OptionsError with the option's name as path.
    """
    for name in words:
        if name not in IMPORT_OPTIONS:
            raise OptionsError(
                f"There is no option {name!r:.60} for models.",
                remedy=f"Options: {', '.join(IMPORT_OPTIONS)}.",
                path=(str(name),),
            )
    axis, outputs = words.get("class_axis"), words.get("keep_outputs")
    names_of_outputs = "all, or names of outputs separated by commas"
    return ImportOptions(
        loss=_choice(words, "loss"),
        output=words.get("output"),
        class_axis=None if axis is None else _whole("class_axis", axis),
        optimizer=_optimizer(words.get("optimizer", "sgd"), words.get("learning_rate")),
        rules=TrainingRules(accumulate=_micro_batches(words)),
        trainable=_trainable(words.get("trainable", "all")),
        frozen=_names("frozen", words.get("frozen"), "names and patterns separated by commas"),
        dims=_pairs(words, "dim", _size, "a name and a size, as batch=32, or a place and a size, as x[0]=32"),
        batch=batch,
        inputs=_pairs(
            words, "input", _value, "a name and a value, as sr=16000, training=false or scale=[1, 0.5]"
        ),
        batch_norm=_choice(words, "batch_norm"),
        weights=_choice(words, "weights") != "none",
        keep_outputs="all" if outputs == "all" else _names("keep_outputs", outputs, names_of_outputs),
        freeze_before=tuple(dict.fromkeys(map(str, _several(words, "freeze_before")))),
    )


#: The choices that graph documents take, too. A document says how it is trained, and these replace that.
DOCUMENT_CHOICES: Final = ("optimizer", "learning_rate", "micro_batches", "trainable")


def training_fields(document: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a graph document that choices of `DOCUMENT_CHOICES` replace, whole.

    Raises OptionsError and TrainableError with the option's name as path, LossError for a graph without a
    loss, of which nothing is trained.
    """
    given = next((name for name in DOCUMENT_CHOICES if name in words), None)
    if given is not None and not document.get("loss"):
        raise LossError(
            f"The graph names no loss, and --{given.replace('_', '-')} is for graphs that are trained.",
            remedy="Set its `loss` to the scalar operand that training minimises, or leave the option out.",
            path=("loss",),
        )
    fields: dict[str, Any] = {}
    rate = words.get("learning_rate")
    if "optimizer" in words:
        spec = _optimizer(words["optimizer"], rate)
        fields["optimizer"] = {"type": spec.type, **spec.attributes}
    elif rate is not None:
        fields["optimizer"] = {
            **document.get("optimizer", {}),
            "learning_rate": _number("learning_rate", rate),
        }
    if "micro_batches" in words:
        fields["training"] = {**document.get("training", {}), "accumulate": _micro_batches(words)}
    if "trainable" in words:
        chosen = _trainable(words["trainable"])
        parameters = [one["name"] for one in document.get("operands", ()) if one.get("role") == "parameter"]
        if isinstance(chosen, tuple):
            named = {name for pattern in chosen for name in matching_parameters(pattern, parameters)}
            fields["trainable"] = [name for name in parameters if name in named]
        else:
            fields["trainable"] = {"last": chosen} if isinstance(chosen, int) else chosen
    return fields


def _micro_batches(words: Mapping[str, Any]) -> int:
    count = _whole("micro_batches", words.get("micro_batches", 1))
    if not 1 <= count <= MAX_ACCUMULATE:
        raise _bad("micro_batches", count, f"1 to {MAX_ACCUMULATE:,}")
    return count


def _bad(name: str, value: object, remedy: str) -> OptionsError:
    return OptionsError(
        f"The {name.replace('_', ' ')} is {value!r:.80}.", remedy=f"Give {remedy}.", path=(name,)
    )


def _whole(name: str, text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        raise _bad(name, text, "a whole number") from None


def _optimizer(text: Any, rate: Any) -> OptimizerSpec:
    """The optimizer of a text ``name,key=number``; its name may be in any case."""
    name, *rest = str(text).split(",")
    known = {optimizer.lower(): optimizer for optimizer in OPTIMIZER_NAMES}
    if name.strip().lower() not in known:
        raise _bad("optimizer", text, f"one of {', '.join(sorted(known))}")
    attributes: dict[str, float | bool] = {}
    for part in rest:
        key, _, value = part.partition("=")
        attributes[key.strip()] = _number("optimizer", value)
    if rate is not None:
        attributes["learning_rate"] = _number("learning_rate", rate)
    spec = OptimizerSpec(known[name.strip().lower()], attributes)
    try:
        optimizer_rules(spec)
    except GraphError as error:
        raise OptionsError(error.message, remedy=error.remedy, path=("optimizer",)) from None
    return spec


def _number(name: str, text: Any) -> float | bool:
    if text in ("true", "false"):
        return bool(text == "true")
    try:
        return float(text)
    except (TypeError, ValueError):
        raise _bad(name, text, "a number") from None


def _choice(words: Mapping[str, Any], option: str) -> Any:
    word, known = words.get(option), IMPORT_OPTIONS[option].words
    if word is not None and word not in known:
        raise _bad(option, word, " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}")
    return word


def _names(option: str, text: Any, remedy: str) -> tuple[str, ...]:
    """Names separated by commas, each of them once."""
    names = tuple(dict.fromkeys(name.strip() for name in str(text or "").split(",") if name.strip()))
    if text is not None and not names:
        raise _bad(option, text, remedy)
    return names


def _trainable(text: Any) -> Literal["all"] | int | tuple[str, ...]:
    if text == "all":
        return "all"
    if not str(text).startswith("last:"):
        return _names("trainable", str(text), "all, last:COUNT, or names separated by commas")
    count = _whole("trainable", str(text).removeprefix("last:"))
    if count < 0:
        raise _bad("trainable", text, "last: and a number that is not negative")
    return count


def _several(words: Mapping[str, Any], option: str) -> Sequence[Any]:
    """An option that may be given once or as a list."""
    texts = words.get(option, ())
    return texts if isinstance(texts, list | tuple) else [texts]


def _pairs(words: Mapping[str, Any], option: str, parse: Callable[[str], Any], remedy: str) -> dict[str, Any]:
    """Values by name, of texts ``name=value``. `parse` returns None for what is no value."""
    values: dict[str, Any] = {}
    noun, what = _PAIRS[option]
    for text in _several(words, option):
        name, _, word = str(text).rpartition("=")
        value = parse(word)
        if not name or value is None:
            raise _bad(option, text, remedy)
        if name in values:
            raise OptionsError(
                f"The {noun} {name!r:.80} is given twice.", remedy=f"Give it one {what}.", path=(option,)
            )
        values[name] = value
    return values


def _size(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _SIZE_DIGITS else None


def _value(text: str) -> Any:
    """A number, true or false, or nested lists of these as JSON has them; None for anything else."""
    if text.lower() in _SPELLINGS:
        return _SPELLINGS[text.lower()]
    try:
        value = json.loads(text)
        np.asarray(value, np.float64)
    except (ValueError, TypeError, RecursionError):
        return None
    return value if isinstance(value, int | float | list) and value != [] else None
