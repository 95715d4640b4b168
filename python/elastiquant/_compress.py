"""compress(): a communication hook for DistributedDataParallel."""

from __future__ import annotations

import logging
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elastiquant import _between_steps, _core, _group, _metric, _model, _options, _state
from elastiquant._same_round import SameRound
from elastiquant._session import Session

_log = logging.getLogger("elastiquant")

# Of tests: what a step shall count as having taken, by whether it was sent as fp32.
STEP_SECONDS: Callable[[bool], float] | None = None


def compress(
    model: torch.nn.Module,
    codec: str = "dither:bits=2",
    *,
    exact: str = "1d",
    policy: _options.Policy | None = None,
    bucket_kib: int | None = None,
    measure_every: int = 50,
    seed: int = 0,
    threads: int = 1,
    timeout: float = 20.0,
    stall_timeout: float | None = 1800.0,
    link: str | None = None,
    switch: bool = True,
    grad_scaler: torch.amp.GradScaler | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    metric: str | _metric.MetricOf = "auto",
    exact_steps: int = _metric.EXACT_STEPS,
    exchange: str = "auto",
    down: str | None = None,
) -> Compression:
    """Compresses the gradients that a DDP model's workers exchange.

        model = DistributedDataParallel(model)
        elastiquant.compress(model, "dither:bits=2")

    Collective: every worker of the model's process group must call it, with the same arguments,
    before the first backward. The group may be of any backend (Gloo, NCCL, MPI); compressed
    messages travel over TCP connections of their own.

    model: wrapped in DistributedDataParallel, with no other communication hook. Gradients of
        fp32, fp16 or bf16, on CPU or GPU (which are encoded on the host). The model may be
        compiled, before or after it is wrapped: give what torch.compile() returned, if that is
        what the script calls.
    codec: a spec string; codecs() lists what there is. Codecs that remember ('...|ef',
        'powersgd:rank=2|ef', 'dgc:ratio=0.01') keep that by parameter: see state_dict().
    exact: what is sent as fp32 whatever the codec, comma separated: '1d' (biases and norms,
        which are small and matter), patterns of parameter names ('*.embed.*'), or 'none'.
    policy: other codecs for some parameters: {pattern: spec}, of which the first that matches
        counts, or a function of (name, parameter) that returns a spec, or None for `codec`.
        It goes before `exact`.
    bucket_kib: gradients travel in parts of about so many KiB of fp32, so that one is on its
        way while others are encoded, and others not yet there. None: 128 for each worker.
    measure_every: every so many steps the error of own messages is measured, for stats() and
        layers(); 0 for never. It costs about one decoding.
    seed: of the random numbers of rounding.
    threads: that encode and decode, each.
    timeout: seconds that a worker may be silent before the others give it up, at least 1.
    stall_timeout: seconds that others wait for a worker that lives but gets on with nothing (a
        data loader's deadlock, a broken path between two workers) before they give it up, at
        least 1. It must be longer than what one worker does alone, such as an evaluation. None
        or 0: for ever.
    link: a link to emulate, for trying: "20mbit,10ms", or a file of links between pairs of
        workers (`elastiquant train --help`). Only compressed messages feel it.
    switch: where uncompressed gradients might be faster, time some steps both ways, and leave
        them to the model's own process group, as without us, unless compressing gains 2 %, and
        log so; looked at again every 1000 steps. False, or an emulated link, always compresses.
    grad_scaler: the GradScaler that scales the loss, if there is one, for codecs that remember:
        what they remember follows its scale, which is read at each forward.
    optimizer: the one that trains the model, or a list of several. Give it if it is Adam,
        AdamW, NAdam, RAdam, RMSprop or Adagrad: gradients are then compressed in its metric.
        Such an optimiser moves a weight by g / sqrt(v), with v its running mean of g squared,
        so what is compressed is g / sqrt(v), and converted back by every worker. Without it
        the noise of a codec drowns the weights whose gradients are small. Optimisers without
        v, such as SGD, need no metric, and get none. Codecs that have the learning rate in
        their memory ('efsign|ef', as it is published) need it too: what they remember follows
        the rate of each parameter's group. Both are read at each forward. Workers whose v
        differ are told so in the first backward after.
    metric: 'auto' compresses as the optimizer says, 'plain' compresses gradients as they are,
        and a function of (name, parameter) gives another metric: it returns a tensor of the
        parameter's shape that stands for v, or None. All workers must get the same values.
    exact_steps: in the metric of an optimizer gradients go uncompressed until it has made so
        many steps. Nothing is known of the metric before the first one, and little after the
        second, and what noise gets into the second moments stays there for long.
    exchange: how the workers come to the mean of what is compressed. 'auto' takes two phases
        (parts to their owners, then the owners' means to all), or what the codec asks for; but
        2 workers make an all-gather, which moves the same bytes and quantises once in place of
        twice, for two fifths to two thirds of the variance; so do 3 under dither of .75 to 1.25
        bits, at 2/3 of its rate, for the same bytes. 'codec' is what the codec asks for,
        'two-phase', 'all-gather', 'sparse-scatter' or 'integer-sum' that one. It is told by
        Compression.exchanges, and in the log.
    down: the spec that means travel back under, of two phases, for parameters under `codec`;
        None: the same. Where workers have similar gradients, as with large batches, N of them
        lose least with about half of log2 N bits more on the way back than on the way there.

    Every worker gets the same bits. Where a worker has a NaN or infinity, the gradient is NaN
    on all, as without compression, so that GradScaler and clipping work.

    Errors: TypeError for a model that is not DDP, for a parameter of a type that cannot be
    compressed (fp64, complex) and for an argument of another type, ValueError for a bad
    argument or spec and for a model under DDP's Python reducer, RuntimeError if the model has a
    hook already, or if workers differ in their arguments or one of them cannot go on, which it
    names. In training, a lost worker raises
    torch.distributed.DistBackendError, which names it and says why, from backward() on all
    others, within `timeout`; a stuck one within `stall_timeout`.
    """
    options = dict(locals())
    del options["model"]
    return attach(model, options, _core._DdpEngine.register)


# A function that makes an engine the communication hook of a DDP model's reducer, which has
# these parameters.
Register = Callable[[_core._DdpEngine, Any, Sequence[torch.nn.Parameter]], None]


def attach(
    model: torch.nn.Module,
    options: Mapping[str, Any],
    register: Register,
    in_backward: bool = False,
) -> Compression:
    """Does what compress() does, whose options it takes by name, and calls `register`. Within
    backward DDP holds a lock, so that it cannot be asked for what it synchronises."""
    ddp = _model.uncompiled(model)
    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(
            f"compress() takes a model wrapped in DistributedDataParallel, not "
            f"{type(ddp).__name__}: wrap it first, then compress it"
        )
    o = types.SimpleNamespace(**options)
    plan, alike, error = None, {}, None
    try:
        plan = _checked(ddp, o)
        if not in_backward:
            _check_reduced(ddp, len(plan.names))
        alike = _alike(o, plan)
    except Exception as e:  # the others must hear of it, or they would wait
        error = e
    with _group.on_device_of(ddp.parameters()):
        meeting = _group.arrange(
            ddp.process_group, o.timeout, o.stall_timeout, o.link, alike, error, "compress()"
        )
    engine = _engine(ddp, o, plan, meeting)
    register(engine, ddp.reducer, plan.parameters)
    compression = Compression(engine, plan.codecs(), plan.metric, dist.get_rank())
    if plan.remembers():
        compression._between_steps = _between_steps.BetweenSteps(
            engine, ddp, plan.parameters, plan.specs, o.grad_scaler, plan.optimizers
        )
    compression._same_round = SameRound(meeting, _place(0), places="steps")
    # Not on the inner one of a compiled model: torch.compile() would trace the hook, too.
    model.register_forward_pre_hook(_BeforeForward(compression))
    ddp._elastiquant = compression  # lives as long as the model at least
    if meeting.rank == 0:
        for spec, way in compression.exchanges.items():
            _log.info("%s: %s of %d workers", spec, way, meeting.world_size)
        _log.info(plan.metric.describe())
        if doubt := plan.metric.doubt():
            _log.warning(doubt)
    return compression


class _Plan(NamedTuple):
    """What a model and the options of compress() come to."""

    names: list[str]
    parameters: list[torch.nn.Parameter]
    specs: list[str]
    optimizers: tuple[torch.optim.Optimizer, ...]
    metric: _metric.Metric
    bucket_kib: int

    def codecs(self) -> dict[str, str]:
        return dict(zip(self.names, self.specs, strict=True))

    def remembers(self) -> bool:
        return any(_core.Codec(spec).state for spec in set(self.specs))


def _checked(ddp: DistributedDataParallel, o: types.SimpleNamespace) -> _Plan:
    """Raises what is wrong with a worker's own arguments."""
    _options.check_types(o, str, "codec exact exchange")
    _options.check_types(o, str, "down link", or_none=True)
    _options.check_types(o, bool, "switch")
    if o.grad_scaler is not None and not hasattr(o.grad_scaler, "get_scale"):
        raise TypeError(
            f"grad_scaler is {o.grad_scaler!r}; it must be a torch.amp.GradScaler, or None"
        )
    if getattr(ddp, "_use_python_reducer", False):
        raise ValueError(
            "the model was wrapped in DistributedDataParallel under "
            'torch._dynamo.config.optimize_ddp = "python_reducer", where DDP calls no '
            "communication hook with its buckets, so that nothing would be compressed: leave "
            "optimize_ddp as it is (True), or set it to False, before you wrap the model"
        )
    named = _model.trained(ddp.module, set(getattr(ddp, "parameters_to_ignore", ())))
    names, parameters = [name for name, _ in named], [p for _, p in named]
    specs = _options.specs_of(names, parameters, o.codec, o.exact, o.policy)
    _options.check_numbers(o)
    optimizers = _metric.optimizers_of(o.optimizer)
    for name, parameter in named:
        _model.check_dense(parameter, f"the parameter {name!r}")
    metric = _metric.Metric(names, parameters, optimizers, o.metric, o.exact_steps)
    _between_steps.check(names, parameters, specs, optimizers)
    if o.link is not None:
        _core._check_link(o.link)
    _options.check_down(o.down)
    bucket_kib = o.bucket_kib or 128 * ddp.process_group.size()
    return _Plan(names, parameters, specs, optimizers, metric, bucket_kib)


def _check_reduced(ddp: DistributedDataParallel, trained: int) -> None:
    """Raises ValueError unless as many parameters are trained as DDP synchronises, which are
    those that required gradients when the model was wrapped."""
    reduced = ddp._get_ddp_logging_data().get("num_parameter_tensors", trained)
    if reduced != trained:
        raise ValueError(
            f"DistributedDataParallel synchronises {reduced} parameters, of which it took note "
            f"when the model was wrapped, and {trained} require gradients now: freeze or "
            "unfreeze parameters before you wrap the model"
        )


def _alike(o: types.SimpleNamespace, plan: _Plan) -> dict[str, Any]:
    """What must be the same on all workers."""
    alike = {f"the codec of {name!r}": spec for name, spec in plan.codecs().items()}
    alike |= {"bucket_kib": plan.bucket_kib, "seed": o.seed, "switch": o.switch}
    # Each worker has its own of these, so what can be compared is whether there is one.
    alike |= {k: getattr(o, k) is not None for k in ("grad_scaler", "optimizer")}
    alike |= {"metric": plan.metric.name, "exact_steps": o.exact_steps}
    return alike | {"exchange": o.exchange, "down": o.down}


def _engine(
    ddp: DistributedDataParallel,
    o: types.SimpleNamespace,
    plan: _Plan,
    meeting: _group.Meeting,
) -> _core._DdpEngine:
    group = ddp.process_group
    return _core._DdpEngine(
        meeting=meeting,
        parameters=[
            (name, p.shape, spec)
            for name, p, spec in zip(plan.names, plan.parameters, plan.specs, strict=True)
        ],
        orders=[_model.order_in_memory(p) for p in plan.parameters],
        bucket_elements=plan.bucket_kib * 256,
        seed=o.seed,
        threads=o.threads,
        measure_every=o.measure_every,
        all_reduce_by=group if o.switch and o.link is None else None,
        shares_link=_group.backend_of(group, plan.parameters[0].device) in ("gloo", "mpi"),
        has_uncompressed=plan.metric.name == "adam",
        needs_settings=plan.metric.name == "adam" or plan.remembers(),
        may_discard=plan.remembers() and _between_steps.may_discard(ddp),
        exchange=o.exchange,
        down={} if o.down is None else {_core.Codec(o.codec).spec: _core.Codec(o.down).spec},
        on_notice=_log.warning,
        step_seconds=STEP_SECONDS,
    )


class Compression(Session):
    """A compressed DDP model's handle, made by compress(): statistics and state.

    Training needs none of it. It may be dropped, or used as a context manager that closes.
    """

    _farewell = "it closed its compression"

    def __init__(
        self,
        engine: _core._DdpEngine,
        codecs: dict[str, str],
        metric: _metric.Metric,
        rank: int = 0,
    ):
        self._codecs = codecs
        self._metric = metric
        self._rank = rank  # in the job, of which the model's group may be a part
        self._between_steps: _between_steps.BetweenSteps | None = None
        self._steps_when_told = 0  # of _steps_ever(), when workers compared starts
        self._open(engine)

    @property
    def codecs(self) -> dict[str, str]:
        """The spec of each parameter that DDP synchronises, by its name in the model."""
        return dict(self._codecs)

    @property
    def exchanges(self) -> dict[str, str]:
        """How the means of what travels under each spec come about: 'two-phase', 'all-gather',
        'two-phase, back as dither:bits=2.5' (with `down`), 'factors', ..."""
        return self._engine.exchanges()

    @property
    def metric(self) -> str:
        """'adam' if gradients are compressed relative to an optimiser's second moments, or
        'plain' (compress(optimizer=..., metric=...))."""
        return self._metric.name

    def set_epoch(self, epoch: int) -> None:
        """The epoch, from 0, for codecs that send more in the first ones (dgc)."""
        self._engine.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """What must be saved for training to go on as it would have.

        It holds what codecs remember of each parameter (error feedback, momentum, bases), as
        tensors, and, as strings, levels that were fitted and whose state it is. **It differs
        from worker to worker: save each one's own.** Its keys begin with the worker's rank, so
        that torch.distributed.checkpoint saves all; they are the same before the first step.
        It fits any bucket size and order of buckets. Not within a backward.
        """
        self._settle()
        return _state.pack(self._engine.save_state(), self._rank)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what state_dict() gave, under the same codecs and number of workers.

        Tensors may be on any device. States of other workers beside this one's own are left
        alone. All workers load, between the same steps, what they have saved after the same
        step. They compare that at the next forward: if they differ, RuntimeError names their
        steps, on all of them (as DistBackendError where another one has found it).

        Errors: CorruptFrameError naming what differs (rank, number of workers, a parameter or
        its codec) or is missing; nothing has changed then.
        """
        self._settle()  # or the next forward would restore what was remembered before
        self._engine.load_state(_state.unpack(state, self._rank))
        if self._same_round is not None:
            self._same_round.start(_place(int(state[f"rank{self._rank}/step"])))

    def log_to(self, writer: Any, step: int) -> None:
        """Writes stats() and layers() to a TensorBoard SummaryWriter, as elastiquant/*."""
        stats = self.stats()
        for name in ("ratio", "bits_per_coordinate", "nmse", "bytes_up", "bytes_down"):
            if (value := getattr(stats, name)) is not None:
                writer.add_scalar(f"elastiquant/{name}", value, step)
        steps = max(stats.steps, 1)
        for name in ("encode_seconds", "wire_seconds", "wait_seconds", "decode_seconds"):
            writer.add_scalar(f"elastiquant/{name}_a_step", getattr(stats, name) / steps, step)
        writer.add_scalar("elastiquant/skipped", stats.skipped, step)
        for layer in self.layers():
            if layer.name and layer.nmse is not None:
                writer.add_scalar(f"elastiquant/nmse/{layer.name}", layer.nmse, step)

    def close(self) -> None:
        """Ends communication; later backwards of the model raise. Happens at exit by itself."""
        super().close()

    def _close(self, farewell: str, error: str) -> None:
        self._settle()
        super()._close(farewell, error)

    def _begin(self, in_join: bool = False) -> None:
        """A forward begins, whose gradients may be sent; `in_join`: within DDP's join(), or
        after it, as DDP does not notice its end."""
        if torch.is_grad_enabled():  # what evaluates may be one worker alone
            if in_join and self._metric.name != "plain":
                raise ValueError(
                    "the model is trained within join(), and a worker that has no data left "
                    "does not follow the second moments by which gradients are compressed: "
                    "give all workers as many batches, and wrap the model without join(), or "
                    "give compress(..., metric='plain')"
                )
            self._compare(self._compare_starts)
        if self._between_steps is not None:
            self._between_steps.begin()
        self._metric.give(self._engine)

    def _compare_starts(self) -> None:
        """Raises RuntimeError if workers have loaded states of different steps."""
        if self._same_round is None or self._same_round.is_checked:
            return
        steps = self._steps_ever()
        if not self._same_round.is_told:
            self._same_round.tell()
            self._steps_when_told = steps
        elif steps > self._steps_when_told:  # all workers have told before this step ended
            self._same_round.check(lost=[])

    def _settle(self) -> None:
        if self._between_steps is not None:
            self._between_steps.settle()

    def __enter__(self) -> Compression:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        ends_well = isinstance(error, SystemExit) and not error.code
        if error is None or ends_well:
            self.close()
        else:
            self._close("its training failed", _group.told(error))

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()  # a model that is pickled leaves it behind


def _place(step: int) -> str:
    """Where a worker goes on from, for SameRound."""
    return f"step {step}"


class _BeforeForward:
    """A hook of the model, which does not keep the compression alive, and goes along with a
    model that is pickled or copied without doing anything there."""

    def __init__(self, compression: Compression | None = None):
        self._compression = weakref.ref(compression) if compression is not None else None

    def __call__(self, model: torch.nn.Module, _: Any) -> None:
        compression = self._compression() if self._compression is not None else None
        if compression is not None:
            join = getattr(_model.uncompiled(model), "_join_config", None)
            compression._begin(in_join=join is not None and join.enable)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _BeforeForward, ()
