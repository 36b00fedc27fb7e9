"""The distribution of y: densities, quantiles and moments against numerical integration and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from harmonicgp.estimators.predictive import Conformal, Noise, Predictive
from harmonicgp.tables.targets import Target

TRANSFORMS = [None, "log", "quantile"]
Y = np.random.default_rng(0).lognormal(1.0, 0.7, size=(60, 2))


def predictive(transform=None, df=None, seed=0, n=3, P=2, known=False, calibration=()):
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=(P, n)), rng.gamma(1.0, size=(P, n))
    noise = Noise(float(rng.gamma(2.0, 0.3)) + 1e-3, df)
    extra = rng.gamma(1.0, size=(P, n)) if known else None
    return Predictive(mean, variance, noise, Target.fit(Y[:, :P], transform=transform), extra, calibration)


def breaks(p, j, i):
    """Places between which the density of target i at row j is smooth, out to tails of no weight."""
    levels = np.concatenate(
        [np.geomspace(1e-7, 0.05, 25), np.linspace(0.05, 0.95, 40), 1 - np.geomspace(0.05, 1e-7, 25)]
    )
    places = p.quantiles(levels)[j, :, i]
    knots = p.target.warps[i].values if p.target.warps else []
    knots = [v for v in knots if places[0] < v < places[-1]]
    return np.unique(np.concatenate([places, knots]))


def integral(p, j, i, function=lambda y: np.ones_like(y)):
    """Of function times density, by Gauss-Legendre rules between the breaks."""
    nodes, weights = np.polynomial.legendre.leggauss(10)
    at = breaks(p, j, i)
    half = 0.5 * np.diff(at)[:, None]
    y = (at[:-1, None] + half + half * nodes).ravel()
    one = Predictive(
        np.repeat(p.mean_f[:, j : j + 1], len(y), 1),
        np.repeat(p.variance_f[:, j : j + 1], len(y), 1),
        p.noise,
        p.target,
        None if p.errors is None else np.repeat(p.errors[:, j : j + 1], len(y), 1),
    )
    density = np.exp(one.log_density(np.repeat(y[:, None], len(p.mean_f), 1))[:, i])
    return float(np.sum(function(y) * density * (half * weights).ravel()))


distributions = st.tuples(
    st.sampled_from(TRANSFORMS), st.sampled_from([None, 2.1, 4.0, 30.0, 5e3]), st.integers(0, 50), st.booleans()
).filter(lambda case: case[0] != "log" or case[1] is None)  # y has no mean then: the regressor refuses


@given(distributions)
def test_densities_integrate_to_one(case):
    transform, df, seed, known = case
    p = predictive(transform, df, seed, known=known)
    assert integral(p, 1, 1) == pytest.approx(1, abs=2e-6)


@given(distributions, st.floats(1e-6, 1 - 1e-6))
def test_quantiles_invert_the_distribution_function(case, level):
    transform, df, seed, known = case
    p = predictive(transform, df, seed, known=known)
    levels = np.array([level, 0.5, 0.975])
    q = p.quantiles(levels)
    assert q.shape == (3, 3, 2)
    for k, expected in enumerate(levels):
        np.testing.assert_allclose(p.cdf(q[:, k]), expected, rtol=1e-8)
    assert (np.diff(p.quantiles(np.linspace(0.01, 0.99, 30)), axis=1) > 0).all()


@given(distributions)
def test_the_distribution_function_is_the_integral_of_the_density(case):
    transform, df, seed, known = case
    p = predictive(transform, df, seed, known=known)
    low, high = (p.quantiles([level])[:, 0] for level in (0.2, 0.7))
    inside = integral(p, 2, 0, lambda y: (y > low[2, 0]) & (y < high[2, 0]))
    assert inside == pytest.approx(0.5, abs=0.02)  # the ends fall within a panel
    h = 1e-6
    y = p.quantiles([0.3])[:, 0]
    slope = (p.cdf(y + h) - p.cdf(y - h)) / (2 * h)
    if transform != "quantile" or min(np.abs(y[:, [i]] - w.values).min() for i, w in enumerate(p.target.warps)) > 1e-4:
        np.testing.assert_allclose(np.exp(p.log_density(y)), slope, rtol=1e-5)


@pytest.mark.parametrize(
    ("transform", "df"), [(None, None), ("log", None), ("quantile", None), (None, 8.0), ("quantile", 8.0)]
)
@pytest.mark.parametrize("known", [False, True])
def test_mean_and_std_are_those_of_the_density(transform, df, known):
    p = predictive(transform, df, known=known)
    mean, std = p.mean(), p.std()
    for j, i in ((0, 0), (2, 1)):
        expected = integral(p, j, i, lambda y: y)
        assert mean[j, i] == pytest.approx(expected, rel=1e-3 if df else 1e-4)
        second = integral(p, j, i, lambda y, m=expected: (y - m) ** 2)
        assert std[j, i] == pytest.approx(np.sqrt(second), rel=2e-2 if df else 3e-3)


@pytest.mark.parametrize("df", [2.01, 3.0, 10.0, 50.0, 400.0, 1e6])
def test_student_t_without_latent_variance_is_scipys(df):
    """An outlier's density is not that of a Gaussian; and 400 degrees of freedom once gave none at all."""
    z = np.array([[0.0], [0.7], [-2.5], [8.0], [-30.0], [59.0]])
    s2 = 0.36
    p = Predictive(np.zeros((1, 6)), np.zeros((1, 6)), Noise(s2, df), Target(None, np.zeros(1), np.ones(1)))
    expected = stats.t(df, scale=np.sqrt(s2))
    np.testing.assert_allclose(p.log_density(z), expected.logpdf(z), atol=2e-4)
    np.testing.assert_allclose(p.cdf(z), expected.cdf(z), atol=2e-7)
    levels = np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(p.quantiles(levels)[0, :, 0], expected.ppf(levels), rtol=2e-6, atol=1e-12)
    assert p.std()[0, 0] == pytest.approx(expected.std(), rel=1e-9)


@pytest.mark.parametrize("df", [2.5, 5.0, 200.0])
@pytest.mark.parametrize("variance", [0.01, 1.0, 30.0])
def test_student_t_with_latent_variance_is_the_convolution(df, variance):
    p = Predictive(np.zeros((1, 4)), np.full((1, 4), variance), Noise(0.5, df), Target(None, np.zeros(1), np.ones(1)))
    z = np.array([0.0, 1.0, -4.0, 15.0])
    noise, f = stats.t(df, scale=np.sqrt(0.5)), stats.norm(scale=np.sqrt(variance))
    for j, value in enumerate(z):
        reach, at = 12 * np.sqrt(variance), (0.0, value)
        density = quad(lambda u, v=value: f.pdf(u) * noise.pdf(v - u), -reach, reach, points=at, limit=400, epsabs=0)[0]
        below = quad(lambda u, v=value: f.pdf(u) * noise.cdf(v - u), -reach, reach, points=at, limit=400)[0]
        assert p.log_density(z[:, None])[j, 0] == pytest.approx(np.log(density), abs=2e-4)
        assert p.cdf(z[:, None])[j, 0] == pytest.approx(below, abs=1e-6)


def test_log_targets_are_lognormal():
    p = predictive("log")
    scale, centre = p.target.scale[:, None], p.target.centre[:, None]
    reference = stats.lognorm(s=np.sqrt(p.variance_f + p.noise.s2) * scale, scale=np.exp(p.mean_f * scale + centre))
    y = Y[:3]
    np.testing.assert_allclose(p.mean(), reference.mean().T, rtol=1e-10)
    np.testing.assert_allclose(p.std(), reference.std().T, rtol=1e-10)
    np.testing.assert_allclose(p.log_density(y), reference.logpdf(y.T).T, rtol=1e-10)
    np.testing.assert_allclose(p.cdf(y), reference.cdf(y.T).T, rtol=1e-10)


def test_what_y_cannot_be():
    p = predictive("log", n=2)
    y = np.array([[-1.0, 0.0], [np.inf, 1.0]])
    assert p.log_density(y)[0].tolist() == [-np.inf, -np.inf]
    assert p.cdf(y)[0].tolist() == [0, 0]
    assert p.cdf(y)[1, 0] == 1
    assert p.log_density(y)[1, 0] == -np.inf


@pytest.mark.parametrize("transform", [None, "quantile"])
@pytest.mark.parametrize("df", [None, 5.0])
def test_draws_of_noise_follow_the_distribution(transform, df):
    p = predictive(transform, df, n=2)
    bare = Predictive(p.mean_f, np.zeros_like(p.variance_f), p.noise, p.target)
    rng = np.random.default_rng(1)
    z = bare.sample_noise(np.repeat(p.mean_f[None], 4000, 0), rng)
    y = np.moveaxis(p.target.inverse(np.moveaxis(z, 1, 0)), 0, -1)  # [samples, n, P]
    for i in range(2):
        u = np.array([bare.cdf(draw)[:, i] for draw in y])
        assert stats.kstest(u[:, 0], "uniform").pvalue > 1e-4
        assert stats.kstest(u[:, 1], "uniform").pvalue > 1e-4


# --- calibration ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 99_999), min_size=1, max_size=40, unique=True), st.floats(0.0, 1.0))
def test_calibrated_levels_and_probabilities_are_inverse(pit, p):
    conformal = Conformal(np.sort(pit) / 1e5)
    assert conformal.probability(conformal.level(np.array([p])))[0] == pytest.approx(p, abs=1e-6)
    grid = conformal.level(np.linspace(0, 1, 50))
    assert (np.diff(grid) >= 0).all()
    assert grid[0] > 0
    assert grid[-1] < 1


def test_an_even_spread_changes_nothing():
    conformal = Conformal(np.arange(1, 100) / 100)
    p = np.linspace(0.001, 0.999, 50)
    np.testing.assert_allclose(conformal.level(p), p, atol=1e-12)
    np.testing.assert_allclose(conformal.probability(p), p, atol=1e-12)


def test_calibrated_quantiles_invert_the_calibrated_distribution_function():
    rng = np.random.default_rng(0)
    calibration = tuple(Conformal(np.sort(rng.beta(2, 5, size=50))) for _ in range(2))
    p = predictive("quantile", calibration=calibration)
    q = p.quantiles([0.1, 0.5, 0.9])
    for k, level in enumerate((0.1, 0.5, 0.9)):
        np.testing.assert_allclose(p.cdf(q[:, k]), level, atol=1e-9)
    low, high = np.moveaxis(p.quantiles([0.025, 0.975]), 1, 0)
    np.testing.assert_allclose(p.std(), (high - low) / (2 * stats.norm.ppf(0.975)))


def test_calibration_counts_weights():
    rng = np.random.default_rng(0)
    pit, weights = rng.random(400), rng.integers(1, 5, size=400).astype(float)
    conformal, many = Conformal.of(pit, weights), Conformal.of(np.repeat(pit, weights.astype(int)))
    p = np.linspace(0.02, 0.98, 40)
    np.testing.assert_allclose(conformal.level(p), many.level(p), atol=0.02)
    assert np.abs(conformal.level(p) - Conformal.of(pit).level(p)).max() > 0.02
    np.testing.assert_allclose(conformal.probability(conformal.level(p)), p, atol=1e-9)
    ones = Conformal.of(pit, np.ones(400))
    np.testing.assert_array_equal(ones.level(p), Conformal.of(pit).level(p))


def test_held_out_rows_beyond_all_numbers_leave_quantiles_finite():
    """A row 40 standard deviations off has P(Y <= y) = 1 in float64, whose quantile is infinite."""
    p = predictive(calibration=(Conformal(np.array([0.0, 0.2, 0.9, 1.0])),) * 2)
    assert np.isfinite(p.quantiles([0.001, 0.1, 0.5, 0.9, 0.999])).all()


def test_coverage_of_the_conformal_map_is_that_of_the_ranks():
    """For n held-out and one new value of the same law, P(new below the level for p) is p to 1/(n + 1)."""
    rng = np.random.default_rng(0)
    n, trials = 19, 4000
    below = 0
    for _ in range(trials):
        pit, new = np.sort(rng.beta(0.3, 2, size=n)), rng.beta(0.3, 2)
        below += new <= Conformal(pit).level(np.array([0.9]))[0]
    assert below / trials == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / trials))
