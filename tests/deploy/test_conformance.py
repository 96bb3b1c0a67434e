"""The conformance table on the host for other machines: every method ends as it does in one process."""

import zlib

import pytest

from deploy.direct import Direct
from deploy.test_remote import Clock
from heterophony.deploy.node_server import NodeServer
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.plan import Plan
from heterophony.deploy.remote_host import RemoteHost
from heterophony.engines import Engine
from toys.federations import METHODS
from toys.undisturbed import undisturbed

# Without those that nobody waits in: there, what is merged with what depends on real time. The slow tier has them all.
WAITED = [row for row in METHODS if row.waits]
SAMPLED = [
    row if zlib.crc32(row.name.encode()) % 3 == 0 else pytest.param(row, marks=pytest.mark.slow) for row in WAITED
]


@pytest.mark.parametrize("row", SAMPLED, ids=lambda row: row.name)
def test_every_method_ends_as_in_one_process(row, tmp_path):
    federation = row.build()
    topology = federation.topology
    remote = [node for node, links in topology.static.items() if links.parent or links.peers]
    agreed = {"id": "conformance", "method": "solo", "address": "nowhere:1", "participants": remote}
    plan = Plan.model_validate({**agreed, "rounds": row.rounds, "pace": {"poll": 0.001}})
    node_servers = {node: NodeServer(plan, node, row.build(), NodeStore(tmp_path / node, plan.id)) for node in remote}
    time = Clock()  # real time would decide whether a deadline passes while this machine is busy
    host = RemoteHost(plan, federation, Direct(node_servers), clock=time, sleep=time.sleep)
    result = Engine(federation, host).run(row.rounds)
    here = undisturbed(row)
    assert result.digest == here.digest
    assert result.ledger.bytes() == here.ledger.bytes()
    assert not result.ledger.incidents
