"""What compress() says of its arguments: see ddp_checks.py."""

from __future__ import annotations

import torch
import torch.distributed as dist
from checking import check, compress, raises
from ddp_training import (
    batch,
    check_same_everywhere,
    make_ddp,
    make_model,
    train,
    weights,
)
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

import elastiquant


@check
def policies_choose_codecs():
    def codecs(**options):
        with compress(make_ddp(), **options) as compression:
            return compression.codecs

    first, bias, norm = "0.weight", "0.bias", "3.weight"
    default = codecs()
    assert default[first].startswith("dither"), default
    assert default[bias] == default[norm] == "fp32"
    assert codecs(exact="none")[bias] == default[first]
    kept = codecs(exact="1d,5.*")
    assert (kept["5.weight"], kept[bias], kept[first]) == ("fp32", "fp32", default[first])
    named = codecs(policy={"0.*": "fp16", "*.weight": "natural"})
    assert (named[first], named[bias], named[norm]) == ("fp16", "fp16", "natural"), named
    by_size = codecs(policy=lambda name, p: "fp32" if p.numel() < 500 else None)
    assert (by_size["5.weight"], by_size["2.weight"]) == ("fp32", default[first])
    model = make_ddp()
    compress(model, policy={"0.*": "topk:ratio=0.1|ef", "2.*": "powersgd:rank=1|ef"})
    train(model, range(5))
    check_same_everywhere(weights(model))


@check
def wrong_arguments_are_refused():
    for options, words in (
        ({"codec": "dithr"}, "valid: fp32"),
        ({"policy": {"none.*": "fp32"}}, "no parameter's name matches 'none"),
        ({"policy": {"0.*": "nonsense"}}, "nonsense"),
        ({"exact": "1d,conv*"}, "no parameter's name matches 'conv"),
        ({"bucket_kib": 0}, "bucket_kib"),
        ({"threads": 0}, "threads"),
        ({"seed": -1}, "seed"),
        ({"timeout": 0.2}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"link": "fast"}, "fast"),
    ):
        with raises(ValueError, words):
            compress(make_ddp(), **options)
    with raises(ValueError, "down is 'alq', which fits its levels to gradients"):
        compress(make_ddp(), down="alq")
    for options, words in (
        ({"codec": 3}, "codec is 3; it must be a string"),
        ({"exact": None}, "exact is None; it must be a string"),
        ({"exchange": None}, "exchange is None; it must be a string"),
        ({"down": 2}, "down is 2; it must be a string, or None"),
        ({"link": 3}, "link is 3; it must be a string, or None"),
        ({"policy": "fp32"}, "policy is 'fp32'; it must be of patterns and specs"),
        ({"policy": {"0.*": 3}}, "policy gives 3 for '0.weight'; it must give a codec's spec"),
        ({"policy": lambda name, p: 3}, "policy gives 3 for '0.weight'"),
        ({"grad_scaler": True}, "grad_scaler is True; it must be a torch.amp.GradScaler"),
    ):
        with raises(TypeError, words):
            compress(make_ddp(), **options)
    with raises(TypeError, "switch is 'no'; it must be True or False"):
        elastiquant.compress(make_ddp(), switch="no")
    with raises(TypeError, "codec is 3; it must be a spec"):
        elastiquant.all_reduce(torch.ones(3), 3)
    with raises(TypeError, "tensor is 3; it must be a torch.Tensor"):
        elastiquant.all_reduce(3, "fp32")
    for collective in (elastiquant.all_reduce, elastiquant.all_gather):
        with raises(TypeError, "is of float64, which would lose digits"):
            collective(torch.ones(3, dtype=torch.float64), "fp32")
    with raises(TypeError, "DistributedDataParallel"):
        elastiquant.compress(make_model())
    with raises(ValueError, "dithr"):  # after which the model may be compressed
        model = make_ddp()
        compress(model, "dithr")
    compress(model)
    train(model, range(2))


@check
def parameters_of_other_types_are_refused():
    for dtype in (torch.float64, torch.complex64):
        model = nn.Linear(24, 5)
        model.scale = nn.Parameter(torch.ones(3, dtype=dtype))
        words = (
            "the parameter 'scale' must be dense, of float32, float16, bfloat16, not dense, "
        )
        with raises(TypeError, f"{words}of {dtype}"):
            compress(make_ddp(model))


@check
def the_model_must_be_wrapped_as_it_is_trained():
    for frozen_before in (False, True):
        model = make_model()
        model[0].requires_grad_(not frozen_before)
        ddp = make_ddp(model)
        model[0].requires_grad_(frozen_before)
        counts = "6 .*, and 8" if frozen_before else "8 .*, and 6"
        with raises(ValueError, f"synchronises {counts} .*: freeze or unfreeze .* before"):
            compress(ddp)


@check
def a_backward_without_what_a_forward_prepares_is_refused():
    def forward(model: nn.Module) -> torch.Tensor:
        return model.forward(batch(0)[0]).square().mean()

    for options in ({"codec": "topk|ef"}, {"optimizer": torch.optim.AdamW}):
        model = make_ddp()
        if "optimizer" in options:
            options = {"optimizer": torch.optim.AdamW(model.parameters())}
        compress(model, **options)
        with raises(
            RuntimeError, r"call compress\(\) first, then model\(x\), and not model.for"
        ):
            forward(model).backward()
    model = make_ddp()
    compress(model)  # nothing is to be prepared for plain gradients
    forward(model).backward()


@check
def a_second_hook_is_refused():
    model = make_ddp()
    compress(model)
    with raises(RuntimeError, "hook"):
        compress(model)
    train(model, range(3))  # by the first
    check_same_everywhere(weights(model))
    assert model._elastiquant.stats().steps == 3
    hooked = make_ddp()
    hooked.register_comm_hook(None, allreduce_hook)
    with raises(RuntimeError, "hook"):
        compress(hooked)
    train(hooked, range(2))


@check
def workers_that_differ_are_refused():
    last = dist.get_rank() == dist.get_world_size() - 1
    for options, words in (
        ({"codec": "dither:bits=3" if last else "dither:bits=2"}, "codec of '0.weight'"),
        ({"exact": "none" if last else "1d"}, "codec of '0.bias' is 'dither.* and 'fp32'"),
        ({"bucket_kib": 128 if last else None}, "bucket_kib is 128 and 384"),
        ({"seed": int(last)}, "seed is 1 and 0"),
    ):
        with raises(RuntimeError, f"workers {dist.get_world_size() - 1} and 0 .*{words}"):
            compress(make_ddp(), **options)
    why = "dithr" if last else r"cannot call compress\(\): ValueError: .*dithr"
    with raises(ValueError if last else RuntimeError, why):
        compress(make_ddp(), "dithr" if last else "dither")
    for options in ({"link": "fast" if last else None}, {"timeout": 0.2 if last else 20}):
        with raises(ValueError if last else RuntimeError, "fast|timeout"):
            compress(make_ddp(), **options)
    model = make_ddp()
    compress(model)
    train(model, range(2))
    check_same_everywhere(weights(model))
