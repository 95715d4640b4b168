"""What the tests of `elastiquant train` have in common. Takes PROGRAM off the command line."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

import numpy as np

PROGRAM = os.path.abspath(sys.argv.pop(1))
# Options of a run that is over soon.
SMALL = {
    "model": "mlp:width=16",
    "generated_train": "512",
    "generated_test": "64",
    "batch": "8",
    "seed": "3",
    "lr": "0.05",
    "threads": "1",
}
# One that has layers of many kinds.
RESNET = {
    "model": "resnet8",
    "generated_train": "384",
    "generated_test": "64",
    "batch": "8",
    "seed": "3",
    "lr": "0.05",
}


def command_line(common, out, *flags, **options):
    """options override `common`, which is of the same kind: max_skipped=3 is --max-skipped 3,
    and workers=None leaves --workers out."""
    words = [PROGRAM, "train", "--out", str(out), *flags]
    for name, value in (common | options).items():
        words += [] if value is None else ["--" + name.replace("_", "-"), str(value)]
    return words


def run(command, timeout=300):
    """The finished process; stdout and stderr as text."""
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", timeout=timeout
    )


def train(common, out, *flags, **options):
    """A finished run, which has printed no progress."""
    return run(command_line(common, out, "--quiet", *flags, **options))


def summary(out):
    return json.loads((out / "summary.json").read_text())


def lines(out, name="metrics.jsonl"):
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


def weights(checkpoint):
    """All parameters of a checkpoint by name, read by the published layout of safetensors."""
    data = checkpoint.read_bytes()
    begin = 8 + struct.unpack_from("<Q", data)[0]
    parameters = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__" or name.startswith("optimizer.") or "running_" in name:
            continue
        if entry["dtype"] == "F32":
            at, end = (begin + offset for offset in entry["data_offsets"])
            values = np.frombuffer(data[at:end], np.float32)
            assert values.size == np.prod(entry["shape"], dtype=int), (name, entry)
            parameters[name] = values
    return parameters


class TrainTest(unittest.TestCase):
    """A test of runs with the options `common`, in a folder of its own."""

    common: ClassVar[dict[str, str]] = {}

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="eq_train_")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def train(self, name, *flags, **options):
        """The finished run, in the test's folder under `name`."""
        return train(self.common, self.folder / name, *flags, **options)

    def trained(self, name, *flags, **options):
        """The folder of a run that has succeeded."""
        done = self.train(name, *flags, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / name

    def failed(self, name, *flags, **options):
        """The folder of a run that has not."""
        done = self.train(name, *flags, **options)
        self.assertNotEqual(done.returncode, 0)
        return self.folder / name
