"""Checks of the other ways to compress a model: compiled ones, and hooks for frameworks."""

from __future__ import annotations

import gc
import pickle
import weakref

import torch
import torch.distributed as dist
from checking import check, compress, logged, raises
from ddp_training import check_same_everywhere, loss_of, make_ddp, make_model, train, weights
from torch.nn.parallel import DistributedDataParallel

import elastiquant


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def trained_by_compress(**options) -> torch.Tensor:
    """The weights after some steps."""
    model = make_ddp(bucket_cap_mb=25)
    optimizer = optimizer_of(model)
    compress(model, optimizer=optimizer, exact_steps=1, **options)
    train(model, range(6), optimizer)
    return weights(model)


def broken_on_worker_1() -> None:
    if dist.get_rank() == 1:
        raise LookupError("no optimizer yet")


def train_called(called: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """As train() does, by calling a model that stands for another."""
    for step in range(6):
        optimizer.zero_grad()
        loss_of(called, step).backward()
        optimizer.step()


@check
def a_compiled_model_is_compressed_like_any_other():
    expected = trained_by_compress(policy={"0.weight": "elastic:bits=8"})
    wrapped = make_ddp(bucket_cap_mb=25)  # Dynamo wants no smaller ones
    compiled = torch.compile(wrapped, backend="eager")
    within = make_ddp(torch.compile(make_model(), backend="eager"), bucket_cap_mb=25)
    for given, called, model in (
        (compiled, compiled, wrapped),  # compiled after it is wrapped
        (within, within, within),  # and before
    ):
        optimizer = optimizer_of(model)
        # Names are those of the model that was compiled.
        compression = compress(
            given, optimizer=optimizer, exact_steps=1, policy={"0.weight": "elastic:bits=8"}
        )
        assert compression.codecs["0.weight"].startswith("elastic:bits=8")
        train_called(called, optimizer)
        assert compression.metric == "adam" and compression.stats().steps == 6
        assert torch.allclose(weights(model), expected, atol=1e-4)
        check_same_everywhere(weights(model))


@check
def a_model_that_is_compiled_after_it_is_compressed_trains_too():
    model = make_ddp(bucket_cap_mb=25)
    optimizer = optimizer_of(model)
    compression = compress(model, optimizer=optimizer, exact_steps=1)
    train_called(torch.compile(model, backend="eager"), optimizer)
    assert compression.stats().steps == 6
    assert torch.allclose(weights(model), trained_by_compress(), atol=1e-4)


@check
def what_is_compiled_and_not_wrapped_is_refused():
    with raises(TypeError, "wrapped in DistributedDataParallel, not Sequential"):
        elastiquant.compress(torch.compile(make_model(), backend="eager"))


@check
def the_python_reducer_of_ddp_is_refused():
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        models = make_ddp(), make_ddp()
    words = 'optimize_ddp = "python_reducer".* set it to False, before you wrap'
    with raises(ValueError, words):
        compress(models[0])
    models[1].register_comm_hook(*elastiquant.comm_hook("dither:bits=2"))
    with raises(ValueError, words):
        loss_of(models[1], 0).backward()


@check
def a_pair_for_a_framework_does_what_compress_does():
    for codec in ("dither:bits=2", "elastic:bits=4|ef"):
        model, other = make_ddp(), make_ddp()
        optimizers = optimizer_of(model), optimizer_of(other)
        compress(other, codec, optimizer=optimizers[1], exact_steps=0)
        state, hook = elastiquant.comm_hook(
            codec,
            optimizer=lambda: optimizers[0],  # noqa: B023
            exact_steps=0,
            switch=False,
        )
        with raises(RuntimeError, "begins with the first backward"):
            _ = state.compression
        model.register_comm_hook(state, hook)
        train(model, range(6), optimizers[0])
        train(other, range(6), optimizers[1])
        assert torch.equal(weights(model), weights(other)), codec
        compression = state.compression
        assert compression.metric == "adam" and compression.stats().steps == 6
        assert compression.stats().ratio > 4


@check
def a_pair_says_at_once_what_is_wrong_or_in_the_first_backward():
    with raises(TypeError, "bitz"):
        elastiquant.comm_hook("dither:bits=2", bitz=3)
    state, hook = elastiquant.comm_hook("dither:bitz=2")
    model = make_ddp()
    model.register_comm_hook(state, hook)
    with raises(Exception, "bitz"):
        loss_of(model, 0).backward()
    # Where one worker has no optimizer, the others hear of it.
    state, hook = elastiquant.comm_hook("dither:bits=2", optimizer=broken_on_worker_1)
    model = make_ddp()
    model.register_comm_hook(state, hook)
    with raises(Exception, "no optimizer yet"):
        loss_of(model, 0).backward()
    state, hook = elastiquant.comm_hook("dither:bits=2")
    model = make_ddp()
    model.register_comm_hook(elastiquant.comm_hook("dither:bits=2")[0], hook)
    loss_of(model, 0).backward()  # any state goes with the hook
    with raises(RuntimeError, "begins with"):
        _ = state.compression


@check
def a_model_that_gc_has_frozen_is_told_of():
    state, hook = elastiquant.comm_hook("dither:bits=2")
    model = make_ddp()
    model.register_comm_hook(state, hook)
    gc.freeze()
    try:
        with raises(RuntimeError, r"gc.freeze\(\) has hidden the model: call that after the"):
            loss_of(model, 0).backward()
    finally:
        gc.unfreeze()
    model = make_ddp()
    model.register_comm_hook(*elastiquant.comm_hook("dither:bits=2", switch=False))
    loss_of(model, 0).backward()
    gc.freeze()  # from here on it may
    try:
        train(model, range(2))
    finally:
        gc.unfreeze()


@check
def a_pair_goes_to_another_process_and_does_not_keep_the_model():
    specs = {
        "dither:bits=3": "dither:bits=3",
        "topk:ratio=0.1|ef": "topk:ratio=0.1,bits=16,method=exact|ef",
    }
    for spec, full in specs.items():
        state, hook = pickle.loads(pickle.dumps(elastiquant.comm_hook(spec)))
        model = make_ddp(find_unused_parameters=True)
        model.register_comm_hook(state, hook)
        train(model, range(3))
        assert state.compression.codecs["0.weight"] == full
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
        state.compression.close()  # settles the last step, of which there is nothing left


@check
def a_pair_ends_with_its_model():
    """With all that the model keeps by its reducer: parameters, engine and connections."""
    for spec in ("dither:bits=3", "topk:ratio=0.1|ef"):
        state, hook = elastiquant.comm_hook(spec)
        model = make_ddp()
        model.register_comm_hook(state, hook)
        train(model, range(3))
        gone = [weakref.ref(o) for o in (state.compression, next(model.parameters()))]
        del state, hook, model
        gc.collect()
        assert [o() for o in gone] == [None, None], spec


@check
def a_pair_serves_one_model_after_another_and_not_two_at_once():
    state, hook = elastiquant.comm_hook("dither:bits=2", switch=False)
    model, other = make_ddp(), make_ddp()
    model.register_comm_hook(state, hook)
    train(model, range(3))
    other.register_comm_hook(state, hook)
    with raises(RuntimeError, "compresses another model: make a pair for each"):
        loss_of(other, 0).backward()
    train(model, range(3, 6))  # none the worse
    assert state.compression.stats().steps == 6
    del model, other
    gc.collect()
    later = make_ddp()
    later.register_comm_hook(state, hook)
    train(later, range(4))
    check_same_everywhere(weights(later))
    assert state.compression.stats().steps == 4


@check
def a_nan_in_a_pair_is_a_nan_on_all():
    model = make_ddp()
    state, hook = elastiquant.comm_hook("dither:bits=2", switch=False)
    model.register_comm_hook(state, hook)
    with logged():
        for step in range(3):
            loss = loss_of(model, step)
            if step == 2 and dist.get_rank() == 0:
                loss = loss * float("nan")
            model.zero_grad()
            loss.backward()
    assert all(p.grad.isnan().any() for p in model.parameters() if p.dim() > 1)
    assert isinstance(model, DistributedDataParallel)
