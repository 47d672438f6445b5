"""Data that the gallery makes: what the labels say is what is in it."""

from __future__ import annotations

import numpy as np
import pytest

from examples.gallery.data import GESTURES, SHAPES, digit_batches, gesture_batches, shape_batches
from examples.gallery.transformer import LENGTH, TOKENS, batches


class TestShapes:
    def test_bright_on_dark(self) -> None:
        batch = next(shape_batches(0, 40, 48))
        assert batch["image"].shape == (40, 48, 48, 3)
        assert batch["image"].dtype == np.float32
        corner, bright = batch["image"][:, :2, :2].mean(axis=(1, 2, 3)), batch["image"].max(axis=(1, 2, 3))
        assert (corner < 0.1).all()
        assert (bright > 0.5).all()

    def test_kinds_differ_in_what_they_cover(self) -> None:
        """Of its surrounding square: a disc covers most, a cross least, stripes about half."""
        batch = next(shape_batches(1, 400, 48))
        kind = batch["label"].argmax(axis=1)
        ink = batch["image"].mean(axis=3) > 0.25
        covered: dict[str, list[float]] = {name: [] for name in SHAPES}
        for image, k in zip(ink, kind, strict=True):
            rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
            square = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            covered[SHAPES[k]].append(float(square.mean()))
        means = {name: np.mean(shares) for name, shares in covered.items()}
        assert means["disc"] == pytest.approx(np.pi / 4, abs=0.04)
        assert means["frame"] == pytest.approx(1 - 0.7**2, abs=0.06)
        assert means["cross"] == pytest.approx(1 - 0.75**2, abs=0.06)
        assert means["stripes"] == pytest.approx(0.5, abs=0.06)


class TestGestures:
    def test_axes(self) -> None:
        batch = next(gesture_batches(0, 400, 24))
        kind = batch["label"].argmax(axis=1)
        assert batch["motion"].shape == (400, 24, 3)
        moving = {k: batch["motion"][kind == k].std(axis=1).mean(axis=0) > 0.4 for k in range(len(GESTURES))}
        found = {GESTURES[k]: axes.tolist() for k, axes in moving.items()}
        x, xy, z = [True, False, False], [True, True, False], [False, False, True]
        assert found == {"shake": x, "swing": x, "circle": xy, "tap": z}

    def test_shake_is_faster_than_swing(self) -> None:
        batch = next(gesture_batches(0, 400, 24))
        kind = batch["label"].argmax(axis=1)
        pace = np.abs(np.diff(batch["motion"][..., 0], axis=1)).mean(axis=1)
        assert pace[kind == 0].mean() > 1.5 * pace[kind == 1].mean()


def test_digits_of_some_kinds_only() -> None:
    batch = next(digit_batches(0, 50, range(7, 10)))
    assert batch["image"].shape == (50, 28, 28, 1)
    assert batch["label"].shape == (50, 3)
    assert (batch["label"].sum(axis=0) > 0).all()


def test_sequences_say_everything_twice() -> None:
    batch = next(batches(0, 8))
    token, following = batch["token"], batch["following"]
    np.testing.assert_array_equal(token[:, 1:], following[:, :-1])
    np.testing.assert_array_equal(token[:, : LENGTH // 2], token[:, LENGTH // 2 :])
    assert token.min() >= 0
    assert token.max() == TOKENS - 1
