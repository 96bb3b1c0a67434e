"""The toy federation of four organisations whose coordinator gets sums: each signs its keys, as the plan has them."""

import json
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from deploy.direct import Direct
from heterophony.base import codec
from heterophony.deploy import keys
from heterophony.deploy.node_server import NodeServer
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.organisation import Organisation
from heterophony.deploy.plan import Plan
from toys.deployed import CASES, NAMES, Case

FEDAVG, HIERFAVG = CASES["fedavg"], CASES["hierfavg"]


@lru_cache
def key(name: str) -> Any:
    """The key of an organisation, or of somebody who is none."""
    return ec.generate_private_key(ec.SECP384R1())


def line(name: str) -> str:
    """Its public half, as it stands in a `.pub` file."""
    return keys.public_bytes(key(name).public_key()).decode()


def plan(case: Case = FEDAVG, **changes: Any) -> Plan:
    members = {name: line(name) for name in case.plan().everyone}
    return case.plan(**{"secure": {}, "members": members, "pace": {"poll": 0.001}, **changes})


def organisation(name: str, folder: Any, **changes: Any) -> Organisation:
    return FEDAVG.organisation(name, **{"secrets": str(folder / name / "secrets"), **changes})


def server(agreed: Plan, name: str, folder: Any, **changes: Any) -> NodeServer:
    own = organisation(name, folder, **changes)
    federation = own.build(agreed, name)
    vault = own.vault(agreed, name, federation.topology, key(name))
    return NodeServer(agreed, name, federation, NodeStore(folder / name, agreed.id), own.policy(name), None, vault)


def servers(agreed: Plan, folder: Any, **changes: Any) -> dict[str, NodeServer]:
    return {name: server(agreed, name, folder, **changes.get(name, {})) for name in NAMES}


class Lying(Direct):
    """A coordinator that changes what it asks of one node: `lie` gets the reaction's name and its mail."""

    def __init__(self, node_servers: dict[str, NodeServer], to: str, lie: Any) -> None:
        super().__init__(node_servers)
        self.to, self.lie, self.mail = to, lie, {}

    def send(self, questions: dict[str, bytes]) -> dict[str, str]:
        changed = dict(questions)
        if self.to in questions:
            asked = codec.unpack(questions[self.to])
            if asked["ask"] == "react":
                self.mail.setdefault(asked["reaction"], []).append(asked["mail"])
                told = self.lie(asked["reaction"], asked["mail"])
                changed[self.to] = codec.pack({**asked, "mail": told})
        return super().send(changed)


def incidents(here: NodeServer) -> list[str]:
    """What a node has refused, in its own words."""
    return [row["detail"] for row in here.store.rows("incidents") if row["incident"] == "refused"]


def sent(here: NodeServer) -> list[str]:
    return [row["kind"] for row in map(json.loads, here.store.table("ledger").read_text().splitlines())]
