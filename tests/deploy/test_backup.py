"""docs/how-to/deploy.md, "Back up, move, upgrade": its commands are run as they stand there, in other folders."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs heterophony[flower]")


from deploy.direct import Clock, Direct, at_coordinator, engine, node_servers
from heterophony.base.toml import written
from heterophony.deploy import keys
from heterophony.deploy.budget import Budget
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.participant import household
from heterophony.deploy.receipts import Signer
from heterophony.engines import local
from heterophony.kernel.privacy import Charge
from heterophony.runs.run import Run
from toys.deployed import CASES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
CASE = CASES["fedavg"]
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not in a checkout")


def block(name):
    (found,) = re.findall(rf"^```{name}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def machine(tmp_path):
    """Folders that stand for /srv/heterophony and /backup; services and packages are not touched."""
    (tmp_path / "backup").mkdir()
    home = tmp_path / "srv" / "north"
    home.mkdir(parents=True)
    keys.node(home)
    (home / "federation.toml").write_text(written(CASE.plan().model_dump(mode="json")))
    own = CASE.organisation("north", folder="state").model_dump(mode="json")
    (home / "organisation.toml").write_text(written(own))
    return tmp_path


def script(machine, name):
    text = block(name).replace("/srv/heterophony/venv/bin/pip", "pip").replace("/srv/heterophony", str(machine / "srv"))
    stubs = f'set -e; systemctl() {{ :; }}; pip() {{ :; }}; heterophony() {{ {sys.executable} -m heterophony "$@"; }}\n'
    paths = f"export PYTHONPATH={ROOT / 'src'}:{ROOT / 'tests'} OMP_NUM_THREADS=1\n"
    return ["bash", "-c", stubs + paths + text.replace("/backup", str(machine / "backup"))]


def follow(machine, name):
    done = subprocess.run(script(machine, name), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def north(machine):
    home = machine / "srv" / "north"
    return household(home, Signer(keys.private(home / "node.key"))).nodes["north"]


def run(machine, rounds, plan=None, **options):
    nodes = {**node_servers(CASE, machine / "others"), "north": north(machine)}
    spec, place = at_coordinator(CASE).identity(), machine / "run"
    opened = Run.open(place, spec) if place.exists() else Run.create(place, spec, CASE.rounds)
    with opened as record:
        return engine(CASE, Direct(nodes), plan, record, **options).run(rounds), nodes["north"]


def put_back(machine, copy):
    shutil.rmtree(machine / "srv" / "north")
    shutil.copytree(machine / "backup" / copy, machine / "srv" / "north")


@pytest.mark.slow
def test_a_node_is_copied_restored_elsewhere_and_goes_on(machine):
    _, here = run(machine, 1)
    follow(machine, "backup")
    with here.store.locked():  # in the middle of a reaction
        copying = subprocess.Popen(script(machine, "backup-running"))
        assert copying.poll() is None
        assert not (machine / "backup" / "north-running").exists()
    assert copying.wait() == 0
    follow(machine, "upgrade")
    copies = [machine / "backup" / name for name in ("north", "north-running", "north-before")]
    first, *others = [{p.relative_to(c): p.read_bytes() for p in c.rglob("*.*") if p.is_file()} for c in copies]
    assert all(other == first for other in others)
    assert {"node.key", "organisation.toml"} <= {path.name for path in first}
    shutil.rmtree(machine / "srv" / "north")  # the machine is gone
    assert "1 reaction done" in follow(machine, "restore")
    result, _ = run(machine, CASE.rounds)
    assert result.digest == local(CASE.federation()).run(CASE.rounds).digest


def test_an_older_state_is_refused_and_the_others_go_on(machine):
    follow(machine, "backup")
    run(machine, 1)
    put_back(machine, "north")
    time = Clock()
    plan = CASE.plan(pace={"poll": 0.5, "patience": 30.0})
    result, here = run(machine, CASE.rounds, plan, clock=time, sleep=time.sleep)
    assert result.rounds == CASE.rounds
    assert here.store.load().applied == 0
    said = {row["detail"] for row in here.store.rows("incidents")}
    assert said == {"activation 2, but only 0 have been done here: was an old state put back, or lost?"}


def test_what_is_damaged_or_only_half_put_back_is_refused_in_one_line(machine):
    _, here = run(machine, 1)
    state = here.store.file
    table = here.store.table("receipts")
    lines = table.read_bytes()
    table.write_bytes(b"")
    with pytest.raises(DeployError, match="is cut short"):
        here.store.load()
    table.write_bytes(lines)
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    with pytest.raises(DeployError, match=r"is damaged \(its checksum differs\)"):
        here.store.load()


def test_an_old_budget_that_is_put_back_lets_nothing_leave(tmp_path):
    file, witness = tmp_path / "a" / "rows", tmp_path / "b" / "rows"
    budget = Budget(file, witness, 2.0, 1e-3)
    budget.spend(Charge("update", 8.0))
    copy = file.read_bytes()
    budget.spend(Charge("update", 8.0))
    budget.spend(Charge("update", 8.0))
    file.write_bytes(copy)
    with pytest.raises(DeployError, match="is an old one"):
        Budget(file, witness, 2.0, 1e-3).spend(Charge("update", 8.0))


def test_the_page_quotes_what_is_really_said():
    section = PAGE.read_text().partition("## Back up, move, upgrade")[2].partition("## How it works")[0]
    source = "".join(path.read_text() for path in (ROOT / "src/heterophony/deploy").glob("*.py"))
    for quoted in re.findall(r'"([^"\n]+)"', section):
        for part in quoted.replace("only 1 have", "have").split(": "):
            assert part.removeprefix("only ") in source, quoted
