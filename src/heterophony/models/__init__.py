"""The papers' networks in their 28x28 and 32x32 forms, made by name; each is split into `body` and `head`."""

from heterophony.models.registry import create, names

__all__ = ["create", "names"]
