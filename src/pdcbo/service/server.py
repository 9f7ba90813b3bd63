"""Run the service: where it may listen, and a stop that loses nobody."""

from __future__ import annotations

import ipaddress
import logging
import socket
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from pdcbo.service.app import LOOPBACK, MAX_BODY, create_app
from pdcbo.service.telemetry import configure_logs
from pdcbo.store import open_journal

log = logging.getLogger("pdcbo.service")

GRACE_SECONDS = 10  # for running requests; what takes longer is told to come again
BACKLOG = 2048  # connections that may wait


class Server(uvicorn.Server):
    """A server that ends its live streams first when it is told to stop, and then waits for running requests."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Wake every stream so that it ends, and stop."""
        app = self.config.app
        assert isinstance(app, FastAPI)
        app.state.stopping.set()
        app.state.registry.wake_all()
        super().handle_exit(sig, frame)


def is_loopback(host: str) -> bool:
    """Tell whether an address is reachable from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def make_server(
    store: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_hosts: tuple[str, ...] = (),
    require_token: bool = False,
    max_body: int = MAX_BODY,
    certificate: str | None = None,
    key: str | None = None,
) -> Server:
    """Return a server that is ready to run.

    Raises:
        ValueError: it would be reached from beyond this machine and the store holds no token, or a name has a port.
    """
    for name in allow_hosts:
        if name.count(":") == 1:
            raise ValueError(f"--allow-host takes a name without a port, got {name!r}")
    # others may come through a proxy on this machine: then the address is its own and only the name tells
    beyond = [name for name in (host, *allow_hosts) if not is_loopback(name)]
    require_token = require_token or bool(beyond)
    journal = open_journal(store)
    tokens = journal.tokens()
    journal.close()
    if require_token and not tokens:
        raise ValueError(
            f"a service on {(beyond or [host])[0]} needs a token, and the store has none; "
            "create one with: pdcbo token NAME --store URL"
        )
    hosts = LOOPBACK | {h.lower() for h in (*allow_hosts, host)} - {"0.0.0.0", "::"}
    app = create_app(store, hosts=frozenset(hosts), require_token=require_token, max_body=max_body)
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, server_header=False, date_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS, ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    return Server(config)


def serve(store: str, *, host: str = "127.0.0.1", port: int = 8765, log_level: str = "INFO", **options: Any) -> None:
    """Serve a store until stopped by a signal."""
    server = make_server(store, host=host, port=port, **options)
    configure_logs(log_level)
    sockets = listen(host, port)
    scheme = "https" if options.get("certificate") else "http"
    shown, port = f"[{host}]" if ":" in host else host, sockets[0].getsockname()[1]
    log.info("serving", extra={"fields": {"url": f"{scheme}://{shown}:{port}/"}})
    server.run(sockets=sockets)


def listen(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host, all on one port; 0 takes a free one.

    Raises:
        ValueError: the host is not this machine's, or the port is taken.
    """
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            chosen = sockets[0].getsockname()[1] if sockets else port
            sockets.append(socket.create_server((str(address[0]), chosen), family=family, backlog=BACKLOG))
    except OSError as error:
        for each in sockets:
            each.close()
        raise ValueError(f"cannot listen on host {host!r}, port {port}: {error.strerror}") from None
    return sockets
