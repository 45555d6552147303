"""The paper's figures as data, one module each, `beyond` of ours, and the claims about them."""

from ..panels import Panel
from ..study import Study
from . import beyond, figure1, figure2, figure3, others
from .claims import CLAIMS

ABOUT = """\
Lu and Van Roy, *Ensemble Sampling*, 2017 ([arXiv:1705.07347](https://arxiv.org/abs/1705.07347)).
Every panel shows the expected regret in each period: the best mean reward minus the mean reward of
the chosen action, averaged over realizations.
"""

DEVIATIONS = """\
## Deviations from the paper's text

- **The theorem is withdrawn.** The authors withdrew the paper's regret bound (Theorem 3): its proof
  compared ensemble sampling with Thompson sampling's actions on the wrong history. Nothing here
  rests on it. The experiments are unaffected.
- **The loss is divided by the number of observations.** The paper writes a sum over the history;
  the learning rates it quotes fit a mean over each minibatch, with the prior's pull divided by the
  number of observations.
- **Dropout follows the published gradient.** The code behind the published curves lets the output
  weights learn from the unmasked hidden units, and draws a mask for every action. Panel 3c does the
  same, by name (`published_gradient`); the library's own default is the true gradient
  (`true_gradient`).
- **Members that diverge are put back to their start.** A learning rate of 0.1 is at the edge of
  stability for the two-layer network. A member whose weights are no longer finite cannot act; it is
  reset to its prior draw and counted below.
- **Minibatches are shared by the members of an ensemble.** Each member has its own prior draw and
  its own noise on the targets; the rows that a step looks at are the same for all.
"""

STUDY = Study(
    "Ensemble sampling: the paper's experiments",
    (figure1.FIGURE, figure2.FIGURE, figure3.FIGURE, beyond.FIGURE),
    CLAIMS,
    about=ABOUT,
    notes=DEVIATIONS,
    more=lambda folder: others.section(others.load(folder), folder),
)

PANELS: dict[str, Panel] = STUDY.panels

__all__ = ["PANELS", "STUDY"]
