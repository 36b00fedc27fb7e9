"""The pieces of a page of HTML that needs nothing else: text, tables, pictures, all escaped here."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

# Nothing may be fetched and no script may run, whatever a column is called.
POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"

_CSS = """
:root { color-scheme: light dark; --ink: #1c2126; --soft: #57606a; --paper: #fff; --line: #d5dae0; --tint: #f4f6f8;
  --mark: #0072b2; --marked: #e3f0f8; --warn: #fff4e0; --warn-line: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a3adb8; --paper: #15191d; --line: #39424c;
  --tint: #1e242a; --mark: #6cb8e6; --marked: #163246; --warn: #3a2a12; --warn-line: #e69f00; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Liberation Sans", sans-serif; overflow-wrap: anywhere; }
header, main, footer { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2rem; }
h1 { font-size: clamp(1.3rem, 6vw, 1.8rem); line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .4rem; }
p, ul { max-width: 46rem; margin: .5rem 0; }
ul { padding-left: 1.25rem; }
a { color: var(--mark); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; padding: 0; list-style: none; }
.soft, figcaption, caption { color: var(--soft); font-size: .9rem; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.numbers div { background: var(--tint); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.numbers dt { color: var(--soft); font-size: .85rem; }
.numbers dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.warnings { background: var(--warn); border-left: .3rem solid var(--warn-line); padding: .5rem .75rem .5rem 2rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 1rem; margin: 1rem 0; }
figure { margin: 0; min-width: 0; }
img { display: block; width: 100%; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: .5rem; }
figcaption { margin-top: .3rem; }
.scroll { overflow-x: auto; max-width: 100%; margin: .75rem 0; container-type: inline-size; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; padding-bottom: .3rem; }
caption span { display: block; position: sticky; left: 0; max-width: min(46rem, 100vw - 2.5rem); max-width: min(46rem, 100cqw); }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; max-width: 22rem; }
thead th { color: var(--soft); font-weight: 600; max-width: 12rem; overflow-wrap: break-word; vertical-align: bottom; }
td.number, th.number { text-align: right; }
td.number { white-space: nowrap; }
tr.chosen { background: var(--marked); font-weight: 600; }
th.name, td.text { overflow-wrap: anywhere; }
th.name { min-width: 7rem; }
td.text { min-width: 5rem; }
@media (max-width: 40rem) { th, td { padding: .3rem .45rem; } }
tbody th { font-weight: 500; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem; overflow-x: auto; }
footer { color: var(--soft); font-size: .85rem; padding-top: 2rem; padding-bottom: 2rem; }
@media print { .pictures figure, .numbers { break-inside: avoid; } }
""".strip()


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is not plain: how it is set, how many columns it spans, how dark it is shaded (0 to 1)."""

    text: str
    number: bool = False
    span: int = 1
    shade: float = 0.0


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; `body` is HTML already."""

    key: str
    title: str
    body: str


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


def paragraph(text: str, soft: bool = False) -> str:
    """A paragraph of plain text."""
    return f"<p{_kind('soft' if soft else '')}>{escape(text)}</p>\n"


def items(texts: Iterable[str], kind: str = "") -> str:
    """A list of plain texts."""
    inner = "".join(f"<li>{escape(text)}</li>\n" for text in texts)
    return f"<ul{_kind(kind)}>\n{inner}</ul>\n"


def numbers(pairs: Iterable[tuple[str, str]]) -> str:
    """The few numbers to see first, each in a box."""
    inner = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>\n" for name, value in pairs)
    return f'<dl class="numbers">\n{inner}</dl>\n'


def line(*cells: str | Cell) -> list[str | Cell]:
    """A line of a table: what is plain text after the first cell is set as a number."""
    return [cells[0], *(Cell(cell, number=True) if isinstance(cell, str) else cell for cell in cells[1:])]


def table(
    caption: str, head: Sequence[str | Cell], rows: Iterable[Sequence[str | Cell]], chosen: Iterable[int] = ()
) -> str:
    """A table that scrolls in its own box; the first cell of a row is its name."""
    marked = set(chosen)
    lines = []
    for i, row in enumerate(rows):
        cells = "".join(_cell(cell, "th" if j == 0 else "td") for j, cell in enumerate(row))
        lines.append(f"<tr{_kind('chosen' if i in marked else '')}>{cells}</tr>\n")
    top = "".join(_cell(cell, "th", scope="col") for cell in head)
    label = escape(caption, quote=True)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">\n<table>\n'
        f"<caption><span>{escape(caption)}</span></caption>\n"
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody>\n</table>\n</div>\n"
    )


def _cell(cell: str | Cell, tag: str, scope: str = "row") -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    kind = "number" if cell.number else "name" if tag == "th" and scope == "row" else "text" if tag == "td" else ""
    attributes = _kind(kind)
    attributes += f' scope="{scope}"' if tag == "th" else ""
    attributes += f' colspan="{cell.span}"' if cell.span > 1 else ""
    attributes += f' style="background:rgba(0,114,178,{0.5 * cell.shade:.2f})"' if cell.shade else ""
    return f"<{tag}{attributes}>{escape(cell.text)}</{tag}>"


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""


def figure(png: bytes, alt: str, caption: str) -> str:
    """A picture in the page itself, shown at half its pixels so that it is sharp on dense screens."""
    width, height = (int.from_bytes(png[start : start + 4]) // 2 for start in (16, 20))
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" width="{width}" height="{height}" '
        f'alt="{escape(alt, quote=True)}">\n<figcaption>{escape(caption)}</figcaption></figure>\n'
    )


def pictures(figures: Iterable[str]) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pictures">\n{"".join(figures)}</div>\n'


def code(text: str) -> str:
    """Lines to copy."""
    return f"<pre><code>{escape(text)}</code></pre>\n"


def page(title: str, lead: str, sections: Sequence[Section], footer: str) -> str:
    """The whole page."""
    links = "".join(f'<li><a href="#{s.key}">{escape(s.title)}</a></li>\n' for s in sections)
    body = "".join(
        f'<section id="{s.key}" aria-labelledby="{s.key}-title">\n<h2 id="{s.key}-title">{escape(s.title)}</h2>\n'
        f"{s.body}</section>\n"
        for s in sections
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{POLICY}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_CSS}\n</style>\n</head>\n<body>\n<header>\n<h1>{escape(title)}</h1>\n"
        f'{paragraph(lead)}<nav aria-label="Contents">\n<ul>\n{links}</ul>\n</nav>\n</header>\n<main>\n{body}</main>\n'
        f"<footer>{escape(footer)}</footer>\n</body>\n</html>\n"
    )
