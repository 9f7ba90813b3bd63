"""The service's commands: serve, token, report, export, import."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

Store = Annotated[str, typer.Option("--store", help="sqlite:///file.db, postgresql://user@host/database or a path")]
StudyName = Annotated[str, typer.Argument(help="the study's name")]


def serve(
    store: Store = "sqlite:///pdcbo.db",
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="the port to listen on")] = 8765,
    allow_host: Annotated[list[str] | None, typer.Option(help="another name that this service has")] = None,
    require_token: Annotated[bool, typer.Option(help="ask for a token on this machine too")] = False,
    certificate: Annotated[str | None, typer.Option(help="a TLS certificate's file")] = None,
    key: Annotated[str | None, typer.Option(help="its key's file")] = None,
    max_body: Annotated[int, typer.Option(help="bytes that a request's body may have")] = 1 << 20,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve the studies of a store over HTTP, with a live page."""
    from pdcbo.service.server import serve as run
    from pdcbo.store import SchemaError, StoreError

    try:
        run(store, host=host, port=port, log_level=log_level, allow_hosts=tuple(allow_host or ()), max_body=max_body,
            require_token=require_token, certificate=certificate, key=key)  # fmt: skip
    except (ValueError, StoreError, SchemaError) as error:
        raise _stop(error) from error


def token(
    name: Annotated[str, typer.Argument(help="who it is for")],
    store: Store = "sqlite:///pdcbo.db",
    remove: Annotated[bool, typer.Option(help="forget this token instead")] = False,
) -> None:
    """Create a bearer token and print it once; the store keeps only its hash."""
    from pdcbo.store import open_journal

    journal = open_journal(store)
    if remove:
        if not journal.remove_token(name):
            raise _stop(KeyError(f"there is no token {name!r}"))
        typer.echo(f"token {name!r} is no longer accepted")
    else:
        made = secrets.token_urlsafe(32)
        journal.add_token(name, made)
        typer.echo(made)
    journal.close()


def report(
    study: StudyName, store: Store = "sqlite:///pdcbo.db", out: Annotated[Path, typer.Option()] = Path("report.html")
) -> None:
    """Write a study as one HTML file."""
    from pdcbo.report import report as write
    from pdcbo.store import Study

    try:
        with Study.open(store, study) as opened:
            typer.echo(write(opened, out))
    except (KeyError, ValueError, RuntimeError) as error:
        raise _stop(error) from error


def export(study: StudyName, file: Annotated[Path, typer.Argument()], store: Store = "sqlite:///pdcbo.db") -> None:
    """Write a study's suggestions to a .csv or .parquet file."""
    from pdcbo.store import Study
    from pdcbo.store.tables import export as write

    try:
        with Study.open(store, study) as opened:
            typer.echo(f"{write(opened, file)} rows to {file}")
    except (KeyError, ValueError, RuntimeError) as error:
        raise _stop(error) from error


def load(study: StudyName, file: Annotated[Path, typer.Argument()], store: Store = "sqlite:///pdcbo.db") -> None:
    """Learn from a .csv or .parquet table of past operation."""
    from pdcbo.store import Study
    from pdcbo.store.tables import load as read

    try:
        with Study.open(store, study) as opened:
            typer.echo(f"learned from {read(opened, file)} rows of {file}")
    except (KeyError, ValueError, RuntimeError, OSError) as error:
        raise _stop(error) from error


def register(app: typer.Typer) -> None:
    """Add the service's commands to an application."""
    app.command()(serve)
    app.command()(token)
    app.command()(report)
    app.command()(export)
    app.command("import")(load)


def _stop(error: Exception) -> typer.Exit:
    typer.echo(f"error: {error.args[0] if error.args else error}", err=True)
    return typer.Exit(1)
