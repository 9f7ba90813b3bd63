"""Run jobs in parallel on this machine, keep every finished one at once, continue where a former call was killed.

One process a core, each with one BLAS thread: small steps are up to fourteen times slower with two. A result is written
beside its place and renamed, so that what is there is whole. A killed worker breaks the pool of `concurrent.futures`;
what had finished is on disk, and the rest is submitted to a new pool.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from pdcbo.experiment.jobs import Job
from pdcbo.experiment.tables import write_table

BREAKS = 5
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Report = Callable[[int, int], None]  # finished jobs, all jobs


def run_jobs(jobs: Sequence[Job], out: Path, *, workers: int | None = None, report: Report | None = None) -> int:
    """Run what is not yet on disk below `out` and return how many jobs that were.

    Args:
        jobs: what to run, in order.
        out: the folder of results.
        workers: processes; by default one a core, 0 runs everything here.
        report: called with the number of finished and of all jobs.

    Raises:
        RuntimeError: jobs failed; the others were run before it is raised. Or workers died again and again.
    """
    out = Path(out)
    report = report or (lambda finished, total: None)
    missing = _missing(jobs, out)
    todo = len(missing)
    failed: list[tuple[Job, BaseException]] = []
    report(len(jobs) - todo, len(jobs))
    if workers == 0:
        for i, job in enumerate(missing):
            run_and_keep(job, out)
            report(len(jobs) - todo + i + 1, len(jobs))
        return todo
    for _ in range(BREAKS):
        missing = [job for job in _missing(jobs, out) if job not in [other for other, _ in failed]]
        if not missing:
            break
        left = len(missing)
        try:
            for job, error in _pool(missing, out, workers or os.cpu_count() or 1):
                left -= 1
                if error is not None:
                    failed.append((job, error))
                report(len(jobs) - left, len(jobs))
        except BrokenProcessPool:
            continue
    else:
        left = len(_missing(jobs, out))
        raise RuntimeError(f"workers died {BREAKS} times, {left} jobs are left; call again to go on")
    if failed:
        words = "; ".join(f"{job.plant}, {job.label}, seed {job.seed}: {error}" for job, error in failed)
        raise RuntimeError(f"some jobs failed, the others are kept: {words}")
    return todo


def run_and_keep(job: Job, out: Path) -> None:
    """Run one job and put its table in its place, whole or not at all."""
    path = out / job.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_table(job.execute(), beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _missing(jobs: Sequence[Job], out: Path) -> list[Job]:
    present = {f"{folder}/{name}" for folder in ("runs", "oracles") for name in _listed(out / folder)}
    return [job for job in jobs if job.filename not in present]


def _listed(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def _pool(jobs: list[Job], out: Path, workers: int) -> Iterator[tuple[Job, BaseException | None]]:
    """Yield each job as it ends, with its error if it has one."""
    with (
        _one_thread(),
        ProcessPoolExecutor(min(workers, len(jobs)), mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        running: dict[Future[None], Job] = {pool.submit(run_and_keep, job, out): job for job in jobs}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        raise error
                    yield running.pop(future), error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that are started meanwhile use one BLAS thread."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
