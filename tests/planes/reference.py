"""An exact Gaussian process with coefficients integrated out, dense in numpy: nothing here imports the library."""

from __future__ import annotations

import numpy as np

from tests.reference import matern, rbf


def points(shape, steps):
    mesh = np.meshgrid(*(step * np.arange(n) for n, step in zip(shape, steps, strict=True)), indexing="ij")
    return np.stack([part.ravel() for part in mesh], 1)


def covariance(nu, lengthscales, variance):
    profile = rbf(1.0) if nu is None else matern(nu, 1.0)
    return lambda X, Y: variance * profile(X / np.array(lengthscales), Y / np.array(lengthscales))


def exact(k, X, y, noise, H, Xs, Hs):
    """Mean, covariance of f at Xs, and the log evidence, from the joint Gaussian under a flat prior of the coefficients."""
    A = k(X, X) + np.diag(noise)
    B = np.linalg.inv(A)
    P = H.T @ B @ H
    beta = np.linalg.solve(P, H.T @ B @ y)
    ks = k(Xs, X)
    mean = ks @ B @ (y - H @ beta) + Hs @ beta
    R = Hs - ks @ B @ H
    cov = k(Xs, Xs) - ks @ B @ ks.T + R @ np.linalg.solve(P, R.T)
    r = y - H @ beta
    logdet = np.linalg.slogdet(A)[1] + np.linalg.slogdet(P)[1]
    evidence = -0.5 * (r @ B @ r + logdet + (len(y) - H.shape[1]) * np.log(2 * np.pi))
    return mean, cov, evidence
