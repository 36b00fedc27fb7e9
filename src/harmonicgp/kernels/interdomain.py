"""Harmonic kernels as inter-domain covariances: inducing variables that are sums over an orbit.

An inter-domain inducing point of frequency t at z is w_t = sum_s F^H_ts delta_{s.z}, with F^H_ts = chi_t(s) / |G|, and
its inducing variable u = sum_s F^H_ts f(s.z). Then k(x, w_t) = k_t(x, z), and k(w_t, w'_t') is k_t(z, z') for t = t'
and zero otherwise. These functions compute the sums directly; `harmonic_gram` is faster.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.kernels.functions import KernelLike, kernel_matrix


def harmonic_parts(function: Callable[[Tensor], Tensor], action: Action, x: Tensor) -> Tensor:
    """f_t(x) = sum_s F^H_ts f(s.x) for every frequency t: [n, d] -> [|G|, n].

    The parts of any function add up to the function. `function` maps [..., n, d] to [..., n].

    Examples:
        >>> import torch
        >>> from harmonicgp.actions import Negation
        >>> x = torch.tensor([[2.0]])
        >>> harmonic_parts(lambda x: (x**2 + x).sum(-1), Negation(), x)[:, 0]
        tensor([4., 2.])
    """
    values = function(action.orbit(x))
    if values.shape != (action.group.order, *x.shape[:-1]):
        raise ValueError(
            f"the function must map [..., n, d] to [..., n]; for an orbit {tuple(action.orbit(x).shape)} it returned shape "
            f"{tuple(values.shape)}."
        )
    return action.group.inverse_fourier(values) / action.group.order


def interdomain_cross_covariance(kernel: KernelLike, action: Action, x: Tensor, z: Tensor) -> Tensor:
    """k(x, w_t) = E[f(x) conj(u_t)] for every frequency t, [|G|, n, m].

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Rotation
        >>> interdomain_cross_covariance(RBFKernel(), Rotation((0, 1), 3), torch.randn(5, 2), torch.randn(2, 2)).shape
        torch.Size([3, 5, 2])
    """
    if x.dim() != 2 or z.dim() != 2:
        raise ValueError(f"x and z must be points [n, d] and [m, d]; got shapes {tuple(x.shape)} and {tuple(z.shape)}.")
    K = torch.stack([kernel_matrix(kernel, x, image) for image in action.orbit(z)])
    weights = _weights(action, K)
    return torch.einsum("ts,snm->tnm", weights.conj(), K.to(weights.dtype))


def interdomain_covariance(kernel: KernelLike, action: Action, z1: Tensor, z2: Tensor) -> Tensor:
    """k(w_t, w'_t') = E[u_t conj(u'_t')] for all pairs of frequencies, [|G|, |G|, m1, m2]: zero unless t = t'.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Rotation
        >>> z = torch.randn(2, 2)
        >>> K = interdomain_covariance(RBFKernel(), Rotation((0, 1), 3), z, z)
        >>> bool(K[0, 1].abs().max() < 1e-6)
        True
    """
    if z1.dim() != 2 or z2.dim() != 2:
        raise ValueError(f"z1 and z2 must be points [m, d]; got shapes {tuple(z1.shape)} and {tuple(z2.shape)}.")
    orbit1, orbit2 = action.orbit(z1), action.orbit(z2)
    K = torch.stack([torch.stack([kernel_matrix(kernel, a, b) for b in orbit2]) for a in orbit1])
    weights = _weights(action, K)
    return torch.einsum("ts,ur,srmn->tumn", weights, weights.conj(), K.to(weights.dtype))


def _weights(action: Action, K: Tensor) -> Tensor:
    """F^H_ts = chi_t(s) / |G|, [|G|, |G|]; real if all characters are."""
    if action.group.is_real:
        return action.group.characters().real.to(K) / action.group.order
    dtype = torch.promote_types(K.dtype, torch.complex64)
    return action.group.characters(dtype).to(K.device) / action.group.order
