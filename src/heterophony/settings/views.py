"""From rows to data: what every participant can train on, what is public, and what everyone is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from heterophony.base.seeds import generator
from heterophony.data import Data, Source, Split, to_data
from heterophony.data.augment import NAMED, Augmentation
from heterophony.data.stream import Drift, Stream
from heterophony.data.text import text_data
from heterophony.data.views import View, completed, joined
from heterophony.settings.allocation import Allocation, Client, DomainRows, OutsideRows, Rows, rng
from heterophony.settings.setting import ConceptPart, DataPart, DomainPart, PublicPart, StreamPart
from heterophony.tasks.classification import Classification
from heterophony.tasks.task import Task


@dataclass(frozen=True)
class InputFormat:
    """What rows look like to a network: the size of images, and how their values are scaled.

    Arrays have the shape `row`, and are left as they are.
    """

    channels: int
    side: int  # of images, in pixels; of texts, bytes
    mean: float
    std: float
    tasks: dict[str, Task]  # data set -> what its targets are
    row: tuple[int, ...] | None = None

    def told(self) -> dict[str, Any]:
        """Return what networks are told of a row."""
        if self.row is None:
            return {"in_channels": self.channels, "size": self.side}
        kind = next(iter(self.tasks.values())).kind
        return {"shape": self.row} | ({"task": kind} if kind != "classification" else {})

    def data(self, split: Split, rows: Rows, domain: DomainPart | None) -> Data:
        """Return rows as data. They are turned as the domain says; None: they are of no domain, and have no classes."""
        degrees = 0.0 if domain is None else domain.degrees
        task = None if domain is None else self.tasks[domain.source]
        classes = None if task is None else task.classes
        x, y = split.x[rows], split.y[rows]
        if split.kind == "arrays":
            return Data(x=torch.from_numpy(x), y=torch.from_numpy(y), task=task)
        if split.kind != "images":
            made = text_data(x, y, classes=classes, sequence=split.kind == "sequences")
        else:
            made = to_data(
                x,
                y,
                classes=classes,
                side=self.side,
                channels=self.channels,
                degrees=degrees,
                mean=self.mean,
                std=self.std,
            )
        return made if task is None else Data.of_columns(made.columns, task)

    def test(self, held: DomainRows, domain: DomainPart | None = None) -> Data:
        """Return a domain's test set, turned as another domain is, if one is given."""
        return self.data(held.test, np.arange(len(held.test)), domain or held.spec)


def form(spec: DataPart, sources: Mapping[str, Source]) -> InputFormat:
    """Return the form that all rows are brought to: the largest among the sets, unless the setting says another."""
    shapes = [source.train.x.shape[1:] for source in sources.values()]
    kind = next(iter(sources.values())).train.kind
    tasks = {name: source.targets for name, source in sources.items()}
    if kind == "arrays":
        return InputFormat(0, 0, spec.mean, spec.std, tasks, shapes[0])
    if kind == "images":
        channels = spec.channels or max(shape[2] for shape in shapes)
        side = spec.side or max(max(shape[:2]) for shape in shapes)
    else:
        # The last byte of a sequence is only predicted.
        channels, side = 1, max(shape[0] for shape in shapes) - (kind == "sequences")
    return InputFormat(channels, side, spec.mean, spec.std, tasks)


# -- participants ----------------------------------------------------------------------------------------------
def participants(
    spec: DataPart, allocation: Allocation, form: InputFormat, public: View | None, seed: int
) -> dict[str, dict[str, View]]:
    """Return the views of every participant, by its name and theirs."""
    return {client.name: _views(spec, allocation, client, form, public, seed) for client in allocation.participants()}


def _views(
    spec: DataPart, allocation: Allocation, client: Client, form: InputFormat, public: View | None, seed: int
) -> dict[str, View]:
    """Return the views of one participant."""
    held = allocation.domains[client.domain]
    train: View
    if spec.stream is None:
        view = partial(form.data, held.train, client.rows, held.spec)
        train = cache(partial(_train, spec, view, client.name, seed))
    else:
        train = _stream(spec, spec.stream, allocation, client, form, seed)
    views: dict[str, View] = {"train": train}
    if public is not None:
        views |= {"public": public, "mine": partial(_mine, public, client.place)}
        if spec.stream is None:  # what comes in rounds cannot be joined with what is there from the start
            mine = cache(partial(form.data, held.train, held.public, held.spec))
            views = completed({**views, "own": partial(joined, train, mine)})
    if len(held.validation):
        views["validation"] = partial(form.data, held.train, held.validation, held.spec)
    return views


def _train(spec: DataPart, view: View, name: str, seed: int) -> Data:
    """Return a participant's private rows, with what is special about them."""
    data = view()
    own = spec.participants.get(name)
    if own is not None and own.label_noise:
        data = data.with_columns(y=_mislabelled(data, own.label_noise, rng(seed, name, "label noise")))
    if spec.augment is None:
        return data
    return data.augmented(_change(spec, spec.augment))


def _mislabelled(data: Data, share: float, draw: np.random.Generator) -> torch.Tensor:
    """Return the labels, with that share of them moved to another class; all other classes are equally likely."""
    assert data.classes is not None
    rows = torch.from_numpy(draw.permutation(len(data))[: round(share * len(data))])
    shift = torch.from_numpy(draw.integers(1, max(2, data.classes), len(rows)))
    labels = data.y.clone()
    labels[rows] = (labels[rows] + shift) % data.classes
    return labels


def _mine(public: View, place: int) -> Data:
    """Return the numbers of the public rows that came from one domain; all, where they are another set's."""
    everyone = public()
    rows = torch.nonzero((everyone.domain == place) | (everyone.domain < 0)).flatten()
    return Data(task=everyone.task, row=rows)


# -- streams ---------------------------------------------------------------------------------------------------
def _stream(
    spec: DataPart, part: StreamPart, allocation: Allocation, client: Client, form: InputFormat, seed: int
) -> Stream:
    """Return a participant's rows as they come."""
    concepts, pools = [], []
    for concept in part.concepts:
        domain = _further_on(allocation, client.place, concept)
        held = allocation.domains[domain]
        rows = _stream_rows(part, allocation, domain, client, seed)
        view = partial(form.data, held.train, rows, _turned(held.spec, concept))
        concepts.append(cache(partial(_relabelled, partial(_train, spec, view, client.name, seed), concept.labels)))
        pools.append(concept.domain % len(allocation.domains))
    return Stream(
        concepts,
        Drift(part.drift, len(part.concepts), part.every),
        arrivals=part.arrivals,
        memory=part.memory,
        keep=part.keep,
        pools=pools,
        name=client.name,
        seed=seed,
        seconds=part.seconds,
    )


def _stream_rows(part: StreamPart, allocation: Allocation, domain: str, client: Client, seed: int) -> Rows:
    """Return the rows of a domain that a participant's stream may bring.

    Where streams go from domain to domain, the rows of each domain's client of one number are divided between the
    clients of this number in all domains, so that nobody sees another's.
    """
    rows = allocation.domains[domain].clients[client.number]
    if not any(concept.domain for concept in part.concepts):
        return rows
    shuffled = rng(seed, domain, client.number, "stream").permutation(rows)
    return np.array_split(shuffled, len(allocation.domains))[client.place]


def _further_on(allocation: Allocation, place: int, concept: ConceptPart) -> str:
    """Return the domain from which a concept's rows come, for whoever is at home in the domain at this place."""
    domains = list(allocation.domains)
    return domains[(place + concept.domain) % len(domains)]


def _turned(domain: DomainPart, concept: ConceptPart) -> DomainPart:
    return domain.model_copy(update={"degrees": domain.degrees + concept.degrees})


def _relabelled(view: View, by: int) -> Data:
    """Return the data with every label so many classes further on."""
    data = view()
    return data.with_columns(y=(data.y + by) % data.classes) if by and data.classes else data


# -- public data -----------------------------------------------------------------------------------------------
def public(
    spec: DataPart, allocation: Allocation, form: InputFormat, seed: int, classes: int, labelled: bool
) -> View | None:
    """Return the rows that everybody holds, in one order; `domain` tells which domain each came from.

    Those of another set have the domain -1. `classes` is how many the domains have; `labelled` says whether the public
    rows keep their labels.
    """
    if spec.public is None:
        return None
    view: View
    if allocation.outside is None:
        view = partial(_inside, form, list(allocation.domains.values()), labelled)
    else:
        view = partial(_outside, form, allocation.outside, spec.public, classes, labelled)
    change = None if spec.public.augment is None else _change(spec, spec.public.augment)
    return cache(partial(_augmented, view, change, seed))


def labelled(spec: DataPart, own: tuple[str, ...], outside: Source | None) -> bool:
    """Return whether public rows have labels; `own` are the names of the domains' classes.

    Labels of another label space would mean nothing here, unless its classes have outputs of their own. Without them,
    outputs on the images can still be compared.
    """
    if spec.public is None or not spec.public.labelled:
        return False
    return outside is None or spec.public.joint is not None or outside.classes == own


def joint_classes(public: PublicPart, outside: Source) -> int:
    """Return how many outputs the classes of another public set get, behind the domains' own."""
    return len(outside.classes_coarse if public.joint == "coarse" else outside.classes)


def _inside(form: InputFormat, domains: list[DomainRows], labelled: bool) -> Data:
    """Return public rows of the domains' own sets."""
    parts = [form.data(held.train, held.public, held.spec) for held in domains]
    columns = {"x": torch.cat([part.x for part in parts])}
    columns["domain"] = torch.cat([torch.full((len(part),), place) for place, part in enumerate(parts)])
    if labelled:
        columns["y"] = torch.cat([part.y for part in parts])
    return Data.of_columns(columns, parts[0].task)


def _outside(form: InputFormat, outside: OutsideRows, public: PublicPart, classes: int, labelled: bool) -> Data:
    """Return public rows of another set."""
    split, rows = outside.source.train, outside.rows
    x = form.data(split, rows, None).x
    columns = {"x": x, "domain": torch.full((len(x),), -1)}
    if public.joint is not None:  # its classes get outputs of their own
        labels = split.coarse if public.joint == "coarse" else split.y
        assert labels is not None
        columns["y"] = torch.from_numpy(labels[rows]) + classes
        return Data.of_columns(columns, Classification(classes + joint_classes(public, outside.source)))
    if labelled:
        columns["y"] = torch.from_numpy(split.y[rows])
    return Data.of_columns(columns, Classification(classes))


def _change(spec: DataPart, name: str) -> Augmentation:
    """Return what training does to images. What it brings in is black, as these images have it."""
    return NAMED[name](fill=-spec.mean / spec.std)


def _augmented(view: View, change: Augmentation | None, seed: int) -> Data:
    """Return the public images, changed once: everyone predicts on, and learns from, the same ones."""
    data = view()
    if change is None:
        return data
    return data.with_columns(x=change.apply(data.x, change.draw(len(data), generator(seed, "public augment", "once"))))


# -- tests -----------------------------------------------------------------------------------------------------
def tests(spec: DataPart, allocation: Allocation, form: InputFormat) -> dict[str, dict[str, Data]]:
    """Return the sets that everyone is tested on, by domain and split.

    Of a stream, `concept-0`, ... are what its participants are to know under each concept. The split "unseen" is of
    domains and clients that take no part: nobody has trained on it.
    """
    found = {}
    for place, (domain, held) in enumerate(allocation.domains.items()):
        found[domain] = {"test": form.test(held)}
        if len(held.validation):
            found[domain]["validation"] = form.data(held.train, held.validation, held.spec)
        if len(held.proxy):
            found[domain]["proxy"] = form.data(held.train, held.proxy, held.spec)
        found[domain] |= _concept_tests(spec, allocation, place, form)
    for domain, held in allocation.unseen.items():
        found[domain] = {"unseen": form.test(held)}
    for client in allocation.clients():
        if client.name in allocation.away:
            held = allocation.domains[client.domain]
            found[client.name] = {"unseen": form.data(held.train, client.rows, held.spec)}
    return found


def _concept_tests(spec: DataPart, allocation: Allocation, place: int, form: InputFormat) -> dict[str, Data]:
    """Return one test set for each concept of the streams of a domain's participants."""
    found = {}
    for number, concept in enumerate(spec.stream.concepts if spec.stream is not None else ()):
        held = allocation.domains[_further_on(allocation, place, concept)]
        found[f"concept-{number}"] = _relabelled(partial(form.test, held, _turned(held.spec, concept)), concept.labels)
    return found


def private_tests(allocation: Allocation, form: InputFormat) -> dict[str, Data]:
    """Return the participants' own test sets."""
    found = {}
    for client in allocation.participants():
        held = allocation.domains[client.domain]
        if held.private and len(rows := held.private[client.number]):
            found[client.name] = form.data(held.test, rows, held.spec)
    return found
