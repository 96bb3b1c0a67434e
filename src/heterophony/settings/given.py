"""The world that a function of somebody's own gives: `Participants`, checked and in the form that settings use."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from heterophony.base import imported
from heterophony.base.seeds import generator
from heterophony.base.wording import listed, meant
from heterophony.data import Coverage, Data, DataError
from heterophony.data.sound import check_kind, check_rows, check_targets
from heterophony.data.views import View, completed, joined, loaded
from heterophony.settings.participants import Network, Participants
from heterophony.settings.world import World
from heterophony.tasks.classification import Classification
from heterophony.tasks.task import Task

Views = dict[str, Data]
VIEWS = ("train", "test", "validation", "mine")  # that a participant may have


def world(name: str, seed: int, validation: float = 0.0) -> World:
    """Build the world of `module:callable`. `validation` is the share of private rows that is for choosing."""
    made = _made(name, seed)
    try:
        rows = _Rows.of(made)
        rows.check_x()
        rows = rows.numbered()
        rows.check_targets()
        rows.check_apart()
        return _world(made, rows.divided(validation, seed) if validation else rows)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _made(name: str, seed: int) -> Participants:
    """Call the function, with the run's seed if it asks for it; raise where it gives something else."""
    function = imported.function(name, "world")
    told = {"seed": seed} if "seed" in inspect.signature(function).parameters else {}
    made = imported.call(name, "world", **told)
    if not isinstance(made, Participants):
        raise DataError(f"{name} gave a {type(made).__name__}, not Participants(data=..., models=..., tests=...)")
    return made


@dataclass(frozen=True)
class _Rows:
    """All rows of a world, by whose they are."""

    held: dict[str, Views]  # by participant, the views that it was given
    tests: dict[str, Views]  # by domain and split
    homes: dict[str, str]
    public: Data | None

    @classmethod
    def of(cls, made: Participants) -> _Rows:
        """Take what a function gave, where each part of it is of the right kind."""
        if not isinstance(made.data, Mapping) or not made.data:
            raise DataError("data must be a table of participants: data={'anna': Data(x=..., y=...)}")
        held = {str(who): _views(str(who), own) for who, own in made.data.items()}
        if made.public is not None:
            check_kind(made.public, "public")
        tests = _tests(made, held)
        return cls(held, tests, _homes(made, held, tests), made.public)

    def each(self) -> Iterator[tuple[str, Data]]:
        """Yield all data that networks read, with their names in errors."""
        for who, views in self.held.items():
            yield from ((f"{view} of {who}", data) for view, data in views.items() if view != "mine")
        for domain, splits in self.tests.items():
            own = self.held.get(domain, {})
            yield from ((f"{split} set {domain}", data) for split, data in splits.items() if data is not own.get(split))
        if self.public is not None:
            yield "public", self.public

    def check_x(self) -> None:
        """Raise where rows are missing, not finite, of another type, or of another shape than the first ones."""
        first: tuple[str, Tensor] | None = None
        for where, data in self.each():
            check_rows(data, where, torch.float32)
            x = data.columns["x"]
            first = first or (where, x)
            if (x.shape[1:], x.dtype) != (first[1].shape[1:], first[1].dtype):
                raise DataError(f"{where}: x has {_like(x)}, but {first[0]} has {_like(first[1])}: all must be alike")

    def numbered(self) -> _Rows:
        """Return the same rows with the number of classes, where nobody said it: as many as there are labels."""
        unsaid = [data for _, data in self.each() if data.task == Classification() and _has_labels(data)]
        if not unsaid:
            return self
        task = Classification(1 + max(int(data.y.max()) for data in unsaid))
        told = {id(data): _with_task(data, task) for _, data in self.each() if data.task == Classification()}

        def same(table: dict[str, Views]) -> dict[str, Views]:
            return {key: {n: told.get(id(d), d) for n, d in views.items()} for key, views in table.items()}

        public = None if self.public is None else told.get(id(self.public), self.public)
        return replace(self, held=same(self.held), tests=same(self.tests), public=public)

    def check_targets(self) -> None:
        """Raise where targets are not those of the task, or where training and tests are of different tasks."""
        for where, data in self.each():
            if where != "public" or "y" in data.columns:
                check_targets(data, where)
        for who, home in self.homes.items():
            ours, tested = self.held[who]["train"].task, next(iter(self.tests[home].values())).task
            if ours != tested:
                raise DataError(f"train of {who} is {ours}, but test set {home} is {tested}: give both the same task")

    def check_apart(self) -> None:
        """Raise where all rows of a test set are training rows: its figures would say nothing of other rows."""
        seen = {row for views in self.held.values() for row in _prints(views["train"])}
        for domain, splits in self.tests.items():
            for split, data in splits.items():
                if len(data) > 1 and all(row in seen for row in _prints(data)):
                    raise DataError(f"{split} set {domain}: each of its rows is also a training row; hold rows out")

    def divided(self, share: float, seed: int) -> _Rows:
        """Return the same with a share of each participant's private rows, drawn by the seed, for choosing."""
        held = {}
        for who, views in self.held.items():
            train = views["train"]
            count = max(1, round(share * len(train)))
            if "validation" in views or any("validation" in splits for splits in self.tests.values()):
                raise DataError("data.validation divides private rows, but there are rows for validation already")
            if count >= len(train):
                raise DataError(f"train of {who} has {len(train)} rows: data.validation = {share:g} would leave none")
            order = torch.randperm(len(train), generator=generator(seed, who, "validation"))
            kept = {"train": train.take(order[count:].sort().values), "validation": train.take(order[:count])}
            held[who] = {**views, **kept}
        return replace(self, held=held)


# -- what a function gave --------------------------------------------------------------------------------------
def _views(who: str, own: Any) -> Views:
    """Return a participant's views."""
    if not isinstance(own, Mapping):
        check_kind(own, f"data of {who}")
        return {"train": own}
    if strange := [str(view) for view in own if view not in VIEWS]:
        hint = "; rows that everyone holds are Participants(public=...)" if strange[0] == "public" else ""
        raise DataError(f"data of {who}: there is no view {strange[0]!r}{meant(strange[0], VIEWS)}{hint}")
    for view, data in own.items():
        check_kind(data, f"{view} of {who}")
    if "train" not in own:
        raise DataError(f"data of {who} has no view 'train', its private rows; it has {', '.join(own) or 'none'}")
    return dict(own)


def _tests(made: Participants, held: Mapping[str, Views]) -> dict[str, Views]:
    """Return the test sets by domain and split; of participants without others, their own."""
    given = {"everyone": made.tests} if not isinstance(made.tests, Mapping) else made.tests
    found: dict[str, Views] = {}
    for domain, splits in given.items():
        by_split = splits if isinstance(splits, Mapping) else {"test": splits}
        for split, data in by_split.items():
            check_kind(data, f"{split} set {domain}")
        found[str(domain)] = dict(by_split)
    if found:
        return found
    if lacking := [who for who, views in held.items() if "test" not in views]:
        raise DataError(f"there is nothing to test {lacking[0]} on: give tests=..., or a view 'test' of {lacking[0]}")
    return {who: {"test": views["test"]} for who, views in held.items()}


def _homes(made: Participants, held: Mapping[str, Views], tests: Mapping[str, Views]) -> dict[str, str]:
    """Return the domain of each participant."""
    if strange := [who for who in made.homes if who not in held]:
        raise DataError(f"homes: there is no participant {strange[0]!r}{meant(strange[0], held)}")
    only = next(iter(tests)) if len(tests) == 1 else None
    homes = {who: made.homes.get(who, who if who in tests else only or who) for who in held}
    for who, home in homes.items():
        if home not in tests:
            raise DataError(
                f"homes: which test set is that of {who}? There is none called {home!r}, but {listed(list(tests))}"
            )
    return homes


def _networks(made: Participants, held: Mapping[str, Views]) -> tuple[Network, ...]:
    """Return the participants' networks in their order, or fewer that are dealt round."""
    given = made.models
    if isinstance(given, Mapping):
        if lacking := [who for who in held if who not in given]:
            raise DataError(f"models: there is no network for {lacking[0]}; there are some for {listed(list(given))}")
        if strange := [str(who) for who in given if who not in held]:
            raise DataError(f"models: there is no participant {strange[0]!r}{meant(strange[0], held)}")
        found = [given[who] for who in held]
    else:
        found = list(given) if isinstance(given, list | tuple) else [given]  # type: ignore[list-item]
    if not found:
        raise DataError("models: give a network for all, a list, or one by participant")
    for network in [*found, *([] if made.common is None else [made.common])]:
        if not isinstance(network, str | nn.Module) and not callable(network):
            raise DataError(f"models: a network is a function, a class, a module or a name, not {network!r:.80}")
    return tuple(found)


# -- the world -------------------------------------------------------------------------------------------------
def _world(made: Participants, rows: _Rows) -> World:
    """Return the world of sound rows."""
    targets = {domain: next(iter(splits.values())).task for domain, splits in rows.tests.items()}
    first = next(iter(rows.held.values()))["train"]
    public = None if rows.public is None else _view(rows.public)
    own_tests = {who: views["test"] for who, views in rows.held.items() if "test" in views}
    return World(
        homes=rows.homes,
        views={who: _all_views(rows, who) for who in rows.held},
        public=public,
        labelled=rows.public is not None and "y" in rows.public.columns,
        tests=_with_validation(rows),
        private_tests={who: data for who, data in own_tests.items() if data is not rows.tests.get(who, {}).get("test")},
        told={"shape": tuple(first.columns["x"].shape[1:])},
        outputs=next(iter(targets.values())).outputs or 0,
        coverage=_coverage(rows, targets),
        classes={domain: task.outputs or 0 for domain, task in targets.items()},
        tasks=_spaces(targets),
        labels={domain: tuple(map(str, range(task.classes or 0))) for domain, task in targets.items()},
        targets=targets,
        reads="arrays",
        networks=_networks(made, rows.held),
        common=made.common,
        tree=made.tree,
        profiles=dict(made.profiles),
    )


def _all_views(rows: _Rows, who: str) -> dict[str, View]:
    """Return a participant's views, with those that follow from them."""
    held = {view: data for view, data in rows.held[who].items() if view != "test"}
    if (chosen_on := rows.tests[rows.homes[who]].get("validation")) is not None:
        held.setdefault("validation", chosen_on)
    if rows.public is not None:
        held["public"] = rows.public
    return completed({view: _view(data) for view, data in held.items()})


def _with_validation(rows: _Rows) -> dict[str, Views]:
    """Return the test sets; participants' own rows for validation are those of their domain."""
    found = {domain: dict(splits) for domain, splits in rows.tests.items()}
    for domain, splits in found.items():
        own = [views["validation"] for who, views in rows.held.items()
               if rows.homes[who] == domain and "validation" in views]  # fmt: skip
        if own and "validation" not in splits:
            splits["validation"] = own[0] if len(own) == 1 else joined(*own)
    return found


def _coverage(rows: _Rows, targets: Mapping[str, Task]) -> Coverage:
    """Return which classes are trained on and tested, by label space."""
    classes: dict[str, dict[str, set[int]]] = {}
    spaces = _spaces(targets)
    for domain, task in targets.items():
        if task.kind == "classification":
            seen = classes.setdefault(spaces.get(domain, "the tests"), {"train": set(), "test": set()})
            seen["test"] |= {label for data in rows.tests[domain].values() for label in data.y.flatten().tolist()}
            for who, home in rows.homes.items():
                if home == domain:
                    seen["train"] |= set(rows.held[who]["train"].y.flatten().tolist())
    found = {name: {view: tuple(sorted(own)) for view, own in by.items()} for name, by in classes.items()}
    return Coverage({}, found)


def _spaces(targets: Mapping[str, Task]) -> dict[str, str]:
    """Return for each domain the first one of the same task; nothing where there is one for all."""
    first_of: dict[Task, str] = {}
    spaces = {domain: first_of.setdefault(task, domain) for domain, task in targets.items()}
    return spaces if len(first_of) > 1 else {}


def _view(data: Data) -> View:
    return partial(loaded, data)


def _with_task(data: Data, task: Task) -> Data:
    return Data.of_columns(data.columns, task).augmented(data.augment)


def _has_labels(data: Data) -> bool:
    y = data.columns.get("y")
    return y is not None and y.numel() > 0 and not y.is_floating_point()


def _like(x: Tensor) -> str:
    return f"rows of {tuple(x.shape[1:])} {x.dtype}".replace("torch.", "")


def _prints(data: Data) -> Iterator[int]:
    """Yield a fingerprint of each row with its target."""
    x, y = data.columns["x"].contiguous(), data.columns["y"].contiguous()
    for row, target in zip(x.flatten(1).numpy() if x.ndim > 1 else x[:, None].numpy(), y.numpy(), strict=True):
        yield hash((row.tobytes(), target.tobytes()))
