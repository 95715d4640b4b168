"""DiLoCo between islands of two workers, each of which shares a replica by DDP: four workers,
see diloco_test.py."""

from __future__ import annotations

import torch
import torch.distributed as dist
from checking import check, main, raises
from diloco_reference import Reference
from diloco_training import check_same_everywhere, make_inner, make_model, train, weights
from torch.nn.parallel import DistributedDataParallel

import elastiquant

ISLANDS = [[0, 1], [2, 3]]
PEERS = [[0, 2], [1, 3]]  # of equal place in the islands


def groups_of_mine() -> list[dist.ProcessGroup]:
    """This rank's island, and its peers; all ranks must make all groups."""
    mine = []
    for ranks in (*ISLANDS, *PEERS):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine.append(group)
    return mine


def trained(every: int, steps: int, **options) -> tuple[torch.Tensor, dist.ProcessGroup]:
    """The weights between two rounds, and the island; then checks the end."""
    island, peers = groups_of_mine()
    model = DistributedDataParallel(make_model(), process_group=island)
    inner = make_inner(model)
    with elastiquant.DiLoCo(model, inner, every=every, group=peers, **options) as rounds:
        assert list(rounds.codecs) == [name for name, _ in model.module.named_parameters()]
        train(model, inner, range(steps))
        found = weights(model)
    check_same_everywhere(weights(model))
    return found, island


@check
def islands_equal_workers_with_their_batches():
    reference = Reference(ISLANDS, 3)
    reference.train(8)
    found, _ = trained(3, 8, codec="fp32")
    torch.testing.assert_close(found, weights(reference.models[dist.get_rank() // 2]))


@check
def an_island_keeps_to_the_same_bits():
    for codec in ("dither:bits=1", "elastic:bits=2|ef"):
        for options in ({}, {"fragments": 2, "delay": 1, "mix": 0.5}, {"eager": True}):
            found, island = trained(4, 11, codec=codec, exact="none", **options)
            check_same_everywhere(found, island)


@check
def fragments_are_the_same_whatever_the_groups_of_parameters():
    island, peers = groups_of_mine()
    model = DistributedDataParallel(make_model(), process_group=island)
    weights_first = sorted(model.parameters(), key=lambda p: -p.dim())
    inner = torch.optim.SGD([{"params": [p]} for p in weights_first], lr=0.1)
    rounds = elastiquant.DiLoCo(model, inner, every=4, group=peers, fragments=2)
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, rounds._members)
    assert said == [[[0, 1], [2, 3, 4, 5, 6, 7]]] * len(said), said
    rounds.close()


@check
def an_island_does_not_go_on_without_a_lost_worker():
    island, peers = groups_of_mine()
    model = DistributedDataParallel(make_model(), process_group=island)
    inner = make_inner(model)
    compiled = torch.compile(model, backend="eager")
    for kind in (elastiquant.DiLoCo, elastiquant.LocalSGD):
        for given in (model, compiled):
            with raises(ValueError, "not within DistributedDataParallel: .*on_loss='stop'"):
                kind(given, inner, group=peers, on_loss="go-on")
    for given in (model, compiled):
        with raises(ValueError, "within DistributedDataParallel.*: give Gossip the module"):
            elastiquant.Gossip(inner, given, group=peers, on_loss="go-on")
    elastiquant.DiLoCo(model, inner, group=peers).close()  # nothing is left of those


if __name__ == "__main__":
    main()
