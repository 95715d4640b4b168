"""How the layers of a model are dealt to the fragments of DiLoCo."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

from torch import nn
from torch.nn.utils import parametrizations

from elastiquant import _fragments, _model

ROOT = Path(__file__).resolve().parents[3]
# Behind all others, as the package that is tested is built elsewhere.
sys.path += [str(ROOT / "examples"), str(ROOT / "python")]

from gpt_diloco import GPT  # noqa: E402

from elastiquant_testbed.on_device.networks import resnet20  # noqa: E402


def names(model: nn.Module, fragments: int) -> list[list[str]]:
    named = _model.trained(model)
    return [[named[i][0] for i in part] for part in _fragments.deal(named, fragments)]


def sizes(model: nn.Module, fragments: int) -> list[int]:
    values = dict(_model.trained(model))
    return [sum(values[name].numel() for name in part) for part in names(model, fragments)]


class FragmentsTest(unittest.TestCase):
    def test_are_of_about_the_same_size(self):
        for model, most in ((GPT(128), 8), (GPT(64), 8), (resnet20(), 8)):
            whole = sum(p.numel() for p in model.parameters())
            largest = max(p.numel() for p in model.parameters())
            for fragments in range(1, most + 1):
                with self.subTest(type(model).__name__, fragments=fragments):
                    found = sizes(model, fragments)
                    self.assertEqual(sum(found), whole)
                    if largest > whole / fragments:
                        continue  # it has a fragment of its own, which cannot be smaller
                    self.assertLessEqual(max(found) / min(found), 1.6, found)

    def test_of_the_example_are_nearly_equal(self):
        for fragments in (2, 4):
            found = sizes(GPT(128), fragments)
            self.assertLess(max(found) / min(found), 1.1, found)

    def test_one_that_is_larger_than_all_others_is_alone(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(100, 50), nn.Linear(4, 3))
        expected = [["1.weight", "1.bias"], ["0.weight", "0.bias", "2.weight", "2.bias"]]
        self.assertEqual(names(model, 2), expected)

    def test_have_whole_layers_in_the_order_of_the_model(self):
        for model in (GPT(64), resnet20()):
            order = [name for name, _ in model.named_parameters()]
            parts = names(model, 4)
            self.assertEqual(sorted(name for part in parts for name in part), sorted(order))
            module = {name: name.rpartition(".")[0] for name in order}
            for part in parts:
                self.assertEqual(part, sorted(part, key=order.index))
                here = {module[name] for name in part}
                self.assertEqual({n for n in order if module[n] in here}, set(part))

    def test_a_norm_goes_with_the_module_before_it(self):
        model = nn.Sequential(
            nn.LayerNorm(6), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.PReLU(), nn.Linear(6, 2)
        )
        named = _model.trained(model)
        together = [[named[i][0] for i in layer] for layer in _fragments.layers(named)]
        first = ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias", "3.weight"]
        self.assertEqual(together, [first, ["4.weight", "4.bias"]])

    def test_a_parametrised_weight_stays_with_its_bias(self):
        model = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.Linear(4, 2))
        self.assertEqual(
            [len(layer) for layer in _fragments.layers(_model.trained(model))], [3, 2]
        )

    def test_only_vectors_are_one_layer(self):
        named = _model.trained(nn.Sequential(nn.LayerNorm(3), nn.LayerNorm(4)))
        self.assertEqual(_fragments.layers(named), [[0, 1, 2, 3]])

    def test_what_is_not_trained_is_not_dealt(self):
        model = nn.Sequential(nn.Linear(9, 9), nn.Linear(3, 3), nn.Linear(4, 4))
        model[0].requires_grad_(False)
        self.assertEqual(names(model, 2), [["2.weight", "2.bias"], ["1.weight", "1.bias"]])

    def test_equal_layers_are_dealt_in_turn(self):
        model = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in range(5)))
        self.assertEqual(
            names(model, 2), [["0.weight", "2.weight", "4.weight"], ["1.weight", "3.weight"]]
        )

    def test_a_digest_tells_divisions_apart(self):
        named = _model.trained(GPT(64))
        found = [_fragments.digest(named, _fragments.deal(named, n)) for n in (2, 2, 3)]
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])
        strided = [list(range(f, len(named), 2)) for f in range(2)]
        self.assertNotEqual(found[0], _fragments.digest(named, strided))
        self.assertRegex(found[0], "^[0-9a-f]{16}$")


if __name__ == "__main__":
    unittest.main()
