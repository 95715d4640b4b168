"""elastiquant_testbed.files: files that are whole at any moment."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from elastiquant_testbed import __main__ as command_line
from elastiquant_testbed import files
from elastiquant_testbed.testbed import TestbedError

HOLDS = """
import sys
from pathlib import Path
from elastiquant_testbed import files
with files.alone(Path(sys.argv[1]), "table4"):
    print("held", flush=True)
    sys.stdin.read()
"""


class FilesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def test_a_file_that_cannot_be_written_stays_as_it_was(self):
        path = self.folder / "file"
        files.replace(path, "old")
        failing = mock.patch.object(files.os, "replace", side_effect=OSError("full"))
        with failing, self.assertRaisesRegex(OSError, "full"):
            files.replace(path, "new")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["file"])
        self.assertEqual(path.read_text(), "old")
        files.replace(path, "new")
        self.assertEqual(path.read_text(), "new")

    def test_what_is_no_json_object_is_named(self):
        path = self.folder / "it.json"
        for text, words in (("{", "it.json is damaged: .*restore it"), ("3", "no JSON object")):
            path.write_text(text)
            with self.subTest(text), self.assertRaisesRegex(TestbedError, words):
                files.read_json(path)

    def test_one_command_at_a_time_works_on_an_experiment(self):
        with subprocess.Popen(
            [sys.executable, "-c", HOLDS, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            self.assertEqual(other.stdout.readline(), "held\n")
            words = "another `testbed run table4` writes to .*give another --out"
            with (
                self.assertRaisesRegex(TestbedError, words),
                files.alone(self.folder, "table4"),
            ):
                pass
            with files.alone(self.folder, "dagc"):
                pass
            given = ["run", "table4", "--quick", "--out", str(self.folder)]
            with (
                mock.patch.object(sys, "stderr"),
                mock.patch.object(command_line.stopping, "on_signals"),
            ):
                self.assertEqual(command_line.main(given), command_line.EXIT_FAILURE)
            other.kill()
        with files.alone(self.folder, "table4"):  # free, however the other one ended
            pass


if __name__ == "__main__":
    unittest.main()
