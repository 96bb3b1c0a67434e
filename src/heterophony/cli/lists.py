"""models, methods, settings, data: what there is."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heterophony.cli import listing, terminal
from heterophony.cli.complaints import complaints
from heterophony.cli.options import DataFolder, Json

if TYPE_CHECKING:
    from heterophony.data.sources.catalogue import Listing

out = terminal.console()


def models(as_json: Json = False) -> None:
    """List the networks, and families of them. Any module:callable is one too, of a module in this folder or on
    PYTHONPATH: it is told in_channels, size (of an image's side) and classes, or shape, and returns a
    torch.nn.Module."""
    from heterophony.models import names
    from heterophony.models.families import families
    from heterophony.models.registry import OTHERS

    found = [*names(), *families(), *OTHERS]
    listing.tell([{"name": name, "summary": summary} for name, summary in found], as_json, ("name", "summary"))


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, or module:callable, to see its options.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods; or of one what leaves a node, where it differs from its paper, and its options."""
    from heterophony.catalogue import registry
    from heterophony.catalogue.options import described

    if name is not None:
        with complaints():
            entry = registry.lookup(name)
            rows = [vars(option) for option in described(entry)]
        if not as_json:
            print(f"{entry.about}\n")
            for deviation in entry.deviations:
                print(f"Deviation ({deviation.where}): {deviation.ours}. Why: {deviation.why}.")
            if entry.deviations:
                print()
        listing.tell(rows, as_json, ("name", "default", "note"))
        return
    with complaints():
        known, broken = registry.sound_methods()
        found = [
            {
                "name": name,
                "summary": entry.summary,
                "sends": [kind.name for kind in entry.sends()],
                "options": {key: default for key, (_, default) in entry.options().items()},
            }
            for name, entry in known.items()
        ]
    listing.tell(found, as_json, ("name", "summary", "sends"), spare=("sends",))
    for name, reason in broken.items():
        print(f"not listed: {name} of another package: {reason}", file=sys.stderr)
    if not as_json:
        print("heterophony methods NAME says more of one")


def settings(
    name: Annotated[str | None, typer.Argument(help="One setting, or a TOML file, to see what it says.")] = None,
    as_json: Json = False,
) -> None:
    """List the settings that come with the package; or show one, as a file to begin one's own with."""
    from heterophony.data.sources import own
    from heterophony.data.sources.catalogue import known
    from heterophony.settings import Setting, shipped
    from heterophony.settings.setting import text

    with complaints():
        here = {each.entry.name for each in known() if each.found}
        found = []
        for each in shipped() if name is None else [name]:
            setting = Setting.load(each)
            found.append(
                {
                    "name": setting.name,
                    "summary": setting.summary,
                    "rounds": setting.rounds,
                    "networks": sorted(set(setting.models.names)),
                    "data": setting.sources,
                    "missing": [s for s in setting.sources if s not in here and not own.entry(s)],
                }
            )
        toml = "" if name is None else text(name).strip()
    if name is None:
        found.sort(key=lambda setting: (len(setting["missing"]), setting["name"]))  # type: ignore[arg-type]
        listing.tell(found, as_json, ("name", "summary", "rounds", "missing"), spare=("rounds",))
        if not as_json:
            print("heterophony settings NAME shows one as a file")
    elif as_json:
        print(json.dumps({**found[0], "toml": toml}))
    else:
        print(toml)
        if missing := found[0]["missing"]:
            print(f"missing data: {', '.join(missing)}", file=sys.stderr)  # type: ignore[arg-type]


def data(
    root: DataFolder = None,
    fetch: Annotated[
        list[str] | None, typer.Option(help="Download this set first, from its official source. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List every known data set: whether it was found, where, and how large it is."""
    from heterophony.data.download import download
    from heterophony.data.sources.catalogue import known

    with complaints():
        for name in fetch or []:
            for path in download(name, root):
                print(f"fetched {path}", file=sys.stderr)
        found = [_plain(each) for each in known(root)]
    rows, members = (found, {}) if as_json else listing.families(found)
    listing.tell(rows, as_json, ("name", "summary", "found", "train", "test"), spare=())
    if not as_json:
        for name, each in members.items():
            out.print(f"{name}: {', '.join(each)}", highlight=False)
        _tell_where(found, root)


def _plain(found: Listing) -> dict[str, object]:
    """Return what is known of a data set as JSON has it."""
    return {
        "name": found.entry.name,
        "summary": found.entry.summary,
        "found": found.found,
        "fetchable": found.entry.fetchable,
        "where": None if found.where is None else str(found.where),
        "train": found.train,
        "test": found.test,
        "partial": found.partial,
        "problem": found.problem or None,
    }


def _tell_where(found: Sequence[dict[str, object]], root: Path | None) -> None:
    """Print where data sets were looked for, how to get those that are not there, and what is wrong with some."""
    from heterophony.data.root import folder
    from heterophony.data.sources import own

    print(f"looked in {folder(root)}")
    absent = [str(row["name"]) for row in found if row["fetchable"] and not row["found"]]
    if absent:
        out.print(f"heterophony data --fetch NAME downloads {', '.join(absent)}", highlight=False)
    print(f"your own: {own.FORMS}")
    for row in found:
        if row["problem"]:
            print(row["problem"])
