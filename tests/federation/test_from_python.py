"""`Federation(...)` from Python: one clear line for what is wrong before anything runs; progress, logs and tables."""

import logging
import subprocess
import sys
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn
from torch.utils.data import TensorDataset

from heterophony import Data, Federation, Mark, Method, Own, Regression, Round, on, ring, star
from heterophony.methods import FML, FedAvg, FedMD, fedprox
from heterophony.parts import Training, cross_entropy
from heterophony.runs import progress
from toys.world import net, points

CLIENTS = ["anna", "ben"]
X, Y = points("x", 12).x, points("x", 12).y
HOLE = X.clone().index_fill_(0, torch.tensor([4]), float("nan"))


def federation(method=None, models=None, data=None, tests=None, topology=None, **options):
    return Federation(
        FedAvg(local=Training(batch=16)) if method is None else method,
        star(CLIENTS) if topology is None else topology,
        {role: {"model": net()} for role in ("server", "client")} if models is None else models,
        {who: {"train": points(who)} for who in CLIENTS} if data is None else data,
        {"all": points("test")} if tests is None else tests,
        **options,
    )


def ben(**views):
    return {"data": {"anna": {"train": points("anna")}, "ben": views}}


BOTH = {role: {"model": net()} for role in ("server", "client")}
WRONG = {
    "a class for a method": ({"method": FedAvg}, r"method is the class FedAvg: write FedAvg\(\)"),
    "a function for a method": ({"method": fedprox}, r"method is the function fedprox: call it"),
    "a name for a method": ({"method": "fedavg"}, "method must be a Method, such as FedAvg.*assemble"),
    "a function for a topology": ({"topology": star}, r"topology is the function star: call it, as star\(...\)"),
    "no table of models": ({"models": net()}, "models must be a table by node or role"),
    "a module for a table": ({"models": {"client": nn.Linear(8, 4)}}, "models of client: write {'client': {'model'"),
    "no network": ({"models": {"client": {"model": 3}}}, "models of client: 'model' must be a module, or a function"),
    "numpy rows": (ben(train=np.zeros((3, 8))), r"train of ben is a ndarray, not Data: write Data\(x=..., y=...\)"),
    "a torch data set": (ben(train=TensorDataset(X, Y)), "train of ben is a TensorDataset, not Data: Data.of"),
    "a tuple": ({"data": {"anna": points("a"), "ben": (X, Y)}}, "data of ben is a tuple, not Data"),
    "the class Data": (ben(train=Data), "train of ben is the class Data, not Data"),
    "a test set of tensors": ({"tests": {"all": (X, Y)}}, "test set all is a tuple, not Data"),
    "a missing node": (
        {"data": {"anna": points("a")}},
        "ben has no view 'train', which FedAvg needs .* it has no data",
    ),
    "a missing view": (ben(trian=points("b")), "ben has no view 'train', which FedAvg needs .* it has trian"),
    "a missing public view": ({"method": FedMD()}, "anna has no view 'public', which FedMD needs .public data"),
    "a missing model": ({"method": FML()}, "anna has no model 'meme', which FML needs of each client"),
    "labels out of range": (ben(train=Data(x=X, y=Y + 1, classes=4)), "train of ben: y: row . has the label 4; labels"),
    "negative labels": (ben(train=Data(x=X, y=Y - 1)), "train of ben: y: row . has the label -1"),
    "more classes than outputs": (
        ben(train=Data(x=X, y=Y + 3)),
        "train of ben: the network gives 4 outputs, but there",
    ),
    "float labels": (ben(train=Data(x=X, y=Y.float())), r"train of ben: y: .*int64\), got float32; give y.long\(\)"),
    "float64": (ben(train=Data(x=X.double(), y=Y)), r"train of ben: x is float64, networks read float32: write x.fl"),
    "a wrong width": (
        ben(train=Data(x=X[:, :7], y=Y)),
        r"train of ben: x has rows of \(7,\), which the network cannot",
    ),
    "NaN": (ben(train=Data(x=HOLE, y=Y)), "train of ben: row 4 of x has a value that is no finite number"),
    "tests without rows": ({"tests": {"all": Data(x=X[:0], y=Y[:0])}}, "test set all has no rows"),
    "NaN in tests": ({"tests": {"all": Data(x=HOLE, y=Y)}}, "test set all: row 4 of x has a value"),
    "tests without targets": ({"tests": {"all": Data(x=X)}}, "test set all has no column y, the targets; it has x"),
    "numbers of another width": (
        {"data": {who: Data(x=X, y=X, task=Regression(8)) for who in CLIENTS}, "tests": {}},
        "train of anna: the network gives 4 outputs, but there are 8 targets",
    ),
    "a network that cannot be built": (
        {"models": {"server": BOTH["server"], "client": {"model": nn.Linear}}},
        "cannot be built: TypeError",
    ),
    "what is no network": (
        {"models": {"server": BOTH["server"], "client": {"model": lambda: 3}}},
        "is a int, not a torch.nn.Module|has no attribute",
    ),
}


@pytest.mark.parametrize(("wrong", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_line_before_anything_runs(tmp_path, wrong, text):
    with pytest.raises(ValueError, match=text) as refused:
        federation(**wrong).run(1, tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("column", "text"),
    [(np.zeros(3), "column 'x' is no tensor but a numpy array .float64.: write torch.from_numpy"), ([1.0], "a list")],
)
def test_columns_are_tensors(column, text):
    with pytest.raises(ValueError, match=text):
        Data(x=column)


def test_rows_alone_are_rows_to_train_on():
    bare = federation(data={who: points(who) for who in CLIENTS}).run(2)
    assert bare.digest == federation().run(2).digest


def test_views_follow_from_private_and_public_rows():
    everyone = Data(x=X, y=Y, classes=4)
    data = {who: {"train": points(who), "public": everyone} for who in CLIENTS}
    made = federation(data=data)
    held = made.node("anna").data
    assert torch.equal(held["all"].x, torch.cat([points("anna").x, X]))
    assert torch.equal(held["own"].y, torch.cat([points("anna").y, Y]))
    data["anna"]["mine"] = Data(row=torch.tensor([3, 5]))
    assert torch.equal(made.node("anna").data["own"].x, torch.cat([points("anna").x, X[[3, 5]]]))
    data["anna"]["public"] = Data(x=X)
    held = made.node("anna").data
    assert torch.equal(held["own"].x, points("anna").x)
    assert "y" not in held["all"].columns
    method = FedAvg(local=Training(batch=16, data="all"))
    assert federation(method, data={who: {**data["ben"]} for who in CLIENTS}).run(1).rounds == 1
    with pytest.raises(ValueError, match=r"anna has no view 'public', which FedAvg needs .local.data = 'all'"):
        federation(method).run(1)


def test_what_a_method_reads_without_saying_so_is_named_when_it_is_read():
    class Reads(Method):
        """Reads a view that nobody has."""

        roles = ("peer",)
        models = {"peer": {"model": Own()}}
        headline = "own"

        @on(Round, role="peer")
        def work(self, peer):
            assert len(peer.data["extra"])
            yield Mark("own")

    made = federation(Reads(), {"peer": {"model": net()}}, topology=ring(CLIENTS))
    with pytest.raises(RuntimeError, match=r"node anna.*no data view 'extra'; it has train"):
        made.run(1)


def test_networks_that_are_looked_at_stay_as_they_are():
    module = net()()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.get_rng_state()
    federation(models={role: {"model": module} for role in ("server", "client")}).check()
    assert module.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


# -- progress, logs, tables --------------------------------------------------------------------------------------
@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns that keeps what is written on it."""
    page = StringIO()
    monkeypatch.setattr(progress, "err", Console(file=page, force_terminal=True, width=80))
    return page.getvalue


def test_progress_is_shown_on_a_terminal_and_not_when_it_is_to_be_quiet(terminal):
    federation().run(2, quiet=True)
    assert terminal() == ""
    federation().run(2)
    assert "FedAvg" in terminal()


def test_without_a_terminal_nothing_is_written(capfd):
    federation().run(2)
    assert capfd.readouterr() == ("", "")


def test_in_a_notebook_one_bar_is_drawn_anew(monkeypatch):
    shown = []

    class Handle:
        def update(self, bar, metadata):
            assert metadata == progress.SIDE
            shown.append([task.completed for task in bar.tasks])

    class Display:
        @staticmethod
        def display(bar, display_id, metadata):
            assert (display_id, metadata) == (True, progress.SIDE)
            assert "text/html" in bar._repr_mimebundle_([], [])
            return Handle()

    monkeypatch.setitem(sys.modules, "IPython.display", Display)
    monkeypatch.setattr(progress, "err", Console(force_jupyter=True, force_terminal=False))
    federation().run(3)
    assert shown == [[0], [1], [2], [3]]


def test_a_library_is_silent_until_it_is_asked(tmp_path):
    script = (
        "import heterophony, logging\n"
        "log = logging.getLogger('heterophony.any')\n"
        "log.warning('nobody asked')\n"
        "logging.basicConfig(format='%(name)s: %(message)s')\n"
        "log.warning('somebody asked')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "heterophony.any: somebody asked\n")


def test_all_loggers_are_below_the_librarys(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "heterophony")
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(progress, "time", type("Clock", (), {"monotonic": staticmethod(lambda: next(clock))}))
    federation().run(2)
    assert any("FedAvg: round 2 of 2" in record.getMessage() for record in caplog.records)
    assert all(record.name.startswith("heterophony.") for record in caplog.records)


def test_a_result_becomes_a_data_frame():
    pandas = pytest.importorskip("pandas")
    result = federation().run(2)
    found = result.to_pandas()
    assert isinstance(found, pandas.DataFrame)
    assert list(found.columns) == ["round", "time", "product", "node", "set", "split", "score", "value"]
    last = found[(found["round"] == 1) & (found["score"] == result.table.task.scores[0].name)]
    assert last["value"].tolist() == [result.metrics().acc]
    assert federation(tests={}).run(1).to_pandas().empty


def test_without_pandas_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"Result.to_pandas needs pandas: pip install 'heterophony.pandas.'"):
        federation().run(1).to_pandas()


def test_a_loss_of_ones_own_is_checked_like_the_others(tmp_path):
    def absolute(nets, batch):
        return (nets["model"](batch.x)[:, 0] - batch.y).abs().mean()

    rows = {who: Data(x=points(who).x, y=points(who).x.sum(1), task=Regression()) for who in (*CLIENTS, "test")}
    made = federation(
        FedAvg(local=Training(batch=16), loss=absolute),
        {role: {"model": lambda: nn.Linear(8, 1)} for role in ("server", "client")},
        {who: rows[who] for who in CLIENTS},
        {"all": rows["test"]},
    )
    first, last = made.run(1).metrics().acc, made.run(8).metrics().acc
    assert last < first
    assert cross_entropy is not made.method.loss
    with pytest.raises(ValueError, match="train of anna: y: labels are whole numbers"):
        replace(made, data={who: Data(x=rows[who].x, y=rows[who].y) for who in CLIENTS}).run(1)
