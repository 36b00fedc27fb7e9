"""How a group moves inputs. A group counts; an action moves points."""

from harmonicgp.actions.base import Action
from harmonicgp.actions.negation import Negation, PrincipalNegation, strided
from harmonicgp.actions.orthogonal import Orthogonal
from harmonicgp.actions.permutation import ImageFlip, ImageShift, Permutation
from harmonicgp.actions.product import Product
from harmonicgp.actions.rotation import Rotation
from harmonicgp.actions.translation import Longitude, Translation

__all__ = [
    "Action",
    "ImageFlip",
    "ImageShift",
    "Longitude",
    "Negation",
    "Orthogonal",
    "Permutation",
    "PrincipalNegation",
    "Product",
    "Rotation",
    "Translation",
    "strided",
]
