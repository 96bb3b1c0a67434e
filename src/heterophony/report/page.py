"""The page: one HTML file with everything in it, to be looked at without a network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

from heterophony.base.amounts import counted
from heterophony.base.disk import Disk
from heterophony.base.wording import slug
from heterophony.report import interactive, palette, rerun, tables
from heterophony.report.chapters import Chapter, chapters, with_and
from heterophony.report.figure import Figure
from heterophony.report.figures import draw
from heterophony.report.printed_table import PrintedTable
from heterophony.runs.findings.leaks import Leaks
from heterophony.runs.findings.untrained import Untrained
from heterophony.runs.folder import inside
from heterophony.studies.comparison import Comparison


class ReportError(ValueError):
    """A report that cannot be made; one line that says why."""


def write(
    places: Sequence[Path], to: Path | None = None, *, figures: Path | None = None, title: str | None = None
) -> dict[str, Any]:
    """Write the page of all runs at and below these places, and files for papers into `figures`. Return their names."""
    script = _plotly()
    found = chapters(places)
    drawn = [draw(chapter) for chapter in found]
    printed = [[tables.methods(chapter), *tables.participants(chapter)] for chapter in found]
    path = to or places[0] / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if inside(path) else 0o777)
    Disk(private=inside(path)).replace(path, page(found, drawn, printed, script, title).encode())
    written = [] if figures is None else files(found, drawn, printed, figures)
    return {
        "page": str(path),
        "bytes": path.stat().st_size,
        "runs": sum(len(arm.runs) for chapter in found for arm in chapter.arms),
        "unfinished": [line for chapter in found for line in chapter.unfinished],
        "figures": [figure.name for chapter in drawn for figure in chapter],
        "files": [str(file) for file in written],
    }


def lacking() -> str:
    """Return what a page needs and is not installed, and how to get it; nothing if all is there."""
    try:
        import plotly.offline  # noqa: F401
    except ImportError:
        return "a report needs plotly: pip install 'heterophony[report]'"
    return ""


def _plotly() -> str:
    if told := lacking():
        raise ReportError(told)
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


def files(
    found: Sequence[Chapter], drawn: Sequence[Sequence[Figure]], printed: Sequence[Sequence[PrintedTable]], folder: Path
) -> list[Path]:
    """Write each figure as PNG, SVG and PDF, all captions into one file, each table as Markdown and LaTeX."""
    try:
        import matplotlib  # noqa: F401

        from heterophony.report import static
    except ImportError:
        raise ReportError("figures in files need matplotlib: pip install 'heterophony[report]'") from None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700 if inside(folder) else 0o777)
    written: list[Path] = []
    captions = ["# Captions"]
    for chapter, figures, own in zip(found, drawn, printed, strict=True):
        prefix = f"{slug(chapter.setting)}-" if len(found) > 1 else ""
        for figure in figures:
            written += static.save(figure, folder, prefix)
            title = f"{figure.title}, {chapter.setting}"
            captions += [f"## {prefix}{figure.name}", f"**{title}.** {figure.caption}", f"In words: {figure.alt}"]
        for table in own:
            for suffix, text in ((".md", table.markdown()), (".tex", table.latex(prefix))):
                path = folder / f"{prefix}{table.name}{suffix}"
                path.write_text(text)
                written.append(path)
    path = folder / "captions.md"
    path.write_text("\n\n".join(captions) + "\n")
    written.append(path)
    for file in written if inside(folder) else ():
        file.chmod(0o600)
    return written


def page(
    found: Sequence[Chapter],
    drawn: Sequence[Sequence[Figure]],
    printed: Sequence[Sequence[PrintedTable]],
    plotly: str,
    title: str | None = None,
) -> str:
    plots: dict[str, Any] = {}
    body, links = [], []
    if len(found) > 1:
        body.append(f'<h2 id="federations">Across federations</h2>{tables.across(found).html()}')
        links.append('<a href="#federations">Across federations</a>')
    for number, (chapter, figures, own) in enumerate(zip(found, drawn, printed, strict=True)):
        body.append(_chapter(chapter, own[0], number))
        named = [replace(figure, name=f"{figure.name}-{number}") for figure in figures]
        body += [_figure(figure, plots) for figure in named]
        inner = [(f"setting-{number}", chapter.setting), *((figure.name, figure.title) for figure in named)]
        links.append("".join(f'<a href="#{html.escape(at)}">{html.escape(name)}</a>' for at, name in inner))
        for table in own[1:]:
            body.append(f'<section class="figure"><h3>{html.escape(table.title)}</h3>{table.html()}</section>')
        body.append(_settings(chapter))
    values = {"plots": plots, "scales": palette.SCALES, "colors": _colors(plots)}
    heading = title or _heading(found)
    parts = {
        "TITLE": html.escape(heading),
        "LEAD": html.escape(_lead(found)),
        "CSS": _themes() + _resource("page.css"),
        "NAV": "".join(f"<div>{line}</div>" for line in links),
        "BODY": "\n".join(body),
        "FOOT": html.escape(_foot()),
        # What ends a script element must not stand in one.
        "VALUES": json.dumps(_rounded(values), separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
        "PLOTLY": plotly.replace("</script", "<\\/script"),
        "SCRIPT": _resource("page.js"),
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda hit: parts[hit[1]], TEMPLATE)


TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{{TITLE}}</title>
<style>{{CSS}}</style>
</head>
<body>
<header>
<button id="theme" type="button">Dark</button>
<h1>{{TITLE}}</h1>
<p class="lead">{{LEAD}}</p>
<nav aria-label="Contents">{{NAV}}</nav>
</header>
<main>
{{BODY}}
</main>
<footer><p>{{FOOT}}</p></footer>
<script id="values" type="application/json">{{VALUES}}</script>
<script>{{PLOTLY}}</script>
<script>{{SCRIPT}}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return resources.files("heterophony.report").joinpath(name).read_text(encoding="utf-8")


def _themes() -> str:
    """Return colours as variables: by what the reader's system prefers, by what was chosen, and light on paper."""

    def variables(theme: str) -> str:
        page = [f"--{name}: {shade};" for name, shade in palette.PAGE[theme].items()]
        page += [
            f"--{name}: linear-gradient(to right, {', '.join(own[theme])});" for name, own in palette.SCALES.items()
        ]
        return " ".join([*page, *(f"--c{name}: {palette.color(name, theme)};" for name in _names())])

    light, dark = variables("light"), variables("dark")
    return (
        f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f':root[data-theme="light"] {{ {light} color-scheme: light; }}\n'
        f':root[data-theme="dark"] {{ {dark} color-scheme: dark; }}\n'
        f"@media print {{ :root, :root[data-theme] {{ {light} }} }}\n"
    )


def _names() -> list[str]:
    return [*map(str, range(palette.GREY + 1)), *(f"k{i}" for i in range(len(palette.CLASSES["light"])))]


def _colors(plots: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return by theme the colour of each name that the plots use."""
    used = set(re.findall(r'"@\^?([a-z0-9]+)(?:/\d+)?"', json.dumps(plots)))
    return {theme: {name: palette.color(name, theme) for name in sorted(used)} for theme in ("light", "dark")}


def _rounded(value: Any) -> Any:
    """Round numbers to five digits: more than a screen shows, and half of the bytes."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _heading(found: Sequence[Chapter]) -> str:
    return f"{with_and([chapter.setting for chapter in found])}"


def _lead(found: Sequence[Chapter]) -> str:
    labels = list(dict.fromkeys(arm.label for chapter in found for arm in chapter.arms))
    seeds = sorted({seed for chapter in found for arm in chapter.arms for seed in arm.seeds})
    runs = sum(len(arm.runs) for chapter in found for arm in chapter.arms)
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return f"{with_and(labels)}; {counted(runs, 'run')}, {which}."


def _foot() -> str:
    from heterophony import __version__

    return f"heterophony {__version__}, {date.today()}. Everything on this page is in this one file."


def _chapter(chapter: Chapter, table: PrintedTable, number: int) -> str:
    setting = chapter.recipe.get("setting", {})
    text = [f'<h2 id="setting-{number}">{html.escape(chapter.setting)}</h2>']
    if setting.get("summary"):
        text.append(f'<p class="lead">{html.escape(setting["summary"])}.</p>')
    if sentence := _finding(tables.comparing(chapter)):
        text.append(f"<p>{html.escape(sentence)}</p>")
    for kind, title in ((Leaks, "Leaky split"), (Untrained, "Never trained")):
        for told in _told(chapter, kind):
            text.append(f'<p class="warn">{title}: {html.escape(told)}</p>')
    if any(run.summary.unchecked for arm in chapter.arms for run in arm.runs):
        text.append('<p class="warn">Unchecked: some runs were begun before run folders had checksums.</p>')
    if chapter.unfinished:
        text.append(f'<p class="warn">Not finished yet: {html.escape("; ".join(chapter.unfinished))}.</p>')
    return "\n".join([*text, table.html()])


def _told(chapter: Chapter, kind: type[Leaks] | type[Untrained]) -> list[str]:
    """Return the sentences of a finding, each once."""
    found = [arm.first.summary.found(kind) for arm in chapter.arms]
    return list(dict.fromkeys(told for finding in found if finding is not None for told in finding.value))


def _finding(found: Comparison) -> str:
    """Return what the table says first, and no more than it can bear."""
    lines = {line.label: line for line in found.methods}
    if found.best is None or len(lines) < 2:
        return ""
    best = lines[found.best]
    figure = best.figures[found.metric]
    if figure is None:
        return ""
    score = found.score
    last, value = "highest" if score.higher else "lowest", figure.text(score.scale, score.digits)
    text = f"{best.label} has the {last} mean {score.label} on all domains, {value}{score.unit}."
    sure = [label for label, line in lines.items() if line.p is not None and line.p < 0.05]
    others = len(lines) - 1
    if len(found.seeds) < 2:
        return f"{text} One seed cannot tell that from chance."
    if all(line.p is None for line in lines.values()):
        return f"{text} No other has two seeds in common with it, so that chance cannot be told."
    if not sure:
        return f"{text} By a paired test it cannot be told from any other at the 5 % level."
    behind = with_and(sure) if len(sure) < others else "all others"
    return f"{text} By a paired test it is ahead of {behind} (p < 0.05)."


def _figure(figure: Figure, plots: dict[str, Any]) -> str:
    text = [
        f'<section class="figure" id="{html.escape(figure.name)}"><figure>',
        f"<h3>{html.escape(figure.title)}</h3>",
    ]
    text.append(f"<figcaption>{html.escape(figure.caption)}</figcaption>")
    if chips := _chips(figure):
        text.append(f'<ul class="legend" aria-label="Legend; press to hide">{"".join(chips)}</ul>')
    across = len(figure.panels) if len(figure.panels) < 6 else 4
    text.append(
        f'<div class="panels {figure.width}" style="--n: {across}" role="img" aria-label="{html.escape(figure.alt)}">'
    )
    for place, panel in enumerate(figure.panels):
        name = f"{figure.name}-{place}"
        plots[name] = interactive.panel(panel)
        head = f"<h4>{html.escape(panel.title)}</h4>" if panel.title else ""
        text.append(
            f'<div class="panel">{head}<div class="plot" id="{html.escape(name)}" '
            f'data-figure="{html.escape(figure.name)}"></div></div>'
        )
    return "\n".join([*text, "</div></figure></section>"])


def _chips(figure: Figure) -> list[str]:
    """Return the entries of a figure's legend: names that can be pressed, sizes, shapes, and a scale of colours."""
    chips = [
        f'<li><button type="button" aria-pressed="true" data-figure="{html.escape(figure.name)}" '
        f'data-name="{html.escape(name)}"><i class="mark" style="color: var(--c{color})" aria-hidden="true">'
        f"{palette.shape(color)[2]}</i>"
        f"{html.escape(name)}</button></li>"
        for name, color in figure.legend
    ]
    chips += [
        f'<li class="size"><i class="dot" style="--d: {pixels:.1f}px"></i>{html.escape(name)}</li>'
        for name, pixels in figure.sizes
    ]
    chips += [
        f'<li class="size"><i class="dot{" ring" if hollow else ""}" style="--d: 8px"></i>{html.escape(name)}</li>'
        for name, hollow in figure.shapes
    ]
    if (heat := figure.scaled) is not None:
        bar = f'<i class="scale" style="--s: var(--{heat.scale})"></i>'
        chips.append(f'<li class="size">{heat.low:g} {bar} {heat.high:g}</li>')
    return chips


def _settings(chapter: Chapter) -> str:
    """Return what was run, and how to run it again."""
    commands = [rerun.command(run) for arm in chapter.arms for run in arm.runs]
    text = ['<section class="figure"><h3>Run it again</h3>', f"<pre>{html.escape(chr(10).join(commands))}</pre>"]
    for resolved in dict.fromkeys(rerun.setting(arm.first) for arm in chapter.arms):
        if resolved:
            title = f"The resolved setting, {html.escape(str(chapter.setting))}.toml"
            text.append(f"<details><summary>{title}</summary><pre>{html.escape(resolved)}</pre></details>")
    for arm in chapter.arms:
        options = json.dumps(arm.first.spec["settings"], indent=1)
        inner = f"<summary>All options of {html.escape(arm.label)}</summary><pre>{html.escape(options)}</pre>"
        text.append(f"<details>{inner}</details>")
    return "\n".join([*text, "</section>"])
