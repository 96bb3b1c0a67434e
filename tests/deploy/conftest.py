"""Without Flower, tests of deployments are skipped: their files import it."""

from importlib.util import find_spec

NEEDED = ("flwr", "cryptography", "httpx")

collect_ignore_glob = [] if all(find_spec(name) for name in NEEDED) else ["test_*.py"]
