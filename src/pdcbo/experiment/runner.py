"""Run jobs in parallel on this machine, keep every finished one at once, continue where a former call was killed.

One process a core, each with one BLAS thread: small steps are up to fourteen times slower with two, and seeds that
advance together are slower, too (`benchmarks/lockstep.py`). A result is written beside its place and renamed, so that
what is there is whole. A killed worker breaks the pool of `concurrent.futures`; what had finished is on disk, and the
rest is submitted to a new pool.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from pdcbo.experiment.jobs import Job
from pdcbo.experiment.tables import database, write_table

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
    database()  # which all results are written by: if it is not installed, nothing is run
    report = report or (lambda finished, total: None)
    workers = (os.cpu_count() or 1) if workers is None else workers
    failed: list[tuple[Job, BaseException]] = []
    breaks = 0
    missing = _missing(jobs, out)
    todo = len(missing)
    report(len(jobs) - todo, len(jobs))
    while missing:
        left = len(missing)
        try:
            for job, error in _pool(missing, out, workers) if workers else _here(missing, out):
                left -= 1
                if error is not None:
                    failed.append((job, error))
                report(len(jobs) - left, len(jobs))
            break
        except BrokenProcessPool:
            breaks += 1
            missing = [job for job in _missing(jobs, out) if job not in [other for other, _ in failed]]
        if missing and breaks == BREAKS:
            raise RuntimeError(f"workers died {BREAKS} times, {len(missing)} jobs are left; call again to go on")
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


def _here(jobs: list[Job], out: Path) -> Iterator[tuple[Job, BaseException | None]]:
    """Run each job in this process, and yield it with its error if it has one."""
    for job in jobs:
        try:
            run_and_keep(job, out)
        except Exception as error:
            yield job, error
        else:
            yield job, None


def _pool(jobs: list[Job], out: Path, workers: int) -> Iterator[tuple[Job, BaseException | None]]:
    """Yield each job as it ends, with its error if it has one."""
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    with (
        _one_thread(),
        ProcessPoolExecutor(min(workers, len(jobs)), spawn, _leave_interrupts_to_the_parent) as pool,
    ):
        running: dict[Future[None], Job] = {pool.submit(run_and_keep, job, out): job for job in jobs}
        own = set(multiprocessing.active_children()) - others
        try:
            for future in as_completed(running):
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    raise error
                yield running[future], error
        except BaseException:
            # a pool that is shut down still runs what its workers hold; whoever stops it does not want to wait for that
            for worker in own:
                worker.terminate()
                worker.join()
                for half_written in out.glob(f"*/.*.{worker.pid}"):
                    half_written.unlink(missing_ok=True)
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
