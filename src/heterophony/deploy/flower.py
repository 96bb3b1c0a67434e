"""All that we use of Flower, in one place: messages as bytes, the executors of both ends, the control of a SuperLink.

Both ends run with Flower's `--isolation process`: Flower moves messages, and a process of ours asks it for tasks and
works on them. So only installed code runs, never that of an app that came over the network; and it is loaded once, not
once a message. Much of this is not Flower's public interface, hence the narrow range of versions in pyproject.toml.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterophony.deploy.call import DeployError

try:
    import httpx
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.common.constant import SubStatus
    from flwr.common.serde import fab_to_proto, run_from_proto
    from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, RegisterNodeRequest, StartRunRequest
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
    from flwr.serverapp.grid import Grid
    from flwr.supercore.constant import TaskType
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.runtime.tracing import RuntimeTracingInterceptor
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output
except ImportError as error:
    raise DeployError(f"deploying needs Flower: pip install 'heterophony[flower]' ({error})") from None

QUESTION = "query.heterophony"  # Flower's type of our messages
RECORD = "heterophony"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
OFFLINE = (httpx.TransportError, httpx.HTTPStatusError)


def program(name: str) -> str:
    """One of Flower's programs, of the environment that we run in."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise DeployError(f"{name} is not installed: pip install 'heterophony[flower]'")
    return found


def environment(home: Path, **more: str) -> dict[str, str]:
    """For Flower's programs: quiet, offline, and with its files where ours are."""
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), **more}


# -- messages ----------------------------------------------------------------------------------------------------
def content(data: bytes) -> RecordDict:
    """Our bytes as a record: as an array, because Flower sends those in chunks."""
    array = Array(dtype="uint8", shape=(len(data),), stype="heterophony", data=data)
    return RecordDict({RECORD: ArrayRecord({"bytes": array})})


def data_of(message: Message) -> bytes | None:
    """Our bytes in a message; None if there are none."""
    if message.has_error() or not message.has_content():
        return None
    record = message.content.get(RECORD)
    array = record.get("bytes") if isinstance(record, ArrayRecord) else None
    return None if array is None else bytes(array.data)


class Post:
    """The courier of `RemoteHost` over a Flower grid. Participants are known by their public keys."""

    def __init__(self, grid: Grid, keys: Mapping[bytes, str]) -> None:
        self.grid, self.keys = grid, keys
        self.ids: dict[str, int] = {}

    def present(self) -> Collection[str]:
        nodes = {
            self.keys[node.public_key]: node.node_id for node in self.grid.get_nodes() if node.public_key in self.keys
        }
        self.ids |= nodes
        return nodes.keys()

    def send(self, questions: dict[str, bytes]) -> dict[str, str]:
        tickets: dict[str, str] = {}
        for node, data in questions.items():  # one by one: together they may be too large for a request
            message = Message(content(data), dst_node_id=self.ids[node], message_type=QUESTION)
            for ticket in filter(None, self.grid.push_messages([message])):
                tickets[node] = ticket
        return tickets

    def collect(self, tickets: Collection[str]) -> dict[str, bytes | None]:
        if not tickets:
            return {}
        return {m.metadata.reply_to_message_id: data_of(m) for m in self.grid.pull_messages(list(tickets))}


# -- executors ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Task:
    """A task that Flower has given us, and the token with which it is worked on."""

    run: int
    token: str


class Executor:
    """Asks a SuperLink or SuperNode for tasks of one type."""

    def __init__(self, address: str, secret: bytes, ca: bytes | None, server: bool) -> None:
        self.address, self.ca = address, ca
        self.type = TaskType.SERVER_APP if server else TaskType.CLIENT_APP
        signed = SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
        )
        about = RuntimeVersionHttpInterceptor(component_name="SuperExec")
        self.client = RuntimeHttpClient.from_server_address(
            address,
            insecure=ca is None,
            root_certificates=ca,
            interceptors=[RuntimeTracingInterceptor(), about, signed],
        )

    def acquire(self) -> Task | None:
        """The next task, if there is one; None also while nobody answers."""
        try:
            found = self.client.AcquireTask(AcquireTaskRequest(supported_task_types=[self.type]))
        except OFFLINE:
            return None
        return Task(found.task.run_id, found.token) if found.HasField("task") and found.token else None

    def close(self) -> None:
        self.client.close()


def answer(address: str, task: Task, reply: Callable[[int, str, bytes | None], bytes]) -> None:
    """Work on a task of a SuperNode.

    `reply` makes the answer's bytes from Flower's number of this node, the type of the message, and its bytes if any.
    """
    client = RuntimeHttpClient.from_server_address(
        address,
        insecure=True,  # on this machine only
        root_certificates=None,
        interceptors=[
            RuntimeTracingInterceptor(),
            RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
            RuntimeTokenHttpInterceptor(task.token),
        ],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context, _, _ = pull_task_input(client)
        made = reply(int(context.node_id), message.metadata.message_type, data_of(message))
        push_message(client, Message(content(made), reply_to=message), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heartbeat.stop()
        client.close()


@contextmanager
def grid_of(address: str, task: Task, ca: bytes) -> Iterator[Grid]:
    """Work on a task of a SuperLink: the grid, while it lasts."""
    from flwr.superlink.grid import HttpGrid  # late: it takes a second, and nodes do without

    grid = HttpGrid(address, insecure=False, root_certificates=ca, token=task.token)
    client = grid._runtime_client
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    status, details = SubStatus.FAILED, "the coordinator failed; its own log says why"
    try:
        found = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = found.task_id, found.run.run_id  # messages take it from there
        TaskIdentity.node_id = found.context.node_id
        grid.set_run(run_from_proto(found.run))
        yield grid
        status, details = SubStatus.COMPLETED, ""
    finally:
        grid._retry_invoker.max_tries = 1
        with suppress(httpx.HTTPError):  # the SuperLink may be gone: then the run is continued by another one
            client.PushTaskOutput(PushTaskOutputRequest(context=None, sub_status=status, details=details))
        heartbeat.stop()
        grid.close()


# -- control -----------------------------------------------------------------------------------------------------
class Control:
    """What a coordinator asks of its own SuperLink."""

    def __init__(self, address: str, ca: bytes) -> None:
        about = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        self.client = ControlHttpClient.from_server_address(
            address, insecure=False, root_certificates=ca, interceptors=[about]
        )

    def reachable(self) -> bool:
        try:
            self.client.ListRuns(ListRunsRequest(limit=1))
        except OFFLINE:
            return False
        return True

    def register(self, name: str, key: bytes) -> None:
        """Let a node in; one that is known already stays."""
        known = {node.public_key for node in self.client.ListNodes(ListNodesRequest()).nodes_info}
        if key not in known:
            self.client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def nodes(self) -> dict[bytes, str]:
        """Registered public keys and whether their nodes are online."""
        return {node.public_key: node.status for node in self.client.ListNodes(ListNodesRequest()).nodes_info}

    def submit(self, app: Path) -> int:
        from flwr.cli.build import build_fab_from_disk  # late, as above

        bundle = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        return int(self.client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def runs(self) -> dict[int, str]:
        """Runs by number, with their states."""
        found = self.client.ListRuns(ListRunsRequest()).run_dict
        return {
            number: ":".join(filter(None, (run.status.status, run.status.sub_status))) for number, run in found.items()
        }

    def close(self) -> None:
        self.client.close()


def deactivate(address: str, ca: bytes, key: Any, node: int) -> None:
    """Say in a dead SuperNode's place that it has gone; otherwise its successor is refused for a minute."""
    with (
        FleetHttpClient.from_server_address(
            address,
            False,
            ca,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
            ],
        ) as client,
        suppress(*OFFLINE),
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))


def key_bytes(public_key: Any) -> bytes:
    """A public key as Flower knows a node by it."""
    found: bytes = public_key_to_bytes(public_key)
    return found
