"""A Matplotlib figure that notebooks show without being asked, in the style of all our figures."""

from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .plot import FONT


class Picture(Figure):
    """A figure of its own: no window, no global state; notebooks show it, `savefig` writes it."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **{"layout": "constrained", **options})

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        with mpl.rc_context(FONT):
            self.savefig(file, format="png", dpi=110)
        return file.getvalue()
