"""The first words between two ends: why a connection cannot work, which Flower's programs would not say."""

from __future__ import annotations

import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from heterophony.deploy.named_function import one_line

AHEAD, BEHIND = 5.0, 300.0  # seconds by which a node's clock may differ: Flower refuses what it has signed otherwise


def complaint(address: str, ca: Path) -> str | None:
    """Return why nobody can talk to this address as it is; None if nothing is wrong with the way there."""
    host, _, port = address.rpartition(":")
    line = HTTPSConnection(host, int(port), timeout=5, context=ssl.create_default_context(cafile=str(ca)))
    try:
        line.request("HEAD", "/")
        said = line.getresponse().getheader("Date")
        return None if said is None else _clock(address, time.time() - parsedate_to_datetime(said).timestamp())
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of {address} does not hold against {ca}: {one_line(error.verify_message)}"
    except ssl.SSLError as error:
        return f"{address} does not speak TLS as it should: {one_line(error.reason or str(error))}"
    except (HTTPException, ValueError):  # no words that we know, but over TLS with the right certificate
        return None
    except TimeoutError:
        return f"{address} does not answer"
    except OSError as error:
        return f"nobody listens at {address} ({one_line(error.strerror or str(error)).lower()})"
    finally:
        line.close()


def _clock(address: str, ahead: float) -> str | None:
    if -BEHIND < ahead < AHEAD:
        return None
    side = "ahead of" if ahead > 0 else "behind"
    return f"the clock here is {abs(ahead):.0f} s {side} that of {address}: set it right"


def taken(host: str, port: int) -> str | None:
    """Return why a program of ours cannot listen there; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            return f"cannot listen on {host}:{port}: {one_line(error.strerror or str(error)).lower()}"
    return None
