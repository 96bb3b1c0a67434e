"""Why two ends cannot talk is said in one line, and seen with a real listener."""

import os
import signal
import socket
import ssl
import time
from contextlib import contextmanager
from threading import Thread

import pytest

pytest.importorskip("flwr", reason="needs heterophony[flower]")

from deploy.test_folder import expired
from heterophony.deploy import keys, preflight
from heterophony.deploy.process import Stopped, log, stop_on_signals, wait_while


@pytest.fixture
def place(tmp_path):
    keys.authority(tmp_path, "ward")
    keys.server(tmp_path, "localhost")
    return tmp_path


@contextmanager
def listener(folder, *words, plain=False, host="127.0.0.1"):
    """Somebody who takes one connection and answers it; gives the port."""
    with socket.create_server((host, 0)) as door:

        def answer():
            line, _ = door.accept()
            try:
                if not plain:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(folder / "server.pem", folder / "server.key")
                    line = context.wrap_socket(line, server_side=True)
                line.recv(1000)
                line.sendall("\r\n".join([*words, "", ""]).encode())
            except OSError:
                pass
            finally:
                line.close()

        thread = Thread(target=answer, daemon=True)
        thread.start()
        yield door.getsockname()[1]
        thread.join(5)


def date(ahead):
    """As a server writes it whose clock is so many seconds behind ours."""
    return "Date: " + time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - ahead))


@pytest.mark.parametrize(
    ("ahead", "text"), [(0, None), (-200, None), (60, "s ahead of"), (-900, "s behind"), (None, None)]
)
def test_a_clock_that_is_off_is_said(ahead, text, place):
    words = ["HTTP/1.1 403 Forbidden", "Content-Length: 0", *([] if ahead is None else [date(ahead)])]
    with listener(place, *words) as port:
        found = preflight.complaint(f"localhost:{port}", place / "ca.crt")
    assert (found is None) == (text is None)
    assert text is None or text in found


def test_a_certificate_that_does_not_hold_is_said(place, monkeypatch, tmp_path_factory):
    with listener(place, host="127.0.0.2") as port:
        assert "not valid for '127.0.0.2'" in seen(f"127.0.0.2:{port}", place)
    expired(place, monkeypatch)
    with listener(place) as port:
        assert "expired" in seen(f"localhost:{port}", place)
    other = tmp_path_factory.mktemp("other")
    keys.authority(other, "another")
    with listener(place) as port:
        assert "does not hold against" in seen(f"localhost:{port}", other)


def seen(address, folder):
    found = preflight.complaint(address, folder / "ca.crt")
    assert found is not None
    assert "\n" not in found
    return found


def test_nobody_and_somebody_else_are_said(place):
    with listener(place, "220 ready to talk", plain=True) as port:
        assert "does not speak TLS" in seen(f"localhost:{port}", place)
    assert "nobody listens" in seen(f"localhost:{port}", place)
    assert "nobody listens" in seen("no-such-host.invalid:8443", place)


def test_a_port_that_is_taken_is_waited_for_and_said_once(caplog):
    caplog.set_level("WARNING")
    door = socket.create_server(("127.0.0.1", 0))
    port, looks = door.getsockname()[1], []

    def trouble():
        looks.append(None)
        if len(looks) == 3:
            door.close()
        return preflight.taken("127.0.0.1", port)

    wait_while(trouble, log, 0.01)
    assert len(looks) == 3
    assert [r.getMessage() for r in caplog.records] == [
        f"waits: cannot listen on 127.0.0.1:{port}: address already in use"
    ]


def test_a_second_signal_does_not_disturb_the_end():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop_on_signals()
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
