"""What is known of the plant: one Gaussian process for each measured output, on shared points, in plant units.

    X (n, d)       points x = (theta, z) in the unit cube, in order of arrival
    Y (n, q)       measurements in plant units, objective first, NaN = not measured
    mean, std      (q, m) in plant units

An output learns from the points where it was measured, of very many from the latest. Outputs with equal
hyper-parameters that were measured at the same points share one factor. Hyper-parameters are given once and for all, or
learned again each time an output's data have grown by a third, so that learning costs a constant share of the whole,
and when a measurement is a surprise.

What is built from data is equal to the last bit to what grew with them: `state()` holds data, hyper-parameters and
which points were told right after they were asked for, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdcbo.fit import Hyperparameters, Priors, fit, followed, initial
from pdcbo.gp import Posterior
from pdcbo.model import Model, given_hyperparameters, kernel_for, model_for_each_output
from pdcbo.problem import Array, Problem
from pdcbo.section import Section
from pdcbo.structured import CandidatePosterior

# An output that was measured more often than the first number goes on with the second, the latest ones: time and memory
# of a posterior grow with the square, and a plant that runs for years is not what it was.
MOST_ROWS, KEPT_ROWS = 4000, 3000
# standard deviations from its forecast at which a measurement casts doubt on the hyper-parameters
SURPRISE = 4.0


class Models:
    """The models of all outputs, and the data they rest on.

    Args:
        problem: names the outputs.
        models: one `Model` for all outputs or one for each by name.
        priors: of the learned hyper-parameters.
        candidates: (M, n_theta), the fixed candidates of a grid search, or None.
        compress: whether learned models may compress bad values, see `pdcbo.compression`.
    """

    def __init__(
        self,
        problem: Problem,
        models: Model | Mapping[str, Model] | None = None,
        *,
        priors: Priors | None = None,
        candidates: Array | None = None,
        compress: bool = False,
    ) -> None:
        self.problem = problem
        self.priors = priors or Priors()
        self.candidates = candidates
        self.compress = compress
        self.specs = model_for_each_output(problem, models)
        self.learns = any(spec.length_scales is None for spec in self.specs)
        self.rows: list[list[int]] = [[] for _ in self.specs]
        self.hyper: list[Hyperparameters] = []
        self._groups: list[tuple[list[int], CandidatePosterior]] | None = None
        self.take_limits(problem)
        self.next_fit = [0 if spec.length_scales is None else -1 for spec in self.specs]
        self.n = 0
        # the points that were told right after they were asked for, since posteriors were last built from data
        self.asked: list[int] = []
        self._X = np.empty((64, len(problem.variables)))
        self._Y = np.empty((64, self.q))

    def take_limits(self, problem: Problem) -> None:
        """Take over limits and stated noises, which guide the next fit, from a problem that differs in them only.

        An output that was never measured is thought to lie at its limit, so that a model to be learned begins anew.
        """
        self.problem = problem
        constraints = problem.constraints.values()
        self.references = [None, *(c.upper if c.upper is not None else c.lower for c in constraints)]
        self.noises = [None, *(c.noise for c in constraints)]
        # 1 or -1 where high or low values are bad; 0 for a constraint with limits on both sides
        self.bad = [1.0, *(float((c.upper is not None) - (c.lower is not None)) for c in constraints)]
        if not all(self.rows):
            given = [bool(self.hyper) and spec.length_scales is not None for spec in self.specs]
            self.hyper = [self.hyper[i] if rows or given[i] else self._prior(i) for i, rows in enumerate(self.rows)]
            self._groups = None

    @property
    def q(self) -> int:
        """The number of outputs."""
        return len(self.specs)

    @property
    def X(self) -> Array:
        """All points, shape (n, d), in order of arrival; not to be written to."""
        return self._X[: self.n]

    @property
    def Y(self) -> Array:
        """All measurements, shape (n, q)."""
        return self._Y[: self.n]

    def add(self, x: Array, y: Array, *, asked: bool = False) -> int | None:
        """Learn from one point.

        Args:
            x: the point.
            y: (q,), NaN for what was not measured.
            asked: whether the candidates were asked about in x's context since the point before.

        Returns:
            The point's index, None if nothing was measured.
        """
        values = y.tolist()
        missing = {i for i, value in enumerate(values) if math.isnan(value)}
        if len(missing) == self.q:
            return None
        index = self.n
        if index and self.learns:
            self._posteriors()  # whose forecast tells whether y is a surprise
        groups, self._groups = self._groups, None  # where an interrupt ends it here, they are built again
        self._append(x, y)
        if asked and self.candidates is not None:
            self.asked.append(index)
        for i, rows in enumerate(self.rows):
            if i not in missing:
                rows.append(index)
                if len(rows) > MOST_ROWS:
                    self._forget(i)
                    groups = None
        split = groups and any(missing.intersection(g) and not missing.issuperset(g) for g, _ in groups)
        if groups is not None and not split:
            for group, posterior in groups:
                if group[0] not in missing:
                    targets = np.array([self.hyper[i].standardise(x, values[i]) for i in group])
                    posterior.add(x, targets, asked=asked)
                    if self.learns:
                        self._notice(group, posterior.posterior)
            self._groups = groups
        if self.learns:
            self._refit()
        return index

    def replace(self, index: int, y: Array) -> None:
        """Put other measurements in the place of those of one point: corrected, or late for what was missing."""
        self._start_anew()
        old = self._Y[index].copy()
        self._Y[index] = y
        for i in range(self.q):
            if math.isnan(old[i]) and not math.isnan(y[i]):
                self.rows[i].append(index)
            elif math.isnan(y[i]) and index in self.rows[i]:
                self.rows[i].remove(index)
            if not math.isnan(old[i]) and old[i] != y[i] and self.specs[i].length_scales is None:
                self.next_fit[i] = 0  # what was learned from the wrong value is learned again
        self._refit()

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return mean and std, (q, M) each, of all candidates at one context."""
        assert self.candidates is not None
        mean, std = self._in_plant_units([(group, *posterior.at(z)) for group, posterior in self._posteriors()])
        mean += self._means
        for i, on_candidates, on_context in self._trends:
            mean[i] += on_candidates + (followed(z) - 0.5) @ on_context
        self._decompress(mean, std)
        return mean, std

    def predict(self, A: Array) -> tuple[Array, Array]:
        """Return mean and std, (q, m) each, at any points A (m, d)."""
        mean, std = self._in_plant_units([(group, *each.posterior.predict(A)) for group, each in self._posteriors()])
        for i, h in enumerate(self.hyper):
            mean[i] += h.prior_mean(A)
        self._decompress(mean, std)
        return mean, std

    def mean_table(self, theta: Array, Z: Array) -> Array:
        """Return the posterior means, shape (q, k, m), of parameters theta (m, n_theta) in contexts Z (k, n_z).

        Of compressed values they are the means turned back, which are the medians of the quantity.

        The kernel is a product of a factor of theta and one of z, so that all k m means are one matrix product.
        """
        n_theta = self.problem.n_theta
        P = np.hstack([theta, np.zeros((len(theta), Z.shape[1]))])
        Q = np.hstack([np.zeros((len(Z), n_theta)), Z])
        table = np.empty((self.q, len(Z), len(theta)))
        for group, candidate_posterior in self._posteriors():
            posterior = candidate_posterior.posterior
            kernel = posterior.kernel
            of_theta = kernel.variance * kernel.factors[0].matrix(P, posterior.X)
            of_z = kernel.factors[1].matrix(Q, posterior.X) if Z.shape[1] else np.ones((len(Z), posterior.n))
            for j, i in enumerate(group):
                h = self.hyper[i]
                table[i] = h.mean + h.scale * ((of_z * posterior.alpha[:, j]) @ of_theta.T)
                if h.slope:
                    slope = np.array(h.slope)
                    table[i] += ((followed(Z) - 0.5) @ slope[n_theta:])[:, None] + (theta - 0.5) @ slope[:n_theta]
                if h.compression is not None:
                    table[i] = h.compression.inverse(table[i])
        return table

    def section(self, z: Array) -> Section:
        """Return mean and std at one context as functions of the parameters, with gradients."""
        return Section([(group, each.posterior) for group, each in self._posteriors()], self.hyper, z)

    def posterior(self, output: int) -> tuple[Posterior, int]:
        """Return the posterior that holds one output, in its standardised units, and its column there."""
        for group, posterior in self._posteriors():
            if output in group:
                return posterior.posterior, group.index(output)
        raise KeyError(output)

    def information_gain(self, output: int) -> float:
        """Return the information gain of the points visited, equation (7), for one output."""
        return self.posterior(output)[0].information_gain if self.rows[output] else 0.0

    def state(self) -> dict[str, Any]:
        """Return data and hyper-parameters as JSON data."""
        return {
            "X": self.X.tolist(),
            "Y": [[None if math.isnan(v) else v for v in y] for y in self.Y.tolist()],
            "rows": [list(rows) for rows in self.rows],
            "next_fit": list(self.next_fit),
            "hyper": [h.to_json() for h in self.hyper],
            "asked": list(self.asked),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned; the posteriors are built when they are first asked for."""
        self.n = 0
        for x, y in zip(state["X"], state["Y"], strict=True):
            self._append(np.array(x, dtype=float), np.array([math.nan if v is None else v for v in y], dtype=float))
        self.rows = [list(map(int, rows)) for rows in state["rows"]]
        self.next_fit = list(map(int, state["next_fit"]))
        self.hyper = [Hyperparameters.from_json(h) for h in state["hyper"]]
        self.asked = list(map(int, state.get("asked", [])))  # which no state had before
        self._groups = None

    def _in_plant_units(self, answers: list[tuple[list[int], Array, Array]]) -> tuple[Array, Array]:
        """Return scale * mean, without the prior mean, and scale * std, (q, m) each, of what the groups answered."""
        if len(answers) == 1:
            _, mean, std = answers[0]
            return np.multiply(mean.T, self._scales, order="C"), std * self._scales
        both = np.empty((2, self.q, len(answers[0][1])))
        for group, group_mean, group_std in answers:
            for j, i in enumerate(group):
                both[0, i], both[1, i] = group_mean[:, j], group_std
        both *= self._scales
        return both[0], both[1]

    def _decompress(self, mean: Array, std: Array) -> None:
        for i, compression in self._compressed:
            mean[i], std[i] = compression.moments(mean[i], std[i])[:2]

    def _prior(self, output: int) -> Hyperparameters:
        spec, reference = self.specs[output], self.references[output]
        if spec.length_scales is not None:
            return given_hyperparameters(self.problem, spec, reference or 0.0)
        kernel = kernel_for(self.problem, spec.kernel, np.ones(len(self.problem.variables)))
        return initial(kernel, self.priors, np.empty(0), reference)

    def _append(self, x: Array, y: Array) -> None:
        if self.n == len(self._X):
            self._X, self._Y = (np.vstack([old, np.empty_like(old)]) for old in (self._X, self._Y))
        self._X[self.n], self._Y[self.n] = x, y
        self.n += 1

    def forgot(self, output: int) -> bool:
        """Tell whether measurements of an output were left aside, because there were too many."""
        return len(self.rows[output]) < int(np.count_nonzero(~np.isnan(self.Y[:, output])))

    def _forget(self, output: int) -> None:
        """Leave all but the latest points of an output aside, and have it learned again from these."""
        del self.rows[output][:-KEPT_ROWS]
        if self.specs[output].length_scales is None:
            self.next_fit[output] = 0
        self._start_anew()

    def _start_anew(self) -> None:
        """Have the posteriors built from data, all points alike."""
        self._groups = None
        self.asked = []

    def _notice(self, group: list[int], posterior: Posterior) -> None:
        """Have the outputs learned again whose last measurement was a surprise."""
        # the last row of L^-1 y is (y - mean) / sqrt(std^2 + noise_var) before y was known
        for i, error in zip(group, posterior.W[-1].tolist(), strict=True):
            if abs(error) > SURPRISE and self.specs[i].length_scales is None:
                self.next_fit[i] = len(self.rows[i])

    def _refit(self) -> None:
        for i, spec in enumerate(self.specs):
            count = len(self.rows[i])
            if spec.length_scales is None and count >= self.next_fit[i]:
                rows = self.rows[i]
                X, y = self.X[rows], self.Y[rows, i]
                self.hyper[i] = fit(
                    X, y, self.hyper[i], self.priors, reference=self.references[i], noise_std=self.noises[i],
                    bad=self.bad[i] if self.compress else 0.0,
                )  # fmt: skip
                self.next_fit[i] = count + max(1, count // 3)
                self._start_anew()

    def _posteriors(self) -> list[tuple[list[int], CandidatePosterior]]:
        if self._groups is None:
            groups: list[list[int]] = []
            for i in range(self.q):
                key = (self.hyper[i].kernel, self.hyper[i].noise_var, self.rows[i])
                for group in groups:
                    j = group[0]
                    if (self.hyper[j].kernel, self.hyper[j].noise_var, self.rows[j]) == key:
                        group.append(i)
                        break
                else:
                    groups.append([i])
            posteriors = []
            for group in groups:
                rows, h = self.rows[group[0]], self.hyper[group[0]]
                targets = np.column_stack([self._targets(i, rows) for i in group])
                candidates = np.empty((0, self.problem.n_theta)) if self.candidates is None else self.candidates
                asked = np.isin(rows, self.asked)
                built = CandidatePosterior.build(h.kernel, h.noise_var, self.X[rows], targets, candidates, asked)
                posteriors.append((group, built))
            self._means = np.array([[h.mean] for h in self.hyper])
            self._scales = np.array([[h.scale] for h in self.hyper])
            self._compressed = [(i, h.compression) for i, h in enumerate(self.hyper) if h.compression is not None]
            self._trends = [] if self.candidates is None else self._slopes(self.candidates)
            self._groups = posteriors  # last: an interrupt before leaves nothing half done
        return self._groups

    def _targets(self, output: int, rows: list[int]) -> Array:
        h, y = self.hyper[output], self.Y[rows, output]
        y = y if h.compression is None else h.compression(y)
        return (y - h.prior_mean(self.X[rows])) / h.scale

    def _slopes(self, candidates: Array) -> list[tuple[int, Array, Array]]:
        """Return, of each output with a slope, what it adds to each candidate, (M,), and its context part, (n_z,)."""
        n_theta, centred = self.problem.n_theta, candidates - 0.5
        slopes = [(i, np.array(h.slope)) for i, h in enumerate(self.hyper) if h.slope]
        return [(i, centred @ slope[:n_theta], slope[n_theta:]) for i, slope in slopes]
