"""Checkpoints: all that a fit needs to go on as if it had not been stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonicgp._files import read_container, write_container
from harmonicgp.inference.posterior import Posterior
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Course, Schedule

FORMAT = 1
#: What may differ between a fit and its resumption.
_FREE = ("checkpoint", "checkpoint_every", "progress", "time_budget")


def fingerprint(problem: Problem, plan: Schedule) -> str:
    """A digest of data, starting values and schedule: a checkpoint serves the fit that made it, and no other."""
    digest = hashlib.sha256()
    facts = {name: value for name, value in asdict(plan).items() if name not in _FREE}
    digest.update(repr((sorted(facts.items()), problem.bound, problem.features.shapes)).encode())
    for tensor in (problem.X, problem.y, problem.noise, problem.counts, *problem.parameters()):
        if tensor is not None:
            digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


class Checkpoint:
    """One file, written whole or not at all."""

    def __init__(self, path: Path, problem: Problem, plan: Schedule) -> None:
        self.path, self.plan = Path(path), plan
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fingerprint = fingerprint(problem, plan)

    def write(
        self,
        parameters: Sequence[torch.nn.Parameter],
        optimizer: torch.optim.Adam | None,
        q: Posterior | None,
        course: Course,
        drawn: int,
        history: Sequence[dict[str, Any]],
        seconds: float,
    ) -> None:
        """The state after a step."""
        tensors: dict[str, Tensor] = {f"parameter.{i}": p.detach() for i, p in enumerate(parameters)}
        if optimizer is not None:
            for i, p in enumerate(parameters):
                for name, value in optimizer.state.get(p, {}).items():
                    tensors[f"adam.{i}.{name}"] = value
        if q is not None:
            for i, (mean, Lambda, factor) in enumerate(zip(q.means, q.precisions, q.factors, strict=True)):
                tensors |= {f"q.mean.{i}": mean, f"q.precision.{i}": Lambda, f"q.factor.{i}": factor}
        header = {
            "fingerprint": self._fingerprint,
            "course": course.state(),
            "drawn": drawn,
            "history": list(history),
            "seconds": seconds,
            "family": None if q is None else q.family,
        }
        write_container(self.path, "checkpoint", FORMAT, header, tensors)

    @torch.no_grad()
    def read(
        self, parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Adam | None, course: Course
    ) -> tuple[Posterior | None, int, list[dict[str, Any]]] | None:
        """Put the state back: (q, batches drawn, history), or None where there is no checkpoint yet."""
        if not self.path.exists():
            return None
        container = read_container(self.path, "checkpoint", FORMAT)
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
        course.seconds = header["seconds"]
        q = None
        if header["family"] is not None:
            n = sum(name.startswith("q.mean.") for name in tensors)
            parts = [tuple(tensors[f"q.{part}.{i}"] for i in range(n)) for part in ("mean", "precision", "factor")]
            q = Posterior(header["family"], *parts)
        return q, int(header["drawn"]), list(header["history"])
