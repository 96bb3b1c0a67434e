"""Certificates and node keys: a certificate authority of the federation's own, nothing else is trusted."""

from __future__ import annotations

import ipaddress
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from heterophony.deploy.named_function import DeployError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_ssh_private_key,
        load_ssh_public_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise DeployError(f"deploying needs Flower: pip install 'heterophony[flower]' ({error})") from None

HALF = 48  # bytes of each of the two numbers of a signature
YEARS = 10  # of the authority; the server's certificate lasts two


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can ever read. At any moment it is the old one or the new one."""
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # nobody has asked for the temporary one


def authority(folder: Path, name: str) -> None:
    """Write `ca.key`, which signs servers and is needed for nothing else, and `ca.crt`, which everyone gets."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _name(f"{name} CA")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = (
        _builder(subject, subject, key.public_key(), key.public_key(), timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    write_secret(folder / "ca.key", _private(key))
    (folder / "ca.crt").write_bytes(builder.sign(key, hashes.SHA384()).public_bytes(Encoding.PEM))


def server(folder: Path, host: str) -> None:
    """Write `server.key` and `server.pem`, for the host that nodes connect to and for this machine."""
    if not (folder / "ca.key").exists():
        raise DeployError(f"{folder / 'ca.key'} is not here: bring it back for as long as this takes")
    authority_key: Any = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP384R1())
    names = [alternative(each) for each in dict.fromkeys((host, "localhost", "127.0.0.1"))]
    builder = (
        _builder(_name(host), issuer.subject, key.public_key(), authority_key.public_key(), timedelta(days=730))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    write_secret(folder / "server.key", _private(key))
    (folder / "server.pem").write_bytes(builder.sign(authority_key, hashes.SHA384()).public_bytes(Encoding.PEM))


def node(folder: Path) -> None:
    """Write `node.key`, which stays with the organisation, and `node.pub`, which the coordinator registers."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(folder / "node.key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    (folder / "node.pub").write_bytes(public_bytes(key.public_key()) + b"\n")


def public_bytes(key: Any) -> bytes:
    """Return a public key as it stands in a `.pub` file, without a comment."""
    found: bytes = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return found


def public(path: Path) -> Any:
    """Return the public key in a `.pub` file."""
    try:
        return load_ssh_public_key(path.read_bytes())
    except FileNotFoundError:
        raise DeployError(f"{path} is missing: the organisation makes it with `heterophony deploy key`") from None
    except ValueError as error:
        raise DeployError(f"{path} is no public key: {error}") from None


def public_of(text: str) -> Any:
    """Return the public key in a line of text, as it stands in a `.pub` file."""
    try:
        found = load_ssh_public_key(text.encode())
    except ValueError as error:
        raise DeployError(f"{text:.40!r} is no public key: {error}") from None
    if not isinstance(found, ec.EllipticCurvePublicKey) or found.curve.key_size != 8 * HALF:
        raise DeployError(f"{text:.40!r} is no key of `heterophony deploy key`, which are ECDSA P-384")
    return found


def signature(key: Any, data: bytes) -> bytes:
    """Return a signature of 96 bytes."""
    one, other = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA384())))
    return bytes(one.to_bytes(HALF, "big") + other.to_bytes(HALF, "big"))


def has_signed(public: Any, data: bytes, made: bytes) -> bool:
    """Return whether this is a signature by the owner of a key."""
    if len(made) != 2 * HALF:
        return False
    numbers = int.from_bytes(made[:HALF], "big"), int.from_bytes(made[HALF:], "big")
    try:
        public.verify(encode_dss_signature(*numbers), data, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


def private(path: Path) -> Any:
    try:
        return load_ssh_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise DeployError(f"{path} is missing: make it with `heterophony deploy key`") from None
    except (ValueError, TypeError) as error:  # the latter where it wants a password
        raise DeployError(f"{path} is no private key: {error}") from None


def sign(key: Any, data: bytes) -> bytes:
    """Return a signature of these bytes by a node's private key."""
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DeployError("node.key is of another kind than `heterophony deploy key` makes")
    return key.sign(data, ec.ECDSA(hashes.SHA384()))


def verified(key: Any, data: bytes, signature: bytes) -> bool:
    """Return whether the owner of a public key has signed these bytes."""
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, TypeError, ValueError):  # the latter two where the key is of another kind
        return False
    return True


def certificate(path: Path) -> bytes:
    """Return the certificate in a file, as it stands there."""
    try:
        x509.load_pem_x509_certificate(data := path.read_bytes())
    except FileNotFoundError:
        raise DeployError(f"{path} is missing: it came with the folder that `heterophony deploy init` wrote") from None
    except ValueError as error:
        raise DeployError(f"{path} is no certificate: {error}") from None
    return data


def check_server(folder: Path) -> None:
    """Raise unless nodes will take `server.pem` for this federation's server, now."""
    path, now = folder / "server.pem", datetime.now(UTC)
    found = x509.load_pem_x509_certificate(certificate(path))
    renew = f"`heterophony deploy certificate {folder}` makes another"
    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
        spans = f"from {found.not_valid_before_utc:%Y-%m-%d} to {found.not_valid_after_utc:%Y-%m-%d}"
        raise DeployError(f"{path} is valid {spans}, and today is {now:%Y-%m-%d}: {renew}")
    try:
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(certificate(folder / "ca.crt")))
        key: Any = load_pem_private_key((folder / "server.key").read_bytes(), None)
    except (ValueError, TypeError, InvalidSignature):
        raise DeployError(f"{path}: ca.crt has not signed it, or server.key is damaged: {renew}") from None
    if key.public_key() != found.public_key():
        raise DeployError(f"{path} is not of server.key: {renew}")


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def alternative(host: str) -> x509.GeneralName:
    """Return a host as it stands in a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Any, issuer_key: Any, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ a little
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(**given: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
    return x509.KeyUsage(**{name: given.get(name, False) for name in names})


def _private(key: Any) -> bytes:
    found: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return found
