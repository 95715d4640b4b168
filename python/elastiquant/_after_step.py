"""A hook of an optimiser or a model, which does not keep whose it is alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class AfterStep:
    """Calls a method at each step, as long as its object lives. It goes along with an
    optimiser that is pickled or copied without doing anything there."""

    def __init__(self, method: Callable[[], None] | None = None):
        self._method = weakref.WeakMethod(method) if method is not None else None

    def __call__(self, *_: Any) -> None:
        method = self._method() if self._method is not None else None
        if method is not None:
            method()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return AfterStep, ()
