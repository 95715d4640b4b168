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
    train(model, range(STOP, END), optimizer)
    torch.save(checkpoint | {"weights": weights(model)}, folder / f"{spec}.{dist.get_rank()}")


def resume(spec: str, folder: Path) -> None:
    saved = torch.load(folder / f"{spec}.{dist.get_rank()}", weights_only=True)
    for bucket_kib in (4, 16):
        model, compression, optimizer = start(spec, bucket_kib)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        compression.load_state_dict(saved["compression"])
        again = compression.state_dict()
        assert set(again) == set(saved["compression"])
        assert all(torch.equal(again[k], v) for k, v in saved["compression"].items())
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
    refuse_another_state(saved["compression"])


def refuse_another_state(state: dict[str, torch.Tensor]) -> None:
    _, compression, _ = start("alq", 4)
    fewer = {k: v for k, v in state.items() if not k.startswith("codec/")}
    try:
        compression.load_state_dict(fewer)
    except elastiquant.CorruptFrameError as e:
        assert "codec/alq" in str(e), e
    else:
        raise AssertionError("a state of another codec was taken")


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
