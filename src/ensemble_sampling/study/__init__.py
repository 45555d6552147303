"""Theory, diagnostics, and how many members to take."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["diagnostics", "theory"])
