"""A hostile coordinator, over the real wire: it holds the server's keys, and gets nothing out of a node."""

import subprocess

import pytest

from deploy.loopback import Loopback
from heterophony.base import codec
from heterophony.deploy import keys
from heterophony.deploy.coordinator import public_keys, superlink
from heterophony.deploy.holders import CoordinatorsOwn
from heterophony.deploy.remote_host import RemoteHost
from toys.deployed import CASES, NAMES

flower = pytest.importorskip("heterophony.deploy.flower", reason="needs heterophony[flower]")


@pytest.mark.slow
def test_a_hostile_coordinator_is_refused_over_the_wire(tmp_path):
    from flwr.app import ConfigRecord, Message, RecordDict

    with Loopback(CASES["fedavg"], tmp_path) as ring:
        place = ring.coordinator
        keys.write_secret(place / "secret", b"only for this test")
        listen = CoordinatorsOwn(port=ring.port)
        environment = flower.environment(place / "flwr-home")
        with open(ring.log("superlink"), "wb") as log:
            link = subprocess.Popen(superlink(place, listen, place / "secret"), env=environment, stdout=log, stderr=log)
        try:
            ca = (place / "ca.crt").read_bytes()
            control = flower.Control(listen.address, ca)
            ring.wait_for(control.reachable, 180, "the SuperLink did not start")
            known = {flower.key_bytes(key): (name,) for name, key in public_keys(place, ring.plan).items()}
            for key, (name,) in known.items():
                control.register(name, key)
            ring.start(NAMES[0])
            number = control.submit(place / "app")
            executor = flower.TaskWorker(listen.address, b"only for this test", ca, server=True)
            assert flower.TaskWorker(listen.address, b"a guess", ca, server=True).acquire() is None
            task = ring.wait_for(executor.acquire, 60, "there was no task")
            assert task.run == number
            with flower.grid_of(listen.address, task, ca) as grid:
                post = flower.Post(grid, known, ring.plan.limit)
                ring.wait_for(lambda: "north" in post.present(), 180, "north did not come")
                host = RemoteHost(ring.plan, ring.plan.coordinator(), post)

                def ask(data):
                    ticket = post.send({"north": data})["north"]
                    found = ring.wait_for(lambda: post.collect([ticket]) or None, 120, "north did not answer")
                    return codec.unpack(found[ticket])

                assert "malformed" in ask(b"no question of ours")["refused"]
                assert "malformed" in ask(host._packed("north", "digest")[:-3])["refused"]
                assert "nobody can ask for state" in ask(host._packed("north", "state"))["refused"]
                mail = {
                    "kind": "gradient",
                    "sender": "server",
                    "receiver": "north",
                    "round": 0,
                    "id": (1, 0),
                    "body": {},
                }
                about = {"number": 1, "reaction": "train", "round": 0, "rounds": 2, "start": 0.0}
                question = host._packed("north", "react", **about, mail={**mail, "staleness": 0, "also": []})
                assert "the kind 'gradient' is not declared" in ask(question)["refused"]
                # A message that is none of ours: another type, another record. The node's own code answers, no app's.
                strange = Message(
                    RecordDict({"x": ConfigRecord({"y": 1})}), dst_node_id=post.ids["north"], message_type="train"
                )
                (ticket,) = grid.push_messages([strange])
                found = ring.wait_for(lambda: post.collect([ticket]) or None, 120, "north did not answer")
                assert codec.unpack(found[ticket]) == {"refused": "no question of ours"}
        finally:
            link.terminate()
            link.wait()
        assert len(ring.incidents("north")) == 5
        assert {row["incident"] for row in ring.incidents("north")} == {"refused"}
        assert not (ring.homes["north"] / "state" / f"{ring.plan.id}.hph").exists()
