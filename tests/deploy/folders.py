"""A participant's folder as `deploy init` writes it, and the commands of `heterophony deploy` as a user gives them."""

from typer.testing import CliRunner

from heterophony.base.toml import written
from heterophony.cli import app
from heterophony.deploy.folder import write
from toys.deployed import NAMES

runner = CliRunner()


def deploy(*words):
    return runner.invoke(app, ["deploy", *map(str, words)])


def participant(folder, case, name="north", **changes):
    write(folder, case.name, NAMES, common="toys.deployed:network")
    here = folder / "participants" / name
    (here / "federation.toml").write_text(written(case.plan().model_dump(mode="json")))
    own = case.organisation(name, **changes).model_dump(mode="json")
    (here / "organisation.toml").write_text(written(own))
    return here
