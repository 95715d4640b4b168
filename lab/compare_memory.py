#!/usr/bin/env python3
"""A worker's peak memory under DistributedDataParallel alone, and with what compress() adds.

    lab/compare_memory.py
    lab/compare_memory.py --model resnet18 --nodes 4 --methods fp32 elastic:bits=4 'topk|ef'

Each method trains for some steps in processes of its own, over the loopback device; what
counts is the largest resident set (ru_maxrss) of any worker. Prints it as a table, and how much
that is above the first method, in bytes and in gradients of fp32.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys

LAB = pathlib.Path(__file__).resolve().parent
BUILT = LAB.parent / "build/release/python"  # the package, where `make build` leaves it


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measure(method: str, arguments: argparse.Namespace) -> dict:
    command = [sys.executable, str(LAB / "ddp_methods.py"), "--method", method]
    command += ["--model", arguments.model, "--batch", str(arguments.batch)]
    command += ["--exchange", arguments.exchange]
    command += ["--warm-up", "2", "--steps", str(arguments.steps), "--switch"]
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(BUILT), os.environ.get("PYTHONPATH", "")]),
        "WORLD_SIZE": str(arguments.nodes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    workers = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(arguments.nodes)
    ]
    output = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        sys.exit(f"{method} failed")
    return json.loads(output[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["fp32", "elastic:bits=4", "dither:bits=1"],
        help="of ddp_methods.py",
    )
    parser.add_argument("--exchange", default="auto", help="of elastiquant's (auto)")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60, help="steps of each method (60)")
    arguments = parser.parse_args()
    print(f"| {arguments.model}, {arguments.nodes} workers | peak MB | more | gradients |")
    print("| --- | ---: | ---: | ---: |")
    base = None
    for method in arguments.methods:
        result = measure(method, arguments)
        peak = result["peak_memory"]
        base = peak if base is None else base
        gradients = (peak - base) / (4 * result["parameters"])
        print(
            f"| `{method}` | {peak / 1e6:.0f} | {(peak - base) / 1e6:.0f} | {gradients:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
