"""The page of a report: Jinja2 templates, and filters that format numbers. The page needs no other file."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harmonicgp._extras import require


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading: the template of its body, and the values for the template."""

    key: str
    title: str
    values: dict[str, Any]
    template: str = ""  #: by default that with the name of the key


def picture(png: bytes) -> tuple[str, int, int]:
    """A PNG as a data URL, with half its width and height in pixels, so that it is sharp on dense screens."""
    width, height = (int.from_bytes(png[start : start + 4]) // 2 for start in (16, 20))  # in its header
    return f"data:image/png;base64,{base64.b64encode(png).decode()}", width, height


def render(title: str, sections: Iterable[Section], **values: Any) -> str:
    """The whole page as HTML. All values are escaped."""
    markup, templates = require("markupsafe", "plot", "a report").Markup, environment()
    bodies = [
        (section, markup(templates.get_template(section.template or f"{section.key}.html").render(section.values)))
        for section in sections
    ]
    return str(templates.get_template("page.html").render(title=title, sections=bodies, **values))


def environment() -> Any:
    """The Jinja2 environment of the page, with filters for numbers."""
    jinja2 = require("jinja2", "plot", "a report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harmonicgp.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": number, "percent": percent, "seconds": seconds, "picture": picture}
    environment.tests["finite"] = math.isfinite
    return environment


def number(value: Any) -> str:
    """A number as text: four digits, thousands separated; a dash for NaN and None.

    Examples:
        >>> number(1234567), number(0.123456), number(None)
        ('1,234,567', '0.1235', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    whole = isinstance(value, int | np.integer)
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == int(value) and (whole or abs(value) < 1e7):
        return f"{int(value):,}" if abs(value) >= 1e4 else f"{int(value)}"  # 2026 may be a year
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def percent(share: float) -> str:
    """A share in per cent, with one decimal if it is not zero.

    Examples:
        >>> percent(0.125), percent(0.5)
        ('12.5 %', '50 %')
    """
    if math.isnan(share):
        return "–"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def seconds(value: float) -> str:
    """A time as text.

    Examples:
        >>> seconds(3.14159), seconds(75), seconds(7322)
        ('3.1 s', '1 min 15 s', '2 h 2 min')
    """
    if not math.isfinite(value):
        return "–"
    if value < 0.05:
        return "< 0.1 s" if value > 0 else "0 s"
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
