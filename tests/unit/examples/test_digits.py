"""Synthetic digits: repeatable, in range, varied, and recognisable."""

from __future__ import annotations

import numpy as np

from examples.digits import CLASSES, SIDE, batches, digits


def test_shapes_and_range() -> None:
    images, labels = digits(20, seed=1)
    assert images.shape == (20, SIDE, SIDE, 1)
    assert labels.shape == (20, CLASSES)
    assert images.dtype == labels.dtype == np.float32
    assert images.min() >= 0.0
    assert images.max() <= 1.0
    assert (labels.sum(axis=1) == 1.0).all()


def test_same_seed_same_digits() -> None:
    first, again, other = digits(5, seed=7), digits(5, seed=7), digits(5, seed=8)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_all_classes_appear() -> None:
    _, labels = digits(300, seed=3)
    assert (labels.sum(axis=0) > 10).all()


def test_digits_of_one_class_differ() -> None:
    images, labels = digits(200, seed=4)
    zeros = images[labels[:, 0] == 1.0]
    assert len(np.unique(zeros.reshape(len(zeros), -1), axis=0)) == len(zeros)


def test_ink_lies_inside_the_image() -> None:
    images, _ = digits(100, seed=5)
    border = np.concatenate([images[:, 0].ravel(), images[:, -1].ravel()])
    assert border.mean() < 0.1 < images.mean()


def test_nearest_class_mean_recognises_many_but_not_all() -> None:
    """Learnable, yet not trivial: ten templates are not enough."""
    images, labels = digits(1000, seed=6)
    means = np.stack([images[labels[:, k] == 1.0].mean(axis=0) for k in range(CLASSES)])
    unseen, truth = digits(300, seed=60)
    distance = ((unseen[:, None] - means) ** 2).sum(axis=(2, 3, 4))
    accuracy = float((distance.argmin(axis=1) == truth.argmax(axis=1)).mean())
    assert 0.5 < accuracy < 0.95


def test_batches_are_fresh() -> None:
    (first, _), (second, _) = batches(2, 4, seed=9)
    assert first.shape == second.shape == (4, SIDE, SIDE, 1)
    assert not np.array_equal(first, second)
