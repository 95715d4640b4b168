"""Stops and resumes training under compress(): see ddp_test.py.

Arguments: "stop" or "resume", and a folder. Under the first, trains on to the end and saves, on
the way, checkpoints and, at the end, the weights. Under the second, resumes from the
checkpoints and compares.
"""

from __future__ import annotations

import copy
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ddp_training import check_same_everywhere, make_ddp, relative_error, train, weights

import elastiquant

STOP, END = 6, 10
SPECS = (
    "dither:bits=2",
    "elastic:bits=3|rans|ef",
    "topk:ratio=0.1|ef",
    "powersgd:rank=2|ef",
    "dgc:ratio=0.05",
    "alq",
)


def start(spec: str, bucket_kib: int):
    model = make_ddp()
    compression = elastiquant.compress(model, spec, bucket_kib=bucket_kib, switch=False)
    return model, compression, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def stop(spec: str, folder: Path) -> None:
    model, compression, optimizer = start(spec, 4)
    train(model, range(STOP), optimizer)
    # A copy, as training goes on in the same tensors.
    checkpoint = copy.deepcopy(
        {
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "compression": compression.state_dict(),  # each worker's own
        }
    )
    dcp.save({"compression": compression}, checkpoint_id=folder / f"{spec}.dcp")
    train(model, range(STOP, END), optimizer)
    torch.save(checkpoint | {"weights": weights(model)}, folder / f"{spec}.{dist.get_rank()}")


def check_same(state: dict, expected: dict) -> None:
    """Keys, types and values."""
    assert set(state) == set(expected), set(state) ^ set(expected)
    for key, value in expected.items():
        assert type(state[key]) is type(value), key
        same = torch.equal if isinstance(value, torch.Tensor) else str.__eq__
        assert same(state[key], value), key


def resume(spec: str, folder: Path) -> None:
    saved = torch.load(folder / f"{spec}.{dist.get_rank()}", weights_only=True)
    for bucket_kib in (4, 16):
        model, compression, optimizer = start(spec, bucket_kib)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        if bucket_kib == 4:
            compression.load_state_dict(saved["compression"])
        else:
            dcp.load({"compression": compression}, checkpoint_id=folder / f"{spec}.dcp")
        check_same(compression.state_dict(), saved["compression"])
        train(model, range(STOP, END), optimizer)
        check_same_everywhere(weights(model))
        if bucket_kib == 4:
            assert torch.equal(weights(model), saved["weights"]), f"{spec} went another way"
        else:
            assert relative_error(weights(model), saved["weights"]) < 0.2, spec
        # In the middle of training too.
        compression.load_state_dict(saved["compression"])
        train(model, range(STOP, STOP + 2), optimizer)
        check_same_everywhere(weights(model))
    refuse_another_state(spec, saved["compression"])


def refuse_another_state(spec: str, state: dict) -> None:
    rank = dist.get_rank()

    def refused(state: dict, words: str, spec: str = spec) -> None:
        _, compression, _ = start(spec, 4)
        before = compression.state_dict()
        try:
            compression.load_state_dict(state)
        except elastiquant.CorruptFrameError as e:
            assert words in str(e), e
        else:
            raise AssertionError(f"taken, but: {words}")
        check_same(compression.state_dict(), before)

    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    other = states[1 - rank]
    refused(other, f"it is of rank{1 - rank}")
    renamed = {k.replace(f"rank{1 - rank}/", f"rank{rank}/"): v for k, v in other.items()}
    refused(renamed, f"saved by worker {1 - rank}, and this is worker {rank}")
    refused(state, "the codec of '0.weight' was", "bf16|ef")
    refused({"step": 3}, "no state of elastiquant")
    fewer = {k: v for k, v in state.items() if not k.endswith("0.weight")}
    if fewer != state:
        refused(fewer, "0.weight is missing")
    at = f"rank{rank}/"
    step, units = state[f"{at}step"], state[f"{at}units"]
    for name, value, found, wanted in (
        ("step", step.double(), "torch.float64", "a tensor of torch.int64"),
        ("step", "4", "str", "a tensor of torch.int64"),
        ("units", units.float(), "torch.float32", "a tensor of torch.float64"),
        ("units", None, "NoneType", "a tensor of torch.float64"),
        ("layout", torch.zeros(3), "torch.float32", "text"),
    ):
        words = f"{at}{name} of the state is of {found}; it must be {wanted}"
        refused(state | {at + name: value}, words)
    memory = next((key for key in state if "/memory/" in key), None)
    if memory is not None:  # as many bytes, of another meaning
        refused(state | {memory: state[memory].view(torch.int32)}, "torch.int32; it must be a")
    _, compression, _ = start(spec, 4)
    compression.load_state_dict(state | other)  # of which one is its own
    check_same(compression.state_dict(), state)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    step = {"stop": stop, "resume": resume}[sys.argv[1]]
    for spec in SPECS:
        step(spec, Path(sys.argv[2]))
        sys.stdout.write(f"ok {spec} {dist.get_rank()}\n")
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
