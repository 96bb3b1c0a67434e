"""Make a release, and do everything but upload it.

python tools/release.py --home ADDRESS     # the repository's address: links of the package's page lead there
python tools/release.py --check            # what CI does: no address needed, the demo is not run

Needs `build` and `twine` (extra `release`). In this order:

1. The newest section of the changelog, the package and CITATION.cff have one version and one date.
2. sdist and wheel are built from what is committed, each from the other's sources alone.
3. `twine check --strict` reads what their page would show.
4. An empty environment without the repository gets the wheel. `heterophony` starts there, and runs its demo.

The last lines say how to tag and upload.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Unready(Exception):
    """Something is not as a release needs it; one line."""


def version() -> str:
    """Return the version that the changelog, the package and the citation agree on."""
    source = (ROOT / "src" / "heterophony" / "__init__.py").read_text()
    (own,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    sections = re.findall(
        r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    cited = dict(re.findall(r"^([\w-]+): (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    if not sections or sections[0] != (cited["version"], cited["date-released"]) or sections[0][0] != own:
        said = f"{own}, the changelog {sections[:1]}, CITATION.cff {cited['version']} of {cited['date-released']}"
        raise Unready(f"the package says {said}: make them one")
    return str(own)


def committed() -> None:
    """Raise where files are not as they are committed."""
    changed = run("git", "status", "--porcelain", "--untracked-files=no", cwd=ROOT).splitlines()
    if changed:
        raise Unready(f"{changed[0].split()[-1]} is not committed")


def built(folder: Path, home: str) -> list[Path]:
    """Build sdist and wheel from the last commit, and return them."""
    sources, dist = folder / "sources", folder / "dist"
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(sources, filter="data")
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(sources), HETEROPHONY_HOME=home)
    return sorted(dist.iterdir())


def complete(wheel: Path) -> None:
    """Raise where the wheel lacks a file of the package, or has one that is no part of it."""
    with zipfile.ZipFile(wheel) as files:
        there = {name for name in files.namelist() if name.startswith("heterophony/")}
        others = {name.partition("/")[0] for name in files.namelist()} - {"heterophony"}
    tracked = run("git", "ls-files", "src/heterophony", cwd=ROOT).splitlines()
    missing = {name.removeprefix("src/") for name in tracked} - there
    if missing:
        raise Unready(f"{wheel.name} lacks {sorted(missing)[0]}")
    if any(not name.endswith(".dist-info") for name in others):
        raise Unready(f"{wheel.name} has {', '.join(sorted(others))} beside the package")


def installed(wheel: Path, folder: Path, *, demo: bool) -> None:
    """Install the wheel where there is nothing else, and use it there."""
    place = folder / "empty"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    constraints = str(ROOT / "constraints.txt")
    quiet = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints)
    run(str(python), *quiet, "torch")  # alone and first, so that no later step takes another build of it
    run(str(python), *quiet, f"{wheel}[report]")
    work = folder / "work"
    work.mkdir()
    command = str(place / "bin" / "heterophony")
    print(run(command, "run", "fedavg", "--on", "rotated-mnist", "--rounds", "1", cwd=work))
    if demo:
        print(run(command, "demo", "--quick", cwd=work))
        if not (work / "runs" / "demo-quick" / "report.html").exists():
            raise Unready("the demo made no page")


def run(*words: str, cwd: Path | None = None, **environment: str) -> str:
    """Run a command, and return what it printed. Raise with its last words where it fails."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env={**kept, **environment}, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Unready(f"{' '.join(words)} ended with {done.returncode}: {' '.join(last)}")
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a release, and do everything but upload it.")
    parser.add_argument("--home", default="", help="the repository's address, as in https://example.org/heterophony")
    parser.add_argument("--check", action="store_true", help="build and install only; a release needs --home")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the two files end up")
    asked = parser.parse_args()
    try:
        if not asked.check and not re.match(r"https://\S+$", asked.home):
            raise Unready("--home is the repository's address, https://...; the links of the package's page lead there")
        number = version()
        if not asked.check:
            committed()
        with tempfile.TemporaryDirectory() as name:
            files = built(Path(name), asked.home)
            run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
            (wheel,) = (path for path in files if path.suffix == ".whl")
            complete(wheel)
            installed(wheel, Path(name), demo=not asked.check)
            asked.out.mkdir(exist_ok=True)
            for path in files:
                (asked.out / path.name).write_bytes(path.read_bytes())
                print(asked.out / path.name)
    except Unready as reason:
        print(f"release: {reason}", file=sys.stderr)
        return 1
    if not asked.check:
        print(f"git tag -s v{number} && git push --tags && python -m twine upload {asked.out}/*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
