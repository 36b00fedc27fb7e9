"""The symmetry of a fit: the one that the user names, or the best of a search."""

from __future__ import annotations

import gpytorch

from harmonicgp.actions import Action, PrincipalNegation
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.symmetry.search import search_symmetry
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.inputs import Columns
from harmonicgp.tables.notices import UndeclaredColumnsError
from harmonicgp.tables.preprocessing import ColumnEncoding
from harmonicgp.tables.rows import ModelRows


def choose_symmetry(data: ModelRows, columns: Columns, settings: ModelSettings) -> SymmetryChoice:
    """The symmetry of a fit to these rows: as the user asks, one block for few rows, or the best of a search."""
    options = settings.options
    if isinstance(options.symmetry, Action):
        return _as_asked(options.symmetry, settings)
    plain = Candidate("raw", 0, bool(settings.warp), "block")
    if isinstance(options.kernel, gpytorch.kernels.Kernel):
        return SymmetryChoice(plain, None, reason="a kernel of your own", origin="kernel")
    if options.symmetry is None:
        return SymmetryChoice(plain, None, reason="as asked", origin="asked")
    if settings.small:
        reason = f"{len(data)} rows are too few to gain from a symmetry"
        return SymmetryChoice(plain, None, reason=reason, origin="few rows")
    return search_symmetry(data, columns, settings)


def _as_asked(action: Action, settings: ModelSettings) -> SymmetryChoice:
    """The action of the user, checked against the columns."""
    options = settings.options
    warp, family = bool(settings.warp), settings.family or "block"
    if isinstance(action, PrincipalNegation):
        action.check_dim(len(settings.encoding.names))
        return SymmetryChoice(
            Candidate("principal", action.ways, warp, family), None, reason="as asked", origin="asked"
        )
    if not isinstance(options.kernel, gpytorch.kernels.Kernel):
        check_declared(action, settings.encoding)
    if action.group.order < 2:
        raise ValueError(f"symmetry={action!r} moves nothing: its group has one element.")
    return SymmetryChoice(Candidate("raw", 0, warp, family), action, reason="as asked", origin="asked")


def check_declared(action: Action, encoding: ColumnEncoding) -> None:
    """Raise unless the periodic columns of an action are declared: a kernel by name is periodic along declared columns only."""
    names, declared = encoding.names, encoding.kinds
    required = action.declared_kinds()
    if all(declared.get(j) == kind for j, kind in required.items()):
        return
    for j, kind in required.items():
        if j in declared and declared[j] != kind:
            raise ValueError(f"symmetry={action!r} takes {names[j]} as {kind}, but it is declared {declared[j]}.")
    elsewhere = [j for j, kind in declared.items() if kind == "longitude"]
    if elsewhere and "longitude" in required.values():
        raise ValueError(
            f"symmetry={action!r} takes column {min(required)} for the longitude, but the longitude is encoded column "
            f"{elsewhere[0]}: give Longitude(..., axis={elsewhere[0]})."
        )
    kinds = {j if encoding.encoder is None else names[j]: kind for j, kind in required.items() if j < len(names)}
    raise UndeclaredColumnsError(repr(action), ", ".join(names[j] for j in action.periods if j < len(names)), kinds)
