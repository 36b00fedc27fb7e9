"""Checkpoints: the state from which a fit continues as if it had not been stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonicgp._version import __version__
from harmonicgp.actions import Action
from harmonicgp.inference.posterior import Posterior
from harmonicgp.io.container import ModelFileError, read_container, write_container
from harmonicgp.kernels.harmonic import HarmonicTransform
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Course, Schedule

FORMAT = 1
#: Fields of the schedule that may differ when a fit is resumed.
_FREE = ("checkpoint", "checkpoint_every", "progress", "time_budget")


def fingerprint(problem: Problem, plan: Schedule, family: str) -> str:
    """A digest of data, model, starting values and schedule: a checkpoint continues only the fit that wrote it."""
    digest = hashlib.sha256()
    facts = {name: value for name, value in asdict(plan).items() if name not in _FREE}
    digest.update(repr((__version__, sorted(facts.items()), problem.bound, family, problem.features.shapes)).encode())
    with torch.no_grad():
        tensors = [problem.X, problem.y, problem.noise, problem.counts, problem.centred()]
    for root in (problem.features, problem.features.view, problem.observation.likelihood, problem.mean):
        if isinstance(root, torch.nn.Module):
            digest.update(repr([(name, _facts(part)) for name, part in root.named_modules()]).encode())
            digest.update(repr([(name, p.requires_grad) for name, p in root.named_parameters()]).encode())
            tensors += root.state_dict().values()
    for tensor in tensors:
        if tensor is not None:
            digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def _facts(module: torch.nn.Module) -> tuple[str, list[tuple[str, str]]]:
    """The class of a module, and its settings that are no tensors, such as the smoothness of a kernel or an action."""
    plain = (bool, int, float, str, tuple, list, Action, HarmonicTransform)
    settings = [(name, repr(value)) for name, value in vars(module).items() if isinstance(value, plain)]
    return type(module).__qualname__, sorted(s for s in settings if s[0][0] != "_" and s[0] != "training")


class Checkpoint:
    """A checkpoint file. It is replaced only by a complete one."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self._fingerprint = Path(path), fingerprint
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise ValueError(f"{self.path.parent} is a file: name a folder for checkpoints.") from None

    def remove(self) -> None:
        """Delete the file, after the fit is complete."""
        self.path.unlink(missing_ok=True)

    def write(
        self,
        parameters: Sequence[torch.nn.Parameter],
        optimizer: torch.optim.Adam | None,
        q: Posterior | None,
        course: Course,
        place: dict[str, Any],
    ) -> None:
        """Write the state after a step; `place` holds the further values of the loop."""
        tensors: dict[str, Tensor] = {f"parameter.{i}": p.detach() for i, p in enumerate(parameters)}
        if optimizer is not None:
            for i, p in enumerate(parameters):
                for name, value in optimizer.state.get(p, {}).items():
                    tensors[f"adam.{i}.{name}"] = value
        if q is not None:
            tensors |= {f"q.{name}": tensor for name, tensor in q.state().items()}
        header = {
            "fingerprint": self._fingerprint,
            "course": course.state(),
            "place": place,
            "family": None if q is None else q.family,
        }
        write_container(self.path, "checkpoint", FORMAT, header, tensors)

    @torch.no_grad()
    def read(
        self, parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Adam | None, course: Course
    ) -> tuple[Posterior | None, dict[str, Any]] | None:
        """Restore the state and return (q, place), or None if there is no checkpoint yet."""
        if not self.path.exists():
            return None
        try:
            container = read_container(self.path, "checkpoint", FORMAT)
        except ModelFileError as error:
            raise ModelFileError(f"{error} Remove {self.path} to start afresh.") from None
        header, tensors = container.header, container.tensors
        if header["fingerprint"] != self._fingerprint:
            raise ValueError(
                f"{self.path} belongs to another fit (other data, arguments or library version): remove it, or give "
                "another folder for checkpoints."
            )
        for i, p in enumerate(parameters):
            p.copy_(tensors[f"parameter.{i}"])
            prefix = f"adam.{i}."
            state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            if optimizer is not None and state:
                optimizer.state[p] = state
        for name, value in header["course"].items():
            setattr(course, name, value)
        q = None
        if header["family"] is not None:
            state = {name.removeprefix("q."): value for name, value in tensors.items() if name.startswith("q.")}
            q = Posterior.from_state(header["family"], state)
        return q, dict(header["place"])
