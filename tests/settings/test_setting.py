"""What a TOML file may say, and what one is told when it says something else."""

import json

import pytest

from heterophony.settings import Setting, SettingError, shipped

MINIMAL = """
[data]
source = "digits-embedded"
test = 0.2
[models]
participants = "mlp"
"""


def minimal(**changes):
    return Setting.read(MINIMAL, "minimal", "minimal.toml").changed(changes)


def refused(call, *parts):
    """The one line with which a call is refused; it must name these parts."""
    with pytest.raises(SettingError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert part in text
    return text


# -- shipped settings ------------------------------------------------------------------------------------------
def test_the_expected_settings_are_shipped():
    wanted = {"rotated-mnist", "rotated-mnist-mixed", "mnist-shards", "cifar10-dirichlet", "digits"}
    assert wanted <= set(shipped())


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_setting_loads_and_comes_back(name):
    setting = Setting.load(name)
    assert setting.name == name
    assert setting.summary
    assert setting.data.all_domains()
    plain = setting.plain()
    assert Setting.of(plain) == setting
    # A run folder keeps it as JSON.
    assert Setting.of(json.loads(json.dumps(plain))) == setting
    assert Setting.of(plain).plain() == plain


# -- files -----------------------------------------------------------------------------------------------------
def test_a_file_loads_and_is_named_after_it(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    setting = Setting.load(str(path))
    assert setting.name == "mine"
    assert (setting.rounds, setting.evaluate, setting.data.clients) == (10, 1, 1)
    assert Setting.of(setting.plain()) == setting


def test_a_file_may_name_itself(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "ours"\n' + MINIMAL)
    assert Setting.load(str(path)).name == "ours"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour = 3\n" + MINIMAL, "colour"),
        (MINIMAL + "colour = 3\n", "models.colour"),
        (MINIMAL.replace("test = 0.2", "tests = 0.2"), "data.tests"),
        (MINIMAL.replace("test = 0.2", 'test = 0.2\npartition = { kind = "iid", beta = 1 }'), "data.partition.beta"),
        ("rounds = 'many'\n" + MINIMAL, "rounds"),
        ("rounds = 0\n" + MINIMAL, "rounds"),
        ("evaluate = 0\n" + MINIMAL, "evaluate"),
        (MINIMAL.replace("0.2", "1.5"), "data.test"),
        (MINIMAL.replace("0.2", "[0.2]"), "data.test"),
        (MINIMAL.replace("test = 0.2", "test = 0.2\nclients = 1.5"), "data.clients"),
        (MINIMAL.replace("test = 0.2", "test = 0.2\nclients = 0"), "data.clients"),
        (MINIMAL.replace("test = 0.2", "test = 0.2\nchannels = 2"), "data.channels"),
        (MINIMAL.replace("test = 0.2", "test = 0.2\nside = 4"), "data.side"),
        (MINIMAL.replace("test = 0.2", "test = 0.2\nvalidation = -0.1"), "data.validation"),
        (MINIMAL.replace("test = 0.2", 'test = 0.2\npartition = { kind = "odd" }'), "data.partition.kind"),
        (MINIMAL.replace("test = 0.2", "test = 0.2\npublic = { rows = 5 }"), "either a fraction or a source"),
        (
            MINIMAL.replace("test = 0.2", 'test = 0.2\npublic = { fraction = 0.1, source = "usps" }'),
            "either a fraction or a source",
        ),
        (MINIMAL.replace('source = "digits-embedded"', ""), "either domains or a source"),
        (MINIMAL.replace("test = 0.2", 'domains = { a = { source = "usps" } }'), "either domains or a source"),
        (
            MINIMAL.replace('source = "digits-embedded"', 'rotations = [0]\ndomains = { a = { source = "usps" } }'),
            "rotations need a source",
        ),
        (MINIMAL.replace('participants = "mlp"', ""), "models.participants"),
        (MINIMAL.replace('"mlp"', "3"), "models.participants"),
        ("", "data"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(tmp_path, text, named):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    refused(lambda: Setting.load(str(path)), str(path), named)


@pytest.mark.parametrize("text", ["rounds = \n", "[data\n", "a = 1\na = 2\n", "rounds = 1 2\n"])
def test_text_that_is_no_toml_is_refused_with_its_line(tmp_path, text):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    refused(lambda: Setting.load(str(path)), str(path), "not TOML", "line")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    refused(lambda: Setting.load(str(tmp_path / "none.toml")), "none.toml", "no such file")
    refused(lambda: Setting.load("nowhere/none"), "nowhere/none", "no such file")
    (tmp_path / "folder.toml").mkdir()
    refused(lambda: Setting.load(str(tmp_path / "folder.toml")), "folder.toml", "directory")


def test_a_missing_file_is_named_as_it_was_written(tmp_path):
    refused(lambda: Setting.load(str(tmp_path / "My Setting.toml")), "My Setting.toml")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    refused(lambda: Setting.load(str(path)), "binary.toml")


def test_an_unknown_name_is_answered_with_the_nearest():
    text = refused(lambda: Setting.load("rotated-minst"), "'rotated-minst'", "perhaps you meant 'rotated-mnist'")
    assert all(name in text for name in shipped())
    text = refused(lambda: Setting.load("zzzzzz"), "'zzzzzz'", ".toml")
    assert "perhaps" not in text
    refused(lambda: Setting.load(""), "''")


# -- plain -----------------------------------------------------------------------------------------------------
def test_devices_dropouts_and_newcomers_come_back():
    setting = minimal(
        **{
            "data.clients": 3,
            "dropout": {"rate": 0.1, "always": ["c0"]},
            "profiles.client.latency": 2,
            "profiles.c1": {"bandwidth": 1e6, "available": [[0, 5], [9, float("inf")]]},
            "joins.c2": 3.5,
            "egress.c1": ["update"],
            "models.share": ["body", "head"],
            "models.buffers": "private",
        }
    )
    assert setting.profiles["c1"].available == ((0, 5), (9, float("inf")))
    assert Setting.of(json.loads(json.dumps(setting.plain()))) == setting


def test_infinite_options_come_back():
    setting = minimal(**{"methods.fedavg.deadline": float("inf")})
    assert Setting.of(setting.plain()) == setting


# -- changed ---------------------------------------------------------------------------------------------------
def test_changes_reach_every_depth_and_leave_the_original_alone():
    before = minimal()
    kept = json.dumps(before.plain())
    after = before.changed(
        {
            "rounds": 3,
            "data.clients": 4,
            "data.partition.kind": "dirichlet",
            "data.partition.alpha": 0.5,
            "data.public.fraction": 0.1,  # a part that was not there
            "models.participants": ["mlp", "lenet5"],
            "models.global": "cnn1",
            "local.lr": 0.5,
            "methods.fedavg.weighted": False,
        }
    )
    assert (after.rounds, after.data.clients, after.data.partition.kind) == (3, 4, "dirichlet")
    assert after.data.partition.alpha == 0.5
    assert after.data.public is not None
    assert after.data.public.fraction == 0.1
    assert (after.models.names, after.models.travelling) == (("mlp", "lenet5"), "cnn1")
    assert (after.local, after.methods) == ({"lr": 0.5}, {"fedavg": {"weighted": False}})
    assert json.dumps(before.plain()) == kept
    assert Setting.of(after.plain()) == after
    assert after.changed({}) == after


def test_a_domain_can_be_changed_or_added_and_a_part_taken_away():
    setting = Setting.load("digits").changed({"data.domains.usps.rows": 7, "data.domains.more.source": "syn"})
    assert setting.data.domains["usps"].rows == 7
    assert setting.data.domains["usps"].source == "usps"
    assert setting.data.domains["more"].source == "syn"
    assert setting.changed({"data.public": None}).data.public is None


def test_a_whole_part_can_be_replaced():
    setting = Setting.load("digits").changed({"data": {"source": "usps", "clients": 2}})
    assert list(setting.data.all_domains()) == ["usps"]
    assert setting.data.side is None


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("colour", 1, "colour"),
        ("colour.of", 1, "colour"),
        ("data.colour", 1, "data.colour"),
        ("data.colour.of.it", 1, "data.colour"),
        ("data.", 1, "data."),
        ("data", "own", "data"),
        ("data.clients", "many", "data.clients"),
        ("data.public.fractoin", 0.1, "data.public"),
        ("models.global_", "mlp", "models.global_"),
        ("name", 3, "name"),
    ],
)
def test_a_wrong_change_is_named(key, value, named):
    refused(lambda: minimal(**{key: value}), named)


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        (
            "data.leeky",
            True,
            ("data.leeky", "perhaps you meant 'leaky'", "[data] has domains, source"),
        ),
        ("data.partition.alfa", 1, ("perhaps you meant 'alpha'", "[data.partition] has kind, alpha, sigma")),
        ("data.public", {"fractoin": 0.1}, ("data.public.fractoin", "perhaps you meant 'fraction'")),
        ("data.domains.a.sauce", "mnist", ("[data.domains.a] has source, degrees, rows",)),
        ("data.stream", {"arrivals": 1, "concepts": [{"degres": 1}]}, ("data.stream.concepts.0.degres", "'degrees'")),
        ("profiles.c0.latencies", 1, ("[profiles.c0] has seconds_per_sample, bandwidth, latency, available",)),
        ("models.globl", "mlp", ("perhaps you meant 'global'",)),
        ("ruonds", 1, ("perhaps you meant 'rounds'", "a setting has name, summary, rounds")),
        ("data.unseen", "M21", ('data.unseen: must be a list, such as ["M21"]',)),
        ("topology.residuals", "a", ("topology.residuals: must be a list",)),
        ("models.participants", 3, ("models.participants: ",)),
        ("data.test", 0.9, ("test = 0.9 and validation = 0.1 leave no rows", "less than 1")),
    ],
)
def test_a_wrong_change_is_answered_with_what_there_is(key, value, parts):
    refused(lambda: minimal(**{"data.validation": 0.1, key: value}), *parts)


@pytest.mark.parametrize("key", ["data.source.x", "data.source.x.y", "models.participants.x", "name.x", "data.test.x"])
def test_a_key_below_a_plain_value_is_refused(key):
    refused(lambda: minimal(**{key: 1}), key.rsplit(".", 1)[0])


# -- sense -----------------------------------------------------------------------------------------------------
def test_the_global_network_is_the_first_unless_named():
    setting = minimal(**{"models.participants": ["lenet5", "mlp"]})
    assert setting.models.travelling == "lenet5"
    assert setting.changed({"models.global": "mlp"}).models.travelling == "mlp"
    assert minimal().models.names == ("mlp",)


def test_rotations_become_domains():
    domains = minimal(**{"data.rotations": [0, 20, -7.5]}).data.all_domains()
    assert {name: domain.degrees for name, domain in domains.items()} == {"M0": 0, "M20": 20, "M-7.5": -7.5}
    assert {domain.source for domain in domains.values()} == {"digits-embedded"}


def test_settings_cannot_be_changed_in_place():
    setting = minimal()
    with pytest.raises(ValueError, match="frozen"):
        setting.rounds = 3
    with pytest.raises(ValueError, match="frozen"):
        setting.data.clients = 3


@pytest.mark.parametrize(
    ("partition", "named"),
    [
        ({"kind": "iid", "alpha": 1.0}, "alpha"),
        ({"kind": "dirichlet"}, "alpha"),
        ({"kind": "shards"}, "per_client"),
        ({"kind": "shards", "per_client": 2, "sigma": 1.0}, "sigma"),
        ({"kind": "pathological", "per_client": 2}, "per_client"),
    ],
)
def test_numbers_of_another_partition_are_refused(partition, named):
    refused(lambda: minimal(**{"data.partition": partition}).data.partition.build(), "data.partition", named)


def test_no_network_at_all_is_refused():
    refused(lambda: minimal(**{"models.participants": []}), "models.participants")


@pytest.mark.parametrize("angles", [[0, 0], [20, 20.0000001]])
def test_equal_rotations_are_refused(angles):
    refused(lambda: minimal(**{"data.rotations": angles}), "rotations")


@pytest.mark.parametrize("more", [{"rows": 50}, {"joint": "fine"}])
def test_what_is_only_for_another_set_is_refused_for_a_fraction(more):
    refused(lambda: minimal(**{"data.public": {"fraction": 0.1, **more}}), "data.public")


def test_joint_outputs_without_labels_are_refused():
    refused(lambda: minimal(**{"data.public": {"source": "usps", "joint": "fine", "labelled": False}}), "data.public")
