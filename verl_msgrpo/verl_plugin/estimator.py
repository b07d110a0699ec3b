"""MS-GRPO in the signature of verl's advantage estimators. Needs no verl to be imported."""

import contextlib
import contextvars
import dataclasses
import logging
import numbers
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import torch

from verl_msgrpo.common.once import first_time, say_once
from verl_msgrpo.common.row_keys import row_key
from verl_msgrpo.estimator.config import MSGRPOConfig, plain_value
from verl_msgrpo.estimator.metrics import ms_grpo_advantages_and_metrics

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TrainerBatch:
    """What verl does not hand on to estimators that are not its own.

    Attributes:
        keys: (bs,) keys of the batch's rows in TransferQueue, `{uid}_{session}_{index}`.
        is_padding: (bs,) rows that were added to make the batch divisible.
        metrics: the estimator adds its own, as `ms_grpo/...`.
    """

    keys: Sequence[str]
    is_padding: Sequence[bool]
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)


_batch: contextvars.ContextVar[TrainerBatch | None] = contextvars.ContextVar("batch", default=None)


@contextlib.contextmanager
def trainer_batch(batch: TrainerBatch) -> Iterator[None]:
    """Tells the estimator, inside the block, which batch it is called for."""
    token = _batch.set(batch)
    try:
        yield
    finally:
        _batch.reset(token)


def compute_ms_grpo_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: object = None,
    index: np.ndarray | Sequence[Hashable] | None = None,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes multi-scale group relative advantages of a batch of outcome-rewarded responses.

    An episode (session), not a turn, is the sample: where `trainer_batch` tells that a session was
    cut into several rows, its last row's reward counts, once, and all its rows get its advantage,
    as with verl's `grpo`. Padding rows get 0. Outside of it every row is a session.

    Rows with the same uid form a group, wherever they stand. Rows with a NaN or infinite reward do
    not count and get 0; so do groups of one, and groups without variance.

    Args:
        token_level_rewards: (bs, T) floating; a response's reward is the sum over its tokens.
        response_mask: (bs, T); advantages are exactly 0 where it is 0.
        config: verl's `algorithm` section (DictConfig, dict, dataclass or None). Read from it:
            `norm_adv_by_std_in_grpo` (default True) and `ms_grpo`, a section with the fields of
            `MSGRPOConfig`, of which `normalize_by_std` wins over the former.
        index: (bs,) uids.
        _: further arguments, with which verl may call any estimator, are ignored.

    Returns:
        advantages and returns, both (bs, T) and the same tensor, as with verl's `grpo`.

    Raises:
        ValueError: no `index`, of another length, or with a uid that is NaN or not hashable; a
            setting that is not allowed.
    """
    if index is None:
        raise ValueError(
            "ms_grpo: the batch has no uids (index); set non_tensor_batch['uid'] to one value "
            "per prompt, repeated for its rollouts"
        )
    if len(index) != len(token_level_rewards):
        raise ValueError(
            f"ms_grpo: {len(index)} uids (index) for {len(token_level_rewards)} responses; "
            "set one uid per response"
        )
    settings = ms_grpo_config(config)
    with torch.no_grad():
        batch = _batch.get()
        rows = len(token_level_rewards)
        if batch is None or len(batch.keys) != rows:
            batch = TrainerBatch([], [])
        last, session = _sessions(batch.keys, rows)
        scores = token_level_rewards.sum(dim=-1)[last]
        groups = _group_numbers(index)[last]
        real: torch.Tensor | slice = slice(None)
        if any(batch.is_padding):
            real = ~torch.tensor(batch.is_padding, dtype=torch.bool)[last]
        advantages = torch.zeros_like(scores)
        advantages[real], metrics = ms_grpo_advantages_and_metrics(
            scores[real], groups[real], settings
        )
        batch.metrics.update({f"ms_grpo/{name}": value for name, value in metrics.items()})
        _warn_of_nothing_to_learn(groups, advantages, response_mask, last)
        _warn_of_nonfinite(metrics.get("nonfinite_share", 0.0))
        on_tokens = _on_tokens(advantages[session], response_mask)
    return on_tokens, on_tokens


def ms_grpo_config(algorithm: object) -> MSGRPOConfig:
    """Reads the estimator's settings from verl's `algorithm` section.

    Args:
        algorithm: DictConfig, mapping, dataclass or None.

    Raises:
        ValueError: a setting that is not allowed, in one line that names it.
    """
    section = _entry(algorithm, "ms_grpo")
    settings = section if isinstance(section, MSGRPOConfig) else MSGRPOConfig.from_mapping(section)
    if settings.normalize_by_std is not None:
        return settings
    by_std = plain_value(_entry(algorithm, "norm_adv_by_std_in_grpo"))
    by_std = True if by_std is None else by_std
    if not isinstance(by_std, bool):
        raise ValueError(
            "algorithm.norm_adv_by_std_in_grpo: allowed is true, false or null, "
            f"got {str(by_std)[:80]!r}"
        )
    return dataclasses.replace(settings, normalize_by_std=by_std)


def _entry(section: object, name: str) -> object:
    """section[name] or section.name, in plain containers; None where there is none."""
    try:
        if isinstance(section, Mapping) or hasattr(section, "get"):  # DictConfig is not a Mapping
            return _plain(section.get(name, None))
        return _plain(getattr(section, name, None))
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "omegaconf":
            raise
        # An interpolation that leads nowhere, told by OmegaConf in several lines.
        lines = "; ".join(line.strip() for line in str(error).splitlines())
        raise ValueError(f"algorithm.{name}: {lines}") from None


def _plain(section: object) -> object:
    """Plain containers from an OmegaConf node or a dataclass; anything else as it is."""
    if type(section).__module__.partition(".")[0] == "omegaconf":
        from omegaconf import OmegaConf

        return OmegaConf.to_container(section, resolve=True)
    if dataclasses.is_dataclass(section) and not isinstance(section, type | MSGRPOConfig):
        return dataclasses.asdict(section)
    return section


def _sessions(keys: Sequence[str], rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows are the last of their session, and which of those belongs to every row.

    A key of another form is a session of its own; so is every row where there are no keys.

    Args:
        keys: `{uid}_{session}_{index}` of each row, or none at all.
        rows: bs.

    Returns:
        (sessions,) and (bs,), int64; sessions stand in the order of their first rows.
    """
    if not keys:
        return torch.arange(rows), torch.arange(rows)
    last: dict[Hashable, tuple[int, int]] = {}  # session -> its highest index, and the row with it
    session_of_row: list[Hashable] = []
    for row, key in enumerate(map(row_key, keys)):
        session: Hashable = row if key is None else (key.uid, key.session)
        index = 0 if key is None else key.part
        session_of_row.append(session)
        if session not in last or last[session][0] < index:
            last[session] = (index, row)
    number = {session: i for i, session in enumerate(last)}
    return (
        torch.tensor([row for _, row in last.values()], dtype=torch.int64),
        torch.tensor([number[session] for session in session_of_row], dtype=torch.int64),
    )


def _group_numbers(index: np.ndarray | Sequence[Hashable]) -> torch.Tensor:
    """(bs,) int64: uids numbered by first appearance. A dict is faster than sorting strings."""
    uids = index.tolist() if hasattr(index, "tolist") else index
    try:
        number = {uid: i for i, uid in enumerate(dict.fromkeys(uids))}
        groups = [number[uid] for uid in uids]
    except TypeError as error:
        raise ValueError(
            f"ms_grpo: index holds a uid that is not a text or number: {error}"
        ) from None
    if any(isinstance(uid, numbers.Real) and uid != uid for uid in number):
        raise ValueError("ms_grpo: index holds a uid that is NaN; set one uid per prompt")
    return torch.tensor(groups, dtype=torch.int64)


def _on_tokens(advantages: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """(bs, T): each row's advantage on the tokens that its mask counts."""
    if response_mask.device.type != "cpu" or response_mask.numel() == 0:
        return advantages[:, None] * response_mask
    # A large result costs most of the call in page faults. numpy asks Linux for huge pages, torch
    # does not: a third of the time.
    dtype = torch.result_type(advantages[:, None], response_mask)
    memory = torch.from_numpy(np.empty(response_mask.numel() * dtype.itemsize, dtype=np.uint8))
    result = memory.view(dtype).view(response_mask.shape)
    return torch.mul(advantages[:, None], response_mask, out=result)


def _warn_of_nonfinite(share: float) -> None:
    """Says, once per process, that there are rewards that do not count."""
    if share:
        say_once(
            logger,
            logging.WARNING,
            "ms_grpo: %.1f%% of this batch's rewards are NaN or infinite; those responses get "
            "advantage 0 and their siblings are compared without them; check the reward function "
            "(in later batches: ms_grpo/nonfinite_share)",
            100 * share,
        )


def _warn_of_nothing_to_learn(
    groups: torch.Tensor, advantages: torch.Tensor, response_mask: torch.Tensor, last: torch.Tensor
) -> None:
    """Says, once per process, that groups have one response, or that the first batch is all 0."""
    if not len(groups):
        return
    first_batch = first_time(__name__, "batch")
    sizes = torch.bincount(groups)
    shared = (sizes > 1).nonzero()[:, 0]
    # Padding rows share one uid, yet have no token that counts.
    single = len(shared) == 0 or (
        len(shared) == 1
        and not response_mask[last[groups == shared[0]].to(response_mask.device)].any()
    )
    if single:
        say_once(
            logger,
            logging.WARNING,
            "ms_grpo: each of the %d groups has one response, so every advantage is 0; "
            "set actor_rollout_ref.rollout.n >= 2, and the same uid for all rollouts of a prompt",
            len(sizes),
        )
    elif first_batch and not advantages.any():
        logger.warning(
            "ms_grpo: in the first batch no group has rewards that differ, so every advantage "
            "is 0; check the reward function and the difficulty of the data"
        )
