"""The options of lab/frontier.py."""

from __future__ import annotations

import argparse
import pathlib

import frontier_schemes
import namespaces
import settings
from frontier_schemes import BITS, FP32, METHODS, ON_GPU, Bits, Scheme

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/elastiquant"
LINKS = ["1mbit,50ms", "10mbit,50ms", "50mbit,50ms", "200mbit,50ms"]
ADAMW = ["--optimizer", "adamw", "--beta2", "0.95", "--clip-norm", "1"]
ADAMW += ["--weight-decay", "0.1", "--no-decay-1d"]
# By kind of model: options, learning rates, samples a worker and step, data.
GPT = (ADAMW, [4e-3, 8e-3, 16e-3], 4, "generated-text")
IMAGES = ([], [0.05, 0.1, 0.2], 16, "generated")


def codec_of(text: str) -> tuple[str, Bits]:
    """ "1/4 bit=SPEC" as an entry of BITS, in place of its codec there."""
    bits, _, codec = text.partition("=")
    if bits not in BITS or not codec:
        raise argparse.ArgumentTypeError(f"{text!r} is not like '1/4 bit=SPEC'")
    return bits, Bits(codec, BITS[bits].everything)


def scheme_of(text: str) -> Scheme:
    try:
        return frontier_schemes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse(description: str) -> argparse.Namespace:
    """Of the command line. Ends with a message where something is wrong."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/frontier"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--every", type=int, nargs="+", default=[8, 32, 128], help="H")
    parser.add_argument("--bits", nargs="+", choices=BITS, default=list(BITS))
    parser.add_argument("--schemes", nargs="+", type=scheme_of, help="these alone, by name")
    parser.add_argument(
        "--codecs", nargs="+", type=codec_of, default=[], help="others, as '1/4 bit=SPEC'"
    )
    parser.add_argument("--model", default="gpt", help="see `elastiquant models`")
    parser.add_argument("--data", help="a text for gpt, a folder of images; else generated")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, help="samples a worker a step (gpt: 4, else 16)")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tested", type=int, default=500, help="samples of generated data")
    parser.add_argument("--seeds", type=int, default=1, help="at the best rate (1)")
    parser.add_argument("--rates", type=float, nargs="+", help="learning rates")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--links", nargs="*", default=LINKS, help="RATE,DELAY of seconds")
    parser.add_argument("--computing", type=float, help="seconds of a step's computing")
    parser.add_argument("--measure", type=float, help="seconds for measuring each link")
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument(
        "--device", default="cpu", choices=["cpu", "cuda"], help="cuda: on a GPU, see above"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    parser.add_argument("options", nargs="*", help="more for `elastiquant train`, after --")
    args = parser.parse_args()
    if args.table_only:
        adopt(args)
    args.optimizer, rates, batch, data = GPT if args.model.startswith("gpt") else IMAGES
    args.rates, args.batch = args.rates or rates, args.batch or batch
    args.data, args.codecs = args.data or data, dict(args.codecs)
    try:
        for link in args.links:
            namespaces.parse_link(link)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    if min(*args.every, args.seeds, args.steps, args.jobs) < 1 or args.workers < 2:
        parser.error(
            "--every, --seeds, --steps and --jobs take numbers of 1 or more, --workers of 2 or "
            "more"
        )
    if args.device != "cpu":
        check_device(parser, args)
    if args.schemes and args.schemes[0] != FP32:
        parser.error("the first of --schemes is what the others are compared with: fp32")
    return args


# The settings by which runs differ that must not be mixed, and what held in folders whose
# settings.json does not say it.
KEPT = ("model", "data", "workers", "batch", "steps", "precision", "options", "device")
KEPT += ("tested",)
BEFORE = {"device": "cpu", "tested": 500}


def adopt(args: argparse.Namespace) -> None:
    """Takes what the runs in --out were made with, so that the table says it."""
    there = settings.there(args.out, BEFORE) or {}
    for name in there.keys() & set(KEPT):
        setattr(args, name, there[name])


def check_device(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Ends with a message unless a GPU can train what is asked for."""
    if args.links and not args.computing:
        parser.error(
            "a GPU's time for a step says nothing of a board's: give --computing SECONDS for "
            "those at links, or --links without any"
        )
    if args.measure:
        parser.error("links are measured with `train` alone: leave out --measure")
    if args.model.startswith("gpt"):
        parser.error("on a GPU only models for images are trained here")
    methods = [scheme.method for scheme in args.schemes] if args.schemes else args.methods
    if others := [m for m in dict.fromkeys(methods) if m not in ON_GPU]:
        parser.error(f"on a GPU there is no {', '.join(others)}, only {', '.join(ON_GPU)}")
