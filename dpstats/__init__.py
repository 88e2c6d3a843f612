"""Statistics on private data: releases under differential privacy, and valid inference from them.

A custodian plans analyses and measures them once; an analyst opens the release. See
``help(dpstats.plan)`` and ``help(dpstats.load)``. ``__init__.pyi`` lists the public names; a module
loads when one of its names is first used, so that ``import dpstats`` is quick.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
