"""The file that keeps the choice of a fit beside its checkpoints, so that a fit that was killed does not choose again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from harmonicgp.io.container import ModelFileError, read_container, write_container
from harmonicgp.io.specs import action_spec, build_action
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.rows import ModelRows

FORMAT = 1


@dataclass(frozen=True)
class ChoiceFile:
    """The choice of one fit, and its number of inducing points a block, in a file."""

    path: Path
    fingerprint: str  #: of the fit; a file of another fit is ignored

    @classmethod
    def of(cls, data: ModelRows, settings: ModelSettings) -> ChoiceFile | None:
        """The file of a fit; None without `checkpoint_dir`."""
        folder = settings.options.checkpoint_dir
        return None if folder is None else cls(Path(folder) / "fit.choice", fingerprint(data, settings))

    def read(self) -> tuple[SymmetryChoice, int] | None:
        """What an earlier run of the same fit wrote, or None."""
        if not self.path.exists():
            return None
        try:
            header = read_container(self.path, "choice", FORMAT).header
        except ModelFileError as error:
            raise ModelFileError(f"{error} Delete the file to start the fit anew.") from None
        if header["fingerprint"] != self.fingerprint:
            return None
        return SymmetryChoice.from_state(header["symmetry"], build_action(header["action"])), int(header["n_inducing"])

    def write(self, choice: SymmetryChoice, n_inducing: int) -> None:
        """Write the choice; the folder is made if it does not exist."""
        header = {
            "fingerprint": self.fingerprint,
            "symmetry": choice.state(),
            "action": action_spec(choice.action),
            "n_inducing": n_inducing,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_container(self.path, "choice", FORMAT, header, {})

    def delete(self) -> None:
        """Delete the file of a fit that is complete."""
        self.path.unlink(missing_ok=True)


def fingerprint(data: ModelRows, settings: ModelSettings) -> str:
    """A digest of rows and arguments. Arguments that do not change the choice are left out."""
    free = ("callbacks", "checkpoint_dir", "progress", "time_budget")
    options = settings.options
    arguments = sorted((f.name, repr(getattr(options, f.name))) for f in fields(options) if f.name not in free)
    digest = hashlib.sha256(repr((arguments, settings.seed)).encode())
    for array in (data.X, data.target, data.noise, data.counts):
        if array is not None:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
