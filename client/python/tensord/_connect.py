"""Connects to servers, or starts a private one."""

from __future__ import annotations

import atexit
import os

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_DEFAULT_ADDRESS = ("127.0.0.1", 50051)
_PROBE_SECONDS = 0.2

atexit.register(_core._close_at_exit)


def _answers(address: tuple[str, int]) -> bool:
    """Returns whether a server accepts connections there."""
    import socket  # takes 20 ms, and only this function needs it

    try:
        with socket.create_connection(address, timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False


def _named_addresses() -> list[str]:
    text = os.environ.get("TENSORD_SERVERS") or os.environ.get("TENSORD_SERVER") or ""
    return [part.strip() for part in text.split(",") if part.strip()]


def _default_addresses() -> list[str]:
    if addresses := _named_addresses():
        return addresses
    if _answers(_DEFAULT_ADDRESS):
        return [f"{_DEFAULT_ADDRESS[0]}:{_DEFAULT_ADDRESS[1]}"]
    return [_private_address()]


def _private_address() -> str:
    from . import _local  # imports subprocess, which most programs don't need

    return _local.address()


def _starts_private_server() -> bool:
    """Returns whether connect() without addresses would start a private server."""
    if _named_addresses() or _answers(_DEFAULT_ADDRESS):
        return False
    from . import _local

    return _local.can_start()


def connect(
    addresses: str | Sequence[str] | None = None,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls: bool | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    lease: float | None = None,
    client_name: str | None = None,
    allow_missing: bool = False,
    **options: Any,
) -> _core.Client | _core.Cluster:
    """Connects to one server or several, and makes this the current connection.

    Returns a Client for one address and a Cluster for several. Use it in a `with` statement, or call close(); at the
    end of the process it is closed anyway.

    addresses: "gpu-a:50051", "gpu-a:50051,gpu-b:50051", a sequence of addresses, or "unix:/path". "local": a private
        server, which this process starts and which ends with it. Default: the environment's TENSORD_SERVERS or
        TENSORD_SERVER; without them 127.0.0.1:50051, if a server answers there; otherwise a private server.
        TENSORD_LOCAL=0 in the environment forbids the private server.
    token, token_file: the token for servers that authenticate clients by token. Default: the file that
        TENSORD_TOKEN_FILE names.
    tls, tls_ca, tls_cert, tls_key: encryption and a client certificate; the files are PEM. Default: TENSORD_TLS,
        TENSORD_TLS_CA, TENSORD_TLS_CERT and TENSORD_TLS_KEY.
    timeout: how long to try, in seconds. Default: 10.
    lease: how long the servers keep the tensors after they have lost the connection, in seconds. Default: 30.
    client_name: a name of this program, which the servers keep with the session.
    allow_missing: connect if at least one of the servers can be reached.
    options: further fields of the C++ library's ConnectOptions: reconnect_timeout, keepalive_interval,
        keepalive_timeout, spin (seconds), shared_memory, max_pending_commands, max_pending_bytes,
        max_upload_connections, tls_server_name.
    """
    if addresses is None:
        found = _default_addresses()
    elif isinstance(addresses, str):
        found = [part.strip() for part in addresses.split(",") if part.strip()]
    else:
        found = list(addresses)
    found = [_private_address() if address == "local" else address for address in found]
    return _core._connect(
        found,
        allow_missing,
        token=token,
        token_file=token_file,
        tls=tls,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        timeout=timeout,
        lease=lease,
        client_name=client_name,
        **options,
    )
