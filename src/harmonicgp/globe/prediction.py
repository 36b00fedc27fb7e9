"""Predictions of fields on the globe: on grids, at points, by frequency, and whole fields drawn at random."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.features.longitude import LongitudeFeatures, LongitudeWhitened
from harmonicgp.globe.fields import FieldPosterior, Waves, narrowed, spread
from harmonicgp.inference.sampling import PriorPath

_RADIANS = math.pi / 180
#: That a step may hold at a time.
_NUMBERS = 1 << 24


@dataclass(frozen=True)
class FieldPredictor:
    """The field anywhere, from its posterior: along each parallel by waves, so that a row costs what a point costs."""

    whitened: LongitudeWhitened
    posterior: FieldPosterior

    @property
    def features(self) -> LongitudeFeatures:
        """Its features."""
        return self.whitened.features

    @torch.no_grad()
    def _along(self, a: Tensor, v: Tensor | None = None) -> Tensor:
        """Coefficients of waves along parallels with features a [t_max + 1, m, n], real or complex: [2, P, n, t_max + 1]."""
        u = (self.posterior.mean if v is None else v).to(a.real.dtype)

        def product(x: Tensor) -> Tensor:
            return torch.einsum("pctm,tmn->cpnt", u, x)

        if not a.is_complex():
            return product(a)
        real, imaginary = product(a.real), product(a.imag)
        return torch.stack((real[0] + imaginary[1], real[1] - imaginary[0]))

    @torch.no_grad()
    def parallels(
        self, latitudes: Tensor, offsets: Tensor, variance: bool = True
    ) -> Iterator[tuple[slice, Tensor, Tensor | None, Tensor]]:
        """Chunk by chunk of parallels (latitude, offset): coefficients of the mean [2, P, n, t_max + 1], of the variance
        (independent blocks: [3, t_max + 1, n], see `FieldPosterior.variances`; joint: of all draws, as of the mean), and the
        residual variance [n].
        """
        dtype, draws = self.posterior.M.dtype, self.posterior.draws
        most = None if draws is None or not variance else max(1, _NUMBERS // (len(draws) * len(draws[0, 0])))
        for rows in self.whitened.chunks(latitudes, most):
            a = self.whitened.parallels(latitudes[rows], offsets[rows])
            squares = a.abs().square()
            if a.is_complex() and self.features.n_sines < self.features.t_max:
                squares[-1] = a.real[-1].square()  # the highest frequency, its own conjugate
            residual = (self.whitened.variance() - squares.sum((0, 1))).clamp_min(0.0)
            V = None
            if variance and draws is None:
                imaginary = narrowed(a.imag, dtype) if a.is_complex() else None
                V = self.posterior.variances(narrowed(a.real, dtype), imaginary)
            elif variance:
                V = self._along(a, draws)
            yield rows, self._along(a), V, residual

    def grid(self, latitudes: Tensor, longitudes: Tensor, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """The mean [P, rows, columns] and the variance [rows, columns] of the field, float64."""
        angle, left = self.features.offsets(longitudes)
        P = len(self.posterior.mean)
        mean = torch.empty(P, len(latitudes), len(longitudes), dtype=torch.float64)
        spread_ = torch.empty(len(latitudes), len(longitudes), dtype=torch.float64) if variance else None
        for offset in left.unique():  # one pass for every lattice that the columns lie on
            columns = (left == offset).nonzero()[:, 0]
            waves = Waves.at(self.features, angle[columns], torch.float64)
            for rows, c, V, residual in self.parallels(latitudes, offset.expand(len(latitudes)), variance):
                mean[:, rows, columns] = spread(c.double(), waves)
                if spread_ is not None and V is not None:
                    spread_[rows, columns] = self._row_variances(V.double(), waves) + residual[:, None]
        return mean, spread_

    def points(self, longitudes: Tensor, latitudes: Tensor, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """The mean [P, n] and the variance [n] at points, float64; those of one parallel share its features."""
        angle, left = self.features.offsets(longitudes)
        unique, place = torch.unique(torch.stack((latitudes.double(), left), -1), dim=0, return_inverse=True)
        order = torch.argsort(place, stable=True)
        first = torch.searchsorted(place[order].contiguous(), torch.arange(len(unique) + 1))
        mean = torch.empty(len(self.posterior.mean), len(place), dtype=torch.float64)
        spread_ = torch.empty(len(place), dtype=torch.float64) if variance else None
        for rows, c, V, residual in self.parallels(unique[:, 0], unique[:, 1], variance):
            for points in order[first[rows.start] : first[rows.stop]].split(1 << 14):
                waves = Waves.at(self.features, angle[points], torch.float64)
                at = place[points] - rows.start
                own = c.double()[:, :, at]  # [2, P, n, t_max + 1]
                mean[:, points] = (own[0] * waves.cos.mT).sum(-1) + (own[1] * waves.sin.mT).sum(-1)
                if spread_ is not None and V is not None:
                    spread_[points] = self._point_variances(V.double(), at, waves) + residual[at]
        return mean, spread_

    def _row_variances(self, V: Tensor, waves: Waves) -> Tensor:
        """[rows, columns] of the features' part."""
        if self.posterior.draws is None:
            v = V[0].mT @ waves.cos.square() + V[1].mT @ waves.sin.square() + V[2].mT @ (waves.cos * waves.sin)
            return v.clamp_min(0.0)
        total = torch.zeros(V.shape[2], waves.cos.shape[1], dtype=V.dtype)
        for some in torch.arange(V.shape[1]).split(max(1, _NUMBERS // total.numel())):
            total += spread(V[:, some], waves).square().sum(0)
        return total / V.shape[1]

    def _point_variances(self, V: Tensor, at: Tensor, waves: Waves) -> Tensor:
        """[n] of the features' part, for points on rows `at`."""
        if self.posterior.draws is None:
            kinds = torch.stack((waves.cos.square(), waves.sin.square(), waves.cos * waves.sin))
            return (V[..., at] * kinds).sum((0, 1)).clamp_min(0.0)
        total = torch.zeros(len(at), dtype=V.dtype)
        for part in torch.arange(len(at)).split(max(1, _NUMBERS // V[0, :, 0].numel())):
            own = V[:, :, at[part]]  # [2, S, n, t_max + 1]
            f = torch.einsum("snt,tn->sn", own[0], waves.cos[:, part]) + torch.einsum(
                "snt,tn->sn", own[1], waves.sin[:, part]
            )
            total[part] = f.square().mean(0)
        return total

    def components(self, latitudes: Tensor, longitudes: Tensor, frequencies: list[int]) -> Tensor:
        """The mean of single frequencies as fields, [frequencies, P, rows, columns]."""
        angle, left = self.features.offsets(longitudes)
        out = torch.empty(
            len(frequencies), len(self.posterior.mean), len(latitudes), len(longitudes), dtype=torch.float64
        )
        for offset in left.unique():
            columns = (left == offset).nonzero()[:, 0]
            waves = Waves.at(self.features, angle[columns], torch.float64)
            for rows, c, _, _ in self.parallels(latitudes, offset.expand(len(latitudes)), False):
                for k, t in enumerate(frequencies):
                    own = c.double()[..., t : t + 1]
                    out[k][:, rows, columns] = own[0] * waves.cos[t] + own[1] * waves.sin[t]
        return out

    def spectrum(self, latitudes: Tensor) -> Tensor:
        """The power of the mean at every frequency, averaged over the area of the globe, [P, t_max + 1]."""
        total = torch.zeros(len(self.posterior.mean), self.features.t_max + 1, dtype=torch.float64)
        weights = torch.cos(latitudes.double() * _RADIANS).clamp_min(0.0)
        weights = weights / weights.sum().clamp_min(1e-300)
        half = torch.where(self.features.multiplicity() == 2, 0.5, 1.0)
        for rows, c, _, _ in self.parallels(latitudes, torch.zeros_like(latitudes), False):
            total += torch.einsum("cprt,r->pt", c.double().square(), weights[rows]) * half
        return total

    def samples(
        self, latitudes: Tensor, longitudes: Tensor, n: int, seed: int = 0, n_frequencies: int = 1024
    ) -> Tensor:
        """Whole fields drawn from the posterior, [n, P, rows, columns], float64.

        What the features leave open is a path of the prior by random features, less the path's own part in the features.
        """
        generator = torch.Generator().manual_seed(seed)
        P = len(self.posterior.mean)
        v = self.posterior.sample(n, generator)  # [n, P, 2, t_max + 1, m]
        kernel = self.features.view.kernel  # type: ignore[attr-defined]
        prior = PriorPath.draw(kernel, 2, n * P, generator, n_frequencies)
        (own,) = self.whitened.project(prior)  # [blocks, m, n P]
        T = self.features.t_max + 1
        start = torch.zeros(n * P, 2, T, own.shape[1], dtype=torch.float64)
        start[:, 0] = own[:T].permute(2, 0, 1)
        start[:, 1, 1 : self.features.n_sines + 1] = own[T:].permute(2, 0, 1)
        update = v.flatten(0, 1) - start
        angle, left = self.features.offsets(longitudes)
        out = torch.empty(n * P, len(latitudes), len(longitudes), dtype=torch.float64)
        for offset in left.unique():
            columns = (left == offset).nonzero()[:, 0]
            waves = Waves.at(self.features, angle[columns], torch.float64)
            for rows in self.whitened.chunks(latitudes):
                a = self.whitened.parallels(latitudes[rows], offset.expand(len(latitudes))[rows])
                out[:, rows, columns] = spread(self._along(a, update).double(), waves)
        for row, latitude in enumerate(latitudes.double()):
            x = torch.stack((longitudes.double(), latitude.expand(len(longitudes))), -1)
            out[:, row] += prior(x).mT
        return out.unflatten(0, (n, P))
