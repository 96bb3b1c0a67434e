"""Participants whose rows are whole groups are called after them, where that gives each an id of its own."""

import numpy as np
import pytest

from heterophony.kernel.topology import check_names
from heterophony.settings.group_names import group_names


def names(*groups, column="user"):
    return group_names([np.array(own if isinstance(own, list) else [own, own]) for own in groups], column)


@pytest.mark.parametrize(
    ("groups", "column", "called"),
    [
        (("hungarian", "va"), "hospital", ["hungarian", "va"]),
        (("user 7", " björn"), "who", ["user-7", "bjorn"]),
        (("St. Mary's", "clinic 4 (east)", "Hôpital/Nord"), "site", ["St.-Marys", "clinic-4-east", "Hopital-Nord"]),
        ((7, 12), "user", ["user-7", "user-12"]),  # a table of values calls whole levels 0, 1, ...
        ((1, 2), "train/subject_train.txt", ["subject-1", "subject-2"]),
        ((1, 2), None, ["group-1", "group-2"]),
        ((1, 2), "Größe 日", ["group-1", "group-2"]),
        (([7, 12], 3), "user", ["user-7-and-12", "user-3"]),
        (("server", "edge0", "ann"), "who", ["who-server", "who-edge0", "ann"]),
        ((["ann", "bo"], "cy", ["di", "ed", "flo"]), "who", ["ann-and-bo", "cy", "di-and-2-more"]),
    ],
)
def test_participants_are_called_after_their_groups(groups, column, called):
    assert names(*groups, column=column) == called
    check_names(called)


@pytest.mark.parametrize(
    "groups",
    [
        ("a b", "a-b"),
        ("A", "a"),
        ("日本", "x"),
        ("", "x"),
        ("-", "x"),
        ("x" * 41, "y"),
        ("a\n\x1b[31m", "b"),
        ("../x", "b"),
    ],
)
def test_participants_are_numbered_where_groups_give_no_ids(groups):
    assert names(*groups) == []
