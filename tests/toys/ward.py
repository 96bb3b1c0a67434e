"""The command `heterophony deploy`, and the folder of a participant of a toy federation."""

from typer.testing import CliRunner

from heterophony.base.toml import written
from heterophony.cli import app
from heterophony.deploy.folder import write
from toys.deployed import NAMES


def deploy(*words):
    """Run a command of `heterophony deploy`."""
    return CliRunner().invoke(app, ["deploy", *map(str, words)])


def participant(folder, case, name="north", **changes):
    """Write a federation of a case, and return the folder of one participant."""
    write(folder, case.name, NAMES, common="toys.deployed:network")
    here = folder / "participants" / name
    (here / "federation.toml").write_text(written(case.plan().model_dump(mode="json")))
    own = case.organisation(name, **changes).model_dump(mode="json")
    (here / "organisation.toml").write_text(written(own))
    return here
