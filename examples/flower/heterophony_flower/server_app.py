"""The server: our engine keeps the clock and the server's role; Flower's grid carries questions and answers."""

import json
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

from heterophony.deploy.remote_host import RemoteHost
from heterophony.engines import Engine
from heterophony_flower import task

app = ServerApp()


class Grid:
    """Carries bytes between our engine and Flower's nodes; each node answers for one client."""

    def __init__(self, grid, clients):
        self.grid, self.clients, self.ids = grid, clients, {}

    def present(self):
        """Give each client a node, in the order of nodes' numbers, once there are enough."""
        nodes = sorted(self.grid.get_node_ids())
        if not self.ids and len(nodes) >= len(self.clients):
            self.ids = dict(zip(self.clients, nodes, strict=False))
        return [name for name, node in self.ids.items() if node in nodes]

    def send(self, questions):
        tickets = {}
        for name, data in questions.items():
            content = RecordDict({"data": ArrayRecord({"bytes": Array("bytes", (len(data),), "bytes", data)})})
            content["about"] = ConfigRecord({"client": name})
            message = Message(content, dst_node_id=self.ids[name], message_type="query.heterophony")
            for ticket in filter(None, self.grid.push_messages([message])):
                tickets[name] = ticket
        return tickets

    def collect(self, tickets):
        found = self.grid.pull_messages(list(tickets))
        answers = {message.metadata.reply_to_message_id: message for message in found}
        return {ticket: _bytes(answers[ticket]) for ticket in tickets if ticket in answers}


def _bytes(message):
    return None if message.has_error() else message.content["data"]["bytes"].data


@app.main()
def main(grid, context):
    config = context.run_config
    plan = task.plan(config)
    federation = plan.coordinator({})
    courier = Grid(grid, plan.participants)
    while len(courier.present()) < len(plan.participants):
        time.sleep(1)
    result = Engine(federation, RemoteHost(plan, federation, courier)).run(plan.rounds)
    accuracy = result.table.select(quantity="accuracy").last().mean()
    told = {"rounds": result.rounds, "digest": result.digest, "accuracy": accuracy, "bytes": result.ledger.bytes()}
    Path(config["results"]).write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
