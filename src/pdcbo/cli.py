"""The command `pdcbo`: arguments only; every command hands over to a function of its own module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError:
    sys.exit(
        'the pdcbo command needs more than the library; install it with: pip install "pdcbo[experiments]" for plants'
        ' and comparisons, or "pdcbo[service]" for studies and the service'
    )

from pdcbo import __version__
from pdcbo.service.commands import register

SERVICE_NEEDS = ("fastapi", "starlette", "pydantic", "uvicorn", "httpx", "plotly", "psycopg")


class OneLine(TyperGroup):
    """Commands whose errors are one line, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what the user got wrong ends it with a line that begins with `error: `."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # which are RuntimeErrors, and no errors: --help ends by one
            raise
        except ModuleNotFoundError as error:
            extra = "service" if str(error.name).split(".")[0] in SERVICE_NEEDS else "experiments"
            sys.exit(f'{error.name} is not installed; install it with: pip install "pdcbo[{extra}]"')
        except (ValueError, TypeError, RuntimeError, OSError) as error:
            words = str(error)
            if isinstance(error, OSError) and error.filename is not None:
                words = f"{error.filename2 or error.filename}: {error.strerror}"
            sys.exit(f"error: {' '.join(words.split())}")


def _folder(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse what can be no folder of results before anything is computed."""
    there = path and next(p for p in (path, *path.parents) if p.exists())
    if there and not there.is_dir():
        raise ValueError(f"--{option.name} must be a folder, got {str(path)!r}, and {str(there)!r} is a file")
    return path


app = typer.Typer(
    cls=OneLine,
    help="Tune running systems online: low cost, with every constraint met on average.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pdcbo {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="say which")
    ] = False,
) -> None:
    """Take what goes before the command."""


Out = Annotated[Path, typer.Option(callback=_folder, help="folder of results")]
Resumed = Annotated[
    Path,
    typer.Option(callback=_folder, help="folder of results; a second call continues where the first was killed"),
]


def _at_least(least: int) -> Callable[[int | None], int | None]:
    """Return what checks an option, since the limits of `typer.Option` do not name the value that they refuse."""

    def check(value: int | None) -> int | None:
        if value is not None and value < least:
            raise typer.BadParameter(f"must be at least {least}, got {value}")
        return value

    return check


Seeds = Annotated[int, typer.Option(callback=_at_least(1), help="how many seeds")]
FirstSeed = Annotated[int, typer.Option(callback=_at_least(0), help="the first seed")]
Workers = Annotated[
    int | None, typer.Option(callback=_at_least(0), help="processes; by default one a core, 0 for none")
]
Quick = Annotated[bool, typer.Option("--quick", help="a small version: fewer seeds, steps or settings")]
Options = Annotated[list[str] | None, typer.Option("--option", help="label.key=value, as often as needed")]
PlantOptions = Annotated[list[str] | None, typer.Option(help="key=value of the plant, such as contexts=adversarial")]


@app.command("run")
def run_command(
    plant: Annotated[str, typer.Argument(help="the plant to tune")] = "williams-otto",
    optimizer: Annotated[str, typer.Option(help="the optimizer")] = "pdcbo",
    steps: Annotated[int, typer.Option(callback=_at_least(1), help="steps of the episode")] = 300,
    seed: Annotated[int, typer.Option(callback=_at_least(0), help="of plant and optimizer")] = 0,
    option: Options = None,
    plant_option: PlantOptions = None,
    out: Out = Path("episode"),
) -> None:
    """Tune a simulated plant for one episode and watch it."""
    from pdcbo.experiment.compare import parse_options, parse_variants
    from pdcbo.experiment.episode import run_episode

    [variant] = parse_variants([optimizer], option or [])
    text = run_episode(plant, variant, steps, seed, out, plant_options=parse_options(plant_option or []))
    typer.echo(f"\n{text}")
    typer.echo(f"\nfigure: {out / 'episode.png'}   text: {out / 'summary.txt'}")


@app.command("compare")
def compare_command(
    plant: Annotated[str, typer.Argument(help="the plant")],
    optimizers: Annotated[str, typer.Option(help="names, or label:name, with commas between")] = "pdcbo,cei,safeopt",
    seeds: Seeds = 50,
    first_seed: FirstSeed = 0,
    steps: Annotated[int, typer.Option(callback=_at_least(1), help="steps of each run")] = 500,
    option: Options = None,
    plant_option: PlantOptions = None,
    workers: Workers = None,
    out: Resumed = Path("comparison"),
) -> None:
    """Compare optimizers on one plant over many seeds."""
    from pdcbo.experiment.compare import compare, parse_options, parse_variants

    variants = parse_variants(optimizers.split(","), option or [])
    chosen, own = range(first_seed, first_seed + seeds), parse_options(plant_option or [])
    with _bar(f"{plant}: runs") as report:
        compare(plant, variants, chosen, steps, out, plant_options=own, workers=workers, report=report)
    typer.echo((out / "summary.md").read_text())


@app.command("reproduce")
def reproduce_command(
    figure: Annotated[str, typer.Argument(help="figure1, figure2 or all")] = "all",
    seeds: Seeds = 50,
    quick: Quick = False,
    extras: Annotated[bool, typer.Option("--extras", help="all other optimizers, and the flipped reactor")] = False,
    workers: Workers = None,
    data: Annotated[Path | None, typer.Option(callback=_folder, help="where runs are kept; OUT/data")] = None,
    out: Resumed = Path("reproduction"),
) -> None:
    """Regenerate the paper's figures beside the published curves."""
    from pdcbo.experiment.reproduce import FIGURES, QUICK_SEEDS, reproduce

    names = list(FIGURES) if figure == "all" else [figure]
    taken = reproduce(
        names, min(seeds, QUICK_SEEDS) if quick else seeds, out, data=data, extras=extras, workers=workers, bar=_bar
    )
    for name, seconds in taken.items():
        typer.echo(f"{name}: {seconds:.1f} s")
    typer.echo(f"page: {out / 'reproduction.md'}   figures: {out / 'figures'}")


@app.command("rates")
def rates_command(
    seeds: Seeds = 10, quick: Quick = False, workers: Workers = None, out: Resumed = Path("rates")
) -> None:
    """Measure how the regret grows with the horizon, against the paper's Table I."""
    from pdcbo.experiment.rates import rates

    typer.echo(rates(min(seeds, 5) if quick else seeds, out, quick=quick, workers=workers, bar=_bar))


@app.command("suite")
def suite_command(
    seeds: Seeds = 10,
    first_seed: FirstSeed = 0,
    plants: Annotated[str | None, typer.Option(help="names with commas between; by default all")] = None,
    optimizers: Annotated[str | None, typer.Option(help="names, or label:name, with commas between")] = None,
    option: Options = None,
    steps: Annotated[
        int | None, typer.Option(callback=_at_least(1), help="steps of each run; by default each plant's own")
    ] = None,
    workers: Workers = None,
    out: Resumed = Path("suite"),
) -> None:
    """Run all optimizers over the suite of plants, with nothing set by hand."""
    from pdcbo.experiment.compare import parse_variants
    from pdcbo.experiment.suite import suite, suite_variants

    own = option or []
    variants = suite_variants(own) if optimizers is None else parse_variants(optimizers.split(","), own)
    chosen = None if plants is None else plants.split(",")
    typer.echo(suite(range(first_seed, first_seed + seeds), out, plants=chosen, variants=variants, steps=steps,
                     workers=workers, bar=_bar))  # fmt: skip


@app.command("bench")
def bench_command(
    out: Out = Path("bench"),
    quick: Quick = False,
    stacks: Annotated[str | None, typer.Option(help="which stacks, with commas between; all installed ones")] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(help="the interpreter of a stack that wants its own, GPy=PATH; pdcbo must be there, too"),
    ] = None,
) -> None:
    """Time a step against the stacks people use."""
    from pdcbo.bench import run

    pythons = dict(given.partition("=")[::2] for given in python or [])
    run(out, quick, None if stacks is None else stacks.split(","), pythons)


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many jobs are done and an estimate of the time left."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    try:
        with Progress(*columns) as progress:
            task = progress.add_task(title, total=None)
            yield lambda finished, total: progress.update(task, completed=finished, total=total)
    except KeyboardInterrupt:
        typer.echo("stopped; what was finished is kept, and the same call goes on from there", err=True)
        raise typer.Exit(130) from None


register(app)


def main() -> None:
    """Run the command.

    Small steps are several times slower with more than one BLAS thread, and the number cannot be changed once NumPy is
    loaded, so unless it was set by the user the command starts itself again with one.
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    app()


if __name__ == "__main__":
    main()
