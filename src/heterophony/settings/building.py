"""Build the world of a setting: load its data sets, allocate their rows, make views of them, and check for leakage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from heterophony.base import imported
from heterophony.data import DataError, Source, load
from heterophony.data.sources import own, require
from heterophony.settings import allocation as rows
from heterophony.settings import given, views
from heterophony.settings.allocation import Allocation
from heterophony.settings.setting import DataPart
from heterophony.settings.standardised import standardised
from heterophony.settings.world import World, in_words
from heterophony.tasks.task import Task

Labels = dict[str, tuple[str, ...]]  # domain -> its classes' names


def build(spec: DataPart, seed: int, root: str | Path | None = None) -> World:
    """Build the world that a setting's data make with a seed. `root` is the folder of data sets."""
    if spec.world is not None:
        return given.world(spec.world, seed, spec.validation)
    for score in spec.task.scores:
        imported.function(score.call, "score")  # what is wrong with its name is said before anything runs
    sources, outside = _load(spec, root)
    reads = _kind(spec, sources, outside)
    labels = {name: sources[domain.source].classes for name, domain in spec.all_domains().items()}
    targets = {name: sources[domain.source].targets for name, domain in spec.all_domains().items()}
    tasks = _tasks(labels, targets)
    if tasks and spec.public is not None:
        raise DataError(f"public data need domains of one label space, but {in_words(labels)}: take data.public out")
    allocation = rows.allocate(spec, sources, outside, seed)
    coverage = rows.check(spec, allocation)
    allocation, moments = standardised(spec, allocation)

    form = views.form(spec, sources)
    first = next(iter(labels.values()))
    labelled = views.labelled(spec, first, outside)
    public = views.public(spec, allocation, form, seed, len(first), labelled)
    outputs = _outputs(spec, targets, outside)
    return World(
        homes={client.name: client.domain for client in allocation.participants()},
        views=views.participants(spec, allocation, form, public, seed),
        public=public,
        labelled=labelled,
        tests=views.tests(spec, allocation, form),
        private_tests=views.private_tests(allocation, form),
        told=form.told(),
        outputs=next(iter(outputs.values())),
        coverage=coverage,
        classes=outputs,
        tasks=_with_away(tasks, allocation),
        labels=labels,
        targets=targets,
        reads=reads,
        moments=moments,
    )


def _load(spec: DataPart, root: str | Path | None) -> tuple[dict[str, Source], Source | None]:
    """Read the domains' data sets, by name, and the set whose rows are public, if that is another one."""
    require(spec.sources, root)
    names = dict.fromkeys(domain.source for domain in spec.all_domains().values())
    sources = {name: _meant(spec, load(name, root, length=spec.length, layout=spec.layout)) for name in names}
    if spec.public is None or spec.public.source is None:
        return sources, None
    return sources, load(spec.public.source, root, length=spec.length, layout=spec.layout)


def _meant(spec: DataPart, source: Source) -> Source:
    """Return a source whose task has the options that the setting gives it.

    Of a known set, two classes can also be one yes-or-no label.
    """
    if source.task is None and spec.task.kind == "multilabel" and len(source.classes) == 2:
        return replace(source, task=spec.task.build(1))
    if source.task is None:
        return replace(source, task=spec.task.with_scores(source.targets)) if spec.task.scores else source
    return replace(source, task=spec.task.build(source.task.outputs or 1))


def _kind(spec: DataPart, domains: Mapping[str, Source], outside: Source | None) -> str:
    """Return what all domains are made of; raise where a setting asks of texts what only images have."""
    sources = dict(domains)
    if outside is not None and spec.public is not None and spec.public.source is not None:
        sources[spec.public.source] = outside
    kinds = {source.train.kind for source in sources.values()}
    if len(kinds) > 1:
        raise DataError(f"all data must be of one kind, got {' and '.join(sorted(kinds))}")
    (kind,) = kinds
    _check_meant_for(spec, kind, sources)
    if kind == "images":
        _check_square(spec, sources)
        return kind
    if kind == "arrays":
        _check_alike(sources)
    _check_no_images(spec, kind)
    if kind == "sequences":
        _check_no_labels(spec)
    return kind


def _check_meant_for(spec: DataPart, kind: str, sources: Mapping[str, Source]) -> None:
    """Raise where a setting has a field that is for data of another kind."""
    if kind in ("images", "arrays") and spec.length is not None:
        raise DataError(f"data.length is for texts; {kind} have {'a side' if kind == 'images' else 'a shape'}")
    if spec.task.kind != "classification":
        _check_targets(spec, kind, sources)
    if spec.standardise is not None and kind != "arrays":
        raise DataError(f"data.standardise is for arrays (data.arrays); {', '.join(spec.all_domains())} are {kind}")


def _check_targets(spec: DataPart, kind: str, sources: Mapping[str, Source]) -> None:
    """Raise where other targets than classes are asked of what has none, or with what needs classes."""
    if kind != "arrays":
        raise DataError(
            f"data.task: {spec.task.kind} is for arrays (data.arrays); {', '.join(spec.all_domains())} are {kind}"
        )
    if classed := [name for name, source in sources.items() if source.targets.kind == "classification"]:
        raise DataError(f"data.task: {spec.task.kind} is for data of one's own; {classed[0]} has a class for each row")
    asked = {
        "data.public.source": spec.public is not None and spec.public.source is not None,
        "label_noise": any(own.label_noise for own in spec.participants.values()),
        "data.stream.concepts.labels": spec.stream is not None and any(each.labels for each in spec.stream.concepts),
    }
    for name, wanted in asked.items():
        if wanted:
            raise DataError(f"{name} needs one class a row; the domains are {spec.task.kind}")


def _check_square(spec: DataPart, sources: Mapping[str, Source]) -> None:
    """Raise where rows of one's own would be stretched to squares, though nobody asked for it."""
    for name, source in sources.items():
        height, width = source.train.x.shape[1:3]
        if height != width and spec.side is None and (own.path_of(name) or own.imports(name)):
            raise DataError(
                f"{name} has rows of {height}x{width}, which are no squares: set data.arrays to read them as they are, "
                "or data.side to resize them as images"
            )


def _check_alike(sources: Mapping[str, Source]) -> None:
    """Raise where arrays have rows of different shapes or types."""
    found = {name: f"{source.train.x.dtype} {source.train.x.shape[1:]}" for name, source in sources.items()}
    if len(set(found.values())) > 1:
        raise DataError(
            f"all rows must be alike, but {', '.join(f'{name} has {text}' for name, text in found.items())}"
        )


def _check_no_images(spec: DataPart, kind: str) -> None:
    """Raise where a setting of texts asks for what only images have."""
    domains = spec.all_domains()
    turned = any(domain.degrees for domain in domains.values())
    scaled = (spec.mean, spec.std) != (0.5, 0.5)
    if turned or scaled or spec.augment or spec.side or spec.channels:
        asked = "rotations, augment, side, channels, mean and std"
        raise DataError(f"{asked} are for images; {', '.join(domains)} are {kind}")
    if spec.stream is not None and any(concept.degrees for concept in spec.stream.concepts):
        raise DataError(f"data.stream: {kind} cannot be turned")


def _check_no_labels(spec: DataPart) -> None:
    """Raise where a setting of sequences asks for what only labels allow."""
    if spec.stream is not None and any(concept.labels for concept in spec.stream.concepts):
        raise DataError("data.stream: sequences have no labels to move on")
    if any(own.label_noise for own in spec.participants.values()):
        raise DataError("label_noise needs labels; the domains are sequences")


def _tasks(labels: Labels, targets: Mapping[str, Task]) -> dict[str, str]:
    """Return for each domain the first one of the same label space; nothing where there is one for all."""
    first_of: dict[tuple[Task, tuple[str, ...]], str] = {}
    tasks = {name: first_of.setdefault((targets[name], classes), name) for name, classes in labels.items()}
    return tasks if len(first_of) > 1 else {}


def _with_away(tasks: Mapping[str, str], allocation: Allocation) -> dict[str, str]:
    """Return the tasks with those of clients that take no part, each of which is tested on as a domain."""
    if not tasks:
        return {}
    away = [client for client in allocation.clients() if client.name in allocation.away]
    return {**tasks, **{client.name: tasks[client.domain] for client in away}}


def _outputs(spec: DataPart, targets: Mapping[str, Task], outside: Source | None) -> dict[str, int]:
    """Return how many outputs a model has for each domain; those for joint public classes come behind its own."""
    more = 0
    if spec.public is not None and spec.public.joint is not None and outside is not None:
        more = views.joint_classes(spec.public, outside)
    return {name: (task.outputs or 0) + more for name, task in targets.items()}
