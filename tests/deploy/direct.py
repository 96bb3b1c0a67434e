"""A courier without a network: it hands questions to node_servers in this process, and can be told to lose them."""

from collections.abc import Collection

from heterophony.deploy import coordinator
from heterophony.deploy.holders import CoordinatorsOwn
from heterophony.deploy.node_server import NodeServer
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.remote_host import RemoteHost
from heterophony.engines import Engine


class Direct:
    def __init__(self, node_servers: dict[str, NodeServer]) -> None:
        self.node_servers, self.count = node_servers, 0
        self.answers: dict[str, bytes | None] = {}
        self.away: set[str] = set()  # nodes that are not connected
        self.deaf: dict[str, int] = {}  # how many answers of a node are still to be lost
        self.questions: list[tuple[str, bytes]] = []

    def present(self) -> Collection[str]:
        return self.node_servers.keys() - self.away

    def send(self, questions: dict[str, bytes]) -> dict[str, str]:
        tickets = {}
        for node, data in questions.items():
            self.count += 1
            ticket = tickets[node] = f"{node}/{self.count}"
            self.questions.append((node, data))
            answer = self.node_servers[node].answer(data)
            lost = self.deaf.get(node, 0) > 0
            self.deaf[node] = self.deaf.get(node, 0) - lost
            self.answers[ticket] = None if lost else answer
        return tickets

    def collect(self, tickets: Collection[str]) -> dict[str, bytes | None]:
        return {ticket: self.answers.pop(ticket) for ticket in tickets if ticket in self.answers}


def node_server(case, name, folder, signer=None, **changes):
    plan, own = case.plan(), case.organisation(case.holder(name), **changes)
    store = NodeStore(folder / name, plan.id)
    return NodeServer(plan, name, own.build(plan, name), store, own.policy(name), own.account(name), signer=signer)


def node_servers(case, folder, **changes):
    return {name: node_server(case, name, folder, **changes.get(name, {})) for name in case.plan().remote}


def at_coordinator(case, plan=None):
    return coordinator.federation_of(plan or case.plan(), CoordinatorsOwn.model_validate(case.own))


def engine(case, courier, plan=None, record=None, **options):
    plan = plan or case.plan(pace={"poll": 0.001})
    federation = at_coordinator(case, plan)
    return Engine(federation, RemoteHost(plan, federation, courier, **options), record=record)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
