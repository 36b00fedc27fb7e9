"""Bad input gets an error that says what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.actions import (
    ImageFlip,
    ImageShift,
    Longitude,
    Negation,
    Orthogonal,
    Permutation,
    PrincipalNegation,
    Product,
    Rotation,
    Translation,
)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Negation([[0, 1], [1, 2]]), "overlap in coordinate 1"),
        (lambda: Negation([[0, 0]]), "twice"),
        (lambda: Negation([]), "empty"),
        (lambda: Negation([[0], []]), "empty"),
        (lambda: Negation([-1]), "at least 0"),
        (lambda: Negation.strided(2, 3), "at least 3 directions"),
        (lambda: PrincipalNegation(0), "at least 1"),
        (lambda: Rotation((0, 1), 0), "at least 1"),
        (lambda: Rotation((0, 0), 4), "twice"),
        (lambda: Rotation((0, 1, 2), 4), "two coordinates"),
        (lambda: Translation(0, -1.0, 4), "positive"),
        (lambda: Translation(0, float("nan"), 4), "positive"),
        (lambda: Translation(0, 24.0, 4, start=float("inf")), "finite"),
        (lambda: Longitude(0), "at least 1"),
        (lambda: ImageShift((28, 28), 5), "does not divide the side 28"),
        (lambda: ImageShift((28, 28), (4, 4, 4)), "a pair"),
        (lambda: ImageFlip((28,)), "height, width"),
        (lambda: ImageFlip((28, 0)), "at least 1"),
        (lambda: ImageFlip((3, 32, 32)), "channels, height, width"),
        (lambda: ImageShift((1, 28, 28), 4), "channels, height, width"),
        (lambda: ImageFlip((28, 28), axes=(2,)), "up-down"),
        (lambda: ImageFlip((1, 28)), "does nothing"),
        (lambda: Permutation([0, 2]), "once each"),
        (lambda: Permutation([1, 1]), "twice"),
        (lambda: Orthogonal(torch.tensor([[1.0, 1.0], [0.0, 1.0]])), "not orthogonal"),
        (lambda: Orthogonal(torch.ones(2, 3)), "square"),
        (lambda: Orthogonal(torch.tensor([[float("nan")]])), "NaN"),
        (lambda: Orthogonal(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), order=3), "not the identity"),
        (lambda: Orthogonal(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), order=8), "the order is 4, not 8"),
        (
            lambda: Orthogonal(torch.tensor([[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]])),
            "no finite order",
        ),
        (lambda: Product(), "at least one"),
        (lambda: ImageFlip((2, 2)) * ImageFlip((3, 3)), "different dimension"),
        (lambda: ImageFlip((2, 2)) * Negation([7]), "needs 8"),
        (lambda: Translation(0, 24.0, 2) * Translation(0, 12.0, 3), "two periods"),
        (lambda: PrincipalNegation(2) * Rotation((0, 1), 2), "fit"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Negation("01"),
        lambda: Negation(3),
        lambda: Negation([0, [1]]),
        lambda: Rotation((0.5, 1), 4),
        lambda: Rotation((0, 1), 2.5),
        lambda: Rotation(0, 4),
        lambda: Orthogonal(torch.eye(2, dtype=torch.complex128)),
        lambda: Product(Negation(), "rotate"),
        lambda: Negation() * 2,
    ],
)
def test_bad_types(make):
    with pytest.raises(TypeError):
        make()


ACTIONS = [
    Negation([2]),
    Rotation((0, 2), 3),
    Translation(2, 24.0, 3),
    Permutation([1, 2, 0]),
    Orthogonal(torch.eye(3)[[1, 2, 0]]),
    Negation([2]) * Rotation((0, 1), 3),
]


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
@pytest.mark.parametrize("method", ["orbit", "fold", "fold_index"])
@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (torch.zeros(4, 2), ValueError, "coordinates"),
        (torch.zeros(0, 3), ValueError, "empty"),
        (torch.zeros(3), ValueError, "one point per row"),
        (torch.full((2, 3), float("nan")), ValueError, "first in row 0"),
        (torch.tensor([[0.0, 0, 0], [0, float("inf"), 0]]), ValueError, "first in row 1"),
        (torch.zeros(2, 3, dtype=torch.complex128), TypeError, "complex"),
        (torch.zeros(2, 3, dtype=torch.long), TypeError, "floating point"),
        (torch.zeros(2, 3, dtype=torch.float16), TypeError, "float32 or float64"),
        (np.zeros((2, 3)), TypeError, "as_tensor"),
    ],
)
def test_bad_points(action, method, x, error, words):
    with pytest.raises(error, match=words):
        getattr(action, method)(x)


def test_bad_elements():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="2 whole numbers"):
        (Negation([2]) * Rotation((0, 1), 3)).apply(x, 1)
    with pytest.raises(TypeError, match="whole numbers"):
        Rotation((0, 1), 3).apply(x, 0.5)
