"""The trade-off between memory and time, and the verdict on a capacity with measures that make a network fit.

    subject      one graph under given options, scheduled for many budgets
    curve        peak against modelled time: `tradeoff`
    measures     what could make a network fit, one row each
    explain      impossible, open or a plan, and the measures that help: `explain`, `brief`
    ranges       the largest batch, or size of another dimension, within a capacity: `largest`
    trainable    the layers to train within a capacity, by their scores: `choose_trainable`

Stands above the pipeline: what a verdict recommends has been planned and proved.
"""

from solver.reports.verdict import Attempt, Changes, Remedy, TradeOff, TradeOffPoint, Verdict, VerdictStatus
from solver.verdict.curve import MOST_POINTS, tradeoff
from solver.verdict.explain import Brief, brief, explain
from solver.verdict.measures import MEASURES, Batches, Measure, Request, Setting, batches_of, batches_of_model
from solver.verdict.ranges import Largest, largest
from solver.verdict.trainable import ChosenTrainable, Layer, choose_trainable, chosen_layers, layers_of

__all__ = [
    "MEASURES",
    "MOST_POINTS",
    "Attempt",
    "Batches",
    "Brief",
    "Changes",
    "ChosenTrainable",
    "Largest",
    "Layer",
    "Measure",
    "Remedy",
    "Request",
    "Setting",
    "TradeOff",
    "TradeOffPoint",
    "Verdict",
    "VerdictStatus",
    "batches_of",
    "batches_of_model",
    "brief",
    "choose_trainable",
    "chosen_layers",
    "explain",
    "largest",
    "layers_of",
    "tradeoff",
]
