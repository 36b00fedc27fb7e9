"""The page of a report: Jinja2 templates, and how they write numbers. The page needs no other file."""

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
    """A part of the page with a heading: the template of its body, and the values that the template takes."""

    key: str
    title: str
    values: dict[str, Any]
    template: str = ""  #: if not the one that the key names


def picture(png: bytes) -> tuple[str, int, int]:
    """A PNG inside the page: its data URL, width and height. It is shown at half its pixels, sharp on dense screens."""
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
    """The templates of the page, with our filters for numbers."""
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
    """A number for people: four digits, thousands apart, words for what is none."""
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
    """A share as percents, one decimal where it says something."""
    if math.isnan(share):
        return "–"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def seconds(value: float) -> str:
    """A time for people."""
    if not math.isfinite(value):
        return "–"
    if value < 0.05:
        return "< 0.1 s" if value > 0 else "0 s"
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
