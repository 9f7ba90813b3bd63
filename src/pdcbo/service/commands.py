"""The service's commands: serve, token, report, export, import; their errors are for `pdcbo.cli` to show."""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdcbo.store import Study

Store = Annotated[str, typer.Option("--store", help="sqlite:///file.db, postgresql://user@host/database or a path")]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
StudyName = Annotated[str, typer.Argument(help="the study's name")]


def serve(
    store: Store = "sqlite:///pdcbo.db",
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="the port to listen on; 0 for a free one")] = 8765,
    allow_host: Annotated[list[str] | None, typer.Option(help="another name that this service has")] = None,
    require_token: Annotated[bool, typer.Option(help="ask for a token on this machine too")] = False,
    certificate: Annotated[str | None, typer.Option(help="a TLS certificate's file")] = None,
    key: Annotated[str | None, typer.Option(help="its key's file")] = None,
    max_body: Annotated[int, typer.Option(help="bytes that a request's body may have")] = 1 << 20,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve the studies of a store over HTTP, with a live page."""
    from pdcbo.service.server import serve as run
    from pdcbo.store import open_journal

    if not host.strip():
        raise ValueError(f"--host must be an address or a name of this machine, got {host!r}")
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be at least 0 and at most 65535, got {port}")
    if max_body < 1:
        raise ValueError(f"--max-body must be at least 1 byte, got {max_body}")
    if log_level.upper() not in LEVELS:
        raise ValueError(f"--log-level must be one of {', '.join(LEVELS)}, got {log_level!r}")
    _check_certificate(certificate, key)
    journal = open_journal(store)
    journal.studies()  # a store that cannot be reached would be a traceback in the server's log
    journal.close()
    run(store, host=host, port=port, log_level=log_level.upper(), allow_hosts=tuple(allow_host or ()),
        max_body=max_body, require_token=require_token, certificate=certificate, key=key)  # fmt: skip


def token(
    name: Annotated[str, typer.Argument(help="who it is for")],
    store: Store = "sqlite:///pdcbo.db",
    remove: Annotated[bool, typer.Option(help="forget this token instead")] = False,
) -> None:
    """Create a bearer token and print it once; the store keeps only its hash."""
    from pdcbo.store import StoreError, open_journal

    if not name.strip():
        raise ValueError(f"NAME must say who the token is for, got {name!r}")
    try:
        journal = open_journal(store, create=False)
    except StoreError:
        if remove:
            raise
        journal = open_journal(store)
        typer.echo(f"note: there was no store {store} so far; it is made now", err=True)
    if remove:
        if not journal.remove_token(name):
            raise ValueError(f"there is no token {name!r}; the store holds {list(journal.tokens())!r}")
        typer.echo(f"token {name!r} is no longer accepted")
    else:
        made = secrets.token_urlsafe(32)
        if name in journal.tokens():
            typer.echo(f"note: the earlier token {name!r} is no longer accepted", err=True)
        journal.add_token(name, made)
        typer.echo(made)
    journal.close()


def report(
    study: StudyName,
    store: Store = "sqlite:///pdcbo.db",
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("report.html"),
) -> None:
    """Write a study as one HTML file."""
    from pdcbo.report import report as write

    _check_folder(out)
    with _open(store, study) as opened:
        typer.echo(write(opened, out))


def export(
    study: StudyName,
    file: Annotated[Path, typer.Argument(help="a .csv or .parquet file")],
    store: Store = "sqlite:///pdcbo.db",
) -> None:
    """Write a study's suggestions to a .csv or .parquet file."""
    from pdcbo.store.tables import export as write

    _check_folder(file)
    with _open(store, study) as opened:
        typer.echo(f"{write(opened, file)} rows to {file}")


def load(
    study: StudyName,
    file: Annotated[Path, typer.Argument(help="a .csv or .parquet file")],
    store: Store = "sqlite:///pdcbo.db",
) -> None:
    """Learn from a .csv or .parquet table of past operation."""
    from pdcbo.store.tables import load as read

    with _open(store, study) as opened:
        learned = read(opened, file, say=lambda words: typer.echo(f"note: {words}", err=True))
        typer.echo(f"learned from {learned} rows of {file}")


def register(app: typer.Typer) -> None:
    """Add the service's commands to an application."""
    app.command()(serve)
    app.command()(token)
    app.command()(report)
    app.command()(export)
    app.command("import")(load)


def _open(store: str, name: str) -> Study:
    """Open a study that must be there; neither it nor its store is created."""
    from pdcbo.store import Study, open_journal

    journal = open_journal(store, create=False)
    names = journal.studies()
    if name not in names:
        raise ValueError(f"there is no study {name!r}; the store holds {names!r}")
    return Study.open(journal, name)


def _check_folder(file: Path) -> None:
    if not file.parent.is_dir():
        raise ValueError(f"there is no folder {str(file.parent)!r} to write {file.name!r} into")


def _check_certificate(certificate: str | None, key: str | None) -> None:
    """Load the files once, since the server would name neither of them in its error."""
    if certificate is None:
        if key is not None:
            raise ValueError(f"--key {key!r} needs its --certificate")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        raise ValueError(f"--certificate {certificate!r} with --key {key!r} cannot be used: {error}") from None
