"""Participants with three different networks: each method either runs with them, or is refused before anything runs."""

import pytest

from heterophony.methods import NAMES
from heterophony.settings import Setting, SettingError, assemble

UNLIKE = Setting.of(
    {
        "name": "unlike",
        "rounds": 2,
        "evaluate": 2,
        "data": {
            "source": "digits-embedded",
            "rotations": [0, 20, 40],
            "test": 0.15,
            "rows": 20,
            "test_rows": 20,
            "public": {"fraction": 0.1},
        },
        "models": {"participants": ["mlp", "cnn1-3x3", "lenet5"], "global": "lenet5"},
        "local": {"epochs": 1, "batch": 16, "lr": 0.05},
    }
)
# The client's network is built of several, of which one is averaged.
BUILT = ("apfl", "mapper", "moe", "fedrod", "feddbe", "gpfl", "knn-per")


@pytest.mark.parametrize("method", BUILT)
def test_a_network_that_is_averaged_within_another_has_one_shape(method):
    with pytest.raises(SettingError, match=rf"^{method} averages parameters.*body\.1\.weight is 200 x 784 at server, "):
        assemble(method, UNLIKE)
    assert assemble(method, UNLIKE, changes={"models.same": "mlp"})


@pytest.mark.slow
@pytest.mark.parametrize("method", NAMES)
def test_different_networks_run_or_are_refused_before_anything_runs(method):
    """And nothing that is sent is refused where it arrives."""
    try:
        federation = assemble(method, UNLIKE)
    except SettingError as error:
        said = str(error)
        assert "\n" not in said
        assert said.startswith(f"{method} averages ")
        assert " at server, M0" in said or " at root, " in said or " at M0" in said  # who has which shape
        return
    result = federation.run(2)
    assert result.rounds == 2
    assert not [incident for incident in result.ledger.incidents if incident["incident"] == "refused"]
    assert bool(sum(result.ledger.bytes().values())) == bool(federation.method.kinds)
