"""All that we use of Flower, in one place: messages as bytes, the executors of both ends, the control of a SuperLink.

Both ends run with Flower's `--isolation process`: Flower moves messages, and a process of ours asks it for tasks and
works on them. So only installed code runs, never that of an app that came over the network; and it is loaded once, not
once a message. Much of this is not Flower's public interface, hence the narrow range of versions in pyproject.toml.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterophony.base import codec
from heterophony.deploy.named_function import DeployError
from heterophony.kernel.fields import Refused

if TYPE_CHECKING:
    from flwr.superlink.grid import HttpGrid

try:
    import httpx
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.app.message.arraychunk import ArrayChunk
    from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE, SubStatus
    from flwr.common.serde import context_from_proto, fab_to_proto, message_from_proto, run_from_proto
    from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, RegisterNodeRequest, StartRunRequest
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
    from flwr.proto.node_pb2 import Node
    from flwr.proto.runtime_pb2 import (
        AcquireTaskRequest,
        PullAppMessagesRequest,
        PullTaskInputRequest,
        PushTaskOutputRequest,
    )
    from flwr.supercore.constant import NodeStatus, TaskType
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_body,
        get_object_children_ids_from_object_content,
        get_object_type_from_object_content,
        iterate_object_tree,
    )
    from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
    from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_objects
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
    from flwr.supernode.runtime.run_clientapp import push_message, push_task_output
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
    """Return the path of one of Flower's programs, of the environment that we run in."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise DeployError(f"{name} is not installed: pip install 'heterophony[flower]'")
    return found


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of Flower's programs: quiet, offline, and with its files where ours are."""
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), **more}


# -- messages ----------------------------------------------------------------------------------------------------
def content(data: bytes) -> RecordDict:
    """Return our bytes as a record: as an array, because Flower sends arrays in chunks."""
    array = Array(dtype="uint8", shape=(len(data),), stype="heterophony", data=data)
    return RecordDict({RECORD: ArrayRecord({"bytes": array})})


def pulled(client: Any, tree: ObjectTree, node: Node, run: int, limit: int) -> bytes | Refused:
    """Return our bytes in a message that Flower holds, or why they are not taken: there are none, or too many.

    Flower carries equal chunks once and would repeat them as it puts a message together, so that a short message could
    grow without bound. Hence we fetch no more than fits the limit, and put together what we have counted.
    """
    made: bytes | Refused
    try:
        made = _joined(_fetched(client, tree, node, run, limit), limit)
    except Refused as error:
        made = error
    about = ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=tree.object_id)
    client.ConfirmMessageReceived(about)  # Flower need not keep it, whatever it was
    return made


def _fetched(client: Any, tree: ObjectTree, node: Node, run: int, limit: int) -> dict[str, bytes]:
    """Fetch the objects of a message."""
    names = {each.object_id for each in iterate_object_tree(tree)}
    if len(names) > 8 + limit // FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE:
        raise Refused(f"{len(names)} objects, too many for the limit of {limit} bytes")
    fetch = make_pull_object_fn_protobuf(client.PullObject, node, run)
    sizes, most = [], limit + 2**16 + 256 * len(names)  # with the heads of objects

    def counted(name: str) -> bytes:
        found = fetch(name)
        sizes.append(len(found))
        if sum(sizes) > most:
            raise Refused(f"more than the limit of {limit} bytes")
        return found

    return pull_objects(sorted(names), counted)


def _joined(contents: dict[str, bytes], limit: int) -> bytes:
    """Return the bytes of the one array among a message's objects."""
    try:
        arrays = [o for o in contents.values() if get_object_type_from_object_content(o) == Array.__qualname__]
        if len(arrays) != 1:
            raise Refused("no message of ours")
        chunks = get_object_children_ids_from_object_content(arrays[0])
        order = [chunks[place] for place in json.loads(get_object_body(arrays[0], Array))["arraychunk_ids"]]
        bodies = {name: get_object_body(contents.pop(name), ArrayChunk) for name in set(order)}
    except Refused:
        raise
    except Exception as error:  # whatever a hostile object makes it raise
        raise Refused(f"no message of ours ({type(error).__name__})") from None
    if (size := sum(len(bodies[name]) for name in order)) > limit:
        raise Refused(f"{size} bytes, the limit is {limit}")
    return b"".join([bodies[name] for name in order])


class Post:
    """The courier of `RemoteHost` over a Flower grid. Organisations are known by their public keys.

    `keys` has, by key, the nodes that its owner holds: their questions go to one SuperNode.
    """

    def __init__(self, grid: HttpGrid, keys: Mapping[bytes, Collection[str]], limit: int) -> None:
        self.grid, self.keys, self.limit = grid, keys, limit
        self.ids: dict[str, int] = {}

    def present(self) -> Collection[str]:
        there = self.grid.get_nodes()
        nodes = {name: node.node_id for node in there for name in self.keys.get(node.public_key, ())}
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
        """Collect answers as Flower's grid would, and look first at what it believes without looking."""
        if not tickets:
            return {}
        found = self.grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=list(tickets)))
        messages = zip(found.messages_list, found.message_object_trees, strict=True)
        # Whose answer it is, the SuperLink says; the message itself may say anything.
        answers = {m.metadata.reply_to_message_id: (m, tree) for m, tree in messages}
        return {ticket: self._answer(*answers[ticket]) for ticket in tickets if ticket in answers}

    def _answer(self, message: Any, tree: ObjectTree) -> bytes | None:
        if message.HasField("error"):
            return None
        try:
            data = pulled(self.grid._runtime_client, tree, self.grid.node, self.grid.run.run_id, self.limit)
        except ObjectPullError:  # it was never sent as a whole
            return None
        return codec.pack({"failed": f"its answer is refused: {data}"}) if isinstance(data, Refused) else data


# -- tasks -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FlowerTask:
    """A task that Flower has given us, and the token with which it is worked on."""

    run: int
    token: str


class TaskWorker:
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

    def acquire(self) -> FlowerTask | None:
        """Return the next task, if there is one; None also while nobody answers."""
        try:
            found = self.client.AcquireTask(AcquireTaskRequest(supported_task_types=[self.type]))
        except OFFLINE:
            return None
        return FlowerTask(found.task.run_id, found.token) if found.HasField("task") and found.token else None

    def close(self) -> None:
        self.client.close()


def answer(address: str, task: FlowerTask, limit: int, reply: Callable[[int, str, bytes | Refused], bytes]) -> None:
    """Answer a task of a SuperNode.

    `reply` makes the answer's bytes from Flower's number of this node, the type of the message, and its bytes, or why
    there are none.
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
        given = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id  # messages take it from there
        TaskIdentity.node_id, context = given.context.node_id, context_from_proto(given.context)
        found = client.PullMessages(PullAppMessagesRequest())
        message, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        message.metadata.__dict__["_message_id"] = tree.object_id
        data = pulled(client, tree, Node(node_id=context.node_id), context.run_id, limit)
        made = reply(int(context.node_id), message.metadata.message_type, data)
        push_message(client, Message(content(made), reply_to=message), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heartbeat.stop()
        client.close()


@contextmanager
def grid_of(address: str, task: FlowerTask, ca: bytes) -> Iterator[HttpGrid]:
    """Yield the grid of a SuperLink's task, while it lasts."""
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
        known = self.nodes()
        if known.get(key) == NodeStatus.UNREGISTERED:  # revoked, and Flower lets nobody in with it ever again
            raise DeployError(
                f"keys/{name}.pub was unregistered: {name} needs a new key (`heterophony deploy key --force`)"
            )
        if key not in known:
            self.client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def nodes(self) -> dict[bytes, str]:
        """Return the registered public keys, and whether their nodes are online."""
        return {node.public_key: node.status for node in self.client.ListNodes(ListNodesRequest()).nodes_info}

    def submit(self, app: Path) -> int:
        from flwr.cli.build import build_fab_from_disk  # late, as above

        bundle = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        return int(self.client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

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
    """Return a public key as Flower knows a node by it."""
    found: bytes = public_key_to_bytes(public_key)
    return found
