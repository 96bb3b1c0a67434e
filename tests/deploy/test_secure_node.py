"""Secure sums between organisations: the same digests, keys that members sign, and what a node refuses."""

import shutil
from dataclasses import replace

import pytest
import torch

from deploy.direct import Direct
from deploy.test_remote import Clock
from heterophony.base import codec
from heterophony.deploy import folder as folders
from heterophony.deploy.home_vault import HomeVault
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.plan import Plan
from heterophony.deploy.remote_host import RemoteHost
from heterophony.engines import Engine, local
from heterophony.kernel.fields import Refused
from heterophony.masking.crypto import public
from heterophony.masking.options import Secure
from heterophony.masking.protocol import octets, raw, signed
from toys.deployed import CASES, NAMES
from toys.members import node
from toys.secured import FEDAVG, HIERFAVG, Lying, incidents, key, line, organisation, plan, sent, server, servers
from toys.summed import InTheOpen

SENT = ("keys", "shares", "masked", "votes", "opening")


def run(courier, agreed=None, **options):
    agreed = agreed or plan()
    time = Clock()
    host = RemoteHost(agreed, agreed.coordinator(), courier, clock=time, sleep=time.sleep)
    return Engine(agreed.coordinator(), host, **options).run(FEDAVG.rounds)


def in_the_open(lost=()):
    """The same in one process, on whole numbers, without whoever is lost before its numbers are sent."""
    federation = FEDAVG.federation()
    cohort = InTheOpen(how=Secure(), members={"server": 4})
    egress = dict.fromkeys(lost, ())
    return local(replace(federation, method=replace(federation.method, cohort=cohort), egress=egress)).run(2).digest


@pytest.mark.parametrize("last", [None, *SENT[:-1]])
def test_the_digests_are_those_of_whole_numbers_in_the_open(last, tmp_path):
    """With secrets of the operating system's entropy and signed keys; west is lost after one of its messages."""
    policy = {} if last is None else {"west": {"egress": {"kinds": SENT[: SENT.index(last) + 1]}}}
    result = run(Direct(servers(plan(), tmp_path, **policy)))
    assert result.digest == in_the_open(["west"] if last in ("keys", "shares") else ())
    assert not result.ledger.incidents


def test_lost_answers_and_nodes_that_are_started_again_change_nothing(tmp_path):
    """What was answered is answered again: a secret that was drawn is kept with it."""
    agreed = plan()

    class Restarting(Direct):
        def send(self, questions):
            self.node_servers = {name: server(agreed, name, tmp_path) for name in self.node_servers}
            return super().send(questions)

    courier = Restarting(servers(agreed, tmp_path))
    courier.deaf = {"north": 3, "east": 2}
    assert run(courier, agreed).digest == in_the_open()


# -- what a node refuses to be part of -------------------------------------------------------------------------------
def told(tmp_path, lie, agreed=None, to="north", **changes):
    """Let a coordinator lie to one node; return what the node refused, and the courier."""
    agreed = agreed or plan()
    courier = Lying(servers(agreed, tmp_path, **changes), to, lie)
    run(courier, agreed)
    return incidents(courier.node_servers[to]), courier


def with_keys(mail, **more):
    body = {**mail["body"], "keys": {**mail["body"]["keys"], **more}}
    return {**mail, "body": {**body, "members": float(len(body["keys"]))}}


def own_keys():
    return public(b"m" * 16) + public(b"n" * 16)


def forged(mail, name, by):
    """Keys that the coordinator has made up, signed in the name of a member by somebody else."""
    vault = HomeVault(None, plan().id, key(by))
    form = b"whatever the form is"
    return octets(own_keys() + vault.sign(signed(mail["round"], "server", name, own_keys(), form)))


@pytest.mark.parametrize("by", ["mallory", "north"])
def test_invented_members_are_refused(by, tmp_path):
    """Whoever they are signed by: the plan knows no such member."""

    def lie(reaction, mail):
        return with_keys(mail, mallory=forged(mail, "mallory", by)) if reaction == "secure_share" else mail

    said, courier = told(tmp_path, lie)
    assert len(said) == 2
    assert all("'mallory' is no member of the cohort: the plan has no such member beside this node" in s for s in said)
    assert set(sent(courier.node_servers["north"])) == {"keys", "shares"}  # the second one says that it is absent
    assert "masked" not in sent(courier.node_servers["north"])


@pytest.mark.parametrize("by", ["mallory", None])
def test_keys_that_a_member_has_not_signed_are_refused(by, tmp_path):
    """A coordinator that puts its own keys in the place of all others' would open north's message alone."""

    def lie(reaction, mail):
        if reaction != "secure_share":
            return mail
        fake = octets(own_keys()) if by is None else forged(mail, "south", by)
        return with_keys(mail, south=fake)

    said, courier = told(tmp_path, lie)
    assert all("'south' is no member of the cohort: it has not signed these keys" in text for text in said)
    assert len(said) == 2
    assert "masked" not in sent(courier.node_servers["north"])


def test_keys_of_another_round_are_refused(tmp_path):
    """A signature is for one round: what a member has signed before is of no use."""
    before = {}

    def lie(reaction, mail):
        if reaction != "secure_share":
            return mail
        before.setdefault("south", mail["body"]["keys"]["south"])
        return with_keys(mail, south=before["south"])

    said, _ = told(tmp_path, lie)
    assert len(said) == 1
    assert "near' of round 1" in said[0]
    assert "it has not signed these keys" in said[0]


def test_a_cohort_below_the_owners_least_is_refused(tmp_path):
    """The plan says three. North wants four, and one is lost."""
    lost = {"west": {"egress": {"kinds": ()}}, "north": {"egress": {"least": 4}}}
    said, courier = told(tmp_path, lambda reaction, mail: mail, **lost)
    assert all(text.endswith("a sum of 3, and it takes part in sums of at least 4") for text in said)
    assert len(said) == 2
    assert "masked" not in sent(courier.node_servers["north"])


def test_a_least_that_no_cohort_can_have_is_told(tmp_path):
    with pytest.raises(DeployError, match=r"egress\.least is 5, but north is in sums of 4 at most"):
        server(plan(), "north", tmp_path, egress={"least": 5})


def test_survivors_that_differ_between_members_are_refused(tmp_path):
    """North hears that west is lost, the others that it is not: two kinds of shares would open west's message."""

    def lie(reaction, mail):
        if reaction != "secure_agree":
            return mail
        flags = mail["body"]["alive"].clone()
        near = courier.mail["secure_share"][-1]["body"]["keys"]
        flags[list(near).index("west")] = 0
        return {**mail, "body": {"alive": flags}}

    courier = Lying(servers(plan(), tmp_path), "north", lie)
    run(courier)
    for name in ("north", "south", "east"):
        said = incidents(courier.node_servers[name])
        assert len(said) == 2
        assert all(
            "was told of other survivors" in text or "is not among those who are in the sum" in text for text in said
        )


def test_a_question_that_comes_twice_is_answered_once(tmp_path):
    """As another one: with the next number and the same mail. What was masked is not masked again."""
    first = {}

    def lie(reaction, mail):
        first.setdefault(reaction, mail)
        return mail

    _, courier = told(tmp_path, lie)
    here = courier.node_servers["north"]
    memory = here.store.load()
    asked = [data for name, data in courier.questions if name == "north"]
    bundle = next(value for value in map(codec.unpack, asked) if value.get("reaction") == "secure_mask")
    state = here.store.load().answer["outcome"]["round"]
    again = {**bundle, "number": memory.applied + 1, "round": state}
    mail = {**bundle["mail"], "staleness": max(0, state - bundle["mail"]["round"])}
    answer = codec.unpack(here.answer(codec.pack({**again, "mail": mail})))
    assert answer["outcome"]["sends"][0][3] is None  # absent
    assert "it has nothing to add to a sum of this round" in incidents(here)[-1]


# -- old copies put back ---------------------------------------------------------------------------------------------
class Halting(Direct):
    """Stops before the first question of one reaction, and copies a folder there."""

    def __init__(self, node_servers, reaction, copy):
        super().__init__(node_servers)
        self.reaction, self.copy = reaction, copy

    def send(self, questions):
        if any(codec.unpack(data).get("reaction") == self.reaction for data in questions.values()):
            self.copy()
            self.copy = lambda: None
        return super().send(questions)


def masked_by(courier, name):
    """The words that a node sent, round by round."""
    found = []
    for ticket_of, data in courier.kept:
        value = codec.unpack(data)
        for kind, _, _, body in value.get("outcome", {}).get("sends", []):
            if ticket_of == name and kind == "masked" and body is not None:
                found.append(body["words"])
    return found


class Keeping(Halting):
    def __init__(self, *given):
        super().__init__(*given)
        self.kept = []

    def collect(self, tickets):
        answers = super().collect(tickets)
        self.kept += [(ticket.partition("/")[0], data) for ticket, data in answers.items() if data is not None]
        return answers


def test_a_state_that_is_put_back_never_masks_with_an_old_secret(tmp_path):
    """North's state of the first round is put back after the run; its secret is of the second, and it is absent."""
    agreed, album = plan(), tmp_path / "album"
    state = tmp_path / "north" / f"{agreed.id}.hph"
    courier = Keeping(servers(agreed, tmp_path), "secure_mask", lambda: shutil.copy(state, album))
    run(courier, agreed)
    shutil.copy(album, state)
    asked = [codec.unpack(data) for name, data in courier.questions if name == "north"]
    bundle = next(value for value in asked if value.get("reaction") == "secure_mask")
    here = server(agreed, "north", tmp_path)
    answer = codec.unpack(here.answer(codec.pack(bundle)))
    assert [send[3] for send in answer["outcome"]["sends"]] == [None]
    assert "is gone, the newest is 2: was an old state put back?" in incidents(here)[-1]


def test_a_whole_folder_that_is_put_back_draws_new_secrets(tmp_path):
    """Before its message there is no secret yet. The same message is masked anew, and nothing is used twice."""
    agreed, album = plan(), tmp_path / "album"
    north = tmp_path / "north"
    north.mkdir()
    courier = Keeping(servers(agreed, tmp_path), "train", lambda: shutil.copytree(north, album))
    run(courier, agreed)
    first = masked_by(courier, "north")
    for name in NAMES:
        shutil.rmtree(tmp_path / name)
        shutil.copytree(album, tmp_path / name)
    again = Keeping(servers(agreed, tmp_path), "nothing", None)
    run(again, agreed)
    second = masked_by(again, "north")
    assert len(first) == len(second) == 2
    assert not any(torch.equal(a, b) for a in first for b in second)


def test_a_secret_at_home_follows_from_nothing(tmp_path):
    one, other = (HomeVault(tmp_path / name / "secrets", "toy") for name in ("a", "b"))
    same = [node("north"), node("north")]
    for each, vault in zip(same, (one, other), strict=True):
        each.vault = vault
    assert same[0].fresh("sums") != same[1].fresh("sums")
    assert same[0].secret("sums") == same[0].secret("sums")
    old = dict(same[0].account)
    first = same[0].secret("sums")
    assert same[0].fresh("sums") != first
    same[0].account = old  # an old state
    with pytest.raises(Refused, match="its secret number 1 is gone, the newest is 2"):
        same[0].secret("sums")
    assert same[0].fresh("sums") not in (first, b"")
    assert same[0].account["secrets"] == {"sums": 3}
    assert (tmp_path / "a" / "secrets").stat().st_mode & 0o777 == 0o600


# -- the plan and the folder -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"members": {n: line(n) for n in NAMES[:3]}}, "members.west is missing: the key in its node.pub"),
        ({"members": {n: line(n) for n in (*NAMES, "x")}}, "members.x: no organisation is called so"),
        ({"members": {n: line("north") for n in NAMES}}, "members: north and south have the same key"),
        ({"secure": None}, "members: keys are for secure sums"),
        ({"secure": {}, "method": "cfl", "options": {}}, "secure: CFL reads single messages"),
        (
            {"participants": NAMES[:2], "members": {n: line(n) for n in NAMES[:2]}, "homes": {}},
            "secure.least is 3, but server can hear from 2",
        ),
    ],
    ids=["missing", "stranger", "same", "alone", "cfl", "two"],
)
def test_plans_that_cannot_be_secure_are_told(changes, words):
    agreed = plan(**changes)
    with pytest.raises(DeployError) as told:
        agreed.coordinator()
    assert words in str(told.value)


def test_sums_at_the_root_of_a_tree_whose_edges_are_the_coordinators_are_told():
    wide = {"root": {f"e{i}": [f"{i}{j}" for j in range(3)] for i in range(3)}}
    names = [leaf for edge in wide["root"].values() for leaf in edge]
    changes = {"participants": names, "homes": {}, "links": {"tree": wide}, "members": {n: line(n) for n in names}}
    with pytest.raises(DeployError, match=r'e0, which is in a sum at root, is the coordinator.s: .* at = \["inner"\]'):
        plan(HIERFAVG, **changes).coordinator()
    plan(HIERFAVG, **changes, secure={"at": ["inner"]}).coordinator()


def test_a_key_that_is_not_the_plans_is_told(tmp_path):
    own, agreed = organisation("north", tmp_path), plan()
    with pytest.raises(DeployError, match=r"members\.north in federation\.toml is not the key in node\.key"):
        own.vault(agreed, "north", agreed.topology(agreed.build_method()), key("mallory"))


def test_a_plan_without_secure_sums_has_the_digest_that_it_had():
    assert CASES["fedavg"].plan().digest == CASES["fedavg"].plan(secure=None, members={}).digest
    assert plan().digest != plan(secure={"least": 4}).digest


def test_a_ready_folder_has_the_keys_of_all_in_its_plan(tmp_path):
    """What `deploy init` writes is complete: each organisation's node is built with the key that the plan has."""
    more = tmp_path / "more.toml"
    more.write_text("[secure]\nleast = 3\n")
    folders.write(tmp_path / "made", "fedavg", NAMES, more=more)
    agreed = Plan.load(tmp_path / "made" / "coordinator" / "federation.toml")
    assert agreed.members.keys() == set(NAMES)
    for name in NAMES:
        here = tmp_path / "made" / "participants" / name
        assert agreed.members[name] == (here / "node.pub").read_text().strip()


def test_raw_and_octets_are_each_others_inverse():
    assert raw(octets(b"\x00\xff")) == b"\x00\xff"
