"""A posterior by plain parameters, for Adam."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp.features.base import Stacks
from harmonicgp.inference.posterior import Family, Posterior, Shapes, arrange


class AdamPosterior(torch.nn.Module):
    """q(v) = prod_b N(mu_b, R_b R_b') with means and lower-triangular roots as parameters; starts at the prior."""

    def __init__(self, shapes: Shapes, family: Family, n_outputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        prior = Posterior.prior(shapes, family, n_outputs)
        self.family = family
        self.means = torch.nn.ParameterList([mu.to(dtype) for mu in prior.means])
        self.roots = torch.nn.ParameterList(
            [torch.eye(C.shape[-1], dtype=dtype).expand_as(C).clone() for C in prior.factors]
        )

    def moments(self, stacks: Stacks) -> tuple[Tensor, Tensor]:
        """A'mu and |R'a|^2, both [P, n]."""
        mean, variance = [], []
        for a, mu, R in zip(arrange(stacks, self.family), self.means, self.roots, strict=True):
            mean.append(torch.einsum("bfn,pbf->pn", a, mu))
            variance.append((R.tril().mT @ a).square().sum((1, 2)))
        return torch.stack(mean).sum(0), torch.stack(variance).sum(0)

    def kl(self) -> Tensor:
        """KL(q || N(0, I))."""
        total = torch.zeros(())
        for mu, R in zip(self.means, self.roots, strict=True):
            logdet = 2 * R.diagonal(dim1=-2, dim2=-1).abs().log().sum()  # above the diagonal R is and stays zero
            total = total + 0.5 * (mu.square().sum() + R.square().sum() - mu.numel() - logdet)
        return total

    @torch.no_grad()
    def posterior(self) -> Posterior:
        """The same q by precisions."""
        precisions = []
        for R in self.roots:
            root = R.tril().double()
            eye = torch.eye(root.shape[-1], dtype=torch.float64)
            inverse = torch.linalg.solve_triangular(root, eye.expand_as(root), upper=False)
            precisions.append(inverse.mT @ inverse)
        return Posterior.from_precisions(self.family, [mu.detach().double() for mu in self.means], precisions)
