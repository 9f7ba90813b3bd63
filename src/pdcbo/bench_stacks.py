"""The same step of a tuner through each Gaussian-process stack: what `pdcbo bench` measures.

A stack holds n observations of q functions with fixed hyper-parameters. `ask(z)` returns mean and standard deviation,
(q, M) each, of all candidates at the context z; `tell(x, y)` adds one observation. Each stack is used the way its own
documentation does it, one model for each function, in double precision, with an exact factorisation.

    candidates (M, n_theta)    X (n, d)    Y (n, q)    SE kernel: variance, length_scales (d,); noise variance
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pdcbo.gp import Posterior
from pdcbo.kernels import Factor, Kernel
from pdcbo.problem import Array
from pdcbo.structured import CandidatePosterior


@dataclass(frozen=True)
class Setting:
    """A problem of the benchmark."""

    name: str
    candidates: Array
    length_scales: tuple[float, ...]
    functions: int
    variance: float = 2.0
    noise_var: float = 0.0025

    @property
    def kernel(self) -> Kernel:
        """The kernel as pdcbo writes it."""
        d = len(self.length_scales)
        return Kernel((Factor("squared-exponential", tuple(range(d)), self.length_scales),), self.variance)

    def data(self, n: int) -> tuple[Array, Array]:
        """Return n points, candidates at uniform contexts, and noisy values of q smooth functions."""
        rng = np.random.default_rng(1)
        theta = self.candidates[rng.integers(len(self.candidates), size=n)]
        X = np.hstack([theta, rng.random((n, len(self.length_scales) - theta.shape[1]))])
        return X, self.measure(X, rng)

    def measure(self, X: Array, rng: np.random.Generator) -> Array:
        """Return noisy values of the functions, (n, q)."""
        waves = np.random.default_rng(2).normal(size=(X.shape[1], self.functions))
        values: Array = np.sin(X @ (waves / np.array(self.length_scales)[:, None]))
        values += self.noise_var**0.5 * rng.normal(size=values.shape)
        return values

    def points(self, z: Array) -> Array:
        """Return all candidates at one context, (M, d)."""
        return np.hstack([self.candidates, np.broadcast_to(z, (len(self.candidates), len(z)))])


LINE = np.linspace(0.0, 1.0, 50)
SETTINGS = {
    "A50": Setting("A50", LINE[:, None], (0.05, 0.05), 2),
    "A1000": Setting("A1000", np.linspace(0.0, 1.0, 1000)[:, None], (0.05, 0.05), 2),
    "B": Setting("B", np.stack(np.meshgrid(LINE, LINE, indexing="ij"), axis=-1).reshape(-1, 2), (1 / 3,) * 6, 3),
}


class Stack(Protocol):
    """One way to compute the step."""

    def __init__(self, setting: Setting, X: Array, Y: Array) -> None: ...
    def ask(self, z: Array) -> tuple[Array, Array]:
        """Return mean and std, (q, M) each."""
        ...

    def tell(self, x: Array, y: Array) -> None:
        """Add one observation."""
        ...


class Shared:
    """pdcbo, functions that share their hyper-parameters and one factor."""

    groups: Callable[[int], list[list[int]]] = staticmethod(lambda q: [list(range(q))])

    def __init__(self, setting: Setting, X: Array, Y: Array) -> None:
        self.models = [
            (group, CandidatePosterior(self._posterior(setting, X, Y[:, group]), setting.candidates))
            for group in self.groups(Y.shape[1])
        ]

    def _posterior(self, setting: Setting, X: Array, Y: Array) -> Posterior:
        return Posterior.build(setting.kernel, setting.noise_var, X, Y)

    def ask(self, z: Array) -> tuple[Array, Array]:
        """Return mean and std, (q, M) each."""
        answers = [(group, *model.at(z)) for group, model in self.models]
        return np.concatenate([mean.T for _, mean, _ in answers]), np.array(
            [std for group, _, std in answers for _ in group]
        )

    def tell(self, x: Array, y: Array) -> None:
        """Add one observation."""
        for group, model in self.models:
            model.add(x, y[group], asked=True)


class Separate(Shared):
    """pdcbo, a factor for each function."""

    groups = staticmethod(lambda q: [[i] for i in range(q)])


class Plain:
    """pdcbo's plain posterior, a factor for each function: the reference."""

    def __init__(self, setting: Setting, X: Array, Y: Array) -> None:
        self.setting = setting
        self.models = [Posterior.build(setting.kernel, setting.noise_var, X, Y[:, [i]]) for i in range(Y.shape[1])]

    def ask(self, z: Array) -> tuple[Array, Array]:
        """Return mean and std, (q, M) each."""
        answers = [model.predict(self.setting.points(z)) for model in self.models]
        return np.array([mean[:, 0] for mean, _ in answers]), np.array([std for _, std in answers])

    def tell(self, x: Array, y: Array) -> None:
        """Add one observation."""
        for i, model in enumerate(self.models):
            model.add(x, y[[i]])


class Growing(ABC):
    """Holds the data of the stacks below; they see a new array each step."""

    def __init__(self, setting: Setting, X: Array, Y: Array) -> None:
        self.setting, self.X, self.Y = setting, X, Y
        self.load()

    def load(self) -> None:
        """Bring the models up to the data."""

    @abstractmethod
    def predict(self, points: Array, function: int) -> tuple[Any, Any]:
        """Return mean and variance of one function."""

    def ask(self, z: Array) -> tuple[Array, Array]:
        """Return mean and std, (q, M) each."""
        points = self.setting.points(z)
        answers = [self.predict(points, i) for i in range(self.Y.shape[1])]
        mean = np.array([np.asarray(mean).ravel() for mean, _ in answers])
        return mean, np.sqrt(np.maximum([np.asarray(var).ravel() for _, var in answers], 0.0))

    def tell(self, x: Array, y: Array) -> None:
        """Add one observation."""
        self.X, self.Y = np.vstack([self.X, x]), np.vstack([self.Y, y])
        self.load()


class ScikitLearn(Growing):
    """scikit-learn: GaussianProcessRegressor, fitted again without its optimizer."""

    def load(self) -> None:
        """Fit one regressor for each function."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel

        s = self.setting
        kernel = ConstantKernel(s.variance) * RBF(s.length_scales)
        self.models = [
            GaussianProcessRegressor(kernel, alpha=s.noise_var, optimizer=None).fit(self.X, y) for y in self.Y.T
        ]

    def predict(self, points: Array, function: int) -> tuple[Any, Any]:
        """Return mean and variance of one function."""
        mean, std = self.models[function].predict(points, return_std=True)
        return mean, std**2


class GPyStack(Growing):
    """GPy: one GPRegression for each function, `set_XY` at each observation, as the paper's experiments did."""

    models: list[Any] | None = None

    def load(self) -> None:
        """Make the models, or give them the new data."""
        import GPy

        s = self.setting
        if self.models is None:
            self.models = []
            for y in self.Y.T:
                kernel = GPy.kern.RBF(self.X.shape[1], s.variance, s.length_scales, ARD=True)
                self.models.append(GPy.models.GPRegression(self.X, y[:, None], kernel, noise_var=s.noise_var))
        else:
            for model, y in zip(self.models, self.Y.T, strict=True):
                model.set_XY(self.X, y[:, None])

    def predict(self, points: Array, function: int) -> tuple[Any, Any]:
        """Return mean and variance of one function."""
        assert self.models is not None
        mean, variance = self.models[function].predict_noiseless(points)
        return mean, variance


class BoTorch(Growing):
    """BoTorch: SingleTaskGP for each function, made again at each observation."""

    def load(self) -> None:
        """Make one model for each function."""
        self.models = [self._model(self.Y[:, [i]]) for i in range(self.Y.shape[1])]

    def _model(self, Y: Array) -> Any:
        import torch
        from botorch.models import SingleTaskGP
        from gpytorch.kernels import RBFKernel, ScaleKernel
        from gpytorch.means import ZeroMean

        s = self.setting
        X, y = torch.as_tensor(self.X), torch.as_tensor(Y)
        kernel = ScaleKernel(RBFKernel(ard_num_dims=X.shape[1])).to(X)
        kernel.outputscale = s.variance
        kernel.base_kernel.lengthscale = torch.tensor(s.length_scales)
        noise = torch.full_like(y, s.noise_var)
        model = SingleTaskGP(X, y, noise, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
        return model.eval()

    def _posterior(self, model: Any, points: Array) -> tuple[Any, Any]:
        import torch
        from gpytorch import settings

        exact = settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)
        with torch.no_grad(), exact, settings.max_cholesky_size(100_000), settings.fast_pred_var():
            posterior = model(torch.as_tensor(points))
            return posterior.mean.numpy(), posterior.variance.numpy()

    def predict(self, points: Array, function: int) -> tuple[Any, Any]:
        """Return mean and variance of one function."""
        return self._posterior(self.models[function], points)


class BoTorchConditioned(BoTorch):
    """BoTorch: the same models, extended by `condition_on_observations`."""

    def tell(self, x: Array, y: Array) -> None:
        """Add one observation."""
        import torch
        from gpytorch import settings

        self.X, self.Y = np.vstack([self.X, x]), np.vstack([self.Y, y])
        noise = torch.full((1, 1), self.setting.noise_var, dtype=torch.double)
        with torch.no_grad(), settings.max_cholesky_size(100_000), settings.fast_pred_var():
            self.models = [
                model.condition_on_observations(torch.as_tensor(x[None]), torch.as_tensor(y[None, [i]]), noise=noise)
                for i, model in enumerate(self.models)
            ]


class GPflow(Growing):
    """GPflow: one GPR for each function, made again at each observation."""

    def load(self) -> None:
        """Make one model for each function."""
        import gpflow

        s = self.setting
        kernel = gpflow.kernels.SquaredExponential(s.variance, s.length_scales)
        self.models = [gpflow.models.GPR((self.X, y[:, None]), kernel, noise_variance=s.noise_var) for y in self.Y.T]

    def predict(self, points: Array, function: int) -> tuple[Any, Any]:
        """Return mean and variance of one function."""
        mean, variance = self.models[function].predict_f(points)
        return mean, variance


STACKS: dict[str, type[Stack]] = {
    "pdcbo shared": Shared,
    "pdcbo separate": Separate,
    "pdcbo plain": Plain,
    "scikit-learn": ScikitLearn,
    "GPy": GPyStack,
    "BoTorch": BoTorch,
    "BoTorch conditioned": BoTorchConditioned,
    "GPflow": GPflow,
}
# these take several steps a round, and are timed in the environment of GPy, too, where that has its own
FAST = ("pdcbo separate", "pdcbo shared")
BESIDE_GPY = " beside GPy"
