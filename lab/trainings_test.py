import sys
import unittest
from unittest import mock

import trainings


class TrainTest(unittest.TestCase):
    def ended(self, *words: str) -> str:
        with (
            mock.patch.object(sys, "argv", ["lab/script.py"]),
            self.assertRaises(SystemExit) as ended,
        ):
            trainings.train(words)
        return str(ended.exception)

    def test_a_training_that_fails_ends_the_script_with_words(self):
        self.assertEqual(self.ended("false"), "script: a training has failed, with exit code 1")
        self.assertIn("/nowhere is missing: run make build", self.ended("/nowhere", "train"))

    def test_one_that_succeeds_says_nothing(self):
        self.assertIsNone(trainings.train(["true", 1]))


if __name__ == "__main__":
    unittest.main()
