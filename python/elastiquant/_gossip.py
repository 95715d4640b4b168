"""Gossip: workers train without a centre, each with a model of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from elastiquant import _core, _group, _model, _options, _state
from elastiquant._after_step import AfterStep
from elastiquant._buffers import Buffers
from elastiquant._same_round import SameRound, place_of
from elastiquant._session import Rounds
from elastiquant._stats import LayerStats

_log = logging.getLogger("elastiquant")

_Found = TypeVar("_Found")


class Gossip(Rounds):
    """Lets workers average with their neighbours on a graph, and with nobody else.

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        gossip = elastiquant.Gossip(optimizer, model, graph="ring", codec="dither:bits=1")

    The training loop stays as it is. After each optimizer.step() this worker shows its
    neighbours how its weights have changed, in few bits, and its weights move towards what
    they show. There is no all-reduce: a step waits for the neighbours' messages alone. The
    optimiser's state stays local. All workers count alike.

    Collective: every worker of `group` makes one, with the same arguments, before its first
    step. Parameters and buffers then become those of the group's worker 0. All workers must
    take the same number of steps, except under ad-psgd, where each takes as many as it can. A
    GradScaler skips steps on single workers, so it must not be used, and the log warns of one:
    use bf16.

    optimizer: the one whose steps are followed, wrapped by Accelerate or not.
    model: any module with dense fp32 parameters, on CPU or GPU (which are encoded on the
        host), compiled or not; not within DistributedDataParallel, which averages gradients.
    graph: "ring", "torus[:rows=R]", "hypercube", "star", "complete", "exponential",
        "one-peer-exponential", "random-regular[:degree=3]", "erdos-renyi[:p=0.5]",
        "random-pairs", or a file of edges. `elastiquant graph GRAPH --nodes N` shows it.
    algorithm: "dpsgd", "d2", "gradient-tracking", "dcd", "ecd", "choco", "deepsqueeze",
        "ad-psgd", "sgp" or "noloco".
    codec: of what is shown. "fp32" sends weights as they are.
    every: steps from one exchange to the next, at least 1.
    step: how far weights follow what neighbours show, above 0 and up to 1 (gamma). None: 1
        for a codec that loses nothing, without delay; otherwise worker 0 searches for one,
        for a second.
    delay: 1: messages travel while the next gradient is computed, and count a step later;
        of choco only. (Those of dpsgd travel then anyway, and count at once.)
    on_loss: what the others do if a worker is lost, because its machine, its network or its
        script has ended. "stop": they raise an error that names it. "go-on": they train on
        without it, say so in the log, and finish() averages those that are left. It must not
        be worker 0, which they meet at, and it does not come back. Of all algorithms but
        "d2", "gradient-tracking" and "ecd".
    seed, threads, timeout, stall_timeout, link: as in compress().
    group: of workers that meet; None: the default group.

    Buffers, such as running statistics, stay each worker's own until finish(), which makes
    the parameters of all the mean of all. A step that has made a parameter NaN or infinite is
    taken back on that worker alone, with a warning in the log.

    As a context manager it calls finish() at the end, and close().

    Errors: ValueError for a bad argument, such as a graph that does not suit the algorithm,
    which names one that does, an optimizer that another Gossip, DiLoCo or LocalSGD follows, or
    a codec with momentum, the learning rate or levels of its own (dgc, efsign|ef, alq, amq);
    TypeError for an argument of another type and for parameters that are no dense fp32;
    RuntimeError if workers differ in their arguments or, from the forward before an exchange or
    its optimizer.step(), go on from states of different rounds, or if a parameter is trained
    that was not at the start. Unless the others go on, a lost worker raises
    torch.distributed.DistBackendError, which names it, from optimizer.step() of all others. If
    they do, one that was only frozen raises it when it wakes up.
    """

    _farewell = "it closed its gossip"
    _ended: tuple[int, list[list[int]]] | None = None  # rounds and parts when it was closed

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        *,
        graph: str = "one-peer-exponential",
        algorithm: str = "choco",
        codec: str = "dither:bits=1",
        every: int = 1,
        step: float | None = None,
        delay: int = 0,
        on_loss: str = "stop",
        group: dist.ProcessGroup | None = None,
        seed: int = 0,
        threads: int = 1,
        timeout: float = 20.0,
        stall_timeout: float | None = 1800.0,
        link: str | None = None,
    ):
        optimizer = _options.followed(optimizer)
        o = types.SimpleNamespace(**{k: v for k, v in locals().items() if k != "self"})
        named: list[tuple[str, torch.nn.Parameter]] = []
        untrained: dict[str, Any] = {}
        error: Exception | None = None
        try:
            _options.check_followed(
                model, optimizer, "optimizer", "Gossip(optimizer, model, ...)"
            )
            self._check_free(optimizer)
            named = _model.trained(_model.inner_module(model))
            _check(o, named)
            untrained = _model.untrained(_model.inner_module(model))
        except Exception as e:  # the others must hear of it, or they would wait
            error = e
        same = ("graph", "algorithm", "codec", "every", "step", "delay", "on_loss", "seed")
        alike: dict[str, Any] = {k: getattr(o, k) for k in same}
        alike |= {"the parameters": _model.shapes(named)} | untrained
        with _group.on_device_of(p for _, p in named):
            meeting = _group.arrange(
                group, timeout, stall_timeout, link, alike, error, type(self).__name__
            )
        module = _model.inner_module(model)
        if meeting.world_size > 1:
            _model.start_alike(module, group)
        self._module = weakref.ref(module)
        self._parameters = [p for _, p in named]
        self._buffers = Buffers(module)
        self._graph, self._seed = graph, seed
        self._world_size, self._rank = meeting.world_size, dist.get_rank()
        engine = _core._GossipEngine(
            meeting=meeting,
            parameters=_model.shapes(named),
            start=self._host(),
            algorithm=algorithm,
            graph=graph,
            codec=codec,
            step=0.0 if step is None else step,
            delay=delay,
            seed=seed,
            threads=threads,
            goes_on=on_loss == "go-on",
        )
        if doubt := engine.doubt():  # on worker 0
            _log.warning(doubt)
        self._settings = {
            "number of workers": meeting.world_size,
            "algorithm": algorithm,
            "delay": int(delay),
            "graph": _told(graph, engine.graph_digest()),
            "set of neighbours": engine.neighbours(),
            "gossip step": engine.step(),
        }
        self._every, self._steps, self._finished = every, 0, False
        self._has_begun = False  # a round
        self._has_rounds = algorithm != "ad-psgd"  # that all workers make together
        hooks = [
            optimizer.register_step_post_hook(AfterStep(self._after_step)),
            # Not on the inner one of a compiled model: torch.compile() would trace the hook.
            model.register_forward_pre_hook(AfterStep(self._before_forward)),
        ]
        self._follow(optimizer, hooks)
        self._open(engine)
        self._same_round = SameRound(meeting, self._place(is_loaded=False))

    @property
    def rounds(self) -> int:
        """Exchanges with neighbours that have ended here."""
        return self._ended[0] if self._ended else self._engine.rounds()

    @property
    def gossip_step(self) -> float:
        """How far weights follow what neighbours show (gamma)."""
        return self._engine.step()

    @property
    def neighbours(self) -> list[int]:
        """Those of the group whose messages this worker takes, in any step."""
        return self._engine.neighbours()

    @property
    def parts(self) -> list[list[int]]:
        """The workers that are left, in the parts into which the graph has fallen by losses:
        in one each reaches each other one, by way of others too. A graph that is whole is one.
        """
        return self._ended[1] if self._ended else self._engine.parts()

    @property
    def spectral_gap(self) -> float:
        """1 less what a step multiplies differences between workers by, without compression."""
        return _core._spectral_gap(self._graph, self._world_size, self._seed)

    @torch.no_grad()
    def _host(self) -> list[torch.Tensor]:
        return [p.detach().cpu().contiguous() for p in self._parameters]

    @torch.no_grad()
    def _take(self, tensors: list[torch.Tensor]) -> None:
        for p, tensor in zip(self._parameters, tensors, strict=True):
            if p.data_ptr() != tensor.data_ptr():
                p.copy_(tensor)

    def _tell_losses(self) -> None:
        known = self._known_lost
        super()._tell_losses()
        if self._known_lost == known or len(self.parts) == 1:
            return
        _log.warning(
            "the graph has fallen into %d parts, %s: models of different parts do not come "
            "together before finish()",
            len(self.parts),
            " | ".join(", ".join(map(str, part)) for part in self.parts),
        )

    def _ends_round(self) -> bool:
        return (self._steps + 1) % self._every == 0

    def _before_forward(self) -> None:
        module = self._module()
        if module is None or not (module.training and torch.is_grad_enabled()):
            return
        if self._ends_round():
            # Between two exchanges the optimiser moves the weights away from the last one's.
            self._begin(self._host() if self._every == 1 else [])

    def _begin(self, tensors: list[torch.Tensor]) -> None:
        self._compare(self._same_round.tell)
        self._engine.begin(tensors)
        self._has_begun = True
        if tensors:
            self._take(tensors)

    def _end(self) -> None:
        """Ends the round that has begun, with the weights as they are now."""
        tensors = self._host()
        moved = self._engine.finish(tensors)
        self._has_begun = False
        self._take(tensors)
        self._tell_losses()
        if not moved:
            _log.warning(
                "step %d made a parameter NaN or infinite: it is taken back here",
                self._steps + 1,
            )
        self._count_lost(not moved, "steps made a parameter NaN or infinite")

    @torch.no_grad()
    def _after_step(self) -> None:
        if self._has_rounds:
            self._look_for_scaler()
        if self._ends_round():
            if (module := self._module()) is not None:
                self._compare(lambda: self._check_trained(module))
            self._begin([])  # if no forward has begun the round
            self._end()
        self._steps += 1

    @torch.no_grad()
    def _pause(self) -> None:
        tensors = self._host()
        self._engine.pause(tensors)
        self._take(tensors)
        self._tell_losses()

    def _meet(self, find: Callable[[], _Found]) -> _Found:
        """What all workers find together, between two rounds. They have told by then where they
        started."""
        self._compare(self._same_round.tell)
        self._pause()
        found = find()
        self._tell_losses()
        self._compare(lambda: self._same_round.check(self.lost))
        return found

    @torch.no_grad()
    def consensus_distance(self) -> float:
        """Collective, between two rounds: the root of the mean of |x_i - mean|^2 over workers,
        with x_i all parameters of worker i."""
        return self._meet(lambda: self._engine.average([t.clone() for t in self._host()]))

    def check_replicas(self) -> None:
        """Collective, between two rounds: compares what each worker has shown its neighbours
        with the replicas that these have of it, by hashes. Raises RuntimeError on all workers
        if they differ in any bit, and names the edges. Nothing is compared where workers keep
        no such replicas: under "fp32" on a graph that changes, where each message replaces what
        was known."""
        odd = self._meet(self._engine.odd_replicas)
        if odd:
            raise RuntimeError(
                f"after step {self._steps} the copies on edge(s) {odd} differ: what the second "
                "worker has of the first must be to the bit what that one has"
            )

    @torch.no_grad()
    def finish(self) -> None:
        """Collective, after the same step on all workers: parameters become the mean of all
        workers' parameters, and so do floating-point buffers (as DiLoCo averages them).

        Call it at the end of training: no steps are followed from here. To call it again does
        nothing. Forwards that all workers have run since that step, as for batches that
        gradient accumulation has left over, do no harm, and their gradients are not used. If
        only some workers have run such forwards, all raise DistBackendError, but for "ad-psgd".
        """
        if self._finished:
            return
        if self._has_begun:  # by such a forward: the neighbours wait for this worker's part
            self._end()
        self._take(self._meet(self._mean))
        buffers = self._buffers.read()
        self._engine.average(buffers)
        self._buffers.write(buffers)
        self._tell_losses()
        self._finished = True
        self._detach()

    def _mean(self) -> list[torch.Tensor]:
        tensors = self._host()
        self._engine.average(tensors)
        return tensors

    def layers(self) -> list[LayerStats]:
        """None: the parameters are shown as one vector."""
        return []

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """What must be saved, beside this worker's model and optimiser, for training to go on
        as it would have, to the bit (but for "ad-psgd", whose pairs meet as the clock has it).

        Call it between optimizer.step() and the next forward. Keys begin with the worker's
        rank, because states differ from worker to worker. Each worker may save whenever it
        likes, and waits at most until its neighbours have made the step that it has made. Only
        under "ad-psgd" it is collective, and moves the weights by what the neighbours have made
        of them meanwhile: copy the model's afterwards. A state that is saved when workers have
        been lost cannot be loaded: begin anew from the weights.
        """
        tensors = self._host()
        sections = self._engine.save_state(tensors)
        self._take(tensors)
        self._tell_losses()
        return _state.pack(sections, self._rank) | {
            f"rank{self._rank}/own/steps": torch.tensor(self._steps),
            f"rank{self._rank}/own/settings": json.dumps(self._settings),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what state_dict() gave. Load the model's and the optimiser's too.

        All workers load, between the same steps, what they have saved after the same step. They
        compare that before the next exchange: if they differ, RuntimeError names their rounds,
        on all of them (as DistBackendError where another one has found it). Under "ad-psgd",
        where each has made as many steps as it could, they compare only that all have loaded a
        state or none has. Collective if exchanges have been made already; a worker that goes on
        meanwhile raises DistBackendError on all.

        Errors: CorruptFrameError naming what differs (rank, number of workers, parameters,
        their shapes, codec, graph, neighbours on it, algorithm, delay, gossip step), is
        missing, or is there and unknown; nothing has changed then. RuntimeError after finish().
        """
        if self._finished:
            raise RuntimeError(
                "this Gossip has finished and follows no steps: make another one"
            )
        prefix = f"rank{self._rank}/own/"
        own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        rest = {k: v for k, v in state.items() if not k.startswith(prefix)}
        sections = _state.unpack(rest, self._rank)
        steps = self._steps_of(own)
        self._engine.load_state(sections)
        self._steps = steps
        self._same_round.start(self._place(is_loaded=True))

    def _place(self, is_loaded: bool) -> str:
        """From where this worker goes on, in words that are the same for all that may."""
        if self._has_rounds:
            return place_of(self._steps, self._engine.next_round())
        return "a state" if is_loaded else "the beginning"

    def _steps_of(self, own: Mapping[str, Any]) -> int:
        """The steps that a state has counted; raises CorruptFrameError unless its settings are
        these. What a worker has seen of its neighbours means nothing under other ones, and
        with another step training would not go on as it would have."""
        for key in ("steps", "settings"):
            if key not in own:
                raise _core.CorruptFrameError(
                    f"the state lacks rank{self._rank}/own/{key}: it may be of an older version"
                )
        if unknown := own.keys() - {"steps", "settings"}:
            raise _core.CorruptFrameError(
                f"the state has own/{', '.join(sorted(unknown))}, which Gossip does not know"
            )
        try:
            theirs, steps = dict(json.loads(own["settings"])), int(own["steps"])
        except (RuntimeError, TypeError, ValueError):
            raise _core.CorruptFrameError(
                "own/settings or own/steps of the state is damaged"
            ) from None
        for name, ours in self._settings.items():
            if (other := theirs.get(name)) != ours:
                raise _core.CorruptFrameError(
                    f"the state is of another {name}: {other!r}, and this Gossip has {ours!r}. "
                    "Make it with the arguments of the one that saved the state"
                    + (f", and step={other!r}" if name == "gossip step" else "")
                )
        return steps

    def close(self) -> None:
        """Removes the hooks and ends communication. The parameters stay this worker's own.
        Collective under "ad-psgd", whose workers count on each other's answers until then.
        Happens at exit by itself."""
        with contextlib.suppress(RuntimeError, ValueError):
            self._pause()  # unless another worker was lost, or this is closed
        super().close()

    def _close(self, farewell: str, error: str) -> None:
        self._detach()
        self._ended = self.rounds, self.parts
        super()._close(farewell, error)

    def __repr__(self) -> str:
        return f"<elastiquant.Gossip on {self._graph}: {self.summary()}>"


def _told(graph: str, digest: int) -> str:
    """How a state tells its graph: a file of edges by its edges and weights, as it may lie
    elsewhere, or have its lines in another order, when training goes on."""
    if not _core._is_edge_file(graph):
        return graph
    return f"a file of edges with the digest {digest:016x}"


def _check(o: types.SimpleNamespace, named: list[tuple[str, torch.nn.Parameter]]) -> None:
    """Raises what is wrong with a worker's own arguments."""
    if _model.is_ddp(o.model):
        raise ValueError(
            "the model is within DistributedDataParallel, which averages the gradients of all "
            "workers in each step: give Gossip the module itself"
        )
    if not named:
        raise ValueError("the model has no parameters to train")
    _model.check_parameters(named, "Gossip")
    _options.check_trains(o.optimizer, [p for _, p in named], "optimizer")
    _options.check_types(o, str, "graph algorithm codec")
    _options.check_types(o, int, "every delay")
    _options.check_types(o, float, "step", or_none=True)
    _options.check_types(o, str, "link", or_none=True)
    _options.check_numbers(types.SimpleNamespace(**vars(o), bucket_kib=None, measure_every=0))
    _options.check_codec_of_work(o.codec, "Gossip")
    if o.every < 1:
        raise ValueError(f"every is {o.every}; it must be at least 1")
    if o.step is not None and not 0 < o.step <= 1:
        raise ValueError(f"step is {o.step}; it must be above 0 and at most 1, or None")
    _options.check_on_loss(o.on_loss)
    if o.link is not None:
        _core._check_link(o.link)
    _core._check_gossip(
        algorithm=o.algorithm,
        graph=o.graph,
        nodes=dist.get_world_size(o.group) if dist.is_initialized() else 1,
        codec=o.codec,
        step=0.0 if o.step is None else o.step,
        delay=o.delay,
        seed=o.seed,
        goes_on=o.on_loss == "go-on",
    )
