"""What we take from Flower: no more than the limit, whatever a message would grow to, and from whom it really is."""

from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs heterophony[flower]")

from flwr.app import Array, ArrayRecord, ConfigRecord, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.serde import message_to_proto
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from heterophony.base import codec
from heterophony.deploy import flower
from heterophony.kernel.fields import Refused

CHUNK = flower.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE


class Store:
    """Flower's store of objects, as a client of it sees them."""

    def __init__(self, content):
        about = Metadata(1, "name", 1, 2, "another", "", 0.0, 60.0, flower.QUESTION)
        self.message = make_message(about, content)
        self.tree = get_object_tree(self.message)
        self.objects = {name: each.deflate() for name, each in get_all_nested_objects(self.message).items()}
        self.asked, self.confirmed = [], []

    def PullObject(self, request):
        self.asked.append(request.object_id)
        content = self.objects[request.object_id]
        return SimpleNamespace(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):
        self.confirmed.append(request.message_object_id)

    def PullMessages(self, request):
        message = message_to_proto(self.message)
        message.metadata.reply_to_message_id = "ticket"
        return SimpleNamespace(messages_list=[message], message_object_trees=[self.tree])


def pulled(store, limit):
    found = flower.pulled(store, store.tree, Node(node_id=1), 1, limit)
    assert store.confirmed == [store.tree.object_id]
    return found


@pytest.mark.parametrize("size", [1, 1000, CHUNK, 2 * CHUNK + 7])
def test_bytes_come_back_as_they_were(size):
    data = bytes(range(250)) * (size // 250) + bytes(size % 250)
    assert pulled(Store(flower.content(data)), size) == data
    zeros = bytes(size)  # its chunks are equal, and carried once
    assert pulled(Store(flower.content(zeros)), size) == zeros


def test_a_short_message_that_would_grow_is_refused_before_it_has():
    store = Store(flower.content(bytes(20 * CHUNK)))
    assert sum(map(len, store.objects.values())) < 1.01 * CHUNK
    assert str(pulled(store, 4 * CHUNK)) == f"{20 * CHUNK} bytes, the limit is {4 * CHUNK}"


def test_no_more_is_fetched_than_the_limit():
    parts = b"".join(bytes([n]) * CHUNK for n in range(6))
    store = Store(flower.content(parts))
    assert "more than the limit" in str(pulled(store, 2 * CHUNK))
    store = Store(flower.content(b"".join(bytes([n]) * CHUNK for n in range(20))))
    assert "objects, too many for the limit" in str(pulled(store, 2 * CHUNK))
    assert not store.asked


def array(data):
    return Array(dtype="uint8", shape=(len(data),), stype="heterophony", data=data)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({"x": ConfigRecord({"y": 1})}),
        RecordDict({"heterophony": ArrayRecord({"bytes": array(b"one"), "more": array(b"two")})}),
    ],
)
def test_what_is_no_message_of_ours_is_refused(content):
    assert isinstance(pulled(Store(content), 1000), Refused)


def test_objects_that_make_no_sense_are_refused():
    for harm in (lambda o: o.replace(b"arraychunk_ids", b"arraychunk_odd"), lambda o: b"nonsense"):
        store = Store(flower.content(b"some bytes"))
        name = next(name for name, each in store.objects.items() if each.startswith(b"Array "))
        store.objects[name] = harm(store.objects[name])
        assert "no message of ours" in str(pulled(store, 1000))


def test_an_answer_is_that_of_the_ticket_that_flower_says():
    """What the message says of itself is its author's word; and one that was not asked for is left alone."""
    store = Store(flower.content(codec.pack({"digest": None})))
    grid = SimpleNamespace(_runtime_client=store, node=Node(node_id=1), run=SimpleNamespace(run_id=1))
    post = flower.Post(grid, {}, 1000)
    assert post.collect(["another"]) == {}
    assert post.collect(["ticket", "another"]) == {"ticket": codec.pack({"digest": None})}
    post.limit = 10
    assert "the limit is 10" in codec.unpack(post.collect(["ticket"])["ticket"])["failed"]
