"""The value that says how work is computed."""

from dataclasses import FrozenInstanceError

import pytest

from heterophony import Compute
from heterophony.methods import FedAvg
from toys.federations import B16, weights_star


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device": "gpu"}, "there is no device 'gpu'; it is cpu, cuda or cuda:NUMBER"),
        ({"executor": "lazy"}, "there is no executor 'lazy'; it is auto, eager, branches, stacked"),
        ({"precision": "fp64"}, "there is no precision 'fp64'; it is fp32, tf32, bf16"),
        ({"threads": 0}, "threads is at least 1, got 0"),
        ({"workers": 0}, "workers is at least 1, got 0"),
        ({"resident": 1.5}, r"resident is a share in \[0, 1\], got 1.5"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_cannot_be_is_refused_in_words(given, words):
    with pytest.raises(ValueError, match=words):
        Compute(**given)


def test_it_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        Compute().device = "cuda"


def test_it_is_built_again_from_what_a_run_folder_keeps():
    compute = Compute(device="cuda:1", executor="stacked", precision="bf16", deterministic=False, threads=2)
    assert Compute.of(compute.deciding()) == compute
    with pytest.raises(ValueError, match=r"compute has no 'devise', perhaps you meant 'device'; it has device"):
        Compute.of({"devise": "cpu"})


def test_workers_and_memory_do_not_decide_and_are_not_in_a_runs_identity():
    made = weights_star(FedAvg(local=B16))
    assert made.computed(workers=3, resident=0.0).identity() == made.identity()
    for name, value in {"device": "cuda", "executor": "eager", "precision": "tf32", "deterministic": False}.items():
        other = made.computed(**{name: value})
        assert other.identity() == {**made.identity(), name: value}
        assert made.compute == Compute()
