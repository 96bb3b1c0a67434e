"""A table as values; as HTML for the page, Markdown and LaTeX for what is written about it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

from heterophony.comparison import markdown


@dataclass(frozen=True)
class Sheet:
    """Names in the first column, figures in the others; `strong` are cells (row, column) to look at first."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    strong: frozenset[tuple[int, int]] = frozenset()
    colors: Sequence[str] = field(default_factory=tuple)  # of the rows' names

    def html(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in self.head)
        body = []
        for i, row in enumerate(self.rows):
            chip = f'<i class="chip" style="--c: var(--c{self.colors[i]})"></i>' if self.colors else ""
            cells = [f'<th scope="row">{chip}{html.escape(row[0])}</th>']
            for j, cell in enumerate(row[1:], 1):
                text = html.escape(cell)
                cells.append(f"<td>{f'<strong>{text}</strong>' if (i, j) in self.strong else text}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        note = f"<p class='note'>{html.escape(self.note)}</p>" if self.note else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        label = html.escape(self.title)
        return f'<div class="sheet" role="region" aria-label="{label}" tabindex="0">{table}</div>{note}'

    def markdown(self) -> str:
        rows = [
            [f"**{cell}**" if (i, j) in self.strong else cell for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        lines = [f"### {self.title}", "", *markdown(self.head, rows)]
        return "\n".join([*lines, *(["", self.note] if self.note else [])]) + "\n"

    def latex(self) -> str:
        """A table for `booktabs`."""
        lines = ["\\begin{table}", "\\centering", f"\\caption{{{_tex(self.title)}}}", f"\\label{{tab:{self.name}}}"]
        lines += [f"\\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}", "\\toprule"]
        lines += [" & ".join(map(_tex, self.head)) + " \\\\", "\\midrule"]
        for i, row in enumerate(self.rows):
            cells = [f"\\textbf{{{_tex(c)}}}" if (i, j) in self.strong else _tex(c) for j, c in enumerate(row)]
            lines.append(" & ".join(cells) + " \\\\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}"]) + "\n"


SPECIAL = {
    **{letter: f"\\{letter}" for letter in "%&_#${}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
}


def _tex(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)
