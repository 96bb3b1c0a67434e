"""The report: what is on the page, what it leaves out, and that a real browser draws all of it without a word."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from heterophony import Compute, cli, engines
from heterophony.catalogue import registry
from heterophony.report import chapters, figures, interactive, palette, rerun, static, tables, ticks
from heterophony.report import figure as figure_module
from heterophony.report.figure import Curve, Dots, Heat
from heterophony.report.figures import bubbles, conflicts, correlation, domains, features
from heterophony.report.figures import spread as spread_figure
from heterophony.runs.folder import Folder
from heterophony.runs.population import spread
from heterophony.runs.run import Run
from heterophony.settings import Setting, assemble
from toys.altering import altered
from toys.compared import call, refused, said

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def tree_runs(tmp_path_factory):
    """A tiny tree of four leaves."""
    folder = tmp_path_factory.mktemp("tree")
    setting = folder / "tree.toml"
    setting.write_text(
        'rounds = 2\n[data]\nsource = "digits-embedded"\nrotations = [0, 40]\nclients = 2\nrows = 40\ntest = 0.1\n'
        'test_rows = 20\nside = 16\npublic = { fraction = 0.02, test = 0.5 }\n[models]\nparticipants = "mlp"\n'
        '[topology]\nresiduals = [["root", "M0.0"]]\n[local]\nlr = 0.1\n'
    )
    assert call("compare", "bhfl", "--on", setting, "--seeds", 2, "--out", folder / "runs").exit_code == 0
    return folder / "runs"


@pytest.fixture(scope="module")
def peers(small, tmp_path_factory):
    """FedH2L, which notes how its gradients agree."""
    folder = tmp_path_factory.mktemp("peers") / "run"
    assert call("run", "fedh2l", "--on", small, "--rounds", 3, "--out", folder).exit_code == 0
    return folder


@pytest.fixture(scope="module")
def one_domain(tmp_path_factory):
    """One round in one domain, alone and together."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "one.toml").write_text(
        'rounds = 1\n[data]\nsource = "digits-embedded"\nclients = 3\nrows = 60\ntest = 0.1\ntest_rows = 20\n'
        'side = 16\n[models]\nparticipants = "mlp"\n'
    )
    command = ("compare", "solo", "fedavg", "--on", folder / "one.toml", "--seeds", 1, "--out", folder / "runs")
    assert call(*command).exit_code == 0
    return folder / "runs"


@pytest.fixture(scope="module")
def page(runs, tree_runs, peers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return folder, said(call("report", runs, tree_runs, peers, "--to", folder / "r.html", "--json"))


def test_every_figure_that_applies_is_there_and_no_other(runs, tree_runs, peers):
    (chapter,) = chapters.chapters([runs])
    names = [figure.name for figure in figures.draw(chapter)]
    assert names == ["curves", "cost", "domains", "bubbles", "features", "correlation-fccl", "products", "losses"]
    (chapter,) = chapters.chapters([peers])
    assert "conflicts-fedh2l" in [figure.name for figure in figures.draw(chapter)]
    (chapter,) = chapters.chapters([tree_runs])
    names = [figure.name for figure in figures.draw(chapter)]
    assert {"tree-bhfl", "updates-bhfl"} <= set(names)
    assert not {"correlation-bhfl", "conflicts-bhfl"} & set(names)


def test_a_run_that_is_named_in_two_ways_is_one_run(peers, monkeypatch):
    monkeypatch.chdir(peers.parent)
    (chapter,) = chapters.chapters([peers, Path(peers.name), Path(".")])
    assert [len(arm.runs) for arm in chapter.arms] == [1]


def test_figures_say_in_words_what_they_show(runs):
    (chapter,) = chapters.chapters([runs])
    for figure in figures.draw(chapter):
        assert figure.caption.endswith(".")
        assert len(figure.alt) > 40
        assert any(letter.isdigit() for letter in figure.alt)


def test_a_labels_colour_is_the_same_everywhere(runs):
    (chapter,) = chapters.chapters([runs])
    assert len(set(chapter.colors.values())) == 3
    assert chapter.colors["solo"] == str(palette.GREY)
    for figure in figures.draw(chapter)[:2]:
        for panel in figure.panels:
            assert {line.name: line.color for line in panel.traces} == chapter.colors


def test_blocks_of_a_table_are_chapters_of_their_own(runs, tmp_path):
    """The same methods and seeds twice are not more seeds."""
    for block in ("one", "other"):
        shutil.copytree(runs / "solo", tmp_path / block / "solo")
    shutil.copytree(runs / "fedavg", tmp_path / "one" / "fedavg")
    found = {
        chapter.setting: [(arm.label, arm.seeds) for arm in chapter.arms] for chapter in chapters.chapters([tmp_path])
    }
    assert found == {
        "small: one": [("solo", [0, 1]), ("fedavg", [0, 1])],
        "small: other": [("solo", [0, 1])],
    }


def test_runs_that_differ_in_more_than_their_seed_are_no_seeds_of_one_method(small, tmp_path):
    for lr, seed in ((0.1, 0), (0.2, 0), (0.3, 1)):
        out = tmp_path / "runs" / f"lr-{lr}"
        assert call("run", "fedavg", "--on", small, "--set", f"lr={lr}", "--seed", seed, "--out", out).exit_code == 0
    (chapter,) = chapters.chapters([tmp_path / "runs"])
    assert chapter.setting == "small"
    assert [(arm.label, arm.seeds) for arm in chapter.arms] == [
        ("fedavg, lr-0.1", [0]),
        ("fedavg, lr-0.2", [0]),
        ("fedavg, lr-0.3", [1]),
    ]
    (both,) = chapters.chapters([tmp_path / "runs" / "lr-0.1", tmp_path / "runs" / "lr-0.3"])
    assert len(both.arms) == 2


def stopped(method, small, folder, *, seed, after, rounds):
    """A run that is interrupted after so many of its rounds."""
    federation = assemble(method, str(small), seed=seed, compute=Compute())

    def stop(engine):
        done = 1 + max((row["round"] for row in engine.table if row["product"] == engine.method.headline), default=-1)
        engine.stop = done >= after

    with Run.create(folder, federation.identity(), rounds) as run, pytest.raises(KeyboardInterrupt):
        engines.local(federation, record=run, progress=stop).run(rounds)


def test_seeds_at_different_rounds_have_no_mean(small, tmp_path):
    for seed, rounds in ((0, 1), (1, 4), (2, 4)):
        out = tmp_path / "solo" / f"seed-{seed}"
        assert call("run", "solo", "--on", small, "--rounds", rounds, "--seed", seed, "--out", out).exit_code == 0
    (chapter,) = chapters.chapters([tmp_path])
    assert [(arm.label, arm.seeds) for arm in chapter.arms] == [("solo, 1 round", [0]), ("solo, 4 rounds", [1, 2])]
    at = tables.methods(chapter).head.index("rounds")
    assert [row[at] for row in tables.methods(chapter).rows] == ["1", "4"]


def test_a_run_on_its_way_is_named_and_no_part_of_any_mean(runs, small, tmp_path):
    folder = tmp_path / "runs"
    for method in ("solo", "fedavg"):
        shutil.copytree(runs / method, folder / method)
    stopped("fedavg", small, folder / "fedavg" / "seed-2", seed=2, after=1, rounds=3)
    stopped("fml", small, folder / "fml" / "seed-0", seed=0, after=0, rounds=2)
    (folder / "other.toml").write_text(small.read_text())
    stopped("fml", folder / "other.toml", folder / "new", seed=0, after=0, rounds=2)
    answer = call("report", folder, "--to", tmp_path / "r.html")
    waiting = ["fedavg, seed 2: 1 of 3 rounds", "fml, seed 0: 0 of 2 rounds", "fml on other, seed 0: 0 of 2 rounds"]
    assert f"not finished yet: {'; '.join(waiting)}" in " ".join(answer.stdout.split())
    assert f"Not finished yet: {'; '.join(waiting)}." in (tmp_path / "r.html").read_text()
    (chapter,) = chapters.chapters([folder])
    assert [(arm.label, arm.seeds) for arm in chapter.arms] == [("solo", [0, 1]), ("fedavg", [0, 1])]
    (before,) = chapters.chapters([runs])
    drawn = [{line.name: line.y for line in figures.draw(each)[0].panels[0].traces} for each in (chapter, before)]
    assert drawn[0]["fedavg"] == drawn[1]["fedavg"]  # the whole curve
    assert tables.methods(chapter).rows[1][:-1] == tables.methods(before).rows[1][:-1]


def test_what_is_all_on_its_way_is_shown_as_far_as_it_is(small, tmp_path):
    for seed, after in ((0, 1), (1, 2)):
        stopped("solo", small, tmp_path / "solo" / f"seed-{seed}", seed=seed, after=after, rounds=3)
    (chapter,) = chapters.chapters([tmp_path])
    assert [(arm.label, arm.seeds) for arm in chapter.arms] == [("solo, 1 round", [0]), ("solo, 2 rounds", [1])]
    assert chapter.unfinished == ("solo, seed 0: 1 of 3 rounds", "solo, seed 1: 2 of 3 rounds")
    assert "--rounds 3 " in rerun.command(chapter.arms[0].first)


def test_seeds_of_different_precision_are_no_seeds_of_one_method(runs, tmp_path):
    folder = shutil.copytree(runs / "solo", tmp_path / "solo")
    altered(folder / "seed-1", "spec.json", lambda spec: {**spec, "precision": "bf16"})
    (chapter,) = chapters.chapters([tmp_path])
    assert [arm.label for arm in chapter.arms] == ["solo, seed-0", "solo, seed-1"]


def test_a_network_is_named_where_all_runs_agree_on_it(runs, tmp_path):
    folder = shutil.copytree(runs, tmp_path / "runs")

    def other(found):
        found["participants"]["b"] |= {"network": "lenet5", "rows": 30}
        return found

    altered(folder / "fccl" / "seed-0", "population.json", other)
    (chapter,) = chapters.chapters([folder])
    assert [row[1:3] for row in tables.participants(chapter)[0].rows[:2]] == [["mlp", "32"], ["-", "30 to 32"]]


def test_files_have_names_that_every_system_takes(tree_runs, tmp_path):
    for place in ("one", "other"):
        shutil.copytree(tree_runs / "bhfl", tmp_path / place / "a tree")
    files = tmp_path / "files"
    call("report", tmp_path / "one", tmp_path / "other", "--to", tmp_path / "r.html", "--figures", files)
    names = [path.name for path in files.iterdir()]
    assert "tree-one-tree-a-tree.pdf" in names
    assert not [name for name in names if not re.fullmatch(r"[\w.-]+", name)]
    latex = list(files.glob("*.tex"))  # tables of one paper: labels are as different as files
    assert [re.search(r"\\label\{tab:(.*)\}", path.read_text())[1] for path in latex] == [path.stem for path in latex]
    assert len(latex) > 2


def test_curves_are_means_with_the_band_of_the_seeds(runs):
    (chapter,) = chapters.chapters([runs])
    panel = figures.draw(chapter)[0].panels[0]
    (line,) = [line for line in panel.traces if line.name == "fedavg"]
    ends = [Folder(runs / "fedavg" / f"seed-{seed}").summary.metrics.acc for seed in (0, 1)]
    assert line.y[-1] == pytest.approx(50 * sum(ends))
    assert (line.low[-1], line.high[-1]) == (pytest.approx(100 * min(ends)), pytest.approx(100 * max(ends)))


def test_the_matrix_of_models_and_domains_is_the_metrics(runs):
    folder = Folder(runs / "solo" / "seed-0")
    found, metrics = domains.matrix(folder), folder.summary.metrics.participants
    assert list(found) == ["a", "b"]
    assert [found["a"]["a"], found["b"]["b"]] == [metrics["a"]["wdp"], metrics["b"]["wdp"]]
    assert [found["a"]["b"], found["b"]["a"]] == [metrics["a"]["cdp"], metrics["b"]["cdp"]]


def diverged(folder):
    """Make a run's models give no numbers in its last round, as if it had gone on too boldly."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = max(row["round"] for row in rows)
    rows = [{**row, "sum": None} if row["round"] == last and row["quantity"] == "accuracy" else row for row in rows]
    altered(folder, "metrics.jsonl", lambda _: "".join(json.dumps(row) + "\n" for row in rows))


def test_divergence_is_not_hidden_by_what_was_before(runs, tmp_path):
    for method in ("solo", "fedavg"):
        shutil.copytree(runs / method, tmp_path / method)
    diverged(tmp_path / "solo" / "seed-1")
    assert domains.matrix(Folder(tmp_path / "solo" / "seed-1")) == {
        "a": {"a": None, "b": None},
        "b": {"a": None, "b": None},
    }
    (chapter,) = chapters.chapters([tmp_path])
    drawn = {figure.name: figure for figure in figures.draw(chapter)}
    line = drawn["curves"].panels[0].traces[0]
    assert line.y[0] is not None
    assert (line.y[-1], line.low[-1], line.high[-1]) == (None, None, None)
    assert "no numbers: solo (seed 1)." in drawn["curves"].caption
    assert "solo ends at no number, fedavg ends at" in drawn["curves"].alt
    heat = drawn["domains"].panels[0].traces[0]
    assert heat.z == [[None, None], [None, None]]
    notes = interactive.panel(drawn["domains"].panels[0])["layout"]["annotations"]
    assert [note["text"] for note in notes] == ["-"] * 4
    assert "A dash is no number" in drawn["domains"].caption
    assert "solo at worst no number" in drawn["domains"].alt
    for figure in drawn.values():
        static.save(figure, tmp_path / "files")
    alone = {figure.name: figure for figure in figures.draw(chapters.chapters([tmp_path / "solo" / "seed-1"])[0])}
    for panel in (panel for name in ("cost", "curves") if name in alone for panel in alone[name].panels):
        assert all(line.y[-1] is None for line in panel.traces)


def test_a_node_of_a_tree_that_diverged_has_a_dash(tree_runs, tmp_path):
    folder = shutil.copytree(tree_runs / "bhfl" / "seed-0", tmp_path / "run")
    diverged(folder)
    (figure,) = [figure for figure in figures.draw(chapters.chapters([folder])[0]) if figure.name == "tree-bhfl"]
    (dots,) = [mark for mark in figure.panels[0].traces if isinstance(mark, Dots)]
    assert set(dots.text) == {"-"}
    assert "A dash: its outputs are no numbers." in figure.caption


def test_a_band_has_a_gap_where_its_curve_has_one():
    line = Curve([1, 2, 3, 4], [1.0, None, 2.0, 3.0], "a", low=[0.0, None, 1.0, 2.0], high=[2.0, None, 3.0, 4.0])
    band, curve = interactive.panel(figure_module.Panel([line]))["data"]
    assert list(zip(band["x"], band["y"], strict=True)) == [
        (1, 2.0), (1, 0.0), (None, None), (3, 3.0), (4, 4.0), (4, 2.0), (3, 1.0)
    ]  # fmt: skip
    assert curve["y"][1] is None


def test_who_is_left_out_is_said(runs, tree_runs, peers, monkeypatch):
    """And those who are shown are of all domains."""
    for module, most in ((bubbles, 3), (domains, 2), (conflicts, 1), (correlation, 1)):
        monkeypatch.setattr(module, "MOST", most)
    (tree,), (star,), (graph,) = (chapters.chapters([place]) for place in (tree_runs, runs, peers))
    (who,) = bubbles.draw(tree)
    assert {name[:3] for mark in who.panels[0].traces for name in mark.x} == {"M0.", "M40"}
    (models,) = domains.draw(tree)
    assert models.panels[0].traces[0].rows == ["M0.0", "M40.0"]
    for figure, words in (
        (who, "3 of 4 participants"),
        (models, "2 of 4 models and 2 domains"),
        (conflicts.draw(graph)[0], "1 of 2 participants"),
        (correlation.draw(star)[0], "1 of 2 participants"),
    ):
        assert words in figure.caption
        assert words in figure.alt


def test_of_many_participants_all_are_shown_sorted(runs, monkeypatch):
    (chapter,) = chapters.chapters([runs])
    assert spread_figure.draw(chapter) == []  # a table has them all
    monkeypatch.setattr(spread_figure, "MOST", 1)
    (figure,) = spread_figure.draw(chapter)
    names = {title: name for name, title in spread_figure.WHAT}
    assert figure.panels
    for panel in figure.panels:
        name = names[panel.title]
        for line in panel.traces:
            arm = next(arm for arm in chapter.arms if arm.label == line.name)
            people = arm.first.summary.metrics.participants.values()
            wanted = sorted(chapter.score.scale * own[name] for own in people if own.get(name) is not None)
            assert line.y == pytest.approx(wanted)
            assert (line.x[0], line.x[-1]) == (0, 100)
    assert "half of" in figure.alt


def test_those_who_are_shown_are_spread_over_the_domains():
    homes = {f"{home}{i}": home for home in "abc" for i in range(3)}
    assert spread(homes, 4) == ["a0", "a1", "b0", "c0"]
    assert spread(homes, 2) == ["a0", "b0"]
    assert spread(homes, 9) == list(homes)
    assert spread({str(i): str(i) for i in range(10)}, 3) == ["0", "3", "6"]


def test_a_map_of_features_says_whose_model_it_is_of(runs):
    (chapter,) = chapters.chapters([runs])
    (figure,) = features.draw(chapter)
    assert "one of 2 participants" in figure.caption
    assert "its own 'model' as the run ends (seed 0, after round 2)" in figure.caption
    assert "Tables and curves of fedavg are of 'global', another model" in figure.caption
    (alone,) = chapters.chapters([runs / "solo"])
    assert "another model" not in features.draw(alone)[0].caption
    assert "mean over seeds" in domains.draw(chapter)[0].caption
    (one,) = chapters.chapters([runs / "solo" / "seed-1"])
    assert "last evaluation, seed 1." in domains.draw(one)[0].caption


def test_a_legend_on_paper_reads_row_by_row():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    names = [(str(i), f"k{i}") for i in range(7)]
    made = Drawing()
    FigureCanvasAgg(made)
    handles = static._handles(
        figure_module.Figure("a", "", "", "", [], names, shapes=[("own", False), ("other", True)])
    )
    legend = made.legend(handles=static._by_row(handles, 4), ncols=4)
    made.canvas.draw()
    at = {text.get_text(): text.get_transform().transform(text.get_position()) for text in legend.get_texts()}
    read = sorted(at, key=lambda name: (-round(at[name][1]), at[name][0]))
    assert read == [*"0123456", "own", "other"]


def test_lines_that_share_no_places_are_pointed_at_one_by_one(runs):
    (chapter,) = chapters.chapters([runs])
    curves, cost = (interactive.panel(figures.draw(chapter)[i].panels[0]) for i in (0, 1))
    assert curves["layout"]["hovermode"] == "x unified"
    assert cost["layout"]["hovermode"] == "closest"
    assert "sent so far: %{x:.3~s}B" in cost["data"][0]["hovertemplate"]
    assert "accuracy (%)" in cost["data"][0]["hovertemplate"]


def test_maps_of_colours_without_numbers_have_a_scale(runs):
    (chapter,) = chapters.chapters([runs])
    drawn = {figure.name: figure for figure in figures.draw(chapter)}
    assert drawn["correlation-fccl"].scaled is not None
    assert drawn["domains"].scaled is None


def test_bytes_against_accuracy_end_with_all_that_was_sent(runs):
    (chapter,) = chapters.chapters([runs])
    panel = figures.draw(chapter)[1].panels[0]
    lines = {line.name: line for line in panel.traces}
    for name in ("fedavg", "fccl"):
        assert lines[name].x[-1] == Folder(runs / name / "seed-0").summary.sent
    assert lines["solo"].dash


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([9e6], ["8 MB", "10 MB", "12 MB"]),
        ([2e5, 2.3e5], ["200 kB", "250 kB", "300 kB"]),
        ([2e5, 8e5], ["200 kB", "400 kB", "600 kB", "800 kB"]),
        ([1e5, 3e6], ["100 kB", "200 kB", "500 kB", "1 MB", "2 MB"]),
        ([37e3, 3.9e6], ["30 kB", "100 kB", "300 kB", "1 MB", "3 MB"]),
        ([1e3, 1e9], ["1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB", "1 GB"]),
        ([1], ["1 B"]),
    ],
)
def test_an_axis_of_bytes_has_a_few_round_labels(values, labels):
    from matplotlib.figure import Figure as Drawing

    panel = figure_module.Panel([Curve(values, values, "a")], log=True, bytes=True)
    low, high = ticks.ends(values)
    assert low < min(values) <= max(values) < high
    assert interactive.panel(panel)["layout"]["xaxis"]["ticktext"] == labels
    axis = Drawing().add_subplot()
    static._draw(axis, panel)
    axis.figure.canvas.draw()
    assert [text.get_text() for text in axis.get_xticklabels()] == labels
    assert not any(text.get_text() for text in axis.get_xticklabels(minor=True))


def test_who_sends_nothing_is_a_line_even_beside_a_single_point(one_domain):
    (chapter,) = chapters.chapters([one_domain])
    lines = {line.name: line for line in figures.draw(chapter)[1].panels[0].traces}
    assert lines["solo"].x[0] < lines["fedavg"].x[0] < lines["solo"].x[1]


def test_a_heat_map_says_which_side_is_the_model(runs):
    (chapter,) = chapters.chapters([runs])
    (figure,) = domains.draw(chapter)
    assert {(panel.x, panel.y) for panel in figure.panels} == {("test domain", "model of")}


def test_a_legend_names_only_what_is_drawn(runs):
    (chapter,) = chapters.chapters([runs])
    (figure,) = [figure for figure in figures.draw(chapter) if figure.name == "products"]
    assert {name for name, _ in figure.legend} == {line.name for panel in figure.panels for line in panel.traces}


def test_rounds_are_counted_and_a_stopped_run_is_not_at_its_end(runs, small, tmp_path):
    assert figure_module.Panel([Curve([1, 2], [1, 2], "a")]).counted
    assert not figure_module.Panel([Curve([0.5, 2.0], [1, 2], "a")]).counted
    (chapter,) = chapters.chapters([runs])
    panel = figures.draw(chapter)[0].panels[0]
    assert interactive.panel(panel)["layout"]["xaxis"]["dtick"] == 1
    folder = shutil.copytree(runs / "fedavg" / "seed-0", tmp_path / "fedavg")
    (folder / "result.json").unlink()
    first = lambda rows: "".join(row for row in rows.splitlines(True) if json.loads(row)["round"] == 0)  # noqa: E731
    altered(folder, "metrics.jsonl", first)
    (arm,) = chapters.chapters([folder])[0].arms
    assert (arm.first.summary.rounds, arm.rounds) == (1, 2)


def test_bubbles_count_the_training_rows(runs):
    (chapter,) = chapters.chapters([runs])
    (figure,) = [figure for figure in figures.draw(chapter) if figure.name == "bubbles"]
    counts = [int(re.search(r": (\d+) of", text)[1]) for dots in figure.panels[0].traces for text in dots.hover]
    assert sum(counts) == 2 * 32
    assert not figure.legend  # a domain each: the axis names them
    assert figure.sizes[-1] == (
        f"{max(counts)} rows",
        max(size for dots in figure.panels[0].traces for size in dots.size),
    )


def test_bubbles_have_colours_where_participants_share_a_domain(tree_runs):
    (chapter,) = chapters.chapters([tree_runs])
    (figure,) = [figure for figure in figures.draw(chapter) if figure.name == "bubbles"]
    assert len(figure.legend) == 2
    assert bubbles._examples(1, 14) == [1, 5, 14]
    assert bubbles._examples(57, 75) == [57, 75]
    assert bubbles._examples(3, 3) == [3]


def test_the_tree_has_every_node_and_its_residual_link(tree_runs):
    (chapter,) = chapters.chapters([tree_runs])
    (figure,) = [figure for figure in figures.draw(chapter) if figure.name == "tree-bhfl"]
    drawing = figure.panels[0].traces
    (dots,) = [mark for mark in drawing if isinstance(mark, Dots)]
    assert len(dots.x) == 4 + 2 + 1
    assert sum(mark.dash for mark in drawing if isinstance(mark, Curve)) == 1
    assert all(text.endswith("%") for text in dots.hover)
    nodes = {text.split(":")[0] for text in dots.hover}
    assert {note["text"] for note in interactive.panel(figure.panels[0])["layout"]["annotations"]} == nodes
    assert all(f"{node} " in figure.alt for node in nodes)


def test_tables_show_every_participant_and_the_worst(runs):
    (chapter,) = chapters.chapters([runs])
    own, everywhere = tables.participants(chapter)
    assert [row[0] for row in own.rows] == ["a", "b", "worst", "mean"]
    assert "mean of each seed's worst" in own.note
    at = tables.methods(chapter).head.index("worst client")
    for row, shown in zip(tables.methods(chapter).rows, own.rows[2][3:], strict=True):
        assert row[at] == shown  # one page, one figure
    for table in (tables.methods(chapter), own, everywhere):
        tex = table.latex()
        assert tex.count("\\\\") == len(table.rows) + 1
        assert "±" not in tex
        assert len(table.markdown().splitlines()) >= len(table.rows) + 4
    assert tables.PrintedTable("a", "50 % & _", ["x_1"], [["<±>"]]).latex().count("\\%") == 1


def test_bold_is_best_and_a_dagger_is_worst(runs):
    (chapter,) = chapters.chapters([runs])
    best, own = tables.methods(chapter), tables.participants(chapter)[0]
    assert "**" in best.markdown()
    assert "In bold the best" in best.latex()
    assert "†" not in best.markdown()
    assert not own.strong
    assert "**" not in own.markdown()
    for i, j in own.weak:
        assert float(own.rows[i][j].split()[0]) == min(float(row[j].split()[0]) for row in own.rows[:2])
    assert own.markdown().count("†") == len(own.weak) + 1  # the note explains it
    assert own.latex().count(r"$^\dagger$") == len(own.weak) + 1
    assert all("±" in cell for row in own.rows for cell in row[3:])


def test_who_came_to_nothing_is_not_left_out_of_the_worst_and_the_mean(runs, tmp_path):
    folder = shutil.copytree(runs, tmp_path / "runs")

    def nothing(found):
        found["metrics"]["participants"]["a"]["wdp"] = None
        return found

    altered(folder / "solo" / "seed-1", "result.json", nothing)
    own = tables.participants(chapters.chapters([folder])[0])[0]
    at = own.head.index("solo")
    assert [row[at] for row in own.rows if row[0] != "b"] == ["-", "-", "-"]
    assert not [cell for cell in own.weak if cell[1] == at]


def test_nobody_is_worst_off_where_all_have_the_same(one_domain):
    (chapter,) = chapters.chapters([one_domain])
    (table,) = tables.participants(chapter)  # one domain: no second table of the own one
    assert table.name == "participants-all"
    assert {j for _, j in table.weak} == {3}  # the global model is everyone's
    assert "own" not in tables.methods(chapter).head


def test_a_setting_can_be_run_again_from_its_text(runs, tree_runs, tmp_path):
    for place in (runs / "fccl" / "seed-1", tree_runs / "bhfl" / "seed-0"):
        folder = Folder(place)
        path = tmp_path / f"{folder.recipe['setting']['name']}.toml"
        path.write_text(rerun.setting(folder))
        assert json.loads(json.dumps(Setting.load(str(path)).plain())) == folder.recipe["setting"]
        assert _again(folder, tmp_path) == {key: value for key, value in folder.spec.items() if key != "rounds"}


HOW = ("--precision", "bf16", "--executor", "eager", "--no-deterministic", "--device", "cpu")


@pytest.mark.parametrize(
    "words", [HOW, (), ("--set", "local.momentum=0.5", "--set", "data.test_rows=10"), ("--track", "none")]
)
def test_a_command_says_all_that_a_run_is(small, tmp_path, words):
    out = tmp_path / "run"
    assert call("run", "fedavg", "--on", small, "--rounds", 1, "--seed", 3, *words, "--out", out).exit_code == 0
    folder = Folder(out)
    (tmp_path / "small.toml").write_text(rerun.setting(folder))
    assert "--rounds 1 " in rerun.command(folder)
    assert "--device cpu" in rerun.command(folder)
    assert _again(folder, tmp_path) == {key: value for key, value in folder.spec.items() if key != "rounds"}


def test_text_that_looks_like_a_number_is_quoted():
    for value in ("1", "true", "cosine", 'say "x"', 1, True, [1, "a"], {"a": 0.5}):
        assert registry.parse(f"key={rerun._said(value)}") == ("key", value)


def _again(folder, place):
    """The identity of what a run's command would run, with its setting's file in that place."""
    program, command, *words = shlex.split(rerun.command(folder))
    assert (program, command) == ("heterophony", "run")
    given = typer.main.get_command(cli.app).commands["run"].make_context("run", words).params
    compute = Compute.of({key: given[key] for key in ("device", "executor", "precision", "deterministic")})
    changes = dict(registry.parse(text) for text in given["set_"] or [])
    made = assemble(given["method"], str(place / given["on"]), seed=given["seed"], changes=changes, compute=compute)
    track = {"track": given["track"] or "auto"} if "track" in folder.spec else {}
    return {**json.loads(json.dumps(made.identity())), **track}


def test_the_page_needs_nothing_else(page):
    folder, found = page
    text = (folder / "r.html").read_text()
    assert found["runs"] == 6 + 2 + 1
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)  # plotly's own text has addresses, never asked for
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', own)
    assert "http" not in own
    assert text.count("<figure>") == len(found["figures"])
    assert text.count('role="img" aria-label="') == len(found["figures"])


def test_files_for_papers(runs, tmp_path):
    place, files = runs / "fccl" / "seed-0", tmp_path / "files"
    found = said(call("report", place, "--to", tmp_path / "r.html", "--figures", files, "--json"))
    kinds = [path.rpartition(".")[2] for path in found["files"]]
    assert {kind: kinds.count(kind) for kind in ("png", "svg", "pdf")} == dict.fromkeys(
        ("png", "svg", "pdf"), len(found["figures"])
    )
    assert kinds.count("tex") == kinds.count("md") - 1 >= 2
    captions = (files / "captions.md").read_text()
    for path in files.glob("*.png"):
        assert f"\n## {path.stem}\n" in captions
    for path in files.glob("*.png"):
        assert path.read_bytes()[:4] == b"\x89PNG"
        assert path.stat().st_size > 5000


def test_a_run_without_figures_of_its_own_is_shown_too(runs, tmp_path):
    folder = shutil.copytree(runs / "solo" / "seed-0", tmp_path / "old")
    for name in ("population.json", "features.json"):  # as runs of before had none
        (folder / name).unlink()
    found = said(call("report", folder, "--json"))
    assert (tmp_path / "old" / "report.html").exists()
    assert not {"bubbles", "features"} & set(found["figures"])


def test_what_cannot_be_shown_is_one_line(tmp_path, small, monkeypatch):
    refused(call("report", tmp_path / "nothing"), "there is no such folder")
    refused(call("report", tmp_path), "holds no run")
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    refused(call("report", tmp_path), "pip install 'heterophony[report]'")


def test_heat_maps_have_numbers_that_can_be_read():
    for theme in ("light", "dark"):
        for share in range(0, 101, 10):
            shade = palette.color(f"s{share}", theme)
            assert _contrast(shade, palette.contrast(shade)) > 4
    assert Heat([[1.0]], ["a"], ["b"]).high == 100.0


def _contrast(a: str, b: str) -> float:
    high, low = sorted((palette.luminance(a), palette.luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# -- in a browser -------------------------------------------------------------------------------------------------
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    return found


@pytest.mark.parametrize(("name", "width"), [("desktop", 1200), ("phone", 400)])
def test_a_browser_draws_every_figure_and_has_nothing_to_complain_of(page, browser, tmp_path, name, width):
    folder, found = page
    # What the page says to its console, and how much it has drawn, is written into the page, which is then printed.
    listen = (
        "<script>window.said=[];for(const k of ['error','warn'])console[k]=(...a)=>said.push(a.join(' '));"
        "addEventListener('error',e=>said.push(e.message));addEventListener('unhandledrejection',e=>said.push(e.reason));"
        "</script>"
    )
    tell = (
        "<script>heterophony.draw();setTimeout(()=>{const o=document.createElement('p');o.id='told';"
        "o.textContent=JSON.stringify({said,drawn:heterophony.drawn(),plots:document.querySelectorAll('.plot').length,"
        "wide:document.documentElement.scrollWidth,marks:[...document.querySelectorAll('.plot')].map(p=>"
        "p.querySelectorAll('path,image,text').length)});document.body.append(o)},500)</script></body>"
    )
    text = (folder / "r.html").read_text().replace("<head>", "<head>" + listen, 1)
    path = tmp_path / "told.html"
    path.write_text(tell.join(text.rsplit("</body>", 1)))
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={max(width, 500)},900"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--virtual-time-budget=20000", "--dump-dom", f"file://{path}"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    told = json.loads(re.search(r'<p id="told">(.*?)</p>', out)[1].replace("&gt;", ">").replace("&amp;", "&"))
    assert told["said"] == []
    assert told["drawn"] == told["plots"] >= len(found["figures"])
    assert all(marks > 3 for marks in told["marks"])
    assert told["wide"] <= max(width, 500)  # nothing sticks out: tables scroll by themselves


def test_a_run_that_was_started_from_python_is_shown_too(tmp_path):
    from toys.federations import METHODS

    row = next(row for row in METHODS if row.name == "fedavg")
    row.build().run(rounds=2, out=tmp_path / "run")
    found = said(call("report", tmp_path / "run", "--json"))
    assert found["runs"] == 1
    assert "losses" in found["figures"]
    assert "started from Python" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("seeds", "p", "said"),
    [
        ((0,), None, "One seed cannot tell"),
        ((0, 1), None, "No other has two seeds in common"),
        ((0, 1, 2), 0.4, "By a paired test it cannot be told from any other"),
        ((0, 1, 2), 0.01, "ahead of all others"),
    ],
)
def test_the_first_sentence_claims_no_test_that_was_not_made(seeds, p, said):
    from heterophony.report.page import _finding
    from heterophony.studies.comparison import Compared, Comparison
    from heterophony.tables.interval import Interval

    def line(label, mean, p):
        return Compared(label, {"acc": Interval(mean, None, None, 1)}, {}, (), p, 1, 0.0, None, None)

    found = Comparison("s", "acc", seeds, (line("a", 0.9, None), line("b", 0.8, p)), "a")
    assert said in _finding(found)


def test_no_figure_needs_colours_to_be_read(runs):
    """Each name of a legend has a shape of its own, which its curves and points have too, on the page and on paper."""
    for colours in (palette.METHODS, palette.CLASSES):
        shapes = [palette.shape(str(number)) for number in range(len(colours["light"]))]
        assert len(set(shapes)) == len(shapes) == len({glyph for *_, glyph in shapes})
    (chapter,) = chapters.chapters([runs])
    for figure in figures.draw(chapter):
        shapes = [palette.shape(color)[0] for _, color in figure.legend]
        assert len(set(shapes)) == len(shapes)
        for panel in figure.panels:
            for trace in interactive.panel(panel)["data"]:
                known = dict(figure.legend).get(trace.get("name"))
                if known is not None and "markers" in trace["mode"]:
                    assert trace["marker"]["symbol"].removesuffix("-open") == palette.shape(known)[0]


def test_several_federations_have_a_table_in_common(runs, tree_runs, page):
    found = chapters.chapters([runs, tree_runs])
    table = tables.across(found)
    assert [cell.split(",")[0] for cell in table.head[1:]] == [chapter.setting for chapter in found]
    cells = {(row[0], place): cell for row in table.rows for place, cell in enumerate(row[1:])}
    for place, chapter in enumerate(found):
        compared = tables.comparing(chapter)
        for line in compared.methods:
            assert cells[line.label, place] == line.figures[compared.metric].text(
                compared.score.scale, compared.score.digits
            )
    assert any(cell == "-" for cell in cells.values())
    assert "Across federations" in (page[0] / "r.html").read_text()
    assert "Across federations" not in page_of(found[:1])


def page_of(found):
    from heterophony.report.page import page as whole

    drawn = [figures.draw(chapter) for chapter in found]
    return whole(found, drawn, [[tables.methods(chapter)] for chapter in found], "")


def test_without_a_browser_a_pdf_is_refused_before_anything_is_written(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    answer = call("report", runs, "--to", tmp_path / "r.html", "--pdf")
    assert answer.exit_code == 2
    assert "apt-get install chromium" in answer.stderr
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
def test_the_page_is_printed_into_a_pdf(peers, browser, tmp_path):
    found = said(call("report", peers, "--to", tmp_path / "r.html", "--pdf", "--json"))
    data = Path(found["pdf"]).read_bytes()
    assert data.startswith(b"%PDF")
    assert len(data) > 50_000
