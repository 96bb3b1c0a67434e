"""Partitions: disjoint, complete, of the promised sizes, repeatable, and they end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony.data import (
    DataError,
    Dirichlet,
    Domain,
    Iid,
    Natural,
    Pathological,
    Quantity,
    Shards,
    divide,
    holdout,
    private_test,
)

QUICK = settings(deadline=None, max_examples=60)

# One row buys every property below.
TABLE = {
    "iid": Iid(),
    "dirichlet": Dirichlet(0.5),
    "dirichlet tiny": Dirichlet(1e-6),
    "dirichlet huge": Dirichlet(1e100),
    "dirichlet may be empty": Dirichlet(0.1, min_size=0),
    "dirichlet at least 3": Dirichlet(0.05, min_size=3),
    "shards 1": Shards(1),
    "shards 3": Shards(3),
    "pathological 1": Pathological(1),
    "pathological 2": Pathological(2),
    "quantity sigma": Quantity(sigma=1.5),
    "quantity sigma huge": Quantity(sigma=1e100, min_size=2),
    "quantity alpha": Quantity(alpha=0.1, min_size=0),
    "domain": Domain(),
    "domain of skewed clients": Domain(Dirichlet(0.1)),
    "natural": Natural(),
}

labels_of = st.lists(st.integers(-3, 9), max_size=120).map(lambda rows: np.array(rows, dtype=np.int64))


def rng(seed=0):
    return np.random.default_rng(seed)


def classes(labels, part):
    return set(labels[part].tolist())


def attempt(function, *arguments):
    """What a function returns, or the text of its refusal."""
    try:
        return function(*arguments)
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("name", TABLE)
@QUICK
@given(labels=labels_of, clients=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_every_partition_ends_and_keeps_its_promises(name, labels, clients, seed):
    partition = TABLE[name]
    groups = (labels * 7 + np.arange(len(labels))) % 3
    parts = attempt(partition.split, labels, clients, rng(seed), groups)
    needed = getattr(partition, "min_size", getattr(partition, "per_client", 1))
    if isinstance(partition, Iid | Dirichlet | Shards | Quantity):
        # These refuse exactly where the rows do not suffice.
        assert isinstance(parts, str) == (len(labels) < clients * needed)
    if isinstance(parts, str):
        assert "\n" not in parts
        assert parts.lower().startswith(type(partition).__name__.lower())
        return
    assert len(parts) == clients
    joined = np.concatenate(parts)
    assert np.array_equal(np.sort(joined), np.arange(len(labels)))  # disjoint and complete
    assert all(part.dtype == np.int64 for part in parts)
    assert all(np.all(np.diff(part) > 0) for part in parts)
    assert min(len(part) for part in parts) >= needed
    again = partition.split(labels, clients, rng(seed), groups)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("name", [name for name in TABLE if name not in ("domain", "natural")])
def test_another_seed_gives_another_split(name):
    labels, groups = np.arange(400) % 6, np.arange(400) % 2
    one, two = (TABLE[name].split(labels, 6, rng(seed), groups) for seed in (1, 2))
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", TABLE)
def test_the_global_generator_is_left_alone(name):
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    TABLE[name].split(np.arange(60) % 3, 3, rng(), np.arange(60) % 3)
    assert np.array_equal(np.random.get_state()[1], before)


def test_iid_sizes_differ_by_one_at_most():
    sizes = [len(part) for part in Iid().split(np.zeros(103), 10, rng())]
    assert sorted(sizes) == [10] * 7 + [11] * 3


@QUICK
@given(
    alpha=st.floats(1e-9, 1e6),
    clients=st.integers(1, 60),
    min_size=st.integers(0, 8),
    spare=st.integers(0, 200),
    seed=st.integers(0, 1000),
)
def test_dirichlet_gives_every_client_its_minimum(alpha, clients, min_size, spare, seed):
    labels = rng(seed).integers(0, 5, clients * min_size + spare)
    parts = Dirichlet(alpha, min_size).split(labels, clients, rng(seed))
    assert min(len(part) for part in parts) >= min_size
    assert sum(len(part) for part in parts) == len(labels)


def test_dirichlet_with_many_clients_and_a_small_alpha_ends_soon():
    labels = np.arange(50_000) % 10
    parts = Dirichlet(0.01, min_size=10).split(labels, 5000, rng())
    assert {len(part) for part in parts} == {10}


def test_dirichlet_alpha_means_what_it_should():
    labels = np.arange(20_000) % 10

    def spread(alpha):
        parts = Dirichlet(alpha).split(labels, 10, rng())
        shares = np.array([np.bincount(labels[part], minlength=10) / 2000 for part in parts])
        return shares.std()

    # The share of a class has the variance (K - 1) / (K^2 (K alpha + 1)).
    for alpha in (0.1, 1.0, 100.0):
        assert spread(alpha) == pytest.approx(np.sqrt(9 / 100 / (10 * alpha + 1)), rel=0.25)
    with pytest.raises(DataError, match="20 clients need 200 rows, there are 150"):
        Dirichlet(0.1, min_size=10).split(labels[:150], 20, rng())


MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def mnist_labels():
    return rng().permutation(np.repeat(np.arange(10), MNIST_COUNTS))


@pytest.mark.parametrize(("per_client", "shards_a_class"), [(6, 3), (4, 2), (2, 1)])
def test_fml_shards(per_client, shards_a_class):
    """Non-IID(1, 2, 3) of FML: five clients, ten unequal classes."""
    labels = mnist_labels()
    parts = Shards(per_client).split(labels, 5, rng(3))
    holders = np.zeros(10, int)
    for part in parts:
        held = np.bincount(labels[part], minlength=10)
        holders += held > 0
        # All that a client has of a class is a whole number of that class's shards.
        pieces = held / (np.array(MNIST_COUNTS) / shards_a_class)
        assert np.allclose(pieces, np.rint(pieces), atol=1e-2)
        assert np.rint(pieces).sum() == per_client
    assert holders.max() <= shards_a_class
    if per_client == 2:
        assert holders.tolist() == [1] * 10


@QUICK
@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 60), min_size=10, max_size=10))
def test_one_shard_a_class_never_shares_a_class(seed, sizes):
    labels = rng(seed).permutation(np.repeat(np.arange(10), sizes))
    held = [classes(labels, part) for part in Shards(2).split(labels, 5, rng(seed))]
    assert all(len(own) == 2 for own in held)
    assert len(set().union(*held)) == 10


def test_fewer_shards_than_classes_are_whole_classes():
    labels = np.arange(100) % 10
    held = [classes(labels, part) for part in Shards(1).split(labels, 4, rng())]
    assert sum(len(own) for own in held) == 10


def test_more_shards_than_rows_cannot_be():
    with pytest.raises(DataError, match=r"shards \(per_client = 3\): 4 clients need 12 rows, there are 11"):
        Shards(3).split(np.zeros(11), 4, rng())
    assert [len(part) for part in Shards(3).split(np.arange(12) % 5, 4, rng())] == [3] * 4


@QUICK
@given(seed=st.integers(0, 10_000), clients=st.integers(1, 30), each=st.integers(1, 10))
def test_pathological_clients_have_exactly_their_classes(seed, clients, each):
    labels = rng(seed).permutation(np.arange(600) % 10)
    if clients * each < 10:
        with pytest.raises(DataError, match="cannot hold 10 classes"):
            Pathological(each).split(labels, clients, rng(seed))
        return
    held = [classes(labels, part) for part in Pathological(each).split(labels, clients, rng(seed))]
    assert all(len(own) == each for own in held)
    holders = [sum(label in own for own in held) for label in range(10)]
    assert max(holders) - min(holders) <= 1


def test_pathological_says_why_it_cannot():
    with pytest.raises(DataError, match="there are only 2 classes"):
        Pathological(3).split(np.arange(100) % 2, 5, rng())
    rare = np.array([0] * 50 + [1])
    with pytest.raises(DataError, match="a class has 1 rows for 5 clients"):
        Pathological(2).split(rare, 5, rng())


def test_quantity_sizes():
    labels = np.arange(10_000) % 10
    even = [len(part) for part in Quantity(sigma=0).split(labels, 10, rng())]
    assert even == [1000] * 10
    uneven = [len(part) for part in Quantity(sigma=2.0, min_size=50).split(labels, 10, rng())]
    assert min(uneven) >= 50
    assert max(uneven) > 3000
    largest = max(Quantity(alpha=0.3).split(labels, 10, rng()), key=len)
    # Classes stay in proportion: only the amount differs.
    assert np.bincount(labels[largest]) / len(largest) == pytest.approx(np.full(10, 0.1), abs=0.02)


def test_domains():
    domain = np.array(["sketch", "photo", "art"])[np.arange(90) % 3]
    labels = np.arange(90) // 3 % 2
    art, photo, sketch = Domain().split(labels, 3, rng(), domain)
    assert (set(domain[art]), set(domain[photo]), set(domain[sketch])) == ({"art"}, {"photo"}, {"sketch"})
    skewed = Domain(Pathological(1)).split(labels, 6, rng(), domain)
    assert [set(domain[part]) for part in skewed] == [{"art"}] * 2 + [{"photo"}] * 2 + [{"sketch"}] * 2
    assert all(len(classes(labels, part)) == 1 for part in skewed)
    with pytest.raises(DataError, match="4 clients for 3 domains: use as many or a multiple"):
        Domain().split(labels, 4, rng(), domain)
    with pytest.raises(DataError, match="pass groups="):
        Domain().split(labels, 3, rng())


def test_natural_users_stay_whole():
    users = np.array([5, 5, 2, 9, 9, 9, 2])
    parts = Natural().split(np.zeros(7), 3, rng(), users)
    assert [part.tolist() for part in parts] == [[2, 6], [0, 1], [3, 4, 5]]
    two = Natural().split(np.zeros(7), 2, rng(), users)
    held = [set(users[part].tolist()) for part in two]
    assert not held[0] & held[1]
    with pytest.raises(DataError, match="3 users cannot make 4 clients"):
        Natural().split(np.zeros(7), 4, rng(), users)
    with pytest.raises(DataError, match="each of the 7 rows"):
        Natural().split(np.zeros(7), 2, rng(), users[:3])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dirichlet(0),
        lambda: Dirichlet(-1),
        lambda: Dirichlet(float("nan")),
        lambda: Dirichlet(float("inf")),
        lambda: Dirichlet(1, min_size=-1),
        lambda: Dirichlet(1, min_size=1.5),
        lambda: Shards(0),
        lambda: Pathological(0),
        lambda: Quantity(),
        lambda: Quantity(sigma=1, alpha=1),
        lambda: Quantity(sigma=-1),
        lambda: Quantity(sigma=float("nan")),
        lambda: Quantity(alpha=0),
    ],
)
def test_wrong_settings_are_refused_at_once(make):
    with pytest.raises(DataError):
        make()


@pytest.mark.parametrize("name", TABLE)
def test_no_clients_and_no_rows_are_refused(name):
    labels = np.arange(30) % 3
    with pytest.raises(DataError, match="at least one client, got 0"):
        TABLE[name].split(labels, 0, rng(), labels)
    if "empty" not in name and name != "quantity alpha":
        with pytest.raises(DataError):
            TABLE[name].split(labels[:0], 3, rng(), labels[:0])


@QUICK
@given(rows=st.sets(st.integers(0, 10_000), max_size=200), fraction=st.floats(0, 0.999), seed=st.integers(0, 1000))
def test_holdout(rows, fraction, seed):
    given_rows = np.array(sorted(rows), dtype=np.int64)
    parts = attempt(holdout, given_rows, fraction, rng(seed))
    if isinstance(parts, str):
        assert "less than one row" in parts
        return
    stay, out = parts
    assert np.array_equal(np.union1d(stay, out), given_rows)
    assert len(stay) + len(out) == len(given_rows)
    assert abs(len(out) - fraction * len(given_rows)) <= 1
    assert np.array_equal(holdout(given_rows, fraction, rng(seed))[1], out)


def test_divide_by_the_papers_fractions():
    parts = divide(np.arange(1000), (0.65, 0.10, 0.10, 0.15), rng())
    assert [len(part) for part in parts] == [650, 100, 100, 150]
    with pytest.raises(DataError, match="add up to 1"):
        divide(np.arange(10), (0.5, 0.4), rng())
    with pytest.raises(DataError, match="less than one row"):
        divide(np.arange(3), (0.9, 0.1), rng())
    with pytest.raises(DataError, match="at least 0 and less than 1"):
        holdout(np.arange(3), 1.0, rng())


@pytest.mark.parametrize("partition", [Iid(), Shards(2), Shards(4), Dirichlet(0.3)])
def test_private_tests_follow_the_training_shares(partition):
    labels, test = mnist_labels(), rng(5).permutation(np.arange(10_000) % 10)
    parts = partition.split(labels, 5, rng(1))
    tests = private_test(labels, parts, test, rng(2))
    assert np.array_equal(np.sort(np.concatenate(tests)), np.arange(10_000))
    for part, own in zip(parts, tests, strict=True):
        share = np.bincount(labels[part], minlength=10) / np.array(MNIST_COUNTS)
        assert np.bincount(test[own], minlength=10) == pytest.approx(share * 1000, abs=1)


def test_private_tests_leave_unknown_classes_out():
    tests = private_test(np.array([0, 0, 1]), [np.array([0]), np.array([1, 2])], np.array([0, 0, 1, 2, 2]), rng())
    assert sorted(np.concatenate(tests).tolist()) == [0, 1, 2]
    assert 2 in tests[1]
