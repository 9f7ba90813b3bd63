"""SciPy's LAPACK and BLAS routines by name, loaded when the first observation needs one of them.

Importing scipy.linalg takes longer than importing all the rest; a process that asks for its first suggestion, or only
reads a problem, does without.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from scipy.linalg import blas, lapack

    routine = getattr(lapack, name, None) or getattr(blas, name)
    globals()[name] = routine
    return routine
