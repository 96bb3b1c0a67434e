"""The network between organisations: cut, and let in by a proxy that knows what nodes need."""

import os
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from deploy.loopback import Loopback, free_ports
from deploy.test_faults import FML, check, slow, wait_until_busy
from heterophony.engines import local
from toys.deployed import CASES, NAMES

flower = pytest.importorskip("heterophony.deploy.flower", reason="needs heterophony[flower]")
httpx = pytest.importorskip("httpx")


# -- a cable that is pulled --------------------------------------------------------------------------------------
@contextmanager
def namespace():
    """A network of its own for one node, joined to this machine by one cable: (its name, the cable, our address)."""
    name = f"hph{os.getpid() % 100000}"
    cable, ours, theirs = name, "10.231.77.1", "10.231.77.2"

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to make network namespaces: run it as root, with iproute2")
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", "far", "netns", name)
        ip("addr", "add", f"{ours}/30", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-n", name, "addr", "add", f"{theirs}/30", "dev", "far")
        ip("-n", name, "link", "set", "far", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, cable, ours
    finally:
        ip("netns", "del", name)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, 75], ids=["short", "longer-than-a-heartbeat"])
def test_a_cut_network_costs_time_and_nothing_else(seconds, tmp_path):
    with namespace() as (name, cable, host):
        pace = {"poll": 0.2, "again": 20.0}
        with Loopback(FML, tmp_path, slow(pause=1.5), host=host, pace=pace) as ring:
            ring.start("serve", *NAMES[1:])
            ring.start("north", wrap=["ip", "netns", "exec", name])
            wait_until_busy(ring, 0)
            subprocess.run(["ip", "link", "set", cable, "down"], check=True)
            time.sleep(seconds)
            assert ring.ledger("north"), "it has reacted meanwhile"
            assert not [row for row in ring.rows() if row.get("from") == "north"], "and nobody has heard of it"
            subprocess.run(["ip", "link", "set", cable, "up"], check=True)
            check(ring, ring.finish(400))


# -- a proxy in front --------------------------------------------------------------------------------------------
@contextmanager
def nginx(ring):
    """Debian's nginx with the configuration that `deploy init` wrote."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("needs nginx: apt-get install nginx-light")
    place = ring.folder / "nginx"
    place.mkdir()
    temporary = "".join(
        f"{kind}_temp_path {place}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = f"""
    daemon off; pid {place}/pid; error_log {place}/error.log; worker_processes 1;
    events {{}}
    http {{ access_log {place}/access.log; {temporary} include {ring.coordinator}/nginx.conf; }}
    """
    (place / "whole.conf").write_text(whole)
    child = subprocess.Popen([program, "-c", str(place / "whole.conf"), "-e", str(place / "error.log")])
    try:
        yield place
    finally:
        child.terminate()
        child.wait()


def trust(folder):
    return ssl.create_default_context(cafile=folder / "ca.crt")


def refused(call):
    with pytest.raises(httpx.HTTPStatusError) as caught:
        call()
    return caught.value.response.status_code


@pytest.mark.slow
def test_a_holder_of_the_ca_alone_gets_nowhere_through_the_proxy(tmp_path):
    from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
    from flwr.proto.runtime_pb2 import AcquireTaskRequest

    case = CASES["fedavg"]
    with Loopback(case, tmp_path, proxy=True) as ring, nginx(ring) as place:
        ring.start("serve", *NAMES)
        ca = (ring.coordinator / "ca.crt").read_bytes()
        inside = flower.Control(f"127.0.0.1:{ring.port}", ca)
        ring.wait_for(inside.reachable, 180, "the SuperLink did not start")
        outside = flower.Control(f"127.0.0.1:{ring.outer}", ca)
        assert refused(lambda: outside.client.StartRun(StartRunRequest())) == 403
        assert refused(lambda: outside.client.RegisterNode(RegisterNodeRequest(public_key=b"x"))) == 403
        assert not outside.reachable()
        worker = flower.TaskWorker(f"127.0.0.1:{ring.outer}", b"secret", ca, server=True)
        assert refused(lambda: worker.client.AcquireTask(AcquireTaskRequest())) == 403
        with httpx.Client(verify=trust(ring.coordinator), base_url=f"https://127.0.0.1:{ring.outer}") as web:
            for path in ("/", "/docs", "/openapi.json", "/health", "/v1/control/list-runs", "/v1/runtime/get-nodes"):
                assert web.post(path).status_code == 403
            for path in ("register-node", "unregister-node"):
                assert web.post(f"/v1/fleet/{path}").status_code == 403
            assert web.post("/v1/fleet/../control/list-runs").status_code == 403
            assert web.post("/v1/fleet/%2e%2e/control/start-run").status_code == 403
        result = ring.finish()
        assert result["digest"] == local(case.federation()).run(case.rounds).digest
        log = (place / "access.log").read_text()
        assert '"POST /v1/control/start-run HTTP/1.1" 403' in log
        assert '"POST /v1/fleet/pull-messages HTTP/1.1" 200' in log


def stranger(port, lines):
    """A connection of somebody with neither authority nor key, on which so much has been said."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    made = trusting.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10))
    made.sendall(lines.encode())
    return made


def test_a_stranger_gets_little_of_the_proxy_and_nothing_of_the_superlink(tmp_path):
    """Nothing reaches the SuperLink before it is whole, and no address has all connections."""
    with (
        Loopback(CASES["fedavg"], tmp_path, proxy=True) as ring,
        socket.create_server(("127.0.0.1", ring.port)) as link,  # in its place
    ):
        link.settimeout(0.5)
        with nginx(ring), ExitStack() as stack:
            ring.wait_for(lambda: listens(ring.outer), 20, "nginx did not start")
            post = "POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
            large = stack.enter_context(stranger(ring.outer, post.format(9 * 2**20)))
            assert b" 413 " in large.recv(100)
            for _ in range(64):
                stack.enter_context(stranger(ring.outer, post.format(5 * 2**20) + "a beginning"))
            one_more = stack.enter_context(stranger(ring.outer, post.format(5 * 2**20) + "a beginning"))
            assert b" 503 " in one_more.recv(100)
            with pytest.raises(TimeoutError):
                link.accept()


def listens(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# -- who is let in -----------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_wrong_key_a_missing_ca_and_plain_http_are_refused(tmp_path):
    from flwr.proto.control_pb2 import ListNodesRequest, UnregisterNodeRequest

    from heterophony.deploy import keys
    from heterophony.deploy.named_function import DeployError

    with Loopback(CASES["fedavg"], tmp_path) as ring:
        ring.start("serve")
        ca = (ring.coordinator / "ca.crt").read_bytes()
        inside = flower.Control(f"127.0.0.1:{ring.port}", ca)
        ring.wait_for(lambda: inside.reachable() and len(inside.nodes()) == 4, 180, "the SuperLink did not start")
        stranger = tmp_path / "stranger"
        stranger.mkdir()
        keys.node(stranger)
        keys.authority(stranger, "another")
        home = ring.homes["north"]
        key, ours = (
            ["--auth-supernode-private-key", str(home / "node.key")],
            ["--root-certificates", str(home / "ca.crt")],
        )
        wrong = {
            "key": (
                ["--auth-supernode-private-key", str(stranger / "node.key"), *ours],
                "Failed to activate SuperNode",
            ),
            "authority": (
                [*key, "--root-certificates", str(stranger / "ca.crt")],
                "CERTIFICATE_VERIFY_FAILED|certificate",
            ),
            "no authority": (key, "CERTIFICATE_VERIFY_FAILED|certificate"),
            "http": (["--insecure"], "disconnected"),
            "http with key": (["--insecure", *key], "requires a secure TLS connection"),
        }
        for words, why in wrong.values():
            done = supernode(ring, tmp_path, words)
            assert done.returncode == 1
            assert any(each.lower() in done.stdout.lower() for each in why.split("|")), done.stdout[-1500:]
        assert set(inside.nodes().values()) == {"registered"}
        with pytest.raises(httpx.TransportError):
            httpx.post(f"http://127.0.0.1:{ring.port}/v1/control/list-runs")
        (one, *_) = inside.client.ListNodes(ListNodesRequest()).nodes_info
        inside.client.UnregisterNode(UnregisterNodeRequest(node_id=one.node_id))
        with pytest.raises(DeployError, match=r"keys/north\.pub was unregistered: north needs a new key"):
            inside.register("north", one.public_key)
        assert "/v1/fleet/activate-node" in ring.log("serve").read_text()  # refusals stand in its log


def supernode(ring, folder, words):
    environment = flower.environment(Path(folder) / "flwr")
    command = [flower.program("flower-supernode"), "--superlink", f"127.0.0.1:{ring.port}", "--isolation", "process"]
    command += ["--max-retries", "1", "--host", "127.0.0.1", "--port", str(free_ports(1)[0]), *words]
    return subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )
