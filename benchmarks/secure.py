"""What secure sums cost: bytes and seconds of a member and of who gathers, for cohorts and for trees of edge servers.

    python benchmarks/secure.py [--numbers 10000] [--most 1000] [--lost 0.1]

Members and the gatherer run one after the other in this process, without an engine, a network or training. Seconds are
of the CPU, for one round: of a member the mean over all, of the gatherer the whole. Bytes are payloads that one member
sends and gets, and that the gatherer of one cohort sends and gets. With `--lost`, that share is lost after its numbers
were sent, and as many after their shares: whoever is lost after its shares costs the gatherer most.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, field

import torch

from heterophony import Kind, Message, Node, Scalar, Secure, Sum, Weights
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Send
from heterophony.kernel.topology import Links
from heterophony.masking import gatherer, member
from heterophony.masking.protocol import GATHERED, KEPT

UPDATE = Kind("update", to="parent", weights=Weights, examples=Scalar(low=0))
RULE = Sum(UPDATE, ("weights",), "examples")
EVERYONE = 10**9  # as `neighbours`: masks are shared with all


@dataclass
class Cost:
    """What one round of one cohort has cost."""

    member_seconds: float = 0.0  # of all members
    gatherer_seconds: float = 0.0
    up: int = 0  # bytes from all members
    down: int = 0
    words: int = 0  # bytes of masked numbers, among those that went up
    opened: bool = True
    members: int = 0
    began: float = field(default_factory=time.process_time)


def mail(send: Send, sender: str, receiver: str) -> Message:
    return Message(send.kind.name, sender, receiver, 0, (1, 0), send.body)


def measured(n: int, how: Secure, numbers: int, lost: float) -> Cost:
    """Return what one sum of n members costs."""
    cost = Cost(members=n)
    weights = {"w": torch.linspace(-1, 1, numbers)}
    names = [f"c{i}" for i in range(n)]
    server = Node("server", "server", memory=(KEPT, GATHERED), links=Links(children=tuple(names)))
    nodes = {name: Node(name, "client", memory=(KEPT, GATHERED), links=Links(parent=("server",))) for name in names}
    few = int(lost * n)
    gone = {"masked": set(names[:few]), "votes": set(names[: 2 * few]), "opening": set(names[: 2 * few])}

    def keep(name: str) -> Send:
        sent = UPDATE(weights=weights, examples=32.0)
        return member.keep(RULE, nodes[name], Send(sent.kind, ("server",), 0, sent.body))

    def masked(name: str, question: Message) -> Send:
        steps = member.add_masks(RULE, how, nodes[name], question)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    react = {
        "shares": lambda name, question: member.share(how, nodes[name], question),
        "masked": masked,
        "votes": lambda name, question: member.agree(how, nodes[name], question),
        "opening": lambda name, question: member.reveal(how, nodes[name], question),
    }

    def answered(asked: list[Send], phase: str) -> Inbox:
        began, found = time.process_time(), Inbox()
        for send in asked:
            (name,) = send.to or ()
            cost.down += send.kind.payload(send.body)
            if name not in gone.get(phase, ()):
                found.append(mail(react[phase](name, mail(send, "server", name)), name, "server"))
        cost.member_seconds += time.process_time() - began
        cost.up += sum(gatherer_kind(m).payload(m.body) for m in found)
        return found

    def gathered(work, *given):  # type: ignore[no-untyped-def]
        began = time.process_time()
        result = work(*given)
        cost.gatherer_seconds += time.process_time() - began
        return result

    began = time.process_time()
    first = Inbox(mail(keep(name), name, "server") for name in names)
    cost.member_seconds += time.process_time() - began
    cost.up += sum(gatherer_kind(m).payload(m.body) for m in first)
    asked = gathered(gatherer.introduce, how, server, first)
    asked = gathered(gatherer.forward, how, server, answered(asked, "shares"))
    words = answered(asked, "masked")
    cost.words = sum(m.words.nbytes for m in words)
    asked = gathered(gatherer.add_up, how, server, words)
    asked = gathered(gatherer.pass_on, how, server, answered(asked, "votes"))
    try:
        summed = gathered(gatherer.opened, RULE, how, server, answered(asked, "opening"))
    except gatherer.Failed:
        cost.opened = False
        return cost
    assert (summed.total.weights["w"] - weights["w"]).abs().max() < 1e-5
    return cost


def gatherer_kind(message: Message) -> Kind:
    from heterophony.masking.protocol import PROTOCOL

    return next(kind for kind in PROTOCOL if kind.name == message.kind)


def row(label: str, cost: Cost) -> str:
    n = cost.members
    beside = (cost.up - cost.words + cost.down) / n
    cells = [label, f"{cost.member_seconds / n:.4f}", f"{cost.gatherer_seconds:.3f}", f"{beside:,.0f}"]
    cells += [f"{cost.words / n:,.0f}", f"{cost.up + cost.down:,}", "yes" if cost.opened else "no"]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| | seconds of a member | seconds of who gathers | bytes of a member beside its numbers | its numbers, bytes | "
    "bytes of who gathers | opened |\n|---|---|---|---|---|---|---|"
)


def odds(n: int, how: Secure, lost: float) -> float:
    """Return at most how likely a sum of n members cannot be opened, if that share is lost at random after its keys.

    A member's secret is lost where too few of its neighbourhood are left. The bound adds this up over all members.
    """
    gone, degree = round(lost * n), how.degree(n)
    most = degree + 1 - how.needed(degree + 1)  # of its neighbourhood may be gone

    def beyond(others: int, drawn: int, allowed: int) -> float:
        """Return how likely more than so many of the neighbours are among those who are gone."""
        bad = range(max(0, allowed + 1), min(others, drawn) + 1)
        ways = sum(math.comb(others, k) * math.comb(n - 1 - others, drawn - k) for k in bad)
        return ways / math.comb(n - 1, drawn)

    alone = (n - gone) * beyond(gone, degree, most) + gone * beyond(gone - 1, degree, most - 1)
    return min(1.0, alone)


def print_odds() -> None:
    print("\nat most so likely a sum cannot be opened, by the share that is lost after its keys")
    print("| members | neighbours | 5 % | 10 % | 20 % | 30 % |\n|---|---|---|---|---|---|")
    for n, neighbours in ((10, None), (100, None), (100, 60), (1000, None), (1000, 80), (1000, 120)):
        how = Secure(neighbours=neighbours)
        found = " | ".join(f"{odds(n, how, lost):.1g}" for lost in (0.05, 0.1, 0.2, 0.3))
        print(f"| {n:,} | {how.degree(n)} | {found} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, default=10_000, help="of a message")
    parser.add_argument("--most", type=int, default=1000, help="clients of the largest cohort")
    parser.add_argument("--lost", type=float, default=0.1)
    parser.add_argument("--tree", type=int, default=100, help="leaves of the trees that are compared")
    parser.add_argument("--odds", action="store_true", help="only how likely sums cannot be opened")
    given = parser.parse_args()
    if given.odds:
        print_odds()
        return
    torch.set_num_threads(1)
    how = Secure()
    print(f"cohorts, {given.numbers:,} numbers of 64 bits\n{HEAD}", flush=True)
    for n in (n for n in (10, 100, 1000) if n <= given.most):
        for lost in (0.0, given.lost):
            name = f"{n} clients, {how.degree(n)} neighbours{f', 2 x {lost:.0%} lost' if lost else ''}"
            print(row(name, measured(n, how, given.numbers, lost)), flush=True)
    leaves = given.tree
    print(
        f"\n{leaves} leaves under M edge servers, everybody shares with everybody below the same one\n{HEAD}",
        flush=True,
    )
    for edges in (m for m in (1, 2, 5, 10, 20) if leaves // m >= how.least):
        each = measured(leaves // edges, Secure(neighbours=EVERYONE), given.numbers, 0.0)
        pairs = edges * (leaves // edges) * (leaves // edges - 1)
        paper = leaves * leaves // edges
        print(row(f"M = {edges}: {pairs:,} pair masks in all, C^2/M = {paper:,}", each), flush=True)
    print_odds()


if __name__ == "__main__":
    main()
