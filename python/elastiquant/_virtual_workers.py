"""VirtualWorkers: all workers of a job in one process, for research on one machine."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from elastiquant import _core, _model, _options, _state
from elastiquant._session import Measured


class VirtualWorkers(Measured):
    """What compress() would make of the gradients of so many workers, in one process.

        workers = elastiquant.VirtualWorkers(model, 6, "qsgd:bits=4")
        for batches in loader:  # one batch for each worker
            for images, labels in batches:
                with workers.turn():
                    loss_of(model(images), labels).backward()
            workers.average()  # the parameters' .grad is the mean now
            optimizer.step()

    For comparing schemes on one GPU, or in a notebook: no process group, launcher or network is
    needed. The codecs, the exchange, what each worker remembers (error feedback, momentum) and
    the bytes are those of real workers. The means even have the bits that compress() gives them
    under the same seed, if DDP has all gradients in one bucket, and in the reverse order of the
    parameters. Only what takes time differs: nothing is sent while a backward goes on.

    model: any module; its parameters may be on a GPU, and are trained in fp32, fp16 or bf16.
    workers: 1 to 64.
    codec, exact, policy, bucket_kib, measure_every, seed, threads, exchange, down: as
        compress() has them. Gradients are compressed as they are, not in an optimiser's metric.

    stats(), layers() and record() tell of worker 0. There is one model, where DDP gives all
    workers the buffers of worker 0: a batch norm's running statistics see the batches of all
    workers in turn, unless you keep it from that.

    Errors: ValueError for a bad argument or spec, and for codecs that have the learning rate in
    their memory ('efsign|ef'), which need an optimiser: train with compress(). TypeError for
    parameters, and arguments, of another type.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        workers: int,
        codec: str = "dither:bits=2",
        *,
        exact: str = "1d",
        policy: _options.Policy | None = None,
        bucket_kib: int | None = None,
        measure_every: int = 50,
        seed: int = 0,
        threads: int = 1,
        exchange: str = "auto",
        down: str | None = None,
    ):
        o = types.SimpleNamespace(**{k: v for k, v in locals().items() if k != "self"})
        _options.check_types(o, int, "workers")
        _options.check_types(o, str, "codec exact exchange")
        _options.check_types(o, str, "down", or_none=True)
        _options.check_numbers(types.SimpleNamespace(**vars(o), timeout=1, stall_timeout=None))
        _options.check_down(down)
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model is a {type(model).__name__}; it must be a torch.nn.Module")
        named = _model.trained(_model.inner_module(model))
        names, self._parameters = [name for name, _ in named], [p for _, p in named]
        for name, p in named:
            _model.check_dense(p, f"the parameter {name!r}")
        specs = _options.specs_of(names, self._parameters, codec, exact, policy)
        for spec in set(specs):
            if _core.Codec(spec)._has_learning_rate:
                raise ValueError(
                    f"{spec!r} has the learning rate in its memory, which virtual workers do "
                    "not know: train with compress(model, codec, optimizer=...)"
                )
        engine = _core._VirtualWorkers(
            workers=workers,
            parameters=[
                (name, p.shape, spec)
                for name, p, spec in zip(names, self._parameters, specs, strict=True)
            ],
            bucket_elements=(bucket_kib or 128 * workers) * 256,
            seed=seed,
            threads=threads,
            measure_every=measure_every,
            exchange=exchange,
            down={} if down is None else {_core.Codec(codec).spec: _core.Codec(down).spec},
        )
        self._open(engine)
        self._codecs = dict(zip(names, specs, strict=True))
        self._rows: torch.Tensor | None = None  # of the turns of this step
        self._turns, self._workers = 0, workers

    @property
    def workers(self) -> int:
        """How many there are."""
        return self._workers

    @property
    def elements(self) -> int:
        """The number of values in a worker's gradient."""
        return self._engine.elements()

    @property
    def codecs(self) -> dict[str, str]:
        """The spec of each parameter, by its name in the model."""
        return dict(self._codecs)

    @property
    def exchanges(self) -> dict[str, str]:
        """How the means of what travels under each spec come about, as Compression has it."""
        return self._engine.exchanges()

    @contextlib.contextmanager
    def turn(self) -> Iterator[int]:
        """One worker's turn to fill the parameters' .grad, which are taken from it at the end.

        Gives the worker's number, from 0. Several backwards in one turn accumulate. A
        parameter without a gradient counts as zero. Gradients from before are dropped. Raises
        RuntimeError if all workers have had their turn: average() comes first; and TypeError,
        at the end, for a sparse gradient (nn.Embedding(sparse=True)).
        """
        if self._turns == self._workers:
            raise RuntimeError(
                f"all {self._workers} workers have had their turn in this step: average() must "
                "come before the next one"
            )
        for p in self._parameters:
            p.grad = None
        yield self._turns
        if self._rows is None:
            self._rows = self.zeros()
        for name, p in zip(self._codecs, self._parameters, strict=True):
            if p.grad is not None:
                _model.check_dense(p.grad, f"the gradient of {name!r}")
        row = self._rows[self._turns]
        for view, p in zip(self.views(row), self._parameters, strict=True):
            view.zero_() if p.grad is None else view.copy_(p.grad)
            p.grad = None
        self._turns += 1

    def average(self) -> None:
        """Sets the parameters' .grad to the mean over the workers, once all had a turn."""
        if self._turns != self._workers or self._rows is None:
            raise RuntimeError(
                f"{self._turns} of {self._workers} workers have had their turn(): average() is "
                "for when all have"
            )
        self._turns = 0
        self.all_reduce(self._rows)
        for view, p in zip(self.views(self._rows[0]), self._parameters, strict=True):
            p.grad = view.to(p.device, p.dtype, copy=True)

    def zeros(self) -> torch.Tensor:
        """Room for all_reduce(): fp32 on the host, in pages that a GPU can write to at once if
        the model is on one."""
        on_gpu = any(p.is_cuda for p in self._parameters)
        shape = (self._workers, self.elements)
        return torch.zeros(shape, dtype=torch.float32, device="cpu", pin_memory=on_gpu)

    def views(self, row: torch.Tensor) -> list[torch.Tensor]:
        """Each parameter's part of one worker's row, in its shape, which writes to the row."""
        return [
            row[begin : begin + p.numel()].view(p.shape)
            for begin, p in zip(self._engine.offsets(), self._parameters, strict=True)
        ]

    def all_reduce(self, gradients: torch.Tensor) -> None:
        """Makes all rows the mean over the workers, with the bits that all would get.

        gradients: of shape (workers, elements), on any device, of floating point; row w is what
            worker w would send, with each parameter where views() has it. Fastest is fp32 on
            the host, such as zeros() gives. Where a row has a NaN or infinity, all become NaN.

        Raises ValueError for another shape, and TypeError for a tensor that is sparse or of no
        floating point.
        """
        _model.check_dense(gradients, "gradients", (*_model.TRAINED, torch.float64))
        if tuple(gradients.shape) != (self._workers, self.elements):
            raise ValueError(
                f"gradients must have the shape {(self._workers, self.elements)}, one row for "
                f"each worker, not {tuple(gradients.shape)}"
            )
        floats = gradients.detach().to("cpu", torch.float32).contiguous()
        self._engine.all_reduce(floats)
        if floats.data_ptr() != gradients.data_ptr():
            gradients.copy_(floats)

    def set_epoch(self, epoch: int) -> None:
        """The epoch, from 0, for codecs that send more in the first ones (dgc)."""
        self._engine.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """What all workers remember, for load_state_dict() of as many workers. Its parts are
        those that Compression.state_dict() has of each worker."""
        state: dict[str, Any] = {}
        for rank, sections in enumerate(self._engine.save_state()):
            state |= _state.pack(sections, rank)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what state_dict() gave, under the same codecs and number of workers.
        Raises CorruptFrameError, which names what differs."""
        self._engine.load_state([_state.unpack(state, w) for w in range(self._workers)])
