"""The collapsed bound as an objective: its value and its gradient, in passes over the data.

At the optimal q the bound's derivative in q vanishes (the envelope theorem), so its gradient in inducing inputs and
hyper-parameters is that of the bound with q held fixed: no derivative goes through a solve or through conjugate gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp.features.base import Features
from harmonicgp.inference.closed_form import ClosedForm, chunks, closed_form, gather_statistics, streaming_matvec
from harmonicgp.inference.posterior import Family
from harmonicgp.likelihoods.observation import Bound, GaussianObservation


def collapsed_bound(
    features: Features,
    observation: GaussianObservation,
    X: Tensor,
    y: Tensor,
    family: Family = "block",
    bound: Bound = "tight",
    noise: Tensor | None = None,
    gradient: bool = False,
    chunk_size: int = 4096,
    dense: bool | None = None,
) -> ClosedForm:
    """The optimal posterior and the bound on log p(y) for Gaussian noise, all rows X [N, d], y [P, N].

    With `gradient` the gradients of the *negative* bound are added to the parameters' `.grad`, ready for a minimiser: one
    more pass, in chunks, with q held at its optimum. `dense=False` forms no F x F matrix.
    """
    if not isinstance(observation, GaussianObservation):
        raise TypeError("the collapsed bound is for Gaussian noise: give observe(GaussianLikelihood()).")
    y = y[None] if y.dim() == 1 else y
    with torch.no_grad():
        s2 = float(observation.noise().double())
        weights = None if noise is None else s2 / (s2 + noise.double())
        whitened = features.whiten()
        statistics = gather_statistics(whitened, features.shapes, X, y, weights, chunk_size, dense=dense)
        matvec = None if statistics.S is not None else streaming_matvec(whitened, X, weights, chunk_size)
        form = closed_form(statistics, s2, family, bound, matvec=matvec)
    if gradient:
        for rows in chunks(len(X), chunk_size):
            stacks, residual = features(X[rows])
            mean, variance = form.posterior.moments(stacks)
            known = None if noise is None else noise[rows]
            (-observation.terms(y[:, rows], mean, variance, residual, bound, known).sum()).backward()
    return form
