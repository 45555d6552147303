"""Actions with consequences: worlds of episodes, and agents that explore them deeply."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
