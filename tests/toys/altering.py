"""Run folders that came out otherwise: a file is changed, and every checksum with it."""

import json
from pathlib import Path

from heterophony.base.seal import KEY, digest, opened, sealed
from heterophony.base.store import UNIT, Store


def altered(folder: Path, name: str, change):
    """Change a table (its text) or a JSON file (its object) of a run folder as if the run had written it so."""
    path = folder / name
    if path.suffix == ".jsonl":
        path.write_text(change(path.read_text()))
    else:
        path.write_bytes(sealed(change(opened(path.read_bytes())[0]), indent=1))
    resealed(folder)


def row_of(folder: Path, node: str) -> tuple[Path, int]:
    """The file of the last snapshot in which a node's row lies, and where in it."""
    about = opened((folder / "snapshot" / "manifest.json").read_bytes())[0]["nodes"]
    store = Store.open(folder / "snapshot", about)
    return folder / "snapshot" / store.rows, (store.places[node] >> 32) * UNIT


def flipped(path: Path, place: int):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def resealed(folder: Path):
    """The manifest's checksums and the result's anew, of what there is."""
    manifest, result = folder / "snapshot" / "manifest.json", folder / "result.json"
    known = opened(manifest.read_bytes())[0]
    for table in ("metrics", "ledger"):
        data = (folder / f"{table}.jsonl").read_bytes()
        known["lengths"][table], known["tables"][table] = len(data), digest(data)
    known["spec"] = digest((folder / "spec.json").read_bytes())
    manifest.write_bytes(sealed(known))
    if result.exists():
        result.write_bytes(sealed({**opened(result.read_bytes())[0], "tables": known["tables"]}, indent=1))


def in_files(folder: Path):
    """The nodes of the last snapshot as versions before format 4 wrote them: a file each."""
    place = folder / "snapshot"
    manifest = opened((place / "manifest.json").read_bytes())[0]
    store = Store.open(place, manifest.pop("nodes"))
    for node in store:
        name = f"node-{node}.1.hph"
        (place / name).write_bytes(store.get(node))
        manifest["files"][f"node-{node}"], manifest["sums"][f"node-{node}"] = name, digest(store.get(node))
    (place / "manifest.json").write_bytes(sealed(manifest))


def outdated(folder: Path):
    """As the version wrote it that had no checksums of tables and of JSON files."""
    in_files(folder)
    for path in [*folder.glob("*.json"), folder / "snapshot" / "manifest.json"]:
        value = json.loads(path.read_bytes())
        value.pop(KEY)
        for later in ("tables", "spec"):
            value.pop(later, None)
        path.write_text(json.dumps({**value, **({"format": 1} if "format" in value else {})}, indent=1) + "\n")
