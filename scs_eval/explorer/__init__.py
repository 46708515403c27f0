"""The explorer: pick an image, models, a method, a class and ε, and the maps and the attack follow.

In Jupyter (`scs_eval.explore`) and as a page of this machine (`scs-eval explore`); both show what `view.py` computes.
"""

from scs_eval.explorer.widget import Explorer as Explorer
from scs_eval.explorer.widget import explore as explore
