"""Small exact Gaussian processes, dense and in float64, and draws of features to compare with them."""

from __future__ import annotations

import math

import gpytorch
import gpytorch.kernels as gk
import numpy as np
import torch
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from harmonicgp.actions import Negation, Rotation
from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.inference.statistics import gather_statistics
from harmonicgp.likelihoods import observe

ACTIONS = [
    Negation(),
    Negation([[0], [1]]),
    Rotation((0, 1), 3),
    Rotation((0, 1), 4),
    Rotation((0, 1), 8),
    Rotation((0, 1), 3) * Negation([2]),
]


def make_kernel(nu: float = 1.5, lengthscale: float = 1.0, scale: float = 1.3) -> gk.ScaleKernel:
    base = gk.RBFKernel() if nu == math.inf else gk.MaternKernel(nu=nu)
    kernel = gk.ScaleKernel(base).double()
    kernel.outputscale, base.lengthscale = scale, lengthscale
    return kernel


def exact_log_evidence(kernel, X, y, s2) -> float:
    """log N(y; 0, K + s2 I), by scipy."""
    K = kernel(X).to_dense().detach().numpy() + np.diag(np.broadcast_to(s2, len(X)))
    return float(multivariate_normal(np.zeros(len(X)), K).logpdf(y.numpy()))


def exact_posterior(kernel, X, y, s2, x):
    K, k = kernel(X).to_dense().detach().numpy(), kernel(X, x).to_dense().detach().numpy()
    solve = np.linalg.solve(K + s2 * np.eye(len(X)), np.column_stack([y.numpy(), k]))
    mean = k.T @ solve[:, 0]
    variance = kernel(x, diag=True).detach().numpy() - (k * solve[:, 1:]).sum(0)
    return mean, variance


def data(n: int, d: int, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=g, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + 0.2 * torch.randn(n, generator=g, dtype=torch.float64)
    return X, y


def statistics(features, X, y, weights=None, **kwargs):
    return gather_statistics(features.whiten(), features.shapes, X, y[None] if y.dim() == 1 else y, weights, **kwargs)


@st.composite
def feature_draws(draw, m: int | None = None):
    """(features, kernel, d): one of the three classes, with a kernel of random scale."""
    kernel = make_kernel(
        draw(st.sampled_from([0.5, 1.5, 2.5, math.inf])), draw(st.floats(0.5, 2.0)), draw(st.floats(0.3, 3.0))
    )
    seed, d = draw(st.integers(0, 10**6)), 3
    m = draw(st.integers(1, 5)) if m is None else m
    g = torch.Generator().manual_seed(seed)

    def points(*shape):
        return torch.randn(*shape, d, generator=g, dtype=torch.float64) + 0.3

    choice = draw(st.sampled_from(["sparse", "orthogonal", "harmonic", "separate"]))
    if choice == "sparse":
        return SparseFeatures(kernel, points(m)), kernel, d
    if choice == "orthogonal":
        return OrthogonalFeatures(kernel, points(m), points(draw(st.integers(1, 5)))), kernel, d
    action = draw(st.sampled_from(ACTIONS))
    resolution = draw(st.sampled_from(["complex", "real"]))
    n = action.group.n_blocks(resolution)
    Z = points(n, m) if choice == "separate" else points(m)
    keep = draw(st.one_of(st.none(), st.sets(st.integers(0, n - 1), min_size=1)))
    return HarmonicFeatures(kernel, action, Z, resolution, frequencies=keep, check=False), kernel, d


FAMILIES = ("block", "joint")


def gaussian(s2):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = s2
    return observe(likelihood.requires_grad_(False))


def elbo(features, posterior, X, y, s2, bound, noise=None):
    """The bound as a sum over rows minus KL: the definition."""
    evaluation = features(X)
    mean, variance = posterior.moments(evaluation)
    terms = gaussian(s2).terms(y[None], mean, variance, evaluation.residual, bound, noise)
    return float(terms.detach().sum()) - float(posterior.kl().detach())
