"""Stands in for `elastiquant train` where a test is about its runs and not about training."""

import json
import os
from pathlib import Path
from unittest import mock


class FakeTraining:
    """Stands in for `train`: a run ends at once, with an accuracy that is its number."""

    def __init__(self):
        self.calls = []

    def run(self, words, **_):
        if words[1] == "analyze":
            return mock.Mock(returncode=0, stdout=json.dumps(self.analysis(words)))
        self.calls.append(words)
        out = Path(words[words.index("--out") + 1])
        out.mkdir(parents=True, exist_ok=True)
        count = len(self.calls)
        epochs = [{"test_accuracy": count, "bytes_up": 1, "train_loss": 1.0, "seconds": {}}]
        summary = {"test_accuracy": count, "nmse": 0.5, "steps": 2, "bytes_up": 9}
        summary |= {
            "skipped_steps": 0,
            "epochs": epochs,
            "steps_per_epoch": 10,
            "world_size": 2,
            "layers": [1],
        }
        (out / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "variance": 3}\n')
        # Last, and in one move, as trainers do: with --jobs others look for it meanwhile.
        (out / "summary.json.new").write_text(json.dumps(summary))
        os.replace(out / "summary.json.new", out / "summary.json")
        return mock.Mock(returncode=0)

    def analysis(self, words):
        """Two gradients, on which a codec's error is the length of its spec, and one more."""
        codecs = [words[i + 1] for i, word in enumerate(words) if word == "--codec"]
        inputs = [
            {"results": [{"codec": c, "nmse": len(c) + extra} for c in codecs]}
            for extra in (0, 1)
        ]
        return {"inputs": inputs}
