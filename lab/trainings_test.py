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
        self.assertEqual(trainings.train(["true", 1]), "")

    def test_one_that_gives_up_says_why_where_it_may(self):
        words = ["sh", "-c", "echo gave up at step 3 >&2; exit 5"]
        with mock.patch("sys.stderr"):
            self.assertEqual(trainings.train(words, may_give_up=True), "gave up at step 3\n")
            self.assertIn("with exit code 5", self.ended(*words))
            other = ["sh", "-c", "echo no such folder >&2; exit 2"]
            with self.assertRaisesRegex(SystemExit, "with exit code 2"):
                trainings.train(other, may_give_up=True)


if __name__ == "__main__":
    unittest.main()
