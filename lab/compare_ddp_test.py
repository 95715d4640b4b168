"""What compare_ddp.py makes of its measurements, and how it ends what hangs."""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import compare_ddp

HUNG = {"method": "fp32", "rate": "10mbit", "model": "mlp", "failed": "hung: no result"}
OURS = {"method": "dither:bits=1", "rate": "10mbit", "model": "mlp", "world_size": 4}
OURS |= {"seconds_per_step": 2.5, "bytes_per_step": 8e6}
# Writes what it was told when it is to end.
LEAVES = """
import pathlib, signal, sys, time
def leave(number, frame):
    pathlib.Path(sys.argv[1]).write_text(signal.Signals(number).name)
    sys.exit()
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(60)
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = pathlib.Path(holder.name)

    def test_what_full_precision_cannot_do_is_told_without_it(self):
        text = compare_ddp.table([HUNG, OURS], ["10mbit"], ["fp32", "dither:bits=1"])
        *_, fp32, ours = text.splitlines()
        self.assertEqual(fp32, "| `fp32` |  | hangs |")
        self.assertEqual(ours, "| `dither:bits=1` | 8000 | 2.500 |")

    def test_where_all_fail_nothing_is_drawn(self):
        compare_ddp.draw([HUNG], ["10mbit"], ["fp32"], self.out / "seconds")
        self.assertEqual(list(self.out.iterdir()), [])

    def test_any_number_of_methods_is_drawn(self):
        many = [OURS | {"method": f"dither:bits={bits}"} for bits in range(1, 9)]
        names = [method["method"] for method in many]
        compare_ddp.draw(many, ["10mbit"], names, self.out / "seconds")
        self.assertTrue((self.out / "seconds.png").exists())

    def test_what_hangs_is_asked_to_leave(self):
        told = self.out / "told"
        with (
            mock.patch("subprocess.run") as cleaned,
            self.assertRaises(subprocess.TimeoutExpired),
        ):
            compare_ddp.run([sys.executable, "-c", LEAVES, str(told)], limit=2)
        self.assertEqual(told.read_text(), "SIGTERM")
        self.assertIn("--clean-up", cleaned.call_args[0][0])

    def main(self, *more: str) -> str:
        """What is measured, and written, with these options."""
        words = ["compare_ddp.py", "--out", str(self.out), "--rates", "10mbit"]
        words += ["--methods", "fp32", *more]
        with (
            mock.patch.object(sys, "argv", words),
            mock.patch.object(compare_ddp.namespaces, "stop_on_signals"),
            mock.patch("builtins.print"),
        ):
            compare_ddp.main()
        return (self.out / "measured.jsonl").read_text()

    def test_what_the_lab_cannot_do_is_no_result_of_a_method(self):
        for said, is_labs in (
            ("netns: making network namespaces needs root: run this with sudo", True),
            ("netns: ip and tc not found: install iproute2", True),
            ("netns: worker 2 exited with 1\n    RuntimeError: no", False),
            ("RuntimeError: no", False),
        ):
            done = subprocess.CompletedProcess([], 1, "", said)
            with self.subTest(said), mock.patch.object(compare_ddp, "run", return_value=done):
                if is_labs:
                    with self.assertRaisesRegex(SystemExit, "compare_ddp: (making|ip and)"):
                        self.main()
                    self.assertFalse((self.out / "measured.jsonl").exists())
                else:
                    self.assertIn('"failed"', self.main())
            (self.out / "measured.jsonl").unlink(missing_ok=True)

    def test_what_hung_is_tried_again_with_a_longer_limit(self):
        hung = mock.patch.object(
            compare_ddp, "run", side_effect=subprocess.TimeoutExpired("netns", 1)
        )
        for limit, lines in ((10, 1), (10, 1), (5, 1), (20, 2)):
            with hung:
                self.assertEqual(len(self.main("--limit", str(limit)).splitlines()), lines)

    def test_measurements_of_other_settings_are_not_taken(self):
        words = ["compare_ddp.py", "--out", str(self.out), "--rates", "10mbit"]
        words += ["--methods", "dither:bits=1"]
        for more, stops in (([], False), (["--model", "mlp"], True)):
            with (
                self.subTest(more),
                mock.patch.object(sys, "argv", words + more),
                mock.patch.object(compare_ddp, "measure", return_value=OURS) as measured,
                mock.patch.object(compare_ddp.namespaces, "stop_on_signals"),
                mock.patch("builtins.print"),
            ):
                if stops:
                    with self.assertRaisesRegex(SystemExit, "with model 'resnet20', not 'mlp'"):
                        compare_ddp.main()
                    measured.assert_not_called()
                else:
                    compare_ddp.main()
                    (_, _, given), _ = measured.call_args
                    self.assertIsInstance(given, argparse.Namespace)


if __name__ == "__main__":
    unittest.main()
