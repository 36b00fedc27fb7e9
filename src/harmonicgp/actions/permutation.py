"""Actions that reorder coordinates: permutations, image flips, image rolls."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from harmonicgp._validation import coordinates, whole_number
from harmonicgp.actions.base import Action, register_action
from harmonicgp.actions.linear import LinearParts, reordered_parts
from harmonicgp.groups import Cyclic, Group
from harmonicgp.io.fields import LARGEST, Fields


class Reordering(Action):
    """An action whose every element reorders the d coordinates: (s.x)_i = x_{source(s)_i}."""

    dim: int

    @abstractmethod
    def source(self, s: Tensor) -> Tensor:
        """Where each coordinate comes from, integers [..., J] -> [..., d]."""

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points with their coordinates in the new order."""
        source = self.source(s)
        shape = torch.broadcast_shapes(x.shape, source.shape)
        return x.expand(shape).gather(-1, source.expand(shape))

    def linear_parts(self, d: int) -> LinearParts | None:
        """The parts by a Fourier transform along the orbits of coordinates, if each has |G| coordinates; else by matrices."""
        return reordered_parts(self.group, self.source(self.group.elements()), d) or super().linear_parts(d)


class Permutation(Reordering):
    """Reorders the coordinates, (g.x)_i = x_{permutation[i]}. The group is cyclic with the order of the permutation.

    Examples:
        >>> import torch
        >>> action = Permutation([1, 2, 3, 0])
        >>> action.group, action.apply(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), 1)
        (Cyclic(4), tensor([[2., 3., 4., 1.]]))
    """

    def __init__(self, permutation: Sequence[int]) -> None:
        self.permutation = coordinates(permutation, "a permutation")
        self.dim = self.min_dim = len(self.permutation)
        if sorted(self.permutation) != list(range(self.dim)):
            raise ValueError(
                f"a permutation of {self.dim} contains 0 to {self.dim - 1} once each; got {permutation!r}."
            )
        # A permutation is a set of cycles: after s steps coordinate i is the one s places further along its cycle.
        self._cycles = torch.empty(self.dim, dtype=torch.long, device="cpu")  # all cycles, concatenated
        self._first, self._length, self._at = (torch.empty_like(self._cycles) for _ in range(3))
        visited: set[int] = set()
        for i in range(self.dim):
            cycle: list[int] = []
            while i not in visited:
                visited.add(i)
                cycle.append(i)
                i = self.permutation[i]
            if cycle:
                first = len(visited) - len(cycle)
                self._cycles[first : first + len(cycle)] = torch.tensor(cycle, device="cpu")
                self._first[cycle], self._length[cycle] = first, len(cycle)
                self._at[cycle] = torch.arange(len(cycle), device="cpu")
        self.group = Cyclic(math.lcm(*self._length.tolist()))

    def source(self, s: Tensor) -> Tensor:
        """The coordinate s steps further along each cycle, [..., d]."""
        first, length, at, cycles = (t.to(s.device) for t in (self._first, self._length, self._at, self._cycles))
        return cycles[first + (at + s) % length]

    def mixed_columns(self, d: int) -> list[list[int]]:
        """One group of the columns that the permutation moves."""
        columns = [i for i, j in enumerate(self.permutation) if i != j]
        return [columns] if columns else []

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The permutation of the columns with the new numbers; other columns stay in their place."""
        order = list(range(width))
        for i, j in enumerate(self.permutation):
            order[columns[i]] = columns[j]
        return Permutation(order)

    def __repr__(self) -> str:
        return f"Permutation({list(self.permutation)})"


class _ImageAction(Reordering):
    """Images as flat rows, of shape (height, width) or (height, width, channels)."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(whole_number(side, "a side of an image", 1) for side in shape)
        if len(self.shape) not in (2, 3):
            raise ValueError(f"an image shape is (height, width) or (height, width, channels); got {self.shape}.")
        if len(self.shape) == 3 and self.shape[0] in (1, 3) and self.shape[1] == self.shape[2] > 4:
            raise ValueError(
                f"{self.shape} looks like (channels, height, width); rows here are flat images of shape (height, width, "
                "channels): use images.movedim(1, -1).flatten(1)."
            )
        self.dim = self.min_dim = math.prod(self.shape)

    def _pixels(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The positions in flat images of the pixels at rows [..., H] and columns [..., W], all channels: [..., d]."""
        _, W = self.shape[:2]
        C = self.dim // math.prod(self.shape[:2])
        place = (rows[..., :, None] * W + columns[..., None, :])[..., None] * C
        return (place + torch.arange(C, device=place.device)).flatten(-3)


class ImageFlip(_ImageAction):
    """Flips images up-down and left-right, two ways; `axes=(0,)` or `axes=(1,)` for one of them.

    Rows are flat images of shape (height, width), or (height, width, channels) with the channels last.

    Examples:
        >>> import torch
        >>> ImageFlip((2, 2)).apply(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), (0, 1))
        tensor([[2., 1., 4., 3.]])
    """

    def __init__(self, shape: Sequence[int], axes: Sequence[int] = (0, 1)) -> None:
        super().__init__(shape)
        self.axes = coordinates(axes, "the axes of ImageFlip")
        if max(self.axes) > 1:
            raise ValueError(f"an image flips along axis 0 (up-down) and axis 1 (left-right); got {list(self.axes)}.")
        for axis in self.axes:
            if self.shape[axis] == 1:
                raise ValueError(
                    f"an image of shape {self.shape} has one pixel along axis {axis}: flipping does nothing."
                )
        self.group = Cyclic(2) ** len(self.axes)

    def source(self, s: Tensor) -> Tensor:
        """The mirrored pixels, [..., d]."""
        lines = []
        for axis in (0, 1):
            line = torch.arange(self.shape[axis], device=s.device)
            if axis in self.axes:
                flipped = s[..., self.axes.index(axis), None] == 1
                line = torch.where(flipped, line.flip(0), line)
            lines.append(line)
        return self._pixels(*lines)

    def __repr__(self) -> str:
        axes = f", axes={self.axes}" if self.axes != (0, 1) else ""
        return f"ImageFlip({self.shape}{axes})"


class ImageShift(_ImageAction):
    """Rolls images down and right by `step` pixels, wrapping around, in two ways of order height/step and width/step.

    `step` may be a pair, one number for each axis. Rows are flat images of shape (height, width), or (height, width, channels)
    with the channels last.

    Examples:
        >>> ImageShift((28, 28), 4).group
        Cyclic(7)**2
    """

    def __init__(self, shape: Sequence[int], step: int | Sequence[int]) -> None:
        super().__init__(shape)
        steps = tuple(step) if isinstance(step, Sequence) else (step, step)
        self.steps = tuple(whole_number(pixels, "the step of ImageShift", 1) for pixels in steps)
        if len(self.steps) != 2:
            raise ValueError(f"the step of ImageShift is one number or a pair; got {step!r}.")
        for side, pixels in zip(self.shape, self.steps, strict=False):
            if side % pixels:
                raise ValueError(f"a step of {pixels} pixels does not divide the side {side} of an image {self.shape}.")
        self.group = Group((self.shape[0] // self.steps[0], self.shape[1] // self.steps[1]))

    def source(self, s: Tensor) -> Tensor:
        """The pixel that each pixel gets its value from, [..., d]."""
        lines = [
            (torch.arange(self.shape[axis], device=s.device) - s[..., axis, None] * self.steps[axis]) % self.shape[axis]
            for axis in (0, 1)
        ]
        return self._pixels(*lines)

    def __repr__(self) -> str:
        return f"ImageShift({self.shape}, {self.steps[0] if len(set(self.steps)) == 1 else self.steps})"


def _image_shape(fields: Fields, key: str) -> list[int]:
    shape: list[int] = fields.read(key, list[int])
    if math.prod(shape) > LARGEST:
        raise fields.error("the image is too large")
    return shape


register_action("Permutation", Permutation, permutation=list[int])
register_action("ImageFlip", ImageFlip, shape=_image_shape, axes=list[int])
register_action(
    "ImageShift", ImageShift, make=lambda shape, steps: ImageShift(shape, steps), shape=_image_shape, steps=list[int]
)
