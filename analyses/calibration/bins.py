"""Confidence against correctness in bins of equal mass, and the expected calibration error without its bias."""

from typing import NamedTuple

import numpy as np
from scipy.special import erf, ndtri

from scs_eval.analyses.core.statistics import Floats, Interval, wilson


class Bins(NamedTuple):
    """The bin of each image (n,); of B bins (B,) how many images, mean confidence, and accuracy with its interval."""

    of_image: np.ndarray
    images: np.ndarray
    confidence: Floats
    accuracy: Interval


def equal_mass(confidence: np.ndarray, correct: np.ndarray, *, bins: int) -> Bins:
    """Images (n,) in the order of their confidence, in `bins` groups that differ by at most one image in size."""
    position = np.empty(len(confidence), dtype=int)
    position[np.argsort(confidence, kind="stable")] = np.arange(len(confidence))
    of_image = position * bins // len(confidence)
    count = np.bincount(of_image, minlength=bins)
    mean = np.bincount(of_image, confidence, minlength=bins) / count
    return Bins(of_image, count, mean, wilson(np.bincount(of_image, correct, minlength=bins), count))


def plugin_ece(bins: Bins) -> float:
    """Σ over bins of their share of the images times |accuracy − confidence| (Guo et al. 2017)."""
    return float((bins.images * np.abs(bins.accuracy.estimate - bins.confidence)).sum() / bins.images.sum())


def squared_error(bins: Bins) -> float:
    """The mean squared gap between accuracy and confidence, without bias (Kumar et al. 2019); it may be below 0.

    Σ over bins of their share times (a − c)² − a (1−a) / (n − 1): what accuracy's own scatter adds is taken off.
    """
    accuracy, several = bins.accuracy.estimate, bins.images > 1
    scatter = np.where(several, accuracy * (1 - accuracy), 0.25) / np.maximum(bins.images - 1, 1)
    return float((bins.images * ((accuracy - bins.confidence) ** 2 - scatter)).sum() / bins.images.sum())


def debiased_ece(bins: Bins) -> float:
    """The expected calibration error without the bias of small bins, at least 0.

    A bin's accuracy scatters by s = √(a (1−a) / n), and |accuracy − confidence| counts that as error: a gap of size g
    comes out as E|N(g, s²)|. The excess over g is taken off, for the g that all bins would have if they shared one: the
    root of `squared_error`. Of a model without error that takes off most of what looks like one, of one with plain
    errors next to nothing.
    """
    accuracy = bins.accuracy.estimate
    spread = np.sqrt(accuracy * (1 - accuracy) / bins.images)
    shared = np.full_like(spread, np.sqrt(max(0.0, squared_error(bins))))
    excess = (bins.images * (folded_normal_mean(shared, spread) - shared)).sum() / bins.images.sum()
    return max(0.0, plugin_ece(bins) - float(excess))


def folded_normal_mean(mean: Floats, spread: Floats) -> Floats:
    """E|X| of X ~ N(mean, spread²): s √(2/π) exp(−m² / 2s²) + m erf(m / s√2)."""
    ratio = np.divide(mean, spread, out=np.full_like(mean, np.inf), where=spread > 0)
    return spread * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + mean * erf(ratio / np.sqrt(2))


def ece_interval(bins: Bins) -> Interval:
    """The debiased error, and a 95 % interval that is conservative wherever the truth lies.

    With e the errors of the bins' accuracies and w their shares of the images, the plug-in error is at least the true
    one plus Σ ±w e (with the signs of the true gaps), and at most the true one plus Σ w |e|: so it is unlikely to be
    below the true one by more than 1.96 √Σ w² s², or above it by more than Σ w |e| has at its 97.5 % point, here mean
    + 1.96 standard deviations of folded normals. s² has one image more of either outcome: a bin that is all right
    is not known to be without errors.
    """
    share, right = bins.images / bins.images.sum(), bins.accuracy.estimate * bins.images + 1
    accuracy = right / (bins.images + 2)
    spread = share * np.sqrt(accuracy * (1 - accuracy) / bins.images)
    plugin, deviation = plugin_ece(bins), ndtri(0.975) * np.sqrt((spread**2).sum())
    above = np.sqrt(2 / np.pi) * spread.sum() + np.sqrt(1 - 2 / np.pi) * deviation
    parts = debiased_ece(bins), max(0.0, plugin - above), plugin + deviation
    return Interval(*(np.asarray(part) for part in parts))
