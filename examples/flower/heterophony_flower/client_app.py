"""A client: our node at home answers questions. Its state lies in a folder on this machine."""

from pathlib import Path

from flwr.app import Array, ArrayRecord, RecordDict
from flwr.app import Message as Reply
from flwr.clientapp import ClientApp

from heterophony import Model
from heterophony.deploy.node_server import NodeServer
from heterophony.deploy.node_store import NodeStore
from heterophony_flower import task

app = ClientApp()


@app.query("heterophony")
def react(message, context):
    plan, name = task.plan(context.run_config), message.content["about"]["client"]
    folder = Path(context.node_config.get("state", "state")) / str(context.run_id) / name
    federation = plan.organisation(name, Model(task.network), {"train": task.rows(name)})
    server = NodeServer(plan, name, federation, NodeStore(folder, plan.id))
    data = server.answer(message.content["data"]["bytes"].data)
    content = RecordDict({"data": ArrayRecord({"bytes": Array("bytes", (len(data),), "bytes", data)})})
    return Reply(content, reply_to=message)
