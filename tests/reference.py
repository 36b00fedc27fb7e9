"""Dense references in numpy, written from the paper's definitions alone: nothing here imports the library.

Points are rows of float64 arrays. A kernel is k(X, Y) -> [n, m]; a motion is move(X, s) -> X for a multi-index s.
"""

from __future__ import annotations

import itertools

import numpy as np


def elements(orders):
    return list(itertools.product(*(range(T) for T in orders)))


def dft_entry(orders, t, s):
    """F_ts = 1/|G| prod_j exp(-2 pi i t_j s_j / T_j)."""
    turns = sum(a * b / T for a, b, T in zip(t, s, orders, strict=True))
    return np.exp(-2j * np.pi * turns) / np.prod(orders)


def harmonic_kernel(k, move, orders, t, X, Y):
    """k_t(X, Y) = sum_s F_ts k(X, G^s(Y))."""
    return sum(dft_entry(orders, t, s) * k(X, move(Y, s)) for s in elements(orders))


def folded_kernel(k, move, orders, t, X, Y):
    """The paper's real kernel: 1/|G| sum_s prod_j c_j cos(2 pi t_j s_j / T_j) k(X, G^s(Y))."""
    total = 0.0
    for s in elements(orders):
        weight = 1.0 / np.prod(orders)
        for t_j, s_j, T in zip(t, s, orders, strict=True):
            weight *= (1.0 if 2 * t_j % T == 0 else 2.0) * np.cos(2 * np.pi * t_j * s_j / T)
        total = total + weight * k(X, move(Y, s))
    return total


# Kernels ------------------------------------------------------------------------------------------------------------


def _distance(X, Y):
    return np.sqrt(((X[:, None, :] - Y[None, :, :]) ** 2).sum(-1))


def rbf(lengthscale):
    return lambda X, Y: np.exp(-0.5 * (_distance(X / lengthscale, Y / lengthscale)) ** 2)


def matern(nu, lengthscale):
    def k(X, Y):
        r = np.sqrt(2 * nu) * _distance(X / lengthscale, Y / lengthscale)
        polynomial = {0.5: 1.0, 1.5: 1 + r, 2.5: 1 + r + r**2 / 3}[nu]
        return polynomial * np.exp(-r)

    return k


def rational_quadratic(alpha, lengthscale):
    return lambda X, Y: (1 + _distance(X / lengthscale, Y / lengthscale) ** 2 / (2 * alpha)) ** -alpha


def periodic(period, lengthscale):
    return lambda X, Y: np.exp(
        -2 * (np.sin(np.pi * (X[:, None, :] - Y[None, :, :]) / period) ** 2 / lengthscale).sum(-1)
    )


def polynomial(power, offset):
    return lambda X, Y: (X @ Y.T + offset) ** power


def linear(variance):
    return lambda X, Y: variance * X @ Y.T


def arc_cosine(order, lengthscale, bias):
    def k(X, Y):
        u = np.hstack([X / lengthscale, np.full((len(X), 1), np.sqrt(bias))])
        v = np.hstack([Y / lengthscale, np.full((len(Y), 1), np.sqrt(bias))])
        norms = np.linalg.norm(u, axis=1)[:, None] * np.linalg.norm(v, axis=1)[None]
        theta = np.arccos(np.clip(u @ v.T / norms, -1, 1))
        J = {
            0: np.pi - theta,
            1: np.sin(theta) + (np.pi - theta) * np.cos(theta),
            2: 3 * np.sin(theta) * np.cos(theta) + (np.pi - theta) * (1 + 2 * np.cos(theta) ** 2),
        }[order]
        return norms**order * J / np.pi

    return k


def globe(k):
    """A kernel of unit vectors, on (longitude, latitude) in degrees."""

    def vectors(X):
        lon, lat = np.deg2rad(X).T
        return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)

    return lambda X, Y: k(vectors(X), vectors(Y))


# Motions ------------------------------------------------------------------------------------------------------------


def negation(subsets):
    def move(X, s):
        X = X.copy()
        for subset, s_j in zip(subsets, s, strict=True):
            X[:, list(subset)] *= (-1) ** s_j
        return X

    return move


def rotation(p, q, T):
    def move(X, s):
        angle = 2 * np.pi * s[0] / T
        Y = X.copy()
        Y[:, p] = np.cos(angle) * X[:, p] - np.sin(angle) * X[:, q]
        Y[:, q] = np.sin(angle) * X[:, p] + np.cos(angle) * X[:, q]
        return Y

    return move


def translation(axis, period, T):
    def move(X, s):
        X = X.copy()
        X[:, axis] += period * s[0] / T  # kernels here are periodic: no need to wrap
        return X

    return move


def permutation(p):
    def move(X, s):
        for _ in range(s[0]):
            X = X[:, p]
        return X

    return move


def linear_map(R):
    return lambda X, s: X @ np.linalg.matrix_power(R, s[0]).T


def image_flip(shape):
    def move(X, s):
        images = X.reshape(-1, *shape)
        for axis in (0, 1):
            if s[axis]:
                images = np.flip(images, axis + 1)
        return images.reshape(X.shape)

    return move


def image_shift(shape, step):
    return lambda X, s: np.roll(X.reshape(-1, *shape), (s[0] * step, s[1] * step), axis=(1, 2)).reshape(X.shape)


def product(first, ways, second):
    return lambda X, s: second(first(X, s[:ways]), s[ways:])


def log_marginal(K, y, s2):
    """log N(y; 0, K + s2 I)."""
    C = np.linalg.cholesky(K + s2 * np.eye(len(K)))
    w = np.linalg.solve(C, y)
    return -0.5 * w @ w - np.log(np.diag(C)).sum() - 0.5 * len(y) * np.log(2 * np.pi)
