"""A logistic regression over the scores of the stages."""

import numpy as np

STRENGTH = 1.0  # of the penalty ½ |w|², as in scikit-learn's default


def fit_logistic(known: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights (S,) and intercept that tell rows of `known` (n, S) from those of `other` (m, S); known is larger.

    Minimises Σ log(1 + exp(−y (w·x + b))) + ½ |w|² on standardised columns; what is returned is for the columns as
    they are.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = np.concatenate([known, other])
    sides = np.concatenate([np.ones(len(known)), -np.ones(len(other))])
    middle, scale = rows.mean(0), np.maximum(rows.std(0), 1e-12)
    x = np.column_stack([(rows - middle) / scale, np.ones(len(rows))])

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        margins = sides * (x @ w)
        penalty = np.append(w[:-1], 0)
        slope = -x.T @ (sides * expit(-margins)) + STRENGTH * penalty
        return float(np.logaddexp(0, -margins).sum() + STRENGTH * (w[:-1] @ w[:-1]) / 2), slope

    best = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options={"gtol": 1e-8, "ftol": 1e-14}).x
    weights = best[:-1] / scale
    return weights, float(best[-1] - weights @ middle)
