"""What an undisturbed run of each method sends: payload bytes by kind, as closed formulas.

A formula is `(federation, rounds) -> {kind: bytes}`. A row of the conformance table may bring its own as `bytes`;
otherwise that of its method's class counts.
"""

from collections import Counter
from copy import deepcopy
from dataclasses import fields, replace

import torch

from heterophony.kernel.by_level import pick
from heterophony.masking.fixed_point import encoded, form_of
from heterophony.methods import (
    AFL,
    APFL,
    APPLE,
    BHFL,
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
)  # fmt: skip
from heterophony.methods.fedgen import FedGen, FedGenWhole, wide
from heterophony.parts.cohort import Cohort
from heterophony.parts.engagement import engage
from heterophony.parts.public import own_rows
from heterophony.parts.static_norms import running_statistics

SCALAR = 8  # bytes of one number in a message


def formula(federation, rounds):
    """Return what a run of this federation sends, by the formula of its method's class."""
    return FORMULAS[type(federation.method)](federation, rounds)


def asked(federation):
    """Return how many clients a round asks: all, where the method has no cohort."""
    cohort = getattr(federation.method, "cohort", Cohort())
    return len(cohort.draw(federation.first("server")))


# -- weights ---------------------------------------------------------------------------------------------------
def nothing(federation, rounds):
    return {}


def weights_both_ways(down, up, more=0):
    """The server's model to each client that is asked, and one from each, with so many bytes beside it."""

    def both(federation, rounds):
        model, sent = federation.first("server").payload(), rounds * asked(federation)
        return {down: sent * model, up: sent * (model + more)}

    return both


def cyclic(federation, rounds):
    """One client a round."""
    return dict.fromkeys(("global", "update"), rounds * federation.first("server").payload())


def scaffold(federation, rounds):
    model, sent = federation.first("server").payload(), rounds * asked(federation)
    return {"global": sent * (2 * model + SCALAR), "update": sent * 2 * model}


def slices(federation, rounds):
    """Each client's slice both ways, with its labels; with BatchNorm the whole and its statistics once more."""
    server, method = federation.first("server"), federation.method
    statistics = sum(tensor.nbytes for tensor in server_statistics(server).values())
    able = [c for c in server.children if server.capacity(c) == server.capacity("server")] if statistics else []
    sent = dict.fromkeys(("global", "update"), 0)
    for server.round in range(rounds):
        for name in method.cohort.draw(server):
            client = federation.node(name)
            labels = len(client.data["train"].y.unique()) if method.masking else 0
            sent["global"] += client.payload()
            sent["update"] += client.payload() + SCALAR * labels + SCALAR
    again = rounds * len(able)
    return {**sent, "measure": again * server.payload(), "statistics": again * (statistics + SCALAR)}


def adapters(federation, rounds):
    """Each client's adapters both ways."""
    server = federation.first("server")
    sent = dict.fromkeys(("global", "update"), 0)
    for server.round in range(rounds):
        for name in federation.method.cohort.draw(server):
            own = federation.node(name).payload()
            sent = {"global": sent["global"] + own, "update": sent["update"] + own + SCALAR}
    return sent


def flora(federation, rounds):
    """Each client's adapters up; down each stack once to each client, when it is asked again."""
    server = federation.first("server")
    update, stack, made, heard = 0, 0, [], Counter()
    for server.round in range(rounds):
        cohort = federation.method.cohort.draw(server)
        for name in cohort:
            stack += sum(made[heard[name] :])
            heard[name] = len(made)
        own = [federation.node(name).payload() for name in cohort]
        update += sum(own) + 2 * SCALAR * len(own)
        made.append(sum(own) + SCALAR)
    return {"stack": stack, "train": 0, "update": update}


def server_statistics(server):
    return running_statistics(server) if server.slots["model"].buffers == "private" else {}


def fedcurv(federation, rounds):
    """Weights and two sums down, weights and Fisher information up."""
    model, sent = federation.first("server").payload(), rounds * asked(federation)
    return {"global": sent * 3 * model, "update": sent * (2 * model + SCALAR)}


def fedcs(federation, rounds):
    """A question and two numbers for each that is asked; models for those who fit, by what they say."""
    server, method = federation.first("server"), federation.method
    model, asked_all, chosen = server.payload(), 0, 0
    for server.round in range(rounds):
        clients = [federation.node(name) for name in method.cohort.draw(server)]
        rows = {c.id: method.local.epochs * len(c.data["train"]) for c in clients}
        told = {name: (pick(method.seconds, name) * n, pick(method.upload, name)) for name, n in rows.items()}
        asked_all, chosen = asked_all + len(clients), chosen + len(method.selected(told))
    return {
        "ask": 0,
        "resources": asked_all * 2 * SCALAR,
        "global": chosen * model,
        "update": chosen * (model + SCALAR),
    }


def fedma(federation, rounds):
    """As fedavg, with the number of the layer."""
    model, sent = federation.first("server").payload(), rounds * asked(federation)
    return {"layer": sent * (model + SCALAR), "update": sent * (model + SCALAR)}


def mocha(federation, rounds):
    """A sum of weights and a number down, weights up."""
    model, sent = federation.first("server").payload(), rounds * asked(federation)
    return {"related": sent * (model + SCALAR), "update": sent * model}


def fedfomo(federation, rounds):
    """Models of others who have been heard, as many as may be sent, and for each a share on the way back."""
    server, method = federation.first("server"), federation.method
    model, heard, sent, others = server.payload(), set(), 0, 0
    for server.round in range(rounds):
        cohort = set(method.cohort.draw(server))
        sent += len(cohort)
        others += sum(min(method.downloads, len(heard - {client})) for client in cohort)
        heard |= cohort
    return {"models": others * model, "update": sent * model + others * 4}


def fedmatch(federation, rounds):
    """A model is two of its size. Who has been heard gets helpers, as far as others have been heard."""
    server, method = federation.first("server"), federation.method
    model, heard, sent, helpers = server.payload(), set(), 0, 0
    for round in range(rounds):
        server.round = round
        cohort = set(method.cohort.draw(server))
        sent += len(cohort)
        if round % method.every == 0:
            helpers += len(heard & cohort) * min(method.helpers, max(0, len(heard) - 1))
        heard |= cohort
    return {"model": (2 * sent + helpers) * model, "update": sent * (2 * model + SCALAR)}


def finetune(federation, rounds):
    server = federation.first("server")
    adapted = rounds // federation.method.every * len(server.children)
    return {**weights_both_ways("global", "update", SCALAR)(federation, rounds), "adapt": adapted * server.payload()}


def ifca(federation, rounds):
    model, sent = federation.first("server").payload(), rounds * asked(federation)
    return {"models": sent * federation.method.clusters * model, "update": sent * (model + 2 * SCALAR)}


def fedper(federation, rounds):
    server = federation.first("server")
    part = sum(tensor.nbytes for tensor in federation.method.shared(server).values())
    sent = rounds * asked(federation)
    return {"global": sent * part, "update": sent * (part + SCALAR)}


def fedbabu(federation, rounds):
    server = federation.first("server")
    adapted = rounds // federation.method.every * len(server.children)
    part = sum(tensor.nbytes for tensor in federation.method.shared(server).values())
    return {**fedper(federation, rounds), "adapt": adapted * part}


def feddbe(federation, rounds):
    """Models, and the mean of features: up in the first round, where all are asked, and down from the second on."""
    model, sent = federation.first("server").payload(), rounds * asked(federation)
    mean = 4 * federation.first("server").models["model"].head.in_features * asked(federation)
    return {"global": sent * model + (rounds - 1) * mean, "update": sent * (model + SCALAR) + mean}


def knn_per(federation, rounds):
    told = rounds // federation.method.every * len(federation.first("server").children)
    both = weights_both_ways("global", "update", SCALAR)(federation, rounds)
    return {**both, "remember": told * federation.first("server").payload()}


def apple(federation, rounds):
    """Cores of others who have been heard, as many as may be sent, and of each whose it is and of how many rows."""
    server, method = federation.first("server"), federation.method
    model, heard, sent, others = server.payload(), set(), 0, 0
    for server.round in range(rounds):
        cohort = set(method.cohort.draw(server))
        sent += len(cohort)
        others += sum(min(method.downloads, len(heard - {client})) for client in cohort)
        heard |= cohort
    return {"cores": others * (model + 8 + 4), "update": sent * (model + SCALAR)}


def fedkd(federation, rounds):
    """The most it can be: changes that are not compressed, which is what `energy` 1 gives."""
    server, before = federation.first("server"), set()
    sent, model = {"global": 0, "step": 0, "update": 0}, server.payload()
    for server.round in range(rounds):
        cohort = set(federation.method.cohort.draw(server))
        sent["global"] += len(cohort - before) * model
        sent["step"] += len(cohort & before) * model
        sent["update"] += len(cohort) * model
        before = cohort
    return sent


def feddf(federation, rounds):
    """Where all are asked: which architectures are drawn among them depends on the seed."""
    assert federation.method.cohort.fraction == 1
    clients = [federation.node(n) for n, role in federation.topology.roles.items() if role == "client"]
    sizes = [client.payload() for client in clients]
    updates = rounds * sum(size + SCALAR for size in sizes)
    return {"ask": 0, "model": 0, "update": updates, "fused": rounds * sum(sizes)}


def one_shot(federation, rounds):
    """Where all are asked: a model and two numbers from each."""
    clients = [federation.node(n) for n, role in federation.topology.roles.items() if role == "client"]
    return {"ask": 0, "model": rounds * sum(client.payload() + 2 * SCALAR for client in clients)}


def fedkt(federation, rounds):
    students = rounds * asked(federation) * federation.method.partitions
    return {"ask": 0, "students": students * federation.first("server").payload()}


# -- without waiting -------------------------------------------------------------------------------------------
def fedasync(federation, rounds):
    """Those at work at first, and one more for each merge but the last."""
    server = federation.first("server")
    sent = len(engage(server, federation.method.concurrency)) + rounds - 1
    return dict.fromkeys(("global", "update"), sent * server.payload())


def aso_fed(federation, rounds):
    """As fedasync, with a number beside what comes back."""
    server = federation.first("server")
    sent = len(engage(server, federation.method.concurrency)) + rounds - 1
    return {"global": sent * server.payload(), "change": sent * (server.payload() + SCALAR)}


def fedbuff(federation, rounds):
    """Those at work at first, and one more for each update absorbed but the last."""
    server, method = federation.first("server"), federation.method
    sent = len(engage(server, method.concurrency)) + rounds * method.buffer - 1
    return dict.fromkeys(("global", "delta"), sent * server.payload())


# -- outputs on public rows ------------------------------------------------------------------------------------
def outputs(federation, rounds, half=False):
    """Return the bytes of logits or probabilities that one way of an exchange costs."""
    public, sample = federation.first("server").data["public"], federation.method.rows.sample
    rows = len(public) if sample is None else min(sample, len(public))
    return rounds * asked(federation) * rows * public.classes * (2 if half else 4)


def outputs_both_ways(up, down):
    def both(federation, rounds):
        sent = outputs(federation, rounds, getattr(federation.method, "half", False))
        return {"ask": 0, up: sent, down: sent}

    return both


def rcfl(federation, rounds):
    labels = 4 * federation.first("server").data["public"].classes
    sent, beside = outputs(federation, rounds), rounds * asked(federation) * (labels + SCALAR)
    return {"ask": 0, "scores": sent + beside, "global": sent}


def rhfl(federation, rounds):
    sent = outputs(federation, rounds) + SCALAR * rounds * asked(federation)
    return {"ask": 0, "predictions": sent, "others": sent}


def fccl(federation, rounds):
    method, clients, models = federation.method, asked(federation), 0
    if method.averaging:
        models = rounds // method.local_every * clients * federation.first("server").payload()
    return {**fccl_code(federation, rounds), "model": models, "mean": models}


def fccl_code(federation, rounds):
    sent = outputs(federation, rounds, federation.method.half)
    return {"ask": 0, "logits": sent, "consensus": sent + SCALAR * rounds * asked(federation)}


def fccl_plus(federation, rounds):
    """Logits, and a number for each two rows."""
    public, sample = federation.first("server").data["public"], federation.method.rows.sample
    rows = min(sample or len(public), len(public))
    sent = outputs(federation, rounds) + rounds * asked(federation) * 4 * rows**2
    return {"ask": 0, "logits": sent, "consensus": sent}


def fedh2l(federation, rounds):
    """Each peer to each neighbour in each round: rows times (float32 classes and a row number), and its accuracy."""
    topology, total = federation.topology, 0
    for name in topology.roles:
        node = federation.node(name)
        rows, classes = min(federation.method.sample, len(own_rows(node))), node.data["public"].classes
        drawn = range(rounds) if topology.drawn else (0,)
        talks = sum(len(topology.links(name, round, federation.seed).peers) for round in drawn)
        total += talks * (1 if topology.drawn else rounds) * (rows * (4 * classes + 8) + SCALAR)
    return {"teach": total}


# -- weights between peers -------------------------------------------------------------------------------------
def talks(federation, rounds):
    """Return how often a peer tells another something, if in each round all tell all neighbours."""
    topology = federation.topology
    links = (topology.links(name, round, federation.seed) for name in topology.roles for round in range(rounds))
    return sum(len(own.peers) for own in links)


def d_psgd(federation, rounds):
    return {"model": talks(federation, rounds) * (federation.first("peer").payload() + SCALAR)}


def gossip(federation, rounds):
    """One model of each peer in each round."""
    peer = federation.first("peer")
    return {"model": len(federation.topology.roles) * rounds * (peer.payload() + SCALAR)}


def epidemic(federation, rounds):
    """To `fanout` others, or as many as there are."""
    peers = federation.topology.roles
    sent = sum(min(federation.method.fanout, len(federation.topology.links(name).peers)) for name in peers)
    return {"model": rounds * sent * federation.first("peer").payload(), "done": 0}


def swarm(federation, rounds):
    """All but one to the one, and the one to all others."""
    model, others = federation.first("peer").payload(), len(federation.topology.roles) - 1
    return {"update": rounds * others * (model + SCALAR), "merged": rounds * others * model}


# -- a row a class ---------------------------------------------------------------------------------------------
def tables(down, up, wide):
    """A table with a row a class from each client, and one to each from the second round on."""

    def both(federation, rounds):
        method, client = federation.method, federation.first("client")
        table = 4 * client.data[method.local.data].classes * (wide(method, client) + 1)
        return {down: (rounds - 1) * asked(federation) * table, up: rounds * asked(federation) * table}

    return both


def fd(federation, rounds):
    client = federation.first("client")
    data = client.data[federation.method.local.data]
    with torch.no_grad():
        width = deepcopy(client.models["model"]).eval()(data.x[:1]).shape[-1]
    table = 4 * data.classes * (width + 1)
    return {"teachers": (rounds - 1) * asked(federation) * table, "means": rounds * asked(federation) * table}


def fedre(federation, rounds):
    """A row of features and of shares up; down a head, as soon as there is one."""
    method, client = federation.method, federation.first("client")
    classes, width = client.data[method.local.data].classes, method.taught.read(client, "a test")
    head = 4 * classes * (width + 1)
    sent = rounds * asked(federation) * 4 * (classes + width)
    return {"global": (rounds - 1) * asked(federation) * head, "mixture": sent}


def fedgkt(federation, rounds):
    """Each row's features, logits and label up; its logits down, to those who have been heard."""
    server, heard, sent = federation.first("server"), set(), {"global": 0, "features": 0}
    for server.round in range(rounds):
        for name in federation.method.cohort.draw(server):
            client = federation.node(name)
            rows, head = len(client.data["train"]), client.models["model"].head
            sent["features"] += rows * (4 * head.in_features + 4 * head.out_features + 8)
            sent["global"] += rows * 4 * head.out_features if name in heard else 0
            heard.add(name)
    return sent


def fedgen(federation, rounds):
    method, client = federation.method, federation.first("client")
    classes, width = client.data[method.local.data].classes, wide(client, method.width)
    made = (rounds - 1) * asked(federation) * method.generator.payload(classes, width)
    sent = rounds * asked(federation) * 4 * classes * (width + 1 + 1)
    return {"global": sent + made, "head": sent}


def fedgen_whole(federation, rounds):
    method, server, client = federation.method, federation.first("server"), federation.first("client")
    classes, cohort = client.data[method.local.data].classes, asked(federation)
    made = 4 * classes + method.generator.payload(classes, wide(client, method.width))
    sent = rounds * cohort * server.payload()
    return {"model": sent + (rounds - 1) * cohort * made, "update": sent + rounds * cohort * 4 * classes}


# -- trees -----------------------------------------------------------------------------------------------------
def bhfl(federation, rounds):
    method, model = federation.method, federation.first("root").payload()
    beside = {"down": 2 * SCALAR, "up": SCALAR, "push": SCALAR}
    counts = tree_messages(
        federation.topology,
        rounds,
        turns=method.turns,
        fraction=method.cohort.fraction,
        buffer=method.buffer,
        residuals=(1 if method.averaged else method.largest) if method.far else 0,
    )
    return {kind.name: counts[kind.name] * (model + beside.get(kind.name, 0)) for kind in method.kinds}


def tree_messages(topology, rounds, *, turns, fraction, buffer, residuals):
    """Return the messages of an undisturbed run of a tree by kind, each counted on every link it uses.

    `residuals` is how many go up a residual link at most; 0: these links are not used.
    """

    def of(value, node, level):
        return pick(value, node, str(level), topology.roles[node])

    def cost_of(node, level, times):
        """Return what so many turns of a node cost, all that happens below it included."""
        links = topology.static[node]
        n, merges = len(links.children), of(buffer, node, level)
        if not n:
            return Counter()
        if merges and level:
            raise NotImplementedError("how often an asynchronous inner node merges depends on the clock")
        cohort = max(1, round(of(fraction, node, level) * n))
        executions = [cost_of(c, level + 1, of(turns, c, level + 1)) for c in links.children]
        everyone = cohort == n and not merges
        if not everyone and any(cost != executions[0] for cost in executions):
            raise NotImplementedError("which subtree is asked how often depends on the clock and the seed")
        sent = cohort + (times - 1) * merges if merges else times * cohort
        chosen = min(residuals, merges or cohort)
        cost = Counter({"down": sent, "push" if merges else "up": sent})
        down = 1 if residuals else 0
        cost["far-down"] = times * sum(len(topology.route(node, end)) - 1 for end in links.descendants) * down
        cost["far-up"] = times * sum(len(topology.route(node, end)) - 1 for end in links.ancestors) * chosen
        for execution in executions if everyone else executions[:1]:
            for kind, count in execution.items():
                cost[kind] += count * (times if everyone else sent)
        return cost

    root = next(node for node, role in topology.roles.items() if role == "root")
    return cost_of(root, 0, rounds)


averaged = weights_both_ways("global", "update", SCALAR)


# -- sums that nobody can open -----------------------------------------------------------------------------------
def of_secure_sums(federation, rounds):
    """Add the protocol's messages, in closed form, to those of the method that are not masked.

    In a cohort of n, each member shares with d others: a neighbourhood of h = d + 1. A message of w numbers has a form
    of f bytes, which says names and shapes.
    """
    method = federation.method
    rule, how = method.sums(), method.secure
    plain = unsecured(federation)
    sizes = dict(formula(plain, rounds))
    masked = sizes.pop(rule.kind.name)
    topology = federation.topology
    children = {node: links.children for node, links in topology.static.items() if links.children}
    open_ = sum(len(below) for node, below in children.items() if not method.hides(rule.kind, topology.roles[node]))
    if open_:
        sizes[rule.kind.name] = masked * open_ // sum(map(len, children.values()))
    found = Counter(dict.fromkeys(("keys", "near", "shares", "bundle", "masked", "survivors", "votes"), 0))
    found.update(dict.fromkeys(("tally", "opening"), 0))
    for node, below in children.items():
        if not method.hides(rule.kind, topology.roles[node]):
            continue
        n = max(1, round(len(below) * method.cohort.fraction))
        h, body = how.degree(n) + 1, said_once(federation, below[0])
        f, w = len(form_of(rule, body)), len(encoded(rule, how, body, n).numbers)
        found["keys"] += n * (64 + f)
        found["near"] += n * (64 * h + SCALAR)
        found["shares"] += n * (h - 1) * 48
        found["bundle"] += n * (h - 1) * 48
        found["masked"] += n * w * how.bits // 8
        found["survivors"] += n * h
        found["votes"] += n * (h - 1) * 16
        found["tally"] += n * (h - 1) * 16
        found["opening"] += n * h * 16
    return sizes | {kind: rounds * size for kind, size in found.items()}


def unsecured(federation):
    """Return the same federation with the method that was made secure."""
    method = federation.method
    cls = type(method).__bases__[0]
    return replace(federation, method=cls(**{part.name: getattr(method, part.name) for part in fields(cls)}))


def said_once(federation, child):
    """Return a message as one child would send it: only its form counts."""
    node, rule = federation.node(child), federation.method.sums()
    classes = node.data["train"].classes
    if rule.kind.name == "prototypes":
        wide = federation.method.wide(node)
        return {"means": torch.zeros(classes, wide), "counts": torch.zeros(classes)}
    if rule.kind.name == "logits":
        return {"logits": torch.zeros(len(node.data["public"]), classes, dtype=torch.half)}
    return {"weights": node.weights(), "examples": 1.0}


FORMULAS = {
    Cyclic: cyclic,
    Solo: nothing,
    **dict.fromkeys((FedAvg, Moon, AFL, CFL, Ditto, FedMRL, PFedMe, PerFedAvg, APFL, Mapper, DataSharing), averaged),
    **dict.fromkeys((FedBE, FedSEM, MixtureOfExperts), averaged),
    QFFL: weights_both_ways("global", "update", 3 * SCALAR),
    TERM: weights_both_ways("global", "update", 2 * SCALAR),
    FedCurv: fedcurv,
    HeteroFL: slices,
    HetLoRA: adapters,
    FedSALoRA: adapters,
    FLoRA: flora,
    FedCS: fedcs,
    FedFomo: fedfomo,
    FedMA: fedma,
    Mocha: mocha,
    FedNova: weights_both_ways("global", "update", 2 * SCALAR),
    Scaffold: scaffold,
    FedMatch: fedmatch,
    FineTune: finetune,
    IFCA: ifca,
    FedPer: fedper,
    FedBABU: fedbabu,
    FedDBE: feddbe,
    APPLE: apple,
    FedAS: fedper,
    KNNPer: knn_per,
    **dict.fromkeys((FedALA, FedRoD, GPFL), averaged),
    FedDyn: weights_both_ways("global", "update"),
    FedAMP: weights_both_ways("mixture", "update"),
    FML: weights_both_ways("global", "meme"),
    FedKD: fedkd,
    FedDF: feddf,
    OneShot: one_shot,
    FedKT: fedkt,
    FedAsync: fedasync,
    FedBuff: fedbuff,
    ASOFed: aso_fed,
    FedMD: outputs_both_ways("logits", "consensus"),
    DSFL: outputs_both_ways("predictions", "labels"),
    Cronus: outputs_both_ways("predictions", "labels"),
    KTpFL: outputs_both_ways("predictions", "personal"),
    RCFL: rcfl,
    RHFL: rhfl,
    FCCL: fccl,
    FCCLCode: fccl_code,
    FCCLPlus: fccl_plus,
    **dict.fromkeys((FedH2L, FedH2LAsync), fedh2l),
    DPSGD: d_psgd,
    Gossip: gossip,
    Epidemic: epidemic,
    Swarm: swarm,
    FD: fd,
    FedProto: tables("global", "prototypes", lambda method, client: method.wide(client)),
    FedGH: tables("global", "means", lambda method, client: method.taught.read(client, "FedGH")),
    FedRE: fedre,
    FedGKT: fedgkt,
    FedGen: fedgen,
    FedGenWhole: fedgen_whole,
    BHFL: bhfl,
}
