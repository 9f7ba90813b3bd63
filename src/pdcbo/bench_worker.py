"""A stack of `pdcbo bench` at work: in a process of its own, with the packages that pip gives it, or in this one.

GPy and GPflow want a NumPy that is years old; in one environment they would hold all others back to its BLAS. So each
stack may have an interpreter of its own, and a process keeps one stack for the whole run. The data come from the
setting, in every process the same; over the pipes go one JSON list each way for a call: the method and its arguments
one way, `["ok", result]` or `["error", words]` the other.

    python -m pdcbo.bench_worker serve NAME    answer calls of `Work` until standard input ends
    python -m pdcbo.bench_worker start NAME    ask once and say so, then say how much memory a step at n = 500 takes
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from pdcbo.bench_stacks import SETTINGS, STACKS, Shared, Stack

PACKAGES = {"scikit-learn": "sklearn", "GPy": "GPy", "BoTorch": "botorch", "GPflow": "gpflow"}


class Work:
    """A stack in this process."""

    def __init__(self, name: str) -> None:
        self.kind = STACKS[name]
        self.package = PACKAGES.get(name.split()[0])
        self.stack: Stack

    def version(self) -> str:
        """Import what the stack needs, on one thread; return its version, and NumPy's."""
        version = f"{__import__(self.package).__version__} " if self.package else ""
        if self.package == "botorch":
            import torch

            torch.set_num_threads(1)
        if self.package == "gpflow":
            import tensorflow as tf

            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        return f"{version}with NumPy {np.__version__}"

    def load(self, setting: str, n: int, end: int) -> tuple[int, int]:
        """Hold the first n of a setting's observations, of which `end` will be used.

        Returns:
            For a stack that shares one posterior, its right-hand sides and those in double precision; 0 for others.
        """
        chosen = SETTINGS[setting]
        self.n_theta = chosen.candidates.shape[1]
        self.X, self.Y = chosen.data(end)
        self.stack = self.kind(chosen, self.X[:n], self.Y[:n])
        if type(self.stack) is not Shared:
            return 0, 0
        ((_, model),) = self.stack.models
        model.at(self.X[0, self.n_theta :])  # which looks for features
        return model.right_hand_sides, model.right_hand_sides - model.in_single_precision

    def answer(self, j: int) -> list[list[list[float]]]:
        """Return mean and standard deviation, (q, M) each, at the context of observation j."""
        return [values.tolist() for values in self.stack.ask(self.X[j, self.n_theta :])]

    def steps(self, begin: int, end: int) -> list[float]:
        """Ask and tell these observations in a row; return the CPU times in ms."""
        times = []
        for x, y in zip(self.X[begin:end], self.Y[begin:end], strict=True):
            start = time.process_time()
            self.stack.ask(x[self.n_theta :])
            self.stack.tell(x, y)
            times.append(1e3 * (time.process_time() - start))
        return times


class Remote:
    """A stack in a process of its own; to be closed."""

    def __init__(self, name: str, python: str = sys.executable) -> None:
        self.name = name
        command = [python, "-m", "pdcbo.bench_worker", "serve", name]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def version(self) -> str:
        """Do what `Work.version` does, there."""
        return str(self._call("version"))

    def load(self, setting: str, n: int, end: int) -> tuple[int, int]:
        """Do what `Work.load` does, there."""
        r, large = self._call("load", setting, n, end)
        return r, large

    def answer(self, j: int) -> list[list[list[float]]]:
        """Do what `Work.answer` does, there."""
        answer: list[list[list[float]]] = self._call("answer", j)
        return answer

    def steps(self, begin: int, end: int) -> list[float]:
        """Do what `Work.steps` does, there."""
        times: list[float] = self._call("steps", begin, end)
        return times

    def _call(self, *words: str | int) -> Any:
        """Return what a method of the other process's `Work` returned.

        Raises:
            RuntimeError: the method failed, or the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            last = "".join(self._errors.readlines()[-1:]).strip()
            raise RuntimeError(f"{self.name}: its process ended with code {code}: {last or 'it said nothing'}")
        said, result = json.loads(line)
        if said != "ok":
            raise RuntimeError(f"{self.name}: {result}")
        return result


Worker = Work | Remote


def serve(name: str, calls: Iterable[str]) -> None:
    """Answer calls, a line each, on what was standard output; what packages print there goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    work = Work(name)
    for line in calls:
        method, *arguments = json.loads(line)
        try:
            said = json.dumps(["ok", getattr(work, method)(*arguments)])
        except Exception as error:  # a package that cannot be imported is reported, whatever ails it
            said = json.dumps(["error", f"{type(error).__name__}: {error}"])
        answers.write(said + "\n")
        answers.flush()


def start(name: str) -> None:
    """Ask once with few data and say so, then do a step at n = 500 and print the peak memory in MB."""
    setting = SETTINGS["A50"]
    X, Y = setting.data(501)
    STACKS[name](setting, X[:20], Y[:20]).ask(X[20, 1:])
    print("asked", flush=True)
    stack = STACKS[name](setting, X[:500], Y[:500])
    stack.ask(X[500, 1:])
    stack.tell(X[500], Y[500])
    with open("/proc/self/status") as status:  # the peak that getrusage gives starts at the parent's
        print("MB", next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.stdin)
    else:
        start(sys.argv[2])
