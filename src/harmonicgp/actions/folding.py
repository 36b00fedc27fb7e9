"""The fundamental domain of an action: one image of every orbit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from harmonicgp.groups import Group


def embed(x: Tensor, periods: Mapping[int, float]) -> Tensor:
    """Circular coordinates as (cos, sin): [..., d] -> [..., d + circles]."""
    if not periods:
        return x
    columns = []
    for axis in range(x.shape[-1]):
        if axis in periods:
            angle = x[..., axis] * (2 * math.pi / periods[axis])
            columns += [angle.cos(), angle.sin()]
        else:
            columns.append(x[..., axis])
    return torch.stack(columns, -1)


def nearest_image(x: Tensor, images: Tensor, group: Group, periods: Mapping[int, float]) -> Tensor:
    """For each row of x, the place of the element s whose image s.x is nearest to a generic point w; integers [n].

    `images` [|G|, d] are those of w, in float64. Images of x are never made: |w - s.x| = |-s.w - x|.
    """
    circles = torch.tensor([axis in periods for axis in range(x.shape[-1])], device=x.device)
    # The mean of an orbit is a fixed point; measured from it every element is linear.
    center = torch.where(circles, torch.zeros_like(images[0]), images.mean(0))
    W = embed(images - center, periods)[group.inverses().to(x.device)]
    nearness = embed(x.detach().double() - center, periods) @ W.mT
    # Ties are between images that coincide up to rounding: take the first, so that rounding does not choose.
    scale = 1e-9 * nearness.abs().amax(-1, keepdim=True)
    return (nearness >= nearness.amax(-1, keepdim=True) - scale).to(torch.uint8).argmax(-1)
