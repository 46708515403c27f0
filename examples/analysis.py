"""An analysis: how sure is the model? scs-eval confidence rohrer100k_scs --plugin examples/analysis.py"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import scs_eval


@dataclass(frozen=True, eq=False, kw_only=True)
class Confidence(scs_eval.Result):
    name, axes = "confidence", {"largest": ("image",)}
    largest: np.ndarray  # (n,) the largest probability

    def table(self):
        return pd.DataFrame([{"model": self.label, "confidence": self.largest.mean()}])

    def draw(self, ax=None):
        return (ax or Figure().subplots()).hist(self.largest)[2][0].figure


@scs_eval.register_analysis(name="confidence", question="How sure is it?", command="Measure how sure a model is.")
def run(task):
    return Confidence(label=task.label, largest=task.model(task.images).softmax(1).amax(1).detach().numpy())
