"""A kernel, an action and a likelihood of your own: check them, fit with them, save and load.

python examples/own_parts.py
"""

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp import Cyclic, HarmonicGPRegressor, load_model
from harmonicgp.actions import Action, register_action
from harmonicgp.features import HarmonicFeatures
from harmonicgp.inducing import place
from harmonicgp.io.specs import build_likelihood, likelihood_spec
from harmonicgp.kernels import register_kernel
from harmonicgp.kernels.metric import metric_coordinates
from harmonicgp.kernels.records import product_features, random_features
from harmonicgp.likelihoods import Observation, register_likelihood
from harmonicgp.symmetry.suggest import suggest_symmetry
from harmonicgp.testing import assert_cyclic, assert_decomposition, assert_invariant
from harmonicgp.training import Schedule, fit

# A kernel -------------------------------------------------------------------------------------------------------------


class SeasonKernel(gpytorch.kernels.Kernel):
    """Periodic in column 0, Matern in the others: seasons that differ from place to place."""

    def __init__(self, periodic, matern):
        super().__init__()
        self.periodic, self.matern = periodic, matern

    @classmethod
    def of_period(cls, period):
        periodic = gpytorch.kernels.PeriodicKernel().double()  # before the period is set: float32 would round it
        periodic.period_length = period
        periodic.raw_period_length.requires_grad_(False)  # training keeps it
        return cls(periodic, gpytorch.kernels.MaternKernel(nu=1.5).double())

    def forward(self, x1, x2, diag=False, **params):
        time = self.periodic(x1[..., :1], x2[..., :1], diag=diag)
        place = self.matern(x1[..., 1:], x2[..., 1:], diag=diag)
        return time * place if diag else time.to_dense() * place.to_dense()

    def metric_coordinates(self, x):  # [n, d] -> [n, D]; their distances say which rows are neighbours
        return torch.cat((metric_coordinates(self.periodic, x[:, :1]), metric_coordinates(self.matern, x[:, 1:])), -1)


def season_features(kernel, generator, n):
    """Random features, so that `sample_y` can draw functions: a product of the features of the two parts."""
    time, place = (random_features(part, generator, n) for part in (kernel.periodic, kernel.matern))
    return product_features([lambda x: time(x[..., :1]), lambda x: place(x[..., 1:])], generator, n)


# An action ------------------------------------------------------------------------------------------------------------


class Quarters(Action):
    """Moves column 0, a circle of some period, by quarters."""

    def __init__(self, period: float) -> None:
        self.period, self.group = float(period), Cyclic(4)

    @property
    def periods(self) -> dict[int, float]:
        return {0: self.period}

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        time = torch.remainder(x[..., :1] + s * (self.period / 4), self.period)
        return torch.cat((time, x[..., 1:].expand(*time.shape[:-1], -1)), -1)

    def mixed_columns(self, d: int) -> list[list[int]]:
        return []  # every column has its own lengthscale

    def __repr__(self) -> str:
        return f"Quarters({self.period})"


# A likelihood ---------------------------------------------------------------------------------------------------------


class GammaLikelihood(gpytorch.likelihoods.likelihood._OneDimensionalLikelihood):
    """Positive numbers: y ~ Gamma of mean exp(f) and a known shape."""

    def __init__(self, shape: float) -> None:
        super().__init__()
        self.shape = float(shape)

    def forward(self, function_samples, *args, **kwargs):
        shape = torch.as_tensor(self.shape).to(function_samples)
        return torch.distributions.Gamma(shape, shape * torch.exp(-function_samples))

    def expected_log_prob(self, observations, function_dist, *args, **kwargs):
        m, v, a = function_dist.mean, function_dist.variance, self.shape
        constant = a * np.log(a) - torch.lgamma(torch.as_tensor(a)).item()
        return constant - a * m + (a - 1) * observations.log() - a * observations * torch.exp(-m + v / 2)


class GammaObservation(Observation):
    """What inference sees of it: this one also checks the targets."""

    def check_targets(self, y: Tensor) -> None:
        if bool((y <= 0).any()):
            raise ValueError("targets of a gamma likelihood are positive.")


# Their names in files -------------------------------------------------------------------------------------------------

register_kernel("own_parts.Season", SeasonKernel, children=("periodic", "matern"), random_features=season_features)
register_action("own_parts.Quarters", Quarters, period=float)
register_likelihood("own_parts.Gamma", GammaLikelihood, observation=GammaObservation, shape=float)


def main() -> None:
    rng = np.random.default_rng(0)
    X = np.stack((rng.uniform(0, 12, 300), rng.normal(size=300)), -1)
    f = np.sin(2 * np.pi * X[:, 0] / 12) * X[:, 1] + 0.5 * X[:, 1]
    y = f + 0.1 * rng.normal(size=300)

    points = torch.from_numpy(X)
    action, kernel = Quarters(12.0), SeasonKernel.of_period(12.0)
    assert_cyclic(action, points[:20])
    assert_invariant(kernel, action, points[:20])
    assert_decomposition(kernel, action, points[:20])
    print(f"{action} has the group {action.group}; the kernel is invariant under it.")

    features = HarmonicFeatures(kernel, action, place(points, 12, action=action))
    counts = torch.from_numpy(rng.gamma(3.0, np.exp(f) / 3.0))
    schedule = Schedule(max_steps=60, batch_size=150)
    result = fit(features, GammaLikelihood(3.0), points, counts, schedule=schedule)
    mean, _ = result.predictor().marginals(points)
    print(f"gamma noise: the latent mean and f correlate by {np.corrcoef(mean[0].numpy(), f)[0, 1]:.3f}.")
    print(f"saved as {likelihood_spec(build_likelihood(likelihood_spec(result.observation.likelihood)))['class']}")

    gp = HarmonicGPRegressor(
        kernel=kernel, symmetry=action, n_inducing=12, max_steps=40, random_state=0, progress=False
    )
    gp.fit(X[:250], y[:250])
    gp.save("seasons.hgp")
    same = load_model("seasons.hgp")
    error = np.sqrt(np.mean((same.predict(X[250:]) - y[250:]) ** 2))
    print(f"loaded: RMSE {error:.3f}, {type(same.kernel_).__name__}, {same.symmetry_.action}")
    print(f"{same.sample_y(X[:3], n_samples=2).shape[0]} rows of sample paths")

    choice = suggest_symmetry(X, y, candidates=[action], time_budget=5, progress=False)
    print(*choice.sentences, choice.advice, sep="\n")


if __name__ == "__main__":
    main()
