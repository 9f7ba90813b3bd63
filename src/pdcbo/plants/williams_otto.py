"""The Williams-Otto reactor at steady state, the plant of the paper's section VI-B.

A stirred tank takes A and B and makes the products P and E and the waste G by A + B -> C, B + C -> P + E, C + P -> G.
The tuner sets the feed of B and the temperature; the prices of the day are the context; the mass fractions of A and G
that leave the tank are limited on average. The cost is the negated profit.

Mass balances, with F_R = F_A + F_B, r1 = k1 W X_A X_B, r2 = k2 W X_B X_C, r3 = k3 W X_C X_P:

    A: F_A - r1 = F_R X_A          C: 2 r1 - 2 r2 - r3 = F_R X_C        P: r2 - r3 / 2 = F_R X_P
    B: F_B - r1 - r2 = F_R X_B     E: 2 r2 = F_R X_E                    G: 3 r3 / 2 = F_R X_G

Given X_B, balance A gives X_A, balance B gives r2 and with it X_C, balance P gives X_P, each in closed form, and what
is left of balance C rises strictly with X_B. So the steady state is unique, and a bracketed Newton iteration finds it.
"""

from __future__ import annotations

import numpy as np

from pdcbo.plants.base import SimulatedPlant
from pdcbo.problem import Array, Constraint, Problem

FEED_A = 1.8275  # kg/s
HOLD_UP = 2105.2  # kg
RATES = ((1.6599e6, 6666.7), (7.2117e8, 8333.3), (2.6745e12, 11111.0))  # 1/s and K, Arrhenius
NORMAL_PRICES = {"price_p": 1043.38, "price_e": 20.92, "price_a": 79.23, "price_b": 118.34}
SPECIES = ("x_a", "x_b", "x_c", "x_e", "x_p", "x_g")


def steady_state(feed_b: Array, temperature: Array) -> dict[str, Array]:
    """Return the mass fractions for a feed of B in kg/s and a temperature in degrees Celsius, which broadcast."""
    k1, k2, k3 = (HOLD_UP * a * np.exp(-b / (temperature + 273.15)) for a, b in RATES)
    flow = FEED_A + feed_b
    # X_B lies between 0 and the value at which reaction 2 stops, F_B - r1 - F_R X_B = 0.
    b = flow * flow + k1 * (FEED_A - feed_b)
    low, high = np.zeros_like(b), 2.0 * feed_b * flow / (b + np.sqrt(b * b + 4.0 * k1 * flow * feed_b * flow))
    x_b = 0.5 * high
    for _ in range(60):
        a = 1.0 / (flow + k1 * x_b)
        r1 = k1 * FEED_A * x_b * a
        r2 = feed_b - r1 - flow * x_b
        x_c = r2 / (k2 * x_b)
        q = flow + 0.5 * k3 * x_c
        r3 = k3 * x_c * r2 / q
        residual = 2.0 * (r1 - r2) - r3 - flow * x_c
        dr1 = k1 * FEED_A * flow * a * a
        dr2 = -dr1 - flow
        dx_c = (dr2 - r2 / x_b) / (k2 * x_b)
        dr3 = k3 * (dx_c * r2 * flow / q + x_c * dr2) / q
        slope = 2.0 * (dr1 - dr2) - dr3 - flow * dx_c
        step = -residual / slope
        if (np.abs(step) <= 4e-16 * x_b).all() or (np.abs(residual) <= 1e-14).all():
            break
        low, high = np.where(residual < 0, x_b, low), np.where(residual < 0, high, x_b)
        trial = x_b + step
        x_b = np.where((trial > low) & (trial < high), trial, 0.5 * (low + high))
    return {
        "x_a": FEED_A * a, "x_b": x_b, "x_c": x_c, "x_e": 2.0 * r2 / flow, "x_p": r2 / q, "x_g": 1.5 * r3 / flow,
    }  # fmt: skip


def balances(feed_b: Array, temperature: Array, x: dict[str, Array]) -> Array:
    """Return what is left of the six mass balances, kg/s, shape (6, ...): zero at a steady state."""
    k1, k2, k3 = (HOLD_UP * a * np.exp(-b / (temperature + 273.15)) for a, b in RATES)
    r1, r2, r3 = k1 * x["x_a"] * x["x_b"], k2 * x["x_b"] * x["x_c"], k3 * x["x_c"] * x["x_p"]
    made = (FEED_A - r1, feed_b - r1 - r2, 2.0 * r1 - 2.0 * r2 - r3, 2.0 * r2, r2 - 0.5 * r3, 1.5 * r3)
    flow = FEED_A + feed_b
    return np.stack([m - flow * x[name] for m, name in zip(made, SPECIES, strict=True)])


class WilliamsOtto(SimulatedPlant):
    """The reactor with prices as contexts, the problem as the paper states it: X_A <= 0.12 and X_G <= 0.08 on average.

    Args:
        seed: of noise and contexts.
        contexts: the context sequence.
        price_range: prices vary by this fraction about their normal values.
        noise: standard deviations of the noise on the cost and on the two mass fractions.
        flipped: limit both mass fractions from below instead, the problem that the published second experiment
            was run on because of a sign error.
    """

    def __init__(
        self,
        seed: int = 0,
        contexts: str = "uniform",
        *,
        price_range: float = 0.2,
        noise: tuple[float, float, float] = (0.5, 5e-4, 5e-4),
        flipped: bool = False,
    ) -> None:
        if not 0.0 < price_range < 1.0:
            raise ValueError(f"price_range must lie between 0 and 1, got {price_range!r}")
        problem = Problem(
            parameters={"feed_rate": (4.0, 7.0), "temperature": (70.0, 100.0)},
            context={n: (p * (1.0 - price_range), p * (1.0 + price_range)) for n, p in NORMAL_PRICES.items()},
            constraints={
                name: Constraint(lower=limit, noise=sd) if flipped else Constraint(upper=limit, noise=sd)
                for name, limit, sd in (("x_a", 0.12, noise[1]), ("x_g", 0.08, noise[2]))
            },
        )
        super().__init__(problem, noise, seed=seed, contexts=contexts)
        self._known: tuple[Array, Array, dict[str, Array]] | None = None

    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Return the negated profit and the mass fractions of A and G."""
        feed_b, temperature = p["feed_rate"], p["temperature"]
        known = self._known
        # Prices do not move the steady state, so a fixed set of candidates is solved once.
        if known is None or not (np.array_equal(feed_b, known[0]) and np.array_equal(temperature, known[1])):
            self._known = known = (feed_b, temperature, steady_state(feed_b, temperature))
        x, flow = known[2], FEED_A + feed_b
        income = (c["price_p"] * x["x_p"] + c["price_e"] * x["x_e"]) * flow
        return c["price_a"] * FEED_A + c["price_b"] * feed_b - income, x["x_a"], x["x_g"]
