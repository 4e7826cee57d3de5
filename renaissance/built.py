"""The compiled half of the package, asked for before anything needs it, and the version."""

import importlib.metadata
import importlib.util

try:
    from renaissance import _native as _native
except ImportError as error:
    if importlib.util.find_spec("renaissance._native") is None:
        reason = "it is not built: `pip install .` in the project's folder builds it"
        raise ImportError(f"renaissance has no C++ module here: {reason}") from None
    reason = "`pip install --force-reinstall .` builds it for this Python and these libraries"
    raise ImportError(f"renaissance's C++ module does not load ({error}): {reason}") from error

VERSION = importlib.metadata.version("renaissance")
