"""One idea of what is plausible per file: exact, an ensemble, a single point."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
