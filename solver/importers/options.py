"""Options of an import: how the model is trained, how large its dimensions are, which weights it
starts with.

Files of other tools hold a network and rarely its training, so every importer takes the same choices.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from solver.errors import GraphError, OptionsError, TrainableError
from solver.graph import OptimizerSpec, Role, TrainableGraph, TrainingRules
from solver.training.optimizers import OPTIMIZER_NAMES, optimizer_rules

__all__ = ["IMPORT_OPTIONS", "LOSSES", "ImportOptions", "Imported", "import_options"]

#: Word of a caller -> operator, its attributes, and what its label is: classes, or of the prediction's type.
LOSSES: Final[Mapping[str, tuple[str, Mapping[str, int], Literal["classes", "same"]]]] = MappingProxyType(
    {
        "cross-entropy": ("CategoricalCrossEntropy", {"from_logits": 1, "sparse": 1}, "classes"),
        "soft-cross-entropy": ("CategoricalCrossEntropy", {"from_logits": 1}, "same"),
        "binary-cross-entropy": ("BinaryCrossEntropy", {"from_logits": 1}, "same"),
        "kl-divergence": ("KLDivergence", {"from_logits": 1}, "same"),
        "mse": ("MeanSquaredError", {}, "same"),
        "l1": ("MeanAbsoluteError", {}, "same"),
        "huber": ("Huber", {}, "same"),
    }
)


#: The names of what may be chosen.
IMPORT_OPTIONS: Final = (
    *(
        "loss",
        "output",
        "class_axis",
        "optimizer",
        "learning_rate",
        "trainable",
        "frozen",
        "dim",
        "input",
        "batch_norm",
        "weights",
        "freeze_before",
        "keep_outputs",
    ),
)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Choices for one import.

    `loss` is a word of `LOSSES`, or None where an output of the model is the loss. It is taken of `output`,
    the first one if that is None, with the classes at `class_axis`; None means axis 1 of images (four axes
    and more) and the last axis otherwise. `trainable` is "all", a number of operations from the back, or
    names and patterns of names as ``head.*``; parameters that match one of `frozen` are not trained whatever
    it says. `dims` are sizes of dimensions that the model leaves open, by name, or by place, as ``x[0]``;
    `batch` is that of the first axis of the inputs. `inputs` are values of inputs that are the same in each
    step, which are no inputs then: numbers, or nested lists of them. `batch_norm` is "train", "frozen", or
    None for what the model says. Without `weights` the first values are drawn. The tensors named in
    `freeze_before` become inputs of the graph; what leads to them alone is not imported. The outputs of the
    model in `keep_outputs`, or "all", are outputs of the graph: they can be read after a step.
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
    """

    graph: TrainableGraph
    notes: tuple[str, ...] = ()
    constants: Mapping[str, int] | None = None

    def frozen(self, names: Iterable[str]) -> Imported:
        """The same model, of which parameters that match one of the names and patterns are not trained.

        Raises TrainableError for one that matches no parameter, and where nothing is left to train.
        """
        parameters = [o.id for o in self.graph.operands.values() if o.role is Role.PARAMETER]
        frozen: set[str] = set()
        for name in names:
            matching = {name} & set(parameters) or set(fnmatch.filter(parameters, name))
            if not matching:
                raise TrainableError(
                    f"No parameter is called {name!r:.80}, which is to be frozen.",
                    remedy=f"The model has{_listed(parameters)[1:]}.",
                    path=("frozen",),
                )
            frozen |= matching
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
        """How many tensors are trained, and which floating ones are not. Running statistics are neither."""
        graph, constants = self.graph, self.constants
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
            f" {'tensor' if untrained == 1 else 'tensors'} not trained{_listed(larger)}"
        )
        return (
            f"{text}; {len(single)} of one element not trained{_listed(single, 3)}." if single else f"{text}."
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(f"{name:.60}" for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f": {shown}{more}" if names else ""


# ------------------------------------------------------------------------------------ from words of a caller


def import_options(words: Mapping[str, Any], *, batch: int | None = None) -> ImportOptions:
    """Choices from what a command line or a query says; numbers may be text.

    `loss`, `output`, `class_axis`, `optimizer` (a name, or a name and numbers as ``sgd,momentum=0.9``),
    `learning_rate`, `trainable` (``all``, ``last:2``, or names and patterns, separated by commas), `frozen`
    (names and patterns), `dim` (``name=size``, or a list of them), `input` (``name=value``, or a list of
    them), `batch_norm` (``train``, ``frozen``), `weights` (``reference``, ``none``), `freeze_before` (a
    tensor's name, or a list of them), `keep_outputs` (``all``, or names, separated by commas). Raises
    OptionsError with the option's name as path.
    """
    for name in words:
        if name not in IMPORT_OPTIONS:
            raise OptionsError(
                f"There is no option {name!r:.60} for models.",
                remedy=f"Options: {', '.join(IMPORT_OPTIONS)}.",
                path=(str(name),),
            )
    loss, dims = words.get("loss"), words.get("dim", ())
    dims = dims if isinstance(dims, list | tuple) else [dims]
    cuts = words.get("freeze_before", ())
    inputs = words.get("input", ())
    inputs = inputs if isinstance(inputs, list | tuple) else [inputs]
    if loss is not None and loss not in LOSSES:
        raise _bad("loss", loss, f"one of {', '.join(LOSSES)}")
    return ImportOptions(
        loss=loss,
        output=words.get("output"),
        class_axis=None if words.get("class_axis") is None else _whole("class_axis", words["class_axis"]),
        optimizer=_optimizer(words.get("optimizer", "sgd"), words.get("learning_rate")),
        trainable=_trainable(words.get("trainable", "all")),
        frozen=_frozen(words.get("frozen")),
        dims=_dims(dims),
        batch=batch,
        inputs=_inputs(inputs),
        batch_norm=_batch_norm(words.get("batch_norm")),
        weights=_weights(words.get("weights", "reference")),
        keep_outputs=_kept(words.get("keep_outputs")),
        freeze_before=tuple(dict.fromkeys(map(str, cuts if isinstance(cuts, list | tuple) else [cuts]))),
    )


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
    """By its name in any case; numbers behind commas, and the learning rate by itself."""
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


def _trainable(text: Any) -> Literal["all"] | int | tuple[str, ...]:
    words = str(text)
    if words == "all":
        return "all"
    if words.startswith("last:"):
        count = _whole("trainable", words.removeprefix("last:"))
        if count < 0:
            raise _bad("trainable", text, "last: and a number that is not negative")
        return count
    names = tuple(name.strip() for name in words.split(",") if name.strip())
    if not names:
        raise _bad("trainable", text, "all, last:COUNT, or names separated by commas")
    return names


def _frozen(text: Any) -> tuple[str, ...]:
    names = () if text is None else tuple(name.strip() for name in str(text).split(",") if name.strip())
    if text is not None and not names:
        raise _bad("frozen", text, "names and patterns separated by commas")
    return names


def _kept(text: Any) -> Literal["all"] | tuple[str, ...]:
    if text is None or text == "all":
        return () if text is None else "all"
    names = tuple(dict.fromkeys(name.strip() for name in str(text).split(",") if name.strip()))
    if not names:
        raise _bad("keep_outputs", text, "all, or names of outputs separated by commas")
    return names


def _dims(texts: Iterable[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, size in map(_dim, texts):
        if name in sizes:
            raise OptionsError(
                f"The dimension {name!r:.80} is given twice.", remedy="Give it one size.", path=("dim",)
            )
        sizes[name] = size
    return sizes


def _dim(text: Any) -> tuple[str, int]:
    name, equals, size = str(text).rpartition("=")
    if not equals or not name or not size.isdecimal() or len(size) > 19:
        raise _bad("dim", text, "a name and a size, as batch=32, or a place and a size, as x[0]=32")
    return name, int(size)


def _inputs(texts: Iterable[Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = str(text).rpartition("=")
        try:
            parsed = json.loads(value)
            np.asarray(parsed, np.float64)
        except (ValueError, TypeError, RecursionError):
            equals = ""
        if not equals or not name or not isinstance(parsed, int | float | list) or parsed == []:
            raise _bad("input", text, "a name and a value, as sr=16000, training=false or scale=[1, 0.5]")
        if name in values:
            raise OptionsError(
                f"The input {name!r:.80} is given twice.", remedy="Give it one value.", path=("input",)
            )
        values[name] = parsed
    return values


def _batch_norm(text: Any) -> Literal["train", "frozen"] | None:
    if text in (None, "train", "frozen"):
        return text  # type: ignore[no-any-return]  # one of the three
    raise _bad("batch_norm", text, "train or frozen")


def _weights(text: Any) -> bool:
    if text not in ("reference", "none"):
        raise _bad("weights", text, "reference or none")
    return bool(text == "reference")
