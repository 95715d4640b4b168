#!/usr/bin/env python3
"""What it costs to cut a gradient into buckets, each of which is a frame of its own.

    .venv/bin/python lab/bucket_error.py runs/fp32/gradients/*.npy
    .venv/bin/python lab/bucket_error.py GRADIENT.npy --codecs dither:bits=1 --kib 512 128

Encodes recorded gradients (`elastiquant train --dump-gradients`) as one frame, and in buckets
of so many KiB of fp32 in their order, and prints a table of the relative squared errors. Codecs
that choose something for a whole frame, as `dither` its step, have less error in larger ones; a
run that sends while it computes needs several.
"""

import argparse
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "python"))

from elastiquant_testbed import words  # noqa: E402

BUILT = ROOT / "build/release/python"  # the package, where `make build` leaves it


def error(codec, gradient, elements: int) -> float:
    """|g - decoded|^2 over |g|^2, in buckets of so many elements."""
    lost = 0.0
    for bucket in gradient.split(elements):
        decoded = codec.encode(bucket.contiguous()).decode()
        lost += float((decoded - bucket).square().sum())
    return lost / float(gradient.square().sum())


def table(errors: dict[str, list[list[float]]], kib: list[int]) -> str:
    """By codec: for each gradient the error of one frame, and of buckets of each size."""
    heads = ["codec", "one frame", *(f"{size} KiB" for size in kib)]
    heads += [f"{size} KiB / one" for size in kib]
    lines = []
    for spec, rows in errors.items():
        cells = [f"`{spec}`".replace("|", "\\|")]
        cells += [f"{statistics.fmean(column):.3g}" for column in zip(*rows, strict=True)]
        for at in range(1, len(kib) + 1):
            cells.append(_range([row[at] / row[0] for row in rows]))
        lines.append(cells)
    return words.table(heads, lines)


def _range(ratios: list[float]) -> str:
    least = f"{min(ratios):.2f}"
    return f"{least} to {max(ratios):.2f}" if len(ratios) > 1 else least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gradients", nargs="+", type=pathlib.Path, metavar="GRADIENT.npy")
    parser.add_argument("--codecs", nargs="+", default=["dither:bits=2", "dither:bits=1"])
    parser.add_argument("--kib", nargs="+", type=int, default=[512, 128], help="(512, 128)")
    args = parser.parse_args()
    if min(args.kib) < 1:
        parser.error("--kib takes numbers of 1 or more")
    if not BUILT.exists():
        sys.exit(f"bucket_error: {BUILT} is missing: run make build")
    sys.path.insert(0, str(BUILT))
    import numpy as np
    import torch

    import elastiquant

    errors: dict[str, list[list[float]]] = {spec: [] for spec in args.codecs}
    for path in args.gradients:
        gradient = torch.from_numpy(np.load(path)).float().flatten()
        for spec, rows in errors.items():
            codec = elastiquant.Codec(spec)
            sizes = [gradient.numel(), *(256 * size for size in args.kib)]
            rows.append([error(codec, gradient, size) for size in sizes])
    print(f"Means over {len(args.gradients)} gradients; ratios from the least to the most.\n")
    print(table(errors, args.kib), end="")


if __name__ == "__main__":
    main()
