"""Text as bytes: every byte is predicted once, translations are split alike, and a language model never looks ahead."""

import gzip
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony import Compute
from heterophony.base.seeds import generator, seeded
from heterophony.data import BaseIds, DataError, LeakageError, check_leakage, load
from heterophony.data.text import chopped, padded, text_data
from heterophony.models import create
from heterophony.models.registry import reads
from heterophony.parts.losses import ce, kl, soft_cross_entropy
from heterophony.settings import Setting, SettingError, assemble
from heterophony.settings.building import build
from heterophony.tasks.classification import label_sums as score

TOPICS = ("geography", "politics", "sports")
LANGUAGES = {"en": "the cat sat on the mat ", "de": "die katze lag im gras ", "fi": "kissa istui matolla "}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A data folder with a little made-up text in three languages, and parallel sentences in two."""
    folder = tmp_path_factory.mktemp("texts")
    lines = [
        {"lang": lang, "split": split, "text": f"{words * 3}{i}"}
        for lang, words in LANGUAGES.items()
        for split, count in (("dev", 20), ("test", 8))
        for i in range(count)
    ]
    topics = [
        {"lang": lang, "split": split, "id": 10 * i, "label": TOPICS[i % 3], "text": f"{TOPICS[i % 3]} {lang} {i}"}
        for lang in ("eng_Latn", "deu_Latn")
        for split, rows in (("train", range(5, 40)), ("dev", range(5)), ("test", range(40, 60)))
        for i in rows
    ]
    for name, rows in (("ud10", lines), ("sib200", topics)):
        with gzip.open(folder / f"text-{name}.jsonl.gz", "wt") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


# -- rows ------------------------------------------------------------------------------------------------------
@given(st.lists(st.text(max_size=12), max_size=6), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_every_byte_but_the_first_is_predicted_once(texts, length):
    whole = "".join(f"{text}\n" for text in texts).encode()
    rows = chopped(texts, length)
    data = text_data(rows, np.zeros(len(rows)), classes=None, sequence=True)
    assert data.x.shape == data.y.shape == (max(0, len(whole) - 1) // length, length)
    seen = bytes(data.y.flatten().tolist())
    assert seen == whole[1 : 1 + len(seen)]
    assert len(whole) - 1 - len(seen) in range(-1, length)
    assert bytes(data.x.flatten().tolist()) == whole[: len(seen)]


def test_a_text_is_cut_or_filled_with_zeros():
    assert padded(["äb", "abcdef"], 4).tolist() == [[0xC3, 0xA4, 98, 0], [97, 98, 99, 100]]
    data = text_data(padded(["a", "b"], 3), np.array([1, 0]), classes=2, sequence=False)
    assert (data.y.tolist(), data.classes, data.x.dtype) == ([1, 0], 2, torch.int64)
    with pytest.raises(DataError, match="uint8 of shape"):
        text_data(np.zeros((2, 3)), np.zeros(2), classes=2, sequence=False)


def test_a_language_is_read_and_a_missing_file_is_named(texts, tmp_path):
    source = load("ud/fi", texts, length=16)
    assert source.train.x.shape[1] == 17
    assert bytes(source.train.x[0]).decode() == "kissa istui matol"
    assert (source.train.kind, len(source.classes), source.train.base) == ("sequences", 256, "ud/fi/train")
    assert len(source.test) < len(source.train)
    with pytest.raises(DataError, match=r"ud/en is not under .*text-ud10.jsonl.gz"):
        load("ud/en", tmp_path)
    with pytest.raises(DataError, match="no text in 'ru'"):
        load("ud/ru", texts)


def test_row_i_is_the_same_sentence_in_every_language(texts):
    first, second = (load(f"sib200/{lang}", texts) for lang in ("eng_Latn", "deu_Latn"))
    assert (len(first.train), len(first.test)) == (40, 20)
    assert first.train.index.tolist() == second.train.index.tolist() == sorted(first.train.index.tolist())
    assert np.array_equal(first.train.y, second.train.y)
    assert first.parallel == second.parallel == "sib200"


TOPIC = {"eng": {"source": "sib200/eng_Latn"}, "deu": {"source": "sib200/deu_Latn"}}


def test_translations_of_a_training_sentence_are_never_tested_or_public(texts):
    """The leakage check knows sentences by their number; split apart, it would refuse."""
    part = Setting.of(
        {
            "name": "x",
            "data": {"domains": TOPIC, "validation": 0.1, "public": {"fraction": 0.2}},
            "models": {"participants": "byte-cnn"},
        }
    ).data
    made = build(part, 0, texts)
    assert made.reads == "texts"
    assert made.coverage.images == {"train": 28, "validation": 4, "public": 8, "test": 20}
    assert not [overlap for overlap in made.coverage.overlaps if overlap.first != overlap.second]
    with pytest.raises(LeakageError, match="are in train"):  # as if they were sets of their own
        check_leakage(
            {
                lang: {"train": BaseIds("sib200/train", rows), "validation": BaseIds("sib200/train", held)}
                for lang, rows, held in (
                    ("eng", np.arange(9), np.arange(9, 12)),
                    ("deu", np.arange(3, 12), np.arange(3)),
                )
            },
            shared_train=True,
        )


# -- losses and scores of sequences ----------------------------------------------------------------------------
def test_losses_of_sequences_by_loops():
    draw = generator("sequences")
    a, b = (torch.randn(3, 5, 4, dtype=torch.float64, generator=draw) for _ in range(2))
    y = torch.randint(0, 5, (3, 4), generator=draw)
    total = cross = soft = 0.0
    for row in range(3):
        for place in range(4):
            p, q = (z[row, :, place].softmax(0).tolist() for z in (a, b))
            total -= math.log(p[int(y[row, place])])
            cross += sum(t * (math.log(t) - math.log(s)) for t, s in zip(p, q, strict=True))
            soft -= sum(t * math.log(s) for t, s in zip(p, q, strict=True))
    assert float(ce(a, y)) == pytest.approx(total / 12, rel=1e-12)
    assert float(ce(a, y)) == pytest.approx(float(F.cross_entropy(a, y)), rel=1e-12)
    assert float(kl(a, b)) == pytest.approx(cross / 12, rel=1e-12)
    assert float(soft_cross_entropy(a, b)) == pytest.approx(soft / 12, rel=1e-12)
    found = score(a, y)
    assert found["loss"] == (pytest.approx(total), 12)
    assert found["accuracy"] == (int((a.argmax(1) == y).sum()), 12)
    with pytest.raises(ValueError, match="expected logits"):
        score(a, y[:, :3])


# -- networks --------------------------------------------------------------------------------------------------
def test_a_language_model_never_looks_ahead():
    with seeded("ahead"):
        model = create("byte-lm", in_channels=1, size=12, classes=256)
    x = torch.randint(0, 256, (2, 12), generator=generator("bytes"))
    changed = x.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 256
    before, after = model(x), model(changed)
    assert before.shape == (2, 256, 12)
    assert torch.equal(before[..., :7], after[..., :7])
    assert not torch.equal(before[..., 7:], after[..., 7:])
    assert sum(p.numel() for p in model.parameters()) == 94_784


def test_a_classifier_of_texts():
    with seeded("classifier"):
        model = create("byte-cnn", in_channels=1, size=32, classes=7)
    assert model(torch.zeros(3, 32, dtype=torch.int64)).shape == (3, 7)
    assert sum(p.numel() for p in model.parameters()) == 70_503
    assert [reads(name) for name in ("byte-lm", "byte-cnn", "mlp", "transformers-lm:gpt2", "mine:net")] == [
        *("sequences", "texts", "images", "sequences", None)
    ]


def test_transformers_of_ones_own_are_built_without_a_download(tmp_path):
    transformers = pytest.importorskip("transformers")
    x = torch.randint(0, 256, (2, 24), generator=generator("bytes"))
    with seeded("transformers"):
        model = create("transformers-lm:gpt2", in_channels=1, size=24, classes=256)
        assert model(x).shape == (2, 256, 24)
        assert create("transformers-classifier:gpt2", in_channels=1, size=24, classes=7)(x).shape == (2, 7)
        transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, n_positions=24).save_pretrained(tmp_path)
        assert create(f"transformers-lm:{tmp_path}", in_channels=1, size=24, classes=256)(x).shape == (2, 256, 24)
    with pytest.raises(ValueError, match="transformers-lm:nonsense"):
        create("transformers-lm:nonsense", in_channels=1, size=24, classes=256)


def test_a_pretrained_encoder_of_a_local_folder_is_taken_and_what_does_not_fit_bytes_is_new(tmp_path, texts):
    """A tiny encoder with 50 words: its layers are those of the folder, on every node; its embeddings are of bytes."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    with seeded("tiny"):
        known = transformers.BertForMaskedLM(config)
    known.save_pretrained(tmp_path / "tiny")
    setting = languages(**{"models.participants": f"transformers-pretrained-lm:{tmp_path / 'tiny'}"})
    federation = assemble("bhfl", setting, root=texts)
    theirs = {name: t for name, t in known.state_dict().items() if ".layer." in name}
    assert len(theirs) > 10
    for node in ("root", "en.0", "fi.1"):
        ours = federation.node(node).models["model"].inner.state_dict()
        assert all(torch.equal(ours[name], t) for name, t in theirs.items())
        assert ours["bert.embeddings.word_embeddings.weight"].shape == (256, 8)
    model = federation.node("en.0").models["model"].eval()
    x = torch.randint(0, 256, (1, 16), generator=generator("bytes"))
    later = x.clone()
    later[:, 9:] = 7
    assert torch.allclose(model(x)[..., :9], model(later)[..., :9], atol=1e-6)  # it does not look ahead
    assert math.isfinite(federation.run(1).metrics().get("loss"))
    with pytest.raises(ValueError, match=r"is no folder with config.json and model.safetensors"):
        create(f"transformers-pretrained-lm:{tmp_path}", in_channels=1, size=16, classes=256)


def test_without_transformers_one_line_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install 'heterophony\[text\]'"):
        create("transformers-lm:gpt2", in_channels=1, size=24, classes=256)


# -- settings --------------------------------------------------------------------------------------------------
def languages(**changes):
    domains = {lang: {"source": f"ud/{lang}"} for lang in LANGUAGES}
    data = {"domains": domains, "clients": 2, "length": 16, "public": {"fraction": 0.2, "test": 0.5}, "test_rows": 12}
    values = {"name": "small", "data": data, "models": {"participants": "byte-lm"}, "local": {"lr": 0.1, "batch": 8}}
    return Setting.of(values).changed(changes)


def families(federation):
    return {node: links.children for node, links in federation.topology.static.items() if links.children}


def test_one_language_a_subtree_and_perplexity_by_level(texts):
    from heterophony.runs import show
    from heterophony.runs.findings.level_perplexities import LevelPerplexities
    from heterophony.runs.summary import Summary

    federation = assemble("bhfl", languages(), root=texts)
    assert families(federation) == {
        "root": ("edge-en", "edge-de", "edge-fi"),
        **{f"edge-{lang}": (f"{lang}.0", f"{lang}.1") for lang in LANGUAGES},
    }
    result = federation.run(2)
    made = Summary.of(json.loads(json.dumps(federation.identity())), result)
    rows = {row["level"]: row for row in made.found(LevelPerplexities).value}
    assert list(rows) == ["leaf", "level 1", "root"]
    losses = result.table.select(node="root", split="test", quantity="loss").last()
    assert rows["root"]["union"] == pytest.approx(math.exp(losses.mean()))
    assert {row["n"] for row in losses} == {12 * 16}
    assert all(1 < row[name] < 400 for row in rows.values() for name in ("own", "subtree", "union", "proxy"))
    text = "\n".join(show.lines(made))
    assert "perplexity of each level's models" in text
    assert "geometric mean" in text


def test_a_language_model_has_a_run_folder_and_a_report(texts, tmp_path):
    pytest.importorskip("plotly")
    from typer.testing import CliRunner

    from heterophony import cli
    from heterophony.base import toml
    from heterophony.runs.folder import Folder

    federation = assemble("bhfl", languages(), root=texts)
    path = tmp_path / "small.toml"
    parts = {key: value for key, value in languages().plain().items() if key in ("data", "models", "local")}
    path.write_text("".join(f"{key} = {toml.value(value)}\n" for key, value in parts.items()))
    folder = tmp_path / "run"
    for words in (["run", "bhfl", "--on", path, "--rounds", 1, "--data", texts, "--out", folder], ["report", folder]):
        answer = CliRunner().invoke(cli.app, [str(word) for word in words])
        assert answer.exit_code == 0, (answer.stderr, answer.exception)
    people = Folder(folder).extra("population.json")["participants"]
    for name, own in people.items():
        assert (own["classes"], own["rows"]) == ([], len(federation.node(name).data["train"]))


def test_random_subtrees_have_the_sizes_of_the_natural_ones(texts):
    natural, dealt, again, other = (
        families(assemble("bhfl", languages(**{"topology.by": by}), root=texts, seed=seed))
        for by, seed in (("labels", 0), ("random", 0), ("random", 0), ("random", 1))
    )
    assert dealt == again != other
    assert [len(group) for group in dealt.values()] == [len(group) for group in natural.values()]
    leaves = sorted(leaf for node, group in dealt.items() if node != "root" for leaf in group)
    assert leaves == sorted(leaf for node, group in natural.items() if node != "root" for leaf in group)


@pytest.mark.parametrize("method", ["fedavg", "fml", "ifca", "ditto", "solo"])
def test_methods_learn_sequences(texts, method):
    federation = assemble(method, languages(), root=texts)
    rows = federation.run(3).table.select(product=federation.method.headline, split="test", quantity="loss")
    first, last = (rows.select(round=r).mean() for r in (0, 2))
    assert last < first < math.log(256) + 1


def test_what_cannot_be_is_said(texts):
    for method, changes, text in (
        ("fedmd", {}, "fedmd serves classification, and small is sequence"),
        ("solo", {"models.participants": "mlp"}, "mlp reads images; small has sequences"),
        ("solo", {"models.participants": "byte-cnn"}, "byte-cnn reads texts"),
        ("solo", {"data.side": 16}, "side, channels, mean and std are for images"),
        ("bhfl", {"topology.clusters": 2}, "no labels to cluster by"),
    ):
        with pytest.raises((SettingError, DataError), match=text):
            assemble(method, languages(**changes), root=texts)
    with pytest.raises(DataError, match=r"data.length is for texts"):
        assemble("solo", Setting.load("rotated-mnist").changed({"data.length": 16}))


def test_topics_are_learned(texts):
    values = {"name": "topics", "data": {"domains": TOPIC, "length": 24}, "models": {"participants": "byte-cnn"}}
    setting = Setting.of({**values, "local": {"optimiser": "adam", "lr": 1e-2, "batch": 8, "epochs": 3}})
    assert assemble("fedavg", setting, root=texts).run(4).metrics().acc > 0.9


@pytest.mark.parametrize("executor", ["branches", "stacked"])
def test_sequences_in_captured_fits_and_stacks(texts, executor):
    """As one at a time: to the bit where each fit is captured, up to rounding as a stack."""
    eager = assemble("fedavg", languages(), root=texts).run(2)
    other = assemble("fedavg", languages(), root=texts, compute=Compute(executor=executor)).run(2)
    if executor == "branches":
        assert other.digest == eager.digest
    a, b = (result.state("server")["models"]["model"] for result in (eager, other))
    assert all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)
