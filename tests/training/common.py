"""Helpers of the tests of this room."""

from __future__ import annotations

import gpytorch
import torch

from harmonicgp.actions import Rotation
from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.training import Schedule
from tests.inference.common import make_kernel


def noisy(s2=0.5, dtype=torch.float64):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = s2
    return likelihood


def make(kind, X, m=8):
    kernel = make_kernel().to(X.dtype)
    if kind == "sparse":
        return SparseFeatures(kernel, X[:m])
    if kind == "orthogonal":
        return OrthogonalFeatures(kernel, X[:m], X[m : 2 * m])
    return HarmonicFeatures(kernel, Rotation((0, 1), 3), X[:m])


QUICK = Schedule(max_steps=60, batch_size=64)


BRIEF = Schedule(max_steps=40, batch_size=128)
