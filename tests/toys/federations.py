"""Every toy as a federation; the rows of the conformance table."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from heterophony import Capacity, Data, Federation, Model, Profile, Secure, secure
from heterophony.data.stream import Drift, Stream
from heterophony.engines import Network
from heterophony.kernel.topology import complete, random_pairs, random_regular, ring, star, torus, tree
from heterophony.methods import (
    AFL,
    APFL,
    APPLE,
    BHFL,
    CFD,
    CFL,
    DPSGD,
    DSFL,
    FCCL,
    FD,
    FML,
    GPFL,
    IFCA,
    QFFL,
    RCFL,
    RHFL,
    TERM,
    ASOFed,
    Cronus,
    Cyclic,
    DataSharing,
    Ditto,
    Epidemic,
    FCCLCode,
    FCCLPlus,
    FedALA,
    FedAMP,
    FedAS,
    FedAsync,
    FedAvg,
    FedBABU,
    FedBE,
    FedBuff,
    FedCS,
    FedCurv,
    FedDBE,
    FedDF,
    FedDyn,
    FedFomo,
    FedGH,
    FedGKT,
    FedH2L,
    FedH2LAsync,
    FedKD,
    FedKT,
    FedMA,
    FedMatch,
    FedMD,
    FedMRL,
    FedNova,
    FedPer,
    FedProto,
    FedRE,
    FedRoD,
    FedSALoRA,
    FedSEM,
    FineTune,
    FLoRA,
    Gossip,
    HeteroFL,
    HetLoRA,
    KNNPer,
    KTpFL,
    Mapper,
    MixtureOfExperts,
    Mocha,
    Moon,
    OneShot,
    PerFedAvg,
    PFedMe,
    Scaffold,
    Solo,
    Swarm,
    agg,
    depthfl,
    dfedavgm,
    fccl_homogeneous,
    fedadagrad,
    fedadam,
    fedavgm,
    fedbn,
    fedmd_global,
    fedmd_nfdp,
    fedprox,
    fedrep,
    fedrolex,
    fedtgp,
    fedyogi,
    ffa_lora,
    fjord,
    flexlora,
    hierfavg,
    lg_fedavg,
    rbla,
    reptile,
    scalefl,
)  # fmt: skip
from heterophony.methods.fedgen import FedGen, FedGenWhole
from heterophony.parts.adapters import Adapt
from heterophony.parts.cohort import Cohort
from heterophony.parts.contrast import Contrast
from heterophony.parts.exits import Compound, Shallow
from heterophony.parts.generator import Generator
from heterophony.parts.heads import TaughtHead
from heterophony.parts.mixtures import GatedOutputs, MixedOutputs, MixedWeights
from heterophony.parts.mutual import MutualTeaching
from heterophony.parts.neighbours import Neighbours
from heterophony.parts.node_optimiser import NodeOptimiser
from heterophony.parts.public import PublicRows
from heterophony.parts.retention import Retention
from heterophony.parts.schedules import Ramp, Stairs, Warmup
from heterophony.parts.seen import SeenRows
from heterophony.parts.spliced import Spliced
from heterophony.parts.training import Training
from heterophony.parts.two_heads import ShiftedFeatures, TwoHeads
from heterophony.parts.valve import TurnedFeatures
from toys.bytes import of_secure_sums
from toys.patient import Patient
from toys.world import PUBLIC, TESTS, certain, halves, net, normed, points, private, wide


@dataclass(frozen=True)
class Row:
    """A method in a small federation: one row buys every invariant in test_invariants.py."""

    name: str
    build: Callable[..., Federation]
    rounds: int = 3
    drops: bool = True  # it copes with participants that miss a round
    waits: bool = True  # nothing happens out of step, so that a run of 2 + 1 rounds is a run of 3
    incidents: frozenset[str] = frozenset()  # what goes wrong in it, by design
    bytes: Callable[[Federation, int], dict[str, int]] | None = None  # what it sends; None: as `bytes.py` says
    lost: bool = False  # not all that the formula counts is sent
    options: dict = field(default_factory=dict)  # for the engine
    crash_rounds: int = 2


B16 = Training(batch=16)
TOLD = {"seconds": {"c0": 1e-3, "*": 2e-3}, "upload": {"c1": 0.3, "*": 0.08}}
SOME = Cohort(fraction=0.67)
MEDIAN = Cohort(fraction=0.67, combine="median")
HALF = NodeOptimiser(rate=0.5)
TWENTY = PublicRows(sample=20)
FEW = Contrast(epochs=5, batch=4)
SMALL = Generator(noise=3, hidden=7, steps=5, batch=6)
ADAM = Training(batch=16, lr=0.01, optimiser="adam")
STEP = Training(batch=16, lr=0.01, optimiser="amsgrad", data="all", steps=1)
CLIENTS = ["c0", "c1", "c2"]
PEERS = ["p0", "p1", "p2"]


def weights_star(method, factory=None, **options):
    factory = factory or net()
    models = {"server": {"model": factory}, "client": {"model": factory}}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def logits_star(method, *extra, **options):
    hidden = dict(zip(CLIENTS, (8, 12, 16), strict=True))
    models = {c: dict.fromkeys(("model", *extra), net(h)) for c, h in hidden.items()}
    data = {**private(CLIENTS), "server": {"public": PUBLIC}}
    return Federation(method, star(CLIENTS), {**models, "server": {"model": net(10)}}, data, TESTS, **options)


ALIKE = Model(halves(), common=True)
LABELS = {"c0": (0, 1), "c1": (1, 2), "c2": (0, 1, 2, 3)}


def unlike_star(method, **options):
    """Different networks, and participants that have rows of some labels only."""
    made = logits_star(method, **options)

    def some(data, labels):
        return data.take(torch.isin(data.y, torch.tensor(labels)).nonzero().flatten())

    data = {c: {**own, "train": some(own["train"], LABELS[c])} for c, own in made.data.items() if c in LABELS}
    return replace(made, data={**made.data, **data})


def alike_star(method=None, **options):
    """One network and one start for all, and FCCL that averages it."""
    models = {c: dict.fromkeys(("model", "previous", "pretrained"), Model(net(), common=True)) for c in CLIENTS}
    models["server"] = {"model": Model(net(), common=True)}
    data = {**private(CLIENTS), "server": {"public": PUBLIC}}
    method = method or fccl_homogeneous(collaborate=ADAM, local=ADAM)
    return Federation(method, star(CLIENTS), models, data, TESTS, **options)


def similar_star(method, **options):
    """Different bodies of equally many features, an older self beside each, and public points."""
    models = {c: dict.fromkeys(("model", "previous"), halves(h)) for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    data = {**private(CLIENTS), "server": {"public": PUBLIC}}
    return Federation(method, star(CLIENTS), models, data, TESTS, **options)


def refreshed_star(**options):
    """Networks with BatchNorm, whose statistics are taken anew after each training on private rows."""
    on = replace(ADAM, refresh=True)
    models = {"client": dict.fromkeys(("model", "previous", "pretrained"), normed)}
    data = {**private(CLIENTS), "server": {"public": PUBLIC}}
    method = FCCL(pretrain=on, collaborate=ADAM, local=on)
    return Federation(method, star(CLIENTS), models, data, TESTS, **options)


def distilled_star(**options):
    """Two clients of one architecture and one of another; the server has a model of each."""
    models = {c: {"model": Model(net(h), common=True)} for c, h in zip(CLIENTS, (8, 8, 16), strict=True)}
    models["server"] = {"small": net(8), "large": net(16)}
    data = {**private(CLIENTS), "server": {"public": PUBLIC}}
    return Federation(FedDF(local=B16, distil=ADAM), star(CLIENTS), models, data, TESTS, **options)


def ensemble_star(**options):
    """The same, and a student at the server that all of them teach."""
    made = distilled_star(**options)
    server = {**made.models["server"], "model": net(12)}
    method = OneShot(members=2, local=B16, distil=ADAM)
    return replace(made, method=method, models={**made.models, "server": server})


def mutual_star(**options):
    models = {c: {"model": net(h), "meme": net()} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    models["server"] = {"model": net()}
    return Federation(FML(local=B16), star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def mentored_star(method, build=wide, **options):
    """Different private networks, beside each a small common one."""
    small = {wide: halves(8, 5), net: net(6)}[build]
    models = {c: {"model": build(h), "mentee": small} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    return Federation(method, star(CLIENTS), {**models, "server": {"model": small}}, private(CLIENTS), TESTS, **options)


def spliced_star(method, **options):
    """Different private networks, one of them narrower than the small one that each is spliced with."""
    small = halves(8, 5)
    models = {
        c: {"model": Model(lambda h=h: Spliced(small(), wide(h)()), share="small")}
        for c, h in zip(CLIENTS, (4, 12, 16), strict=True)
    }
    return Federation(method, star(CLIENTS), {**models, "server": {"model": small}}, private(CLIENTS), TESTS, **options)


def mixed_star(method, build=None, **options):
    """One network for all; each client has one of its own beside its copy of the common one."""
    build, kind = build or net(), MixedWeights if isinstance(method, APFL) else MixedOutputs
    pair = Model(lambda: kind(build(), build()), share="common")
    models = {"server": {"model": Model(build, common=True)}, "client": {"model": pair}}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def headed_twice(method, kind, build=None, **options):
    """One network for all; each client has something of its own on its features."""
    build = build or halves()
    models = {"server": {"model": build}, "client": {"model": Model(lambda: kind(build()), share="common")}}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def turned_star(method, **options):
    """One network with a valve for all; heads stay with their clients."""
    network = Model(lambda: TurnedFeatures(halves()()), share=("network.body", "valve", "classes"))
    models = {"server": {"model": network}, "client": {"model": network}}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def gated_star(method, **options):
    """One network for all; each client has one of its own and a gate beside its copy of the common one."""
    experts = Model(lambda: GatedOutputs(net()(), net()(), net(5)()), share="common")
    models = {"server": {"model": Model(net(), common=True)}, "client": {"model": experts}}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


WIDTHS = {"c0": Capacity(1.0), "c1": Capacity(0.5), "c2": Capacity(0.25)}

RANKS = {"c0": Capacity(rank=3), "c1": Capacity(rank=1), "c2": Capacity(rank=2)}
HEADED = Adapt(also=("4",), train=("up",))
DEPTHS = {"c0": Capacity(), "c1": Capacity(depth=1), "c2": Capacity(depth=2)}
BOTH = {"c0": Capacity(), "c1": Capacity(0.5, depth=1), "c2": Capacity(0.5)}


def sliced_star(method, factory=None, capacity=None, **options):
    """One network, of which each client holds another slice."""
    return weights_star(method, factory, capacity=WIDTHS if capacity is None else capacity, **options)


def shared_star(method, factory=None, **options):
    """A star whose server has the labelled public points too."""
    made = weights_star(method, factory, **options)
    return replace(made, data={**made.data, "server": {"public": PUBLIC}})


def own_star(method, build=net, **options):
    """Different networks, and a server that has none."""
    models = {c: {"model": build(h)} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def edge_star(method, **options):
    """Different bodies of equally many features, and a server whose network reads these."""
    models = {c: {"model": halves(h)} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    models["server"] = {"model": lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.2), nn.Linear(9, 4))}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def headed_star(method, build=halves, hidden=(8, 12, 16), **options):
    """Different networks, and a server that has one like the first: all begin with its head."""
    models = {c: {"model": Model(build(h), common=True)} for c, h in zip(CLIENTS, hidden, strict=True)}
    models["server"] = {"model": Model(build(hidden[0]), common=True)}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


def personal_star(method, server=("model",), client=("model",), build=net, **options):
    """A star whose nodes have these slots, all of one architecture."""
    models = {"server": dict.fromkeys(server, build()), "client": dict.fromkeys(client, build())}
    return Federation(method, star(CLIENTS), models, private(CLIENTS), TESTS, **options)


GENTLE = Training(batch=16, lr=1e-3)


def matched(method, factory=None, **options):
    """One network for all, places for two helpers, and unlabelled public points at the server too."""
    factory = factory or net()
    models = {"server": {"model": factory}, "client": dict.fromkeys(("model", "helper-0", "helper-1"), factory)}
    data = {**private(CLIENTS), "server": {"public": PUBLIC}}
    return Federation(method, star(CLIENTS), models, data, TESTS, **options)


def contrasted(method, **options):
    return personal_star(method, client=("model", "common", "previous"), build=halves, **options)


def peers(topology=complete, method=None, **options):
    models = {p: {"model": net(h)} for p, h in zip(PEERS, (8, 12, 16), strict=True)}
    homes = {"p0": "here", "p1": "there", "p2": "there"}
    return Federation(
        method or FedH2L(local=STEP, sample=8), topology(PEERS), models, private(PEERS), TESTS, homes=homes, **options
    )


FOUR = ["p0", "p1", "p2", "p3"]


def alike_peers(method, topology=complete, factory=None, names=FOUR, **options):
    """One network and one start for all peers."""
    models = {"peer": {"model": Model(factory or net(), common=True)}}
    homes = {name: "there" if i else "here" for i, name in enumerate(names)}
    return Federation(method, topology(names), models, private(names), TESTS, homes=homes, **options)


def redrawn(names):
    """Everyone with two others, drawn anew each round."""
    return random_regular(names, 2, anew=True)


def hurrying(method, **options):
    """Peers of several speeds on a ring."""
    speeds = {p: Profile(seconds_per_sample=s, latency=0.01) for p, s in zip(FOUR, (1, 1.7, 2.9, 2.3), strict=True)}
    speeds = {p: replace(own, seconds_per_sample=own.seconds_per_sample / 1000) for p, own in speeds.items()}
    return alike_peers(method, ring, profiles=speeds, **options)


MOMENTUM = NodeOptimiser("momentum", beta1=0.5)
SLOWLY = NodeOptimiser("momentum", rate=0.5, beta1=0.5)
TWICE = {"inner": 2, "*": 1}
TREE = {"root": {"e0": ["l0", "l1"], "e1": ["l2", "l3"]}}
LEAVES = ["l0", "l1", "l2", "l3"]


def bhfl(**changed):
    """Every node with momentum both ways; edge servers of two turns."""
    train = Training(batch=16, lr=0.05)
    usual = {"turns": TWICE, "up": MOMENTUM, "down": SLOWLY, "far_up": SLOWLY, "far_down": SLOWLY}
    return BHFL(**{**usual, "local": train, "proxy": train, **changed})


def hierarchy(method=None, topology=None, **options):
    """Two edge servers of two leaves, residual links from the root to a leaf of each, proxy data at the root."""
    data = {**private(LEAVES), "root": {"train": points("proxy")}}
    models = {role: {"model": Model(net(), common=True)} for role in ("root", "inner", "leaf")}
    topology = topology or tree(TREE, [("root", "l0"), ("root", "l3")])
    return Federation(method or bhfl(), topology, models, data, TESTS, **options)


def deep_hierarchy(method=None, **options):
    """Four levels, so that an inner node has an ancestor beyond its parent."""
    spec = {"root": {"m0": {"e0": ["l0", "l1"], "e1": ["l2"]}, "m1": {"e2": ["l3"]}}}
    topology = tree(spec, [("root", "e0"), ("root", "e2"), ("m0", "l2")])
    return hierarchy(method or bhfl(turns=1), topology, **options)


def learned_hierarchy(**options):
    """Leaves that learn from their parent instead of mixing, edge servers that train, adaptive rules, cohorts."""
    adaptive = NodeOptimiser({"root": "adam", "e0": "yogi", "*": "adagrad"}, rate={"root": 0.1, "*": 0.05})
    method = bhfl(
        up=adaptive, merge={"l0": "l2", "leaf": "mutual", "*": "mix"}, pull=0.3, largest=2, per_link=False, turns=1,
        cohort=Cohort(fraction={"root": 1.0, "*": 0.5}, weighted=False), overlap={"e0": True, "*": False},
    )  # fmt: skip
    made = deep_hierarchy(method, **options)
    return replace(made, data={**made.data, "e0": {"train": points("proxy 0")}, "e1": {"train": points("proxy 1")}})


def straggling(method, topology=None, **options):
    """Leaves of unequal speed."""
    speeds = dict(zip(LEAVES, (1e-3, 1.7e-3, 2.9e-3, 5.3e-3), strict=True))
    profiles = {leaf: Profile(seconds_per_sample=s, latency=0.01) for leaf, s in speeds.items()}
    return hierarchy(method, topology, profiles=profiles, **options)


SPEEDS = {"c0": 1e-3, "c1": 1.7e-3, "c2": 2.9e-3}


def buffered(method=None, factory=None, **options):
    profiles = {c: Profile(seconds_per_sample=s, latency=0.01) for c, s in SPEEDS.items()}
    return weights_star(method or FedBuff(buffer=2, local=B16), factory, profiles=profiles, **options)


class Repeating(Network):
    """Delivers everything twice."""

    def arrivals(self, *args):
        return [moment for moment in super().arrivals(*args) for _ in range(2)]


def slow(seconds_per_sample=4e-3, **options):
    return {"c2": Profile(seconds_per_sample=seconds_per_sample, **options)}


def spoiled(**options):
    """One client's data hold a value so large that its weights are no numbers that a door takes after a step."""
    federation = weights_star(FedAvg(local=B16), **options)
    bad = federation.data["c1"]["train"]
    x = bad.x.clone()
    x[3, 3] = 3e38
    data = {**federation.data, "c1": {"train": Data(x=x, y=bad.y, classes=4)}}
    return replace(federation, data=data)


def timed(quorum, deadline, profiles, **options):
    return weights_star(
        FedAvg(local=B16, cohort=Cohort(quorum=quorum, deadline=deadline)), profiles=profiles, **options
    )


def mourning(**options):
    """A peer that disappears: the others wait for it until a deadline, then learn without it."""
    gone = {"p1": Profile(available=((0.0, 0.03),))}
    return peers(method=FedH2L(local=STEP, sample=8, cohort=Cohort(deadline=0.05)), profiles=gone, **options)


def returning(**options):
    """A peer that is away for a while: done without, then heard again."""
    away = {"p1": Profile(available=((0.0, 0.05), (0.2, math.inf)))}
    return peers(method=FedH2L(local=STEP, sample=8, cohort=Cohort(deadline=0.06)), profiles=away, **options)


def unhurried(**options):
    """Peers of three speeds that never wait for each other."""
    speeds = {p: Profile(seconds_per_sample=s, latency=0.01) for p, s in zip(PEERS, SPEEDS.values(), strict=True)}
    return peers(method=FedH2LAsync(local=STEP, sample=8, forget=3), profiles=speeds, **options)


def streaming(federation, kind="recurring", **how):
    """The same with private points as streams: some ten a round, two rounds later with labels moved on."""

    def stream(i, node, views):
        turned = views["train"].with_columns(y=(views["train"].y + 1) % 4)
        drift = Drift(kind, 2, every=2)
        options = {"arrivals": 8 + i, "memory": 6, "name": node, "seed": federation.seed, **how}
        return Stream([lambda: views["train"], lambda: turned], drift, **options)

    nodes = [n for n, own in federation.data.items() if "public" in own]
    streams = {n: {**federation.data[n], "train": stream(i, n, federation.data[n])} for i, n in enumerate(nodes)}
    return replace(federation, data={**federation.data, **streams})


def forgetful(**options):
    """Peers alone on streams, with all parts against forgetting."""
    retain = Retention(lwof=0.5, ewc=2.0, batches=2, packnet=0.5, task=2)
    method = Solo(local=Training(batch=8, lr=0.05, momentum=0.5), retain=retain)
    return streaming(peers(method=method, **options), keep="reservoir")


def drifting_ditto(**options):
    method = Ditto(local=Training(batch=8, lr=0.05), retain=Retention(ewc=2.0, batches=2))
    return streaming(personal_star(method, client=("model", "fork"), **options), "gradual")


FIVE = ["c0", "c1", "c2", "c3", "c4"]
SIX = {"root": {"e0": ["l0", "l1", "l2"], "e1": ["l3", "l4", "l5", "l6"]}}
SHARED = Secure(neighbours=2)


def secured_star(method=None, how=SHARED, clients=FIVE, **options):
    """A server that sees sums only; each client shares masks with some others."""
    models = {"server": {"model": net()}, "client": {"model": net()}}
    method = secure(method or FedAvg(local=B16), how)
    return Federation(method, star(clients), models, private(clients), TESTS, **options)


def secured_own_star(method, how=True, build=halves, **options):
    """The same for clients with different networks, who hold the public points."""
    models = {c: {"model": build(h)} for c, h in zip(FIVE, (8, 12, 16, 8, 12), strict=True)}
    models["server"] = {"model": build(10)}
    data = {**private(FIVE), "server": {"public": PUBLIC}}
    return Federation(secure(method, how), star(FIVE), models, data, TESTS, **options)


def secured_hierarchy(method=None, how=None, spec=SIX, **options):
    """Two edge servers that see sums of their leaves; what they send to the root is a mean already."""
    topology = tree(spec)
    leaves = [node for node, role in topology.roles.items() if role == "leaf"]
    models = {role: {"model": Model(net(), common=True)} for role in ("root", "inner", "leaf")}
    method = secure(method or hierfavg(turns=1, local=B16), how or Secure(at=("inner",)))
    return Federation(method, topology, models, private(leaves), TESTS, **options)


# What differs from node to node and from round to round, with Nesterov's momentum on both sides.
SCHEDULED = FedAvg(
    local=Training(
        epochs={"c1": 2, "*": 1},
        batch={"c0": 8, "*": 16},
        lr={"c2": 0.05, "1": Warmup(1, Stairs(0.1, 0.5, every=1))},
        momentum=0.9,
        nesterov=True,
        clip=0.5,
    ),
    server=NodeOptimiser("nesterov", rate=Ramp(1.0, 0.5, 3, "cosine"), beta1=0.5),
)
BY_LEVEL = {
    "cohort": Cohort(quorum={"0": 2, "1": 1, "*": 1}, deadline={"1": 0.5}),
    "local": Training(
        epochs={"l0": 2, "2": 1, "*": 3},
        batch=16,
        lr={"leaf": Ramp(0.05, 0.01, 3), "*": 0.01},
        optimiser="adamw",
        weight_decay=0.1,
        clip=1.0,
    ),
    "proxy": Training(batch={"0": 8, "*": 16}, lr={"0": Stairs(0.05, 0.1, at=(1,)), "*": 0.05}),
    "down": NodeOptimiser("momentum", rate={"1": Ramp(0.5, 0.1, 2), "*": 0.5}, beta1=0.5),
}

ASYNCHRONOUS = {"rounds": 4, "drops": False, "waits": False, "crash_rounds": 1}
METHODS = [
    Row("fedavg", lambda **o: weights_star(FedAvg(local=B16), **o)),
    Row("fedavg-sampled", lambda **o: weights_star(FedAvg(local=B16, cohort=SOME), **o), rounds=4),
    Row(
        "fedavg-normed", lambda **o: weights_star(FedAvg(local=Training(batch=16, lr=0.05, momentum=0.9)), normed, **o)
    ),
    Row("fedavg-scheduled", lambda **o: weights_star(SCHEDULED, **o), rounds=4),
    Row("fedprox", lambda **o: weights_star(fedprox(mu=0.1, local=B16), **o)),
    Row(
        "fednova",
        lambda **o: weights_star(
            FedNova(local=Training(batch=16, lr=0.02, momentum=0.5, epochs={"c1": 3, "*": 1}), cohort=SOME), normed, **o
        ),
        rounds=4,
    ),
    Row("heterofl", lambda **o: sliced_star(HeteroFL(local=B16), **o)),
    Row("heterofl-normed", lambda **o: sliced_star(HeteroFL(local=B16, cohort=SOME), normed, **o), rounds=4),
    Row("fedrolex", lambda **o: sliced_star(fedrolex(local=B16), **o), crash_rounds=1),
    Row("fjord", lambda **o: sliced_star(fjord(local=B16, cohort=SOME), normed, **o), rounds=4, crash_rounds=1),
    Row("depthfl", lambda **o: sliced_star(depthfl(Shallow(2), local=B16), halves(), DEPTHS, **o), crash_rounds=1),
    Row(
        "scalefl",
        lambda **o: sliced_star(scalefl(Compound(2), local=B16, cohort=SOME), halves(), BOTH, **o),
        rounds=4,
        crash_rounds=1,
    ),
    Row("hetlora", lambda **o: sliced_star(HetLoRA(local=B16), halves(), RANKS, **o), crash_rounds=1),
    Row("rbla", lambda **o: sliced_star(rbla(local=B16, cohort=SOME), halves(), RANKS, **o), rounds=4, crash_rounds=1),
    Row("flexlora", lambda **o: sliced_star(flexlora(local=B16, cohort=SOME), halves(), RANKS, **o), rounds=4),
    Row("ffa-lora", lambda **o: sliced_star(ffa_lora(HEADED, local=B16), normed, RANKS, **o), crash_rounds=1),
    Row("fedsa-lora", lambda **o: sliced_star(FedSALoRA(local=B16, cohort=SOME), halves(), RANKS, **o), crash_rounds=1),
    Row("flora", lambda **o: sliced_star(FLoRA(local=B16, cohort=SOME), halves(), RANKS, **o), rounds=4),
    Row("cyclic", lambda **o: weights_star(Cyclic(local=B16), **o), rounds=4),
    Row("cyclic-shuffled", lambda **o: weights_star(Cyclic(local=B16, shuffle=True), **o), rounds=5),
    Row("scaffold", lambda **o: weights_star(Scaffold(local=B16, cohort=SOME), **o), rounds=4),
    Row(
        "scaffold-normed",
        lambda **o: weights_star(Scaffold(local=Training(batch=16, lr=0.02, momentum=0.5)), normed, **o),
    ),
    Row("fedma", lambda **o: weights_star(FedMA(local=B16, cohort=SOME), certain, **o), rounds=4),
    Row("afl", lambda **o: weights_star(AFL(local=B16), normed, **o)),
    Row("afl-sampled", lambda **o: weights_star(AFL(local=B16, ascent=0.5, cohort=SOME), **o), rounds=4),
    Row("q-ffl", lambda **o: weights_star(QFFL(local=B16, cohort=SOME), normed, **o), rounds=4),
    Row("term", lambda **o: weights_star(TERM(local=B16, tilt=-2.0), **o), crash_rounds=1),
    Row("fedcurv", lambda **o: weights_star(FedCurv(local=B16, cohort=SOME), normed, **o), rounds=4),
    Row("data-sharing", lambda **o: shared_star(DataSharing(local=B16), **o), crash_rounds=1),
    Row("fedcs", lambda **o: weights_star(FedCS(local=B16, budget=0.2, **TOLD), **o), rounds=4, crash_rounds=1),
    Row("moon", lambda **o: contrasted(Moon(local=B16, cohort=SOME), **o), rounds=4),
    Row("fedmatch", lambda **o: matched(FedMatch(local=B16, distil=GENTLE, confidence=0.3), normed, **o)),
    Row(
        "fedmatch-sampled",
        lambda **o: matched(FedMatch(local=B16, distil=GENTLE, every=2, rows=TWENTY, cohort=SOME), **o),
        rounds=4,
    ),
    Row("solo", lambda **o: peers(method=Solo(local=Training(batch=16, momentum=0.9)), **o), drops=False),
    Row("agg", lambda **o: peers(method=agg(local=B16), **o), drops=False),
    Row("solo-stream", forgetful, rounds=4, drops=False),
    Row("ditto-stream", drifting_ditto, rounds=4),
    Row("fedmd", lambda **o: logits_star(FedMD(local=B16, distil=B16, half=True), **o)),
    Row(
        "fedmd-global",
        lambda **o: logits_star(fedmd_global(local=replace(B16, initial=1), distil=B16, rows=TWENTY), **o),
    ),
    Row("fedmd-lwof", lambda **o: logits_star(fedmd_global(local=B16, distil=B16, lwof=1.0, initial_public=1), **o)),
    Row(
        "fedmd-nfdp",
        lambda **o: logits_star(fedmd_nfdp(local=B16, distil=B16, seen=SeenRows(30)), **o),
        crash_rounds=1,
    ),
    Row("ds-fl", lambda **o: logits_star(DSFL(local=B16, distil=B16), **o)),
    Row(
        "ds-fl-sampled",
        lambda **o: logits_star(DSFL(local=B16, distil=B16, rows=TWENTY, cohort=SOME), **o),
        rounds=4,
    ),
    Row(
        "cfd",
        lambda **o: logits_star(CFD(local=B16, distil=B16, down=3, rows=TWENTY, cohort=SOME), **o),
        rounds=4,
        lost=True,
        crash_rounds=1,
    ),
    Row("kt-pfl", lambda **o: logits_star(KTpFL(local=B16, distil=B16, temperature=2.0), **o)),
    Row(
        "kt-pfl-sampled",
        lambda **o: logits_star(KTpFL(local=B16, distil=B16, rows=TWENTY, cohort=SOME), **o),
        rounds=4,
    ),
    Row("cronus", lambda **o: logits_star(Cronus(local=replace(B16, initial=1)), **o)),
    Row(
        "cronus-sampled",
        lambda **o: logits_star(Cronus(local=replace(B16, initial=5), rows=TWENTY, cohort=MEDIAN), **o),
        rounds=4,
    ),
    Row("rcfl", lambda **o: unlike_star(RCFL(local=B16, distil=B16), **o)),
    Row(
        "rcfl-sampled",
        lambda **o: logits_star(RCFL(local=B16, distil=B16, alpha=0.5, rows=TWENTY, cohort=SOME), **o),
        rounds=4,
    ),
    Row("rhfl", lambda **o: logits_star(RHFL(local=ADAM, distil=ADAM, rows=TWENTY), **o), crash_rounds=1),
    Row("fml", mutual_star),
    Row("fedkd", lambda **o: mentored_star(FedKD(local=B16, energy=Ramp(0.6, 0.9, 2)), **o), lost=True),
    Row(
        "fedkd-whole",
        lambda **o: mentored_star(FedKD(local=B16, hidden=0.0, energy=1.0, cohort=SOME), net, **o),
        rounds=4,
    ),
    Row("fedmrl", lambda **o: spliced_star(FedMRL(local=Training(batch=16, momentum=0.9)), **o)),
    Row(
        "fedmrl-sampled",
        lambda **o: spliced_star(FedMRL(local=B16, inner=0.5, cohort=Cohort(weighted=False, fraction=0.67)), **o),
        rounds=4,
    ),
    Row("feddf", distilled_star),
    Row(
        "fedbe",
        lambda **o: shared_star(FedBE(local=B16, distil=ADAM, draws=1, cycles=2, cohort=SOME), normed, **o),
        crash_rounds=1,
    ),
    Row("one-shot", ensemble_star, rounds=2, crash_rounds=1),
    Row(
        "fedkt",
        lambda **o: shared_star(FedKT(local=B16, distil=ADAM, teachers=2), **o),
        rounds=2,
        crash_rounds=1,
    ),
    Row("fd", lambda **o: own_star(FD(local=Training(batch=16, momentum=0.9), gamma=0.5), **o)),
    Row("fedproto", lambda **o: own_star(FedProto(local=Training(batch=16, momentum=0.9)), halves, **o)),
    Row(
        "fedtgp",
        lambda **o: own_star(fedtgp(local=B16, server=FEW, width=4, cohort=SOME), wide, **o),
        rounds=4,
    ),
    Row("fedgh", lambda **o: own_star(FedGH(local=Training(batch=16, momentum=0.9)), halves, **o)),
    Row("fedre", lambda **o: own_star(FedRE(local=B16, cohort=SOME), halves, **o), rounds=4),
    Row("fedgkt", lambda **o: edge_star(FedGKT(local=B16, large=GENTLE, cohort=SOME), **o), rounds=4, crash_rounds=1),
    Row("fedgen", lambda **o: headed_star(FedGen(local=Training(batch=16, momentum=0.9), generator=SMALL), **o)),
    Row(
        "fedgen-pooled",
        lambda **o: headed_star(
            FedGen(local=B16, generator=SMALL, width=4, cohort=Cohort(weighted=False, fraction=0.67)), wide, **o
        ),
        rounds=4,
    ),
    Row(
        "fedgen-whole",
        lambda **o: weights_star(FedGenWhole(local=B16, generator=SMALL, cohort=SOME), halves(), **o),
        rounds=4,
    ),
    Row("fd-sampled", lambda **o: own_star(FD(local=B16, gamma=0.5, cohort=SOME), **o), rounds=4),
    Row(
        "fedproto-pooled",
        lambda **o: own_star(FedProto(local=B16, width=4, cohort=SOME), wide, **o),
        rounds=4,
    ),
    Row(
        "fedgh-pooled",
        lambda **o: own_star(FedGH(taught=TaughtHead(width=4), local=B16, cohort=SOME), wide, **o),
        rounds=4,
    ),
    Row(
        "ditto", lambda **o: personal_star(Ditto(local=Training(batch=16, momentum=0.9)), client=("model", "fork"), **o)
    ),
    Row(
        "finetune",
        lambda **o: personal_star(FineTune(local=B16, adapt=2, cohort=SOME, every=2), client=("model", "own"), **o),
        rounds=4,
    ),
    Row(
        "reptile",
        lambda **o: personal_star(reptile(local=B16, every=2, server=HALF), client=("model", "own"), **o),
        crash_rounds=1,
    ),
    Row("per-fedavg", lambda **o: weights_star(PerFedAvg(local=B16, cohort=SOME), normed, **o), rounds=4),
    Row(
        "per-fedavg-hessian-free",
        lambda **o: weights_star(PerFedAvg(local=B16, variant="hessian-free"), **o),
        rounds=2,
        crash_rounds=1,
    ),
    Row("apfl", lambda **o: mixed_star(APFL(local=Training(batch=16, momentum=0.9), adaptive=True), normed, **o)),
    Row("mapper", lambda **o: mixed_star(Mapper(local=B16, cohort=SOME), **o), rounds=4, crash_rounds=1),
    Row("moe", lambda **o: gated_star(MixtureOfExperts(local=B16, cohort=SOME), **o), crash_rounds=1),
    Row("pfedme", lambda **o: weights_star(PFedMe(local=B16, inner=2, cohort=SOME), normed, **o), crash_rounds=1),
    Row("fedfomo", lambda **o: weights_star(FedFomo(local=B16, cohort=SOME, downloads=1), normed, **o), rounds=4),
    Row("mocha", lambda **o: weights_star(Mocha(local=B16, pull=0.1, cohort=SOME), normed, **o), rounds=4),
    Row("ifca", lambda **o: personal_star(IFCA(local=B16, clusters=3), ("model", "model-1", "model-2"), **o)),
    Row(
        "fedsem",
        lambda **o: personal_star(FedSEM(local=B16, clusters=2), ("model", "model-1"), **o),
        rounds=4,
        crash_rounds=1,
    ),
    Row("cfl", lambda **o: weights_star(CFL(local=B16, eps1=10.0, eps2=0.1), normed, **o)),
    Row(
        "cfl-sampled",
        lambda **o: weights_star(CFL(local=B16, eps1=10.0, eps2=0.1, cohort=SOME), **o),
        rounds=4,
    ),
    Row("fedper", lambda **o: weights_star(FedPer(local=B16), Model(halves(), common=True), **o)),
    Row(
        "fedrep",
        lambda **o: weights_star(
            fedrep(alone=2, local=Training(batch=16, momentum=0.9, weight_decay=0.01), cohort=SOME),
            Model(halves(), common=True),
            **o,
        ),
        rounds=4,
    ),
    Row("fedbn", lambda **o: weights_star(fedbn(local=B16), Model(normed, norms="private", common=True), **o)),
    Row(
        "fedbabu",
        lambda **o: personal_star(
            FedBABU(local=B16, cohort=SOME, every=2), client=("model", "own"), build=lambda: ALIKE, **o
        ),
        rounds=4,
    ),
    Row("fedrod", lambda **o: headed_twice(FedRoD(local=Training(batch=16, momentum=0.9)), TwoHeads, **o)),
    Row("feddbe", lambda **o: headed_twice(FedDBE(local=B16), ShiftedFeatures, **o)),
    Row("fedas", lambda **o: weights_star(FedAS(local=B16, batches=2, cohort=SOME), ALIKE, **o), rounds=4),
    Row("knn-per", lambda **o: headed_twice(KNNPer(local=B16, every=2, cohort=SOME), Neighbours, **o), rounds=4),
    Row("gpfl", lambda **o: turned_star(GPFL(local=B16, cohort=SOME), **o), rounds=4),
    Row("feddyn", lambda **o: weights_star(FedDyn(local=B16, cohort=SOME), normed, **o), rounds=4, crash_rounds=1),
    Row(
        "fedamp",
        lambda **o: weights_star(FedAMP(local=B16, cohort=SOME), Model(net(), common=True), **o),
        rounds=4,
        crash_rounds=1,
    ),
    Row(
        "apple",
        lambda **o: weights_star(APPLE(local=B16, cohort=SOME, downloads=1), Model(net(), common=True), **o),
        rounds=4,
        crash_rounds=1,
    ),
    Row("fedala", lambda **o: weights_star(FedALA(local=B16, most=2), halves(), **o), crash_rounds=1),
    Row(
        "lg-fedavg",
        lambda **o: weights_star(lg_fedavg(local=B16, cohort=SOME), Model(halves(), common=True), **o),
    ),
    Row(
        "lg-fedavg-pooled",
        lambda **o: headed_star(lg_fedavg(local=B16, width=4, cohort=SOME), wide, **o),
        rounds=4,
    ),
    Row(
        "fccl",
        lambda **o: logits_star(FCCL(pretrain=ADAM, collaborate=ADAM, local=ADAM), "previous", "pretrained", **o),
    ),
    Row("fccl-refreshed", refreshed_star, crash_rounds=1),
    Row("fccl-homogeneous", alike_star, crash_rounds=1),
    Row(
        "fccl-code",
        lambda **o: logits_star(
            FCCLCode(rows=PublicRows(sample=16), local_every=2, collaborate=ADAM, local=ADAM),
            "previous",
            "pretrained",
            **o,
        ),
        rounds=4,
    ),
    Row(
        "fccl-plus",
        lambda **o: similar_star(FCCLPlus(collaborate=ADAM, local=ADAM, rows=TWENTY, cohort=SOME), **o),
        crash_rounds=1,
    ),
    Row("fedh2l", peers),
    Row("fedh2l-pairs", lambda **o: peers(random_pairs, **o)),
    Row(
        "fedh2l-gem",
        lambda **o: peers(
            ring, FedH2L(local=replace(STEP, steps=3), mutual=MutualTeaching(projection="gem", moments="two")), **o
        ),
    ),
    Row("fedh2l-async", unhurried, rounds=5, drops=False, waits=False),
    Row("d-psgd", lambda **o: alike_peers(DPSGD(local=B16), torus, normed, **o)),
    Row("d-psgd-redrawn", lambda **o: alike_peers(DPSGD(local=B16), redrawn, **o), rounds=4),
    Row("d-psgd-pairs", lambda **o: alike_peers(DPSGD(local=B16), random_pairs, names=PEERS, **o), rounds=4),
    Row("d-psgd-mix", lambda **o: alike_peers(DPSGD(local=B16, first="mix"), ring, **o)),
    Row("dfedavgm", lambda **o: alike_peers(dfedavgm(local=Training(batch=16, momentum=0.9)), ring, **o)),
    Row("gossip", lambda **o: hurrying(Gossip(local=B16), **o), rounds=5, drops=False, waits=False),
    Row("epidemic", lambda **o: alike_peers(Epidemic(local=B16, fanout=2), **o), rounds=4),
    Row("swarm", lambda **o: alike_peers(Swarm(local=B16), **o), rounds=5),
    Row("fedavgm", lambda **o: weights_star(fedavgm(local=B16), **o), crash_rounds=1),
    Row("fedadam", lambda **o: weights_star(fedadam(local=B16), normed, **o)),
    Row("fedyogi", lambda **o: weights_star(fedyogi(local=B16), **o), crash_rounds=1),
    Row("fedadagrad", lambda **o: weights_star(fedadagrad(local=B16), **o), crash_rounds=1),
    Row("hierfavg", lambda **o: hierarchy(hierfavg(turns=1, local=B16), **o), crash_rounds=1),
    Row("bhfl", hierarchy, crash_rounds=1),
    Row("bhfl-overlap", lambda **o: hierarchy(bhfl(turns=1, overlap=True), **o), crash_rounds=1),
    Row("bhfl-deep", deep_hierarchy, rounds=2, crash_rounds=1),
    Row("bhfl-learned", learned_hierarchy, rounds=2, lost=True, crash_rounds=1),
    Row("bhfl-scheduled", lambda **o: hierarchy(bhfl(**BY_LEVEL), **o), crash_rounds=1),
    Row(
        "bhfl-live",
        lambda **o: streaming(hierarchy(bhfl(turns=1, live={"l0": 0.04}), **o), seconds=0.2),
        crash_rounds=1,
        waits=False,
    ),
    Row("bhfl-async", lambda **o: straggling(bhfl(buffer={"root": 1, "*": 0}), **o), **ASYNCHRONOUS),
    Row("bhfl-all-async", lambda **o: straggling(bhfl(buffer={"e1": 2, "*": 1}), **o), lost=True, **ASYNCHRONOUS),
    Row(
        "fedasync", lambda **o: buffered(FedAsync(local=B16, concurrency=0.67), **o), rounds=6, drops=False, waits=False
    ),
    Row(
        "aso-fed",
        lambda **o: buffered(ASOFed(local=B16, concurrency=0.67), normed, **o),
        rounds=6,
        drops=False,
        waits=False,
        crash_rounds=1,
    ),
    Row("fedbuff", buffered, rounds=5, drops=False, waits=False),
]

# Methods whose servers see sums only.
SECURE = [
    Row("secure-fedavg", secured_star, bytes=of_secure_sums, crash_rounds=1),
    Row(
        "secure-fedavg-words",
        lambda **o: secured_star(
            FedAvg(local=B16, cohort=Cohort(weighted=False)), Secure(bits=32, range=16.0, threshold=0.6), **o
        ),
        bytes=of_secure_sums,
        crash_rounds=1,
    ),
    Row("secure-hierfavg", secured_hierarchy, bytes=of_secure_sums, crash_rounds=1),
    Row(
        "secure-fedproto",
        lambda **o: secured_own_star(FedProto(local=B16), **o),
        bytes=of_secure_sums,
        crash_rounds=1,
    ),
    Row(
        "secure-fedmd",
        lambda **o: secured_own_star(FedMD(local=B16, distil=B16, half=True), build=net, **o),
        bytes=of_secure_sums,
        crash_rounds=1,
    ),
]
METHODS += SECURE

AWAY = ((0.0, 0.05), (0.25, math.inf))
DISTURBED = [
    Row("deadline", lambda **o: timed(2, 0.1, slow(), **o), incidents=frozenset({"timeout", "late"})),
    Row("skipped", lambda **o: timed(3, 0.05, slow(), **o), incidents=frozenset({"timeout", "skipped", "late"})),
    Row("refused", spoiled, incidents=frozenset({"refused"})),
    Row("withheld", lambda **o: weights_star(FedAvg(local=B16), egress={"c1": ()}, **o), lost=True),
    Row("repeated", lambda **o: weights_star(FedAvg(local=B16), **o), incidents=frozenset({"duplicate"}),
        options={"network": Repeating}),
    Row("late-accepted", lambda **o: weights_star(Patient(), profiles=slow(3e-3), **o), rounds=6,
        incidents=frozenset({"timeout"})),
    Row("dies", lambda **o: timed(2, 0.1, slow(1e-3, available=AWAY[:1]), **o), incidents=frozenset({"timeout"})),
    Row("returns", lambda **o: timed(2, 0.1, slow(1e-3, available=AWAY), **o), rounds=5,
        incidents=frozenset({"timeout", "late"})),
    Row("peer-dies", mourning, incidents=frozenset({"timeout"})),
    Row("peer-returns", returning, rounds=8, incidents=frozenset({"timeout"})),
    Row("joins", lambda **o: weights_star(FedAvg(local=B16), joins={"c2": 0.06}, **o), incidents=frozenset({"joined"})),
]  # fmt: skip
ROWS = METHODS + [replace(row, drops=False, waits=False) for row in DISTURBED]
