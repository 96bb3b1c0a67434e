"""A table as values; as HTML for the page, Markdown and LaTeX for what is written about it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

from heterophony.studies.comparison import markdown


@dataclass(frozen=True)
class PrintedTable:
    """Names in the first column, figures in the others; of cells (row, column), `strong` are the best and `weak` the
    worst: bold and a dagger."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    strong: frozenset[tuple[int, int]] = frozenset()
    weak: frozenset[tuple[int, int]] = frozenset()
    colors: Sequence[str] = field(default_factory=tuple)  # of the rows' names

    def html(self) -> str:
        """Return the table for the page."""
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in self.head)
        body = []
        for i, row in enumerate(self.rows):
            chip = f'<i class="chip" style="--c: var(--c{self.colors[i]})"></i>' if self.colors else ""
            cells = [f'<th scope="row">{chip}{html.escape(row[0])}</th>']
            for j, cell in enumerate(row[1:], 1):
                cells.append(f"<td>{self._marked(i, j, html.escape(cell), '<strong>{}</strong>', HTML_DAGGER)}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        note = f"<p class='note'>{html.escape(self.note)}</p>" if self.note else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        label = html.escape(self.title)
        return f'<div class="table" role="region" aria-label="{label}" tabindex="0">{table}</div>{note}'

    def markdown(self) -> str:
        """Return the table in Markdown, with its title and note."""
        rows = [
            [self._marked(i, j, cell, "**{}**", DAGGER) for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        lines = [f"### {self.title}", "", *markdown(self.head, rows)]
        return "\n".join([*lines, *(["", self.note] if self.note else [])]) + "\n"

    def latex(self, prefix: str = "") -> str:
        """Return a table for `booktabs`. Its label is the name of its file."""
        lines = [
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{_tex(self.title)}}}",
            f"\\label{{tab:{prefix}{self.name}}}",
        ]
        lines += [f"\\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}", "\\toprule"]
        lines += [" & ".join(map(_tex, self.head)) + " \\\\", "\\midrule"]
        for i, row in enumerate(self.rows):
            cells = [self._marked(i, j, _tex(c), "\\textbf{{{}}}", TEX_DAGGER) for j, c in enumerate(row)]
            lines.append(" & ".join(cells) + " \\\\")
        note = [f"\\par\\smallskip{{\\footnotesize {_tex(self.note)}\\par}}"] if self.note else []
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *note, "\\end{table}"]) + "\n"

    def _marked(self, i: int, j: int, text: str, bold: str, dagger: str) -> str:
        text = bold.format(text) if (i, j) in self.strong else text
        return text + dagger if (i, j) in self.weak else text


DAGGER = "†"
HTML_DAGGER = f"<sup>{DAGGER}</sup>"
TEX_DAGGER = r"\rlap{$^\dagger$}"  # takes no room, so that figures stay in line
SPECIAL = {
    **{letter: f"\\{letter}" for letter in "%&_#${}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    DAGGER: r"$^\dagger$",
    "<": "$<$",
    ">": "$>$",
}


def _tex(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)
