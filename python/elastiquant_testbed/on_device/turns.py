"""The workers' forwards and backwards of a step, on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

WARM_UP = 3  # runs before a graph is captured, as PyTorch asks for

# The parts of a worker's gradient, by parameter.
Views = Callable[[torch.Tensor], list[torch.Tensor]]


class Turns:
    """Each worker has a batch, a network, and a row of gradients.

    On a GPU a worker's turn is a graph that was captured once. Those of all workers run side by
    side, since one of them alone has too little to do for it.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        batch: int,
        elements: int,
        views: Views,
        *,
        bf16: bool,
        then: Callable[[int, torch.Tensor], None] | None = None,
        state: Sequence[torch.Tensor] = (),
    ):
        """networks: by worker, all of one shape. Where workers share one, only worker 0 moves
            the batch norms' running statistics, as in `train`, where the others take over its.
        then: what a worker does with its row of gradients, as a part of its turn.
        state: what `then` changes, which captures must leave as it is.
        """
        self._networks, self._batch, self._bf16, self._then = networks, batch, bf16, then
        self._share = networks[0] is networks[-1]
        self._parameters = [list(network.parameters()) for network in networks]
        self.device = self._parameters[0][0].device
        workers = len(networks)
        images = torch.empty(workers * batch, 3, 32, 32, device=self.device)
        self._images = images.to(memory_format=torch.channels_last)
        self._labels = torch.zeros(workers * batch, dtype=torch.long, device=self.device)
        self.gradients = torch.zeros(workers, elements, device=self.device)
        self.losses = torch.zeros(workers, device=self.device)
        self._views = [views(row) for row in self.gradients]
        self._graphs: list[tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]] = []
        if self.device.type == "cuda":
            kept = [*state, *(b for network in networks for b in network.buffers())]
            before = [tensor.clone() for tensor in kept]
            self._graphs = [self._capture(worker) for worker in range(workers)]
            torch._foreach_copy_(kept, before)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Leaves the gradients and losses of these images, worker by worker."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        if not self._graphs:
            for worker in range(len(self._networks)):
                self._turn(worker)
            return
        here = torch.cuda.current_stream()
        for graph, stream in self._graphs:
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                graph.replay()
        for _, stream in self._graphs:
            here.wait_stream(stream)

    def _capture(self, worker: int) -> tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._turn(worker)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._turn(worker)
        torch.cuda.current_stream().wait_stream(stream)
        return graph, stream

    def _turn(self, worker: int) -> None:
        part = slice(worker * self._batch, (worker + 1) * self._batch)
        network = self._networks[worker]
        if self._share:
            for module in network.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.track_running_stats = worker == 0
        with torch.autocast(self.device.type, torch.bfloat16, self._bf16, cache_enabled=False):
            logits = network(self._images[part])
        loss = F.cross_entropy(logits.float(), self._labels[part])
        gradients = torch.autograd.grad(loss, self._parameters[worker])
        torch._foreach_copy_(self._views[worker], list(gradients))
        self.losses[worker].copy_(loss.detach())
        if self._then is not None:
            with torch.no_grad():
                self._then(worker, self.gradients[worker])
