"""comm_hook(): a communication hook for frameworks that wrap the model in DDP themselves."""

# This module does without `from __future__ import annotations`: DDP checks the annotations of a
# hook, and would take strings for wrong types.
import gc
import inspect
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elastiquant import _compress


class HookState:
    """The state of a hook that comm_hook() gave, for one model."""

    def __init__(self, options: dict[str, Any]):
        self._options = options
        self._compression: _compress.Compression | None = None
        self._model: weakref.ref[DistributedDataParallel] | None = None
        self._parameters: set[int] = set()  # by id(), of that model

    @property
    def compression(self) -> _compress.Compression:
        """The handle that compress() would have returned. RuntimeError before the first
        backward, which makes it."""
        if self._compression is None:
            raise RuntimeError("compression begins with the first backward of the model")
        return self._compression

    def _begin(self) -> None:
        """Collective, in the first backward of a model."""
        self._compression = None  # that of a model that is gone has ended with it
        model = _model_with(self)

        def keep(engine: Any, reducer: Any, parameters: Any) -> None:
            # The hook uses the reducer, so the model keeps both, and they end together.
            model._elastiquant_hook = _Hook(engine.hook(reducer, parameters))
            self._parameters = set(map(id, parameters))

        self._compression = _compress.attach(model, self._options, keep, in_backward=True)
        self._compression._begin()  # as before a forward, because this step's is over
        self._model = weakref.ref(model)

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return HookState, (self._options,)  # for another process, or another model


class _Hook:
    """The engine's, which a model that is pickled or copied leaves behind."""

    def __init__(self, hook: Any):
        self._hook = hook

    def __call__(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return self._hook(bucket)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()


def comm_hook(codec: str = "dither:bits=2", **options: Any) -> tuple[HookState, Any]:
    """A state and a hook for DistributedDataParallel.register_comm_hook().

        state, hook = elastiquant.comm_hook("dither:bits=1", optimizer=lambda: optimizer)
        model.register_comm_hook(state, hook)  # by the framework, on its DDP model

    This is for frameworks that wrap the model in DDP themselves and only take a hook and its
    state. A script that has the DDP model at hand should call compress(), which needs no
    Python code within backward. The first backward does what compress() does, and is
    collective as that is; from then on state.compression is the handle. A pair serves one
    model at a time: once that is gone it may be given to another, and begins anew. The first
    backward finds the model by the garbage collector, so gc.freeze() must not be called between
    wrapping it and the end of that backward.

    codec, options: as compress() takes them. `optimizer` may also be a function that returns
    the optimizer, or several, as there often is none yet when the pair is made; the first
    backward calls it.

    Errors: TypeError for an option that compress() does not have; all others in the first
    backward, as compress() raises them.
    """
    bound = inspect.signature(_compress.compress).bind(None, codec, **options)
    bound.apply_defaults()
    by_name = dict(bound.arguments)
    del by_name["model"]
    return HookState(by_name), _run


def _run(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    model = state._model() if state._model is not None else None
    if model is None:
        state._begin()
        model = state._model()
    if not state._parameters.issuperset(map(id, bucket.parameters())):
        raise RuntimeError(
            "this pair of comm_hook() compresses another model: make a pair for each model"
        )
    return model._elastiquant_hook(bucket)


def _model_with(state: HookState) -> DistributedDataParallel:
    """The DDP model that this state was registered with: DDP does not tell its hooks."""
    for o in gc.get_objects():
        if issubclass(type(o), DistributedDataParallel) and any(
            own is state for _, own in o._comm_hooks
        ):
            return o
    frozen = (
        ". Or gc.freeze() has hidden the model: call that after the first backward, or use "
        "elastiquant.compress() in place of comm_hook()"
    )
    raise RuntimeError(
        "no DistributedDataParallel model has this hook: give the pair of comm_hook() to its "
        "register_comm_hook(), together" + (frozen if gc.get_freeze_count() else "")
    )
