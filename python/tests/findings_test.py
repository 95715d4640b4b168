"""What a report's sentences say of runs made from a formula."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

from elastiquant_report import consensus, findings
from elastiquant_report.runs import load_runs
from synthetic_runs import write_run


class FindingsTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def changed(self, name, codec, bits, **summary):
        """A run whose summary tells something else."""
        folder = write_run(self.folder / name, codec, bits)
        told = json.loads((folder / "summary.json").read_text()) | summary
        (folder / "summary.json").write_text(json.dumps(told))
        return folder

    def test_only_what_sends_fewer_bytes_is_said_to(self):
        base = self.changed("base", "fp32", 32)
        silent = self.changed("silent", "signsgd", 1, bytes_up=0)
        four = self.changed("four", "qsgd:bits=4", 4)
        more = self.changed("more", "qsgd:bits=8|rans", 64)
        self.assertIn(" MB a step", findings.size(load_runs([base, silent])))
        self.assertIn("qsgd:bits=4 sends 8.0×", findings.size(load_runs([base, silent, four])))
        self.assertEqual(
            findings.size(load_runs([base, more])), "No run sends fewer bytes than fp32"
        )
        self.assertNotIn("fewer bytes", findings.conclusion(load_runs([base, more])))

    def test_a_mean_that_is_worse_than_the_own_models_is_said_to_be(self):
        def apart(name, points):
            entry = {"epoch": 4, "test_accuracy": 80.0, "consensus_distance": 0.1}
            entry["own_accuracy"] = [80.0 - points, None]
            return self.changed(name, "fp32", 32, epochs=[entry], algorithm="dpsgd")

        runs = load_runs([apart("worse", -3.0), apart("better", 1.2)])
        self.assertEqual(
            consensus._title(runs),
            "Against the workers' own the mean of all models is 3.0 points worse to 1.2 better",
        )
        entry = {"epoch": 4, "test_accuracy": 80.0, "own_accuracy": [None, None]}
        none = self.changed("none", "fp32", 32, epochs=[entry])
        unknown = self.changed("unknown", "fp32", 32, epochs=None)
        self.assertEqual(consensus.measured(load_runs([none, unknown])), [])


if __name__ == "__main__":
    unittest.main()
