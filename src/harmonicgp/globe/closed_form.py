"""Closed-form inference for fields on the globe: rows of a grid share their features, so a row costs what a point costs.

With D_ij the precision 1 / (s2 + v_ij) of the cell in row i and column j (zero where it is missing), features A_t [m, rows] of
the parallels, and cosines and sines of the longitudes,

    Lambda_t = I + A_t diag(sum_j D_ij cos^2(t lon_j)) A_t'   (and with sines)

is the precision of a block, and one product with all features is a product with every A_t and a transform along the rows. The
mean is joint over all blocks, by conjugate gradients with the blocks as preconditioner. The bound is

    -1/2 sum D (y - mean)^2 - 1/2 |mu|^2 - 1/2 sum logdet Lambda_t - 1/2 sum log(1 + D r) + 1/2 sum log(D / 2 pi)

at any mu, largest at the solution, and never above the log marginal likelihood.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError, cholesky, conjugate_gradients
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.longitude import LongitudeFeatures
from harmonicgp.globe.fields import Field, FieldPosterior, Parallels, Waves, gathered, narrowed, spread
from harmonicgp.kernels.zonal import zonal_block, zonal_tiles
from harmonicgp.likelihoods.observation import Bound

#: Features up to which the joint covariance is exact.
MAX_EXACT_DRAWS = 2048


@dataclass(frozen=True)
class FieldFit:
    """The optimum for Gaussian noise, and the bound there."""

    posterior: FieldPosterior
    bound: float
    iterations: int
    parts: Sites


@dataclass(frozen=True)
class Sites:
    """What the data say: enough to make the posterior's covariance anew."""

    D: Tensor  #: [rows, columns]
    waves: Waves

    def powers(self, D: Tensor) -> Tensor:
        """sum_j D_ij cos^2 and sin^2, [2, t_max + 1, rows], float64."""
        return torch.stack(tuple((D @ wave.square().mT).mT.double() for wave in (self.waves.cos, self.waves.sin)))

    @cached_property
    def weights(self) -> Tensor:
        """Of the rows in every block's precision."""
        return self.powers(self.D)


@torch.no_grad()
def covariance(parallels: Parallels, weights: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """M with Lambda^{-1} = M'M for every block, [2, t_max + 1, m, m], and logdet Lambda, [2, t_max + 1]."""
    T, m = parallels.A.shape[:2]
    n = parallels.features.n_sines
    M = torch.zeros(2, T, m, m, dtype=dtype)
    logdet = torch.zeros(2, T, dtype=torch.float64)
    eye = torch.eye(m, dtype=torch.float64)
    for kind, (first, last) in enumerate(((0, T), (1, n + 1))):

        def work(b: slice, kind: int = kind, first: int = first) -> None:
            t = slice(first + b.start, first + b.stop)
            A = parallels.A[t].double()
            Lambda = (A * weights[kind, t, None]) @ A.mT
            Lambda.diagonal(dim1=-2, dim2=-1).add_(1.0)
            C, info = cholesky(Lambda)
            if bool(info.any()):
                raise NotPositiveDefiniteError(
                    "the precision of a frequency has no Cholesky factor: the noise is below the rounding of the features."
                )
            logdet[kind, t] = 2 * C.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            M[kind, t] = narrowed(torch.linalg.solve_triangular(C, eye.expand_as(C), upper=False), dtype)

        in_blocks(work, last - first, m)
    return M, logdet


@torch.no_grad()
def field_closed_form(
    parallels: Parallels,
    field: Field,
    s2: float,
    bound: Bound = "tight",
    tolerance: float = 1e-5,
    max_iterations: int = 200,
) -> FieldFit:
    """The optimal posterior of a field at a noise variance, and the bound there.

    With independent blocks; `joint_draws` gives the joint covariance.
    """
    if not (0 < s2 < math.inf):
        raise ValueError(f"the noise variance must be a positive number; got {s2}.")
    dtype, features = parallels.A.dtype, parallels.features
    waves = Waves.of(features, field.longitudes, dtype)
    sites = Sites(field.precision(s2, dtype), waves)
    D, y = sites.D, torch.where(field.present, field.values, 0.0).to(dtype)
    M, logdet = covariance(parallels, sites.weights, dtype)
    mean, iterations = _solved(parallels, sites, M, D * y, tolerance, max_iterations)
    posterior = FieldPosterior(mean, M)
    value = _bound(parallels, field, sites, posterior, logdet, y, bound)
    return FieldFit(posterior, value, iterations, sites)


def _solved(
    parallels: Parallels,
    sites: Sites,
    M: Tensor,
    field: Tensor,
    tolerance: float,
    max_iterations: int,
) -> tuple[Tensor, int]:
    """(I + A D A')^{-1} A times fields [P, rows, columns], by conjugate gradients: [P, 2, t_max + 1, m]."""
    dtype, waves = parallels.A.dtype, sites.waves
    rhs = parallels.from_rows(gathered(field, waves)).double()
    shape = rhs.shape

    def matvec(v: Tensor) -> Tensor:
        spread_out = spread(parallels.to_rows(v.reshape(shape)), waves)
        return v + parallels.from_rows(gathered(sites.D * spread_out, waves)).flatten(1).double()

    def precondition(v: Tensor) -> Tensor:
        u = v.reshape(shape).to(dtype).permute(1, 2, 3, 0)  # [2, t, m, P]
        return (M.mT @ (M @ u)).permute(3, 0, 1, 2).flatten(1).double()

    b = rhs.flatten(1)
    v, iterations = conjugate_gradients(matvec, b, precondition, precondition(b), tolerance, max_iterations)
    return v.reshape(shape), iterations


def coupling(D: Tensor, longitudes: Tensor, t: int = 16) -> float:
    """How unevenly the rows are observed: the largest of the first harmonics of the precision, as a share, over the rows."""
    D = D.double()
    angle = torch.arange(1, min(t, len(longitudes)) + 1)[:, None] * longitudes * (math.pi / 180)
    parts = torch.complex(D @ angle.cos().mT, D @ angle.sin().mT).abs().amax(-1)
    total = D.sum(-1)
    seen = total > 0
    return float((parts[seen] / total[seen]).square().mean().sqrt())


@torch.no_grad()
def joint_draws(parallels: Parallels, fit: FieldFit, n: int = 64, seed: int = 0, tolerance: float = 1e-4) -> Tensor:
    """Deviations [S, 2, t_max + 1, m] from the mean under the joint posterior: their mean square is its covariance.

    Independent blocks cannot say that a hole is less certain than the rest of its row; the joint posterior can. Few features:
    exactly, by as many deviations as there are features. Else n draws: of the prior, less what data drawn from it tell of it.
    """
    features, sites, M = parallels.features, fit.parts, fit.posterior.M
    D, shape = sites.D, (2, features.t_max + 1, len(features.Z))
    alive = torch.zeros(shape, dtype=torch.bool)
    alive[0], alive[1, 1 : features.n_sines + 1] = True, True
    F = int(alive.sum())
    if F <= MAX_EXACT_DRAWS:
        eye = torch.zeros(F, *shape, dtype=torch.float64)
        eye[:, alive] = torch.eye(F, dtype=torch.float64)
        columns = [
            parallels.from_rows(gathered(D * spread(parallels.to_rows(part), sites.waves), sites.waves))[:, alive]
            for part in eye.split(64)
        ]
        H = torch.cat(columns).double()
        H = 0.5 * (H + H.mT) + torch.eye(F, dtype=torch.float64)
        C, info = torch.linalg.cholesky_ex(H)
        if not bool(info):
            eye[:, alive] = math.sqrt(F) * torch.linalg.solve_triangular(
                C, torch.eye(F, dtype=torch.float64), upper=False
            )
            return eye.to(M.dtype)
    generator, draws = torch.Generator().manual_seed(seed), []
    root = D.sqrt()
    for part in torch.arange(n).split(max(1, min(n, (1 << 26) // D.numel()))):
        v = torch.randn(len(part), *shape, dtype=torch.float64, generator=generator) * alive
        white = torch.randn(len(part), *D.shape, dtype=D.dtype, generator=generator)
        told = D * spread(parallels.to_rows(v), sites.waves) + root * white
        draws.append((v - _solved(parallels, sites, M, told, tolerance, 200)[0]).to(M.dtype))
    return torch.cat(draws)


def _bound(
    parallels: Parallels, field: Field, sites: Sites, posterior: FieldPosterior, logdet: Tensor, y: Tensor, bound: Bound
) -> float:
    D = sites.D.double()
    error = (y - spread(parallels.to_rows(posterior.mean), sites.waves)).double()
    missing = D * parallels.residual[:, None]
    missing = torch.log1p(missing) if bound == "tight" else missing
    fit = (D * error.square()).sum() + posterior.mean.square().sum()
    noise = torch.log(D[field.present] / (2 * math.pi)).sum()
    return float(-0.5 * (fit + len(y) * (logdet.sum() + missing.sum() - noise)))


@torch.no_grad()
def _by_noise(parallels: Parallels, field: Field, fit: FieldFit, error: Tensor, V: Tensor, bound: Bound) -> float:
    """The derivative of the bound by s2, at fixed q."""
    D, P, r = fit.parts.D.double(), len(field.values), parallels.residual[:, None]
    spread_out = float((V.double() * fit.parts.powers(fit.parts.D.square())).sum())
    by_residual = D * D * r / (1 + D * r) if bound == "tight" else D * D * r
    fit_term = float((D * error.double()).square().sum())
    return 0.5 * (fit_term + P * (spread_out + float((by_residual - D).sum())))


@torch.no_grad()
def field_bound(
    features: LongitudeFeatures,
    field: Field,
    s2: Tensor,
    bound: Bound = "tight",
    dtype: torch.dtype = torch.float32,
    tolerance: float = 1e-5,
) -> FieldFit:
    """The optimum, and the gradients of the *negative* bound, added to the `.grad` of the kernel's parameters and of s2.

    At the optimal q the bound's derivative in q vanishes: no derivative goes through a solve. With G the derivative by the
    features of the rows, A = L^{-1} K(Z, rows), those of the kernel's matrices are L^{-T} G, and that of K(Z, Z) by the
    product G A', see `linalg.Factor`.
    """
    whitened = features.whiten()
    parallels = Parallels.of(whitened, field.latitudes, dtype)
    fit = field_closed_form(parallels, field, float(s2.detach()), bound, tolerance)
    sites, posterior, P = fit.parts, fit.posterior, len(field.values)
    y = torch.where(field.present, field.values, 0.0).to(dtype)
    error = y - spread(parallels.to_rows(posterior.mean), sites.waves)
    rho = gathered(sites.D * error, sites.waves)  # [2, P, rows, t_max + 1]
    D = sites.D.double()
    share = (D / (1 + D * parallels.residual[:, None]) if bound == "tight" else D).sum(
        1
    )  # -2 d/dr of the residual's term
    L, Z, T = whitened.factor.L, features.latitudes, features.t_max + 1
    product = torch.zeros(L.shape, dtype=torch.float64)  # G A', summed over the rows
    V = torch.zeros(2, T, len(field.latitudes), dtype=dtype)
    twice = features.multiplicity()[:, None, None]
    weights, mean, rows_share = sites.weights.to(dtype), posterior.mean.to(dtype), (P * share).to(dtype)
    sign = -whitened.alive.to(dtype)[:, None, None]  # of the negative bound; nothing where a frequency is rounding
    for rows in whitened.chunks(field.latitudes):
        G = torch.empty(T, len(Z), rows.stop - rows.start, dtype=torch.float64)

        def work(t: slice, rows: slice = rows, G: Tensor = G) -> None:
            a = parallels.A[t, :, rows]
            g = torch.einsum("pctm,cprt->tmr", mean[:, :, t], rho[:, :, rows, t])
            for kind in range(2):
                white = posterior.M[kind, t] @ a
                V[kind, t, rows] = white.square().sum(1)
                g -= (posterior.M[kind, t].mT @ white).mul_(P * weights[kind, t, None, rows])
            g.addcmul_(a, rows_share[rows])
            g *= sign[t]
            product[t] += g @ a.mT
            torch.linalg.solve_triangular(L[t].mT, g.double(), upper=True, out=G[t])
            G[t] *= twice[t]

        in_blocks(work, T, len(Z))
        _through(features, Z, field.latitudes[rows], G)
    gK = whitened.factor.carried(product)
    for t in range(T):
        gK[t] = (0.5 * float(twice[t])) * (gK[t] + gK[t].mT)
    _through(features, Z, Z, gK)
    with torch.enable_grad():
        scale = features.zonal.scale
        if scale.requires_grad:
            scale.backward((0.5 * P * share).sum())
    if s2.requires_grad:
        slope = torch.tensor(-_by_noise(parallels, field, fit, error, V, bound), dtype=s2.dtype)
        s2.grad = slope if s2.grad is None else s2.grad + slope
    return fit


@torch.enable_grad()
def _through(features: LongitudeFeatures, p: Tensor, q: Tensor, gradient: Tensor) -> None:
    """Gradients of c_t(p, q) on to the kernel's parameters, tile by tile."""
    for rows, columns in zonal_tiles(features.zonal, p, q, features.nodes()):
        if rows.stop > rows.start:
            block = zonal_block(features.zonal, p[rows], q[columns], features.t_max, features.nodes())
            if block.requires_grad:
                block.backward(gradient[:, rows, columns])
