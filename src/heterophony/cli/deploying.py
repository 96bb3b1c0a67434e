"""The commands of `heterophony deploy`: write a federation's folders, run its two ends, see what is going on."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterophony.cli.complaints import complaints

if TYPE_CHECKING:
    from heterophony.deploy.node_server import Household, NodeServer
    from heterophony.deploy.plan import Plan
    from heterophony.federation import Federation
    from heterophony.kernel.message import Kind

app = typer.Typer(help="A federation between organisations, on Flower.", no_args_is_help=True)
MORE = "A TOML file of more for federation.toml: links (a tree), organisations, public, tests, homes, options, pace."


class LogFormat(StrEnum):
    """How log lines are written."""

    text = "text"
    json = "json"


OneFolder = Annotated[Path, typer.Argument(help="The coordinator's or a participant's folder.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    method: Annotated[str, typer.Option(help="A method; `heterophony methods` lists them.")],
    participants: Annotated[str, typer.Option(help="Their names, with commas between.")],
    address: Annotated[str, typer.Option(help="HOST:PORT at which nodes find the coordinator.")] = "127.0.0.1:8443",
    listen: Annotated[str, typer.Option(help="HOST:PORT of the SuperLink itself, behind nginx.")] = "127.0.0.1:8000",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 10,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    common: Annotated[str | None, typer.Option(help="module:callable of the network that travels.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value: an option of the method.")] = None,
    plan: Annotated[Path | None, typer.Option("--plan", help=MORE)] = None,
) -> None:
    """Write a ready federation: certificates, keys, plan, start scripts, units, and a README for everyone.

    Example: heterophony deploy init ward --method fml --participants north,south --common nets:meme
    """
    from heterophony.catalogue import registry

    with complaints():
        from heterophony.deploy import folder as folders

        options: dict[str, Any] = {}
        for text in set_ or []:
            key, value = registry.parse(text)
            *tables, last = registry.lookup(method).full_name(key).split(".")
            inner = options
            for table in tables:
                inner = inner.setdefault(table, {})
            inner[last] = value
        names = [name.strip() for name in participants.split(",") if name.strip()]
        made = folders.write(
            folder,
            method,
            names,
            address=address,
            listen=listen,
            rounds=rounds,
            seed=seed,
            common=common,
            options=options,
            more=plan,
        )
    print(f"wrote {folder}: federation {made.id}; {folder / 'README.md'} says how to go on")


LogOption = Annotated[LogFormat, typer.Option("--log", help="How log lines are written: text, or json for machines.")]


@app.command()
def serve(folder: OneFolder, form: LogOption = LogFormat.text) -> None:
    """Coordinate: keep a SuperLink running, and the run on it, until all rounds are done."""
    _speak(form)
    with complaints():
        from heterophony.deploy.coordinator import serve

        code = serve(folder)
    raise typer.Exit(code)


@app.command()
def node(folder: OneFolder, form: LogOption = LogFormat.text) -> None:
    """Take part: keep a SuperNode connected and answer, until stopped."""
    _speak(form)
    with complaints():
        from heterophony.deploy.participant import participate

        participate(folder.resolve())


@app.command()
def check(folder: OneFolder) -> None:
    """Load the models and data of an organisation, or the coordinator, and say what would leave. Nothing is sent."""
    with complaints():
        from heterophony.deploy import coordinator
        from heterophony.deploy.organisation import FILE as ORGANISATION
        from heterophony.deploy.participant import household
        from heterophony.deploy.plan import FILE, Plan

        plan = Plan.load(folder / FILE)
        for field, named in plan.functions().items():  # before any of them runs
            print(f"the plan runs {named.call} here ({field}), with {named.arguments or 'no arguments'}", flush=True)
        if (folder / coordinator.FILE).exists() and not (folder / ORGANISATION).exists():
            found = _coordinators(plan, coordinator.loaded(folder.resolve()))
        else:
            found = _held(household(folder.resolve()))
        for line in found:
            print(line)


def _coordinators(plan: Plan, federation: Federation) -> Iterator[str]:
    """Say who holds which nodes; of the coordinator's own, what they hold."""
    for name in plan.everyone:
        yield f"{name} holds {', '.join(plan.held_by(name))}"
    for name in federation.models:
        yield from _place(federation, name)
        yield from _owned(federation, name)


def _held(here: Household) -> Iterator[str]:
    """Say what each node of an organisation holds; inner nodes by their names."""
    from heterophony.deploy.learnable import learnable

    for name, node in here.nodes.items():
        yield from _place(node.federation, name)
        yield from _owned(node.federation, name)
        yield from _messages(node)
        yield from learnable(node)
        yield f"figures told: {', '.join(node.egress.metrics) or 'none'}; hashes of models: {node.egress.digest}"
        yield from node.budget.lines() if node.budget is not None else ()
        yield f"reactions: {node.egress.reactions or 'as many as the coordinator asks for'}"


def _place(federation: Federation, name: str) -> Iterator[str]:
    """Say where a node stands that has others below it."""
    links = federation.topology.static[name]
    if links.children:
        above = f"below {links.parent[0]}, above" if links.parent else "above"
        far = ", ".join((*links.ancestors, *links.descendants))
        residual = f"; residual links with {far}" if far else ""
        yield f"{federation.topology.roles[name]} node {name!r}: {above} {', '.join(links.children)}{residual}"
        if "train" not in (federation.of(federation.data, name) or {}):
            yield "it only merges: links.proxy in federation.toml does not name it"


def _owned(federation: Federation, name: str) -> Iterator[str]:
    """Say which models and data a node has."""
    own = federation.node(name)
    for name, slot in own.slots.items():
        size = sum(tensor.numel() for tensor in slot.module.parameters())
        sent = sum(tensor.nbytes for tensor in slot.shared().values())
        yield f"model {name!r}: {size:,} parameters; its weights are {sent:,} bytes of a message that has them"
    for name in own.data:
        yield f"data {name!r}: {len(own.data[name]):,} rows"
    test = federation.private_tests.get(name)
    if test is not None:
        yield f"private test: {len(test):,} rows"


def _messages(here: NodeServer) -> Iterator[str]:
    """Say which kinds of message a node may send."""
    allowed = here.egress.kinds
    links = here.federation.topology.static[here.name]
    method = here.federation.method
    for kind in method.masked:
        if (least := here.fewest(kind)) is not None:
            yield f"message {kind.name!r} leaves masked only, in sums of at least {least}{_noised(here, kind)}"
    for kind in method.kinds:
        if links.group(kind.to):
            status = "may leave" if allowed is None or kind.name in allowed else "is withheld"
            noised = _noised(here, kind) if status == "may leave" else ""
            yield f"message {kind.name!r} ({', '.join(kind.fields) or 'no fields'}) to {kind.to}: {status}{noised}"


def _noised(here: NodeServer, kind: Kind) -> str:
    """Say how a kind is noised; nothing where the node's owner has not asked for it, or there is nothing in it."""
    privacy = here.federation.private(here.name)
    if privacy is None or not kind.fields or kind not in here.federation.method.told:
        return ""
    if not privacy.protects(kind.name):
        return ", as it is"
    clips = ", ".join(f"{field} to {clip:g}" for field, clip in privacy.noised(kind).items())
    return f", clipped ({clips or 'nothing to clip'}), with noise of {privacy.noise:g} times that"


@app.command("put-out")
def put_out(
    folder: Annotated[Path, typer.Argument(help="The coordinator's folder.")],
    participant: Annotated[str, typer.Argument(help="Its name.")],
) -> None:
    """Put a participant out: it is asked nothing more, and what it sends is refused. The ledger has a line of it."""
    with complaints():
        from heterophony.deploy import coordinator

        coordinator.put_out(folder, participant)
    print(f"{participant} is out from its next round on; the run need not be stopped")


@app.command()
def key(
    folder: OneFolder, force: Annotated[bool, typer.Option("--force", help="Replace the key that is there.")] = False
) -> None:
    """Make a new key for a participant. Its public half goes to the coordinator, the other half stays here."""
    with complaints():
        from heterophony.deploy import keys
        from heterophony.deploy.named_function import DeployError

        if (folder / "node.key").exists() and not force:
            raise DeployError(f"{folder / 'node.key'} is there already, and would be lost: say --force to replace it")
        keys.node(folder)
    print(f"wrote {folder / 'node.key'}, which stays here, and {folder / 'node.pub'}: send that to the coordinator")


@app.command()
def certificate(folder: Annotated[Path, typer.Argument(help="The coordinator's folder.")]) -> None:
    """Make a new certificate of the server for the address in federation.toml, when the old one has expired, say."""
    with complaints():
        from heterophony.deploy import keys
        from heterophony.deploy.plan import FILE, Plan

        host = Plan.load(folder / FILE).address.rpartition(":")[0]
        keys.server(folder, host)
    print(f"wrote {folder / 'server.key'} and {folder / 'server.pem'} for {host}: restart serve, and nginx -s reload")


@app.command()
def status(
    folder: OneFolder,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between two looks.")] = 5.0,
) -> None:
    """Tell what is going on, from a coordinator's or a participant's folder."""
    from heterophony.cli import terminal

    screen = terminal.console()
    with complaints():
        from heterophony.deploy import status as view

        while True:
            found = view.of(folder.resolve())
            if watch and not as_json and screen.is_terminal:
                screen.clear()
            print(json.dumps(found) if as_json else "\n".join(view.lines(found)), flush=True)
            if not watch:
                return
            time.sleep(every)


@app.command()
def metrics(
    folder: OneFolder,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 9464,
) -> None:
    """Serve the figures of `deploy status` to a monitoring system, as OpenMetrics at /metrics, until stopped."""
    with complaints():
        from heterophony.deploy import openmetrics

        server, thread = openmetrics.serve(folder.resolve(), host, port)
        print(f"http://{host}:{server.server_port}/metrics", flush=True)
        thread.join()


@app.command()
def verify(
    places: Annotated[list[Path], typer.Argument(help="Folders of the coordinator or participants, or their files.")],
    plan: Annotated[Path | None, typer.Option(help="federation.toml; left out: that of the first folder.")] = None,
    keys: Annotated[Path | None, typer.Option(help="NAME.pub of each; left out: keys/ in the first folder.")] = None,
) -> None:
    """Audit receipts: name each that was changed, dropped, replayed or invented. Give both ends, to compare them."""
    with complaints():
        from heterophony.deploy import audit
        from heterophony.deploy import keys as keyring
        from heterophony.deploy.named_function import one_line
        from heterophony.deploy.plan import FILE, Plan

        agreed = Plan.load(plan or places[0] / FILE)
        known = {name: keyring.public((keys or places[0] / "keys") / f"{name}.pub") for name in agreed.everyone}
        ends = audit.ends(agreed, places)
        ledgers = [path for place in places if (path := place / "run" / "ledger.jsonl").exists()]
        found = list(audit.faults(agreed, known, ends, ledgers))
        for fault in found:
            print(one_line(fault))
        for end in ends:
            print(f"{end.name}: {sum(map(len, end.found.values()))} receipts that hold, of {len(end.found)} nodes")
        if len(ends) == 1:
            print("only one end: if the last receipts were cut off, nobody sees it here")
    raise typer.Exit(1 if found else 0)


class _Lines(logging.Formatter):
    """Writes each log record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        said = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        return json.dumps(said | ({"error": self.formatException(record.exc_info)} if record.exc_info else {}))


def _speak(form: LogFormat) -> None:
    """Write log lines with times: these processes run for days."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.WARNING)
    if form is LogFormat.json:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_Lines())
    ours = logging.getLogger("heterophony")
    ours.setLevel(logging.INFO)
    ours.handlers.clear()  # the command line's own has no times
