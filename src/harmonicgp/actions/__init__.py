"""Actions: how the elements of a group move points."""

from harmonicgp.actions.base import Action, Product, register_action
from harmonicgp.actions.negation import Negation, PrincipalNegation, strided
from harmonicgp.actions.orthogonal import Orthogonal
from harmonicgp.actions.permutation import ImageFlip, ImageShift, Permutation
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
    "register_action",
    "strided",
]

register_action("Product", Product, children="factors")  # here, so that it is last in the list of messages
