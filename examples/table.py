"""A table with numbers, text and dates: fit, look at the error bars, save, load, write a report.

python examples/table.py
"""

import numpy as np
import pandas as pd

from harmonicgp import HarmonicGPRegressor, load_model
from harmonicgp.diagnostics import write_report

rng = np.random.default_rng(0)
n = 1200
when = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.uniform(0, 700, n), unit="D")
frame = pd.DataFrame(
    {
        "when": when,
        "site": rng.choice(["coast", "hill", "town"], n),
        "wind": rng.gamma(2.0, 2.0, n),
    }
)
year = 2 * np.pi * when.day_of_year / 365.25
warmth = {"coast": 1.0, "hill": -3.0, "town": 2.0}
frame["temperature"] = 10 - 8 * np.cos(year) + frame["site"].map(warmth) - 0.5 * frame["wind"] + rng.normal(size=n)

train, test = frame[:1000], frame[1000:]
inputs = ["when", "site", "wind"]
gp = HarmonicGPRegressor(max_steps=40).fit(train[inputs], train["temperature"])
print(*gp.notes_, *gp.warnings_, sep="\n")
print(gp.symmetry_)

mean, std = gp.predict(test[inputs], return_std=True)
inside = np.mean(np.abs(test["temperature"] - mean) < 1.96 * std)
print(
    f"off by {np.sqrt(np.mean((test['temperature'] - mean) ** 2)):.2f} degrees; {inside:.0%} within 1.96 standard deviations"
)

gp.save("temperature.hgp")
scores = write_report("temperature.html", load_model("temperature.hgp"), test[inputs], test["temperature"])
print(f"{scores.rows} rows: RMSE {scores.rmse:.2f}; see temperature.html")
