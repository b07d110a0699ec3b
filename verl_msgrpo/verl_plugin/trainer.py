"""verl's V1 trainers under their own names, which say early what verl says late or never.

What is trained, and how, stays verl's. A run that uses neither our estimator nor our search tool
is not changed; where it logs metrics to a file, its settings are kept beside them.
"""

import logging
import os

import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from verl_msgrpo.search.metrics import search_metrics
from verl_msgrpo.verl_plugin.estimator import TrainerBatch, ms_grpo_config, trainer_batch
from verl_msgrpo.verl_plugin.settings_file import metrics_file, write_settings

logger = logging.getLogger(__name__)

# Without a limit of the user's, say every so many batches that the filter still finds too little.
WARN_EVERY_GEN_BATCHES = 10


class MSGRPOTrainerMixin(trainer_base.PPOTrainer):
    """Checks our settings before workers start, bounds the filtering of groups, logs searches.

    `algorithm.filter_groups.max_num_gen_batches` is ignored by verl 0.9's V1 trainer, which goes on
    generating for ever when every group is filtered out (all prompts solved, or none). Here a step
    that has used its batches ends the run with the numbers; 0 stays without limit, but warns.
    """

    def __init__(self, config: DictConfig) -> None:
        if config.algorithm.adv_estimator == "ms_grpo":
            ms_grpo_config(config.algorithm)
        check_search_tools(config)
        self._prompts_of_step = 0
        super().__init__(config)

    def fit(self, agent_loop_manager: trainer_base.AgentLoopManager) -> None:
        """verl's, with the run's settings kept for `verl-msgrpo report`."""
        keep_settings(self.config)
        super().fit(agent_loop_manager)

    def prepare_step(self) -> dict:
        self._prompts_of_step = self.config.data.train_batch_size
        return super().prepare_step()

    def _add_prompts_to_generate(self, num_prompts: int) -> int:
        if self.config.algorithm.adv_estimator == "ms_grpo":
            self._count_refill(num_prompts)
        return super()._add_prompts_to_generate(num_prompts)

    def _count_refill(self, num_prompts: int) -> None:
        filter_groups = self.config.algorithm.get("filter_groups", None)
        if not filter_groups or not filter_groups.get("enable", False):
            return
        needed = self.config.data.train_batch_size
        before, self._prompts_of_step = self._prompts_of_step, self._prompts_of_step + num_prompts
        kept = len(self.replay_buffer.finished_keys["train"])
        numbers = (
            f"algorithm.filter_groups keeps {kept} of {before} generated groups, {needed} are "
            f"needed: the others have the same `{filter_groups.get('metric')}` in every response"
        )
        limit = filter_groups.get("max_num_gen_batches", 0)
        if limit > 0 and self._prompts_of_step > limit * needed:
            raise RuntimeError(
                f"{numbers}. Stopped after algorithm.filter_groups.max_num_gen_batches={limit}; "
                "use easier or harder prompts, or set algorithm.filter_groups.enable=False"
            )
        interval = WARN_EVERY_GEN_BATCHES * needed
        if self._prompts_of_step // interval > before // interval:
            logger.warning("%s. Generating more, without limit", numbers)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """verl's, with an episode (session), not a turn, as the sample of our estimator too.

        verl reduces sessions that were cut into several rows for its own `grpo` only. The metrics
        of the estimator, which it has no way to return, are added here.
        """
        if self.config.algorithm.adv_estimator != "ms_grpo":
            return super()._compute_advantage(batch, metrics)
        is_padding = [bool(tag.get("is_padding", False)) for tag in batch.tags]
        called_for = TrainerBatch(batch.keys, is_padding)
        with trainer_batch(called_for):
            batch = super()._compute_advantage(batch, metrics)
        metrics.update(called_for.metrics)
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        """verl's metrics, and those of our search tool, which verl carries but does not log."""
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        if not _tool_config_path(self.config):
            return
        rows = zip(batch.keys, batch.tags, strict=True)
        keys = [key for key, tag in rows if not tag.get("is_padding", False)]
        data = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
        )
        extra_fields = list(data["extra_fields"])  # whatever container TransferQueue has put it in
        metrics.update(search_metrics([row for row in extra_fields if isinstance(row, dict)]))


def _tool_config_path(config: DictConfig) -> str | None:
    path = OmegaConf.select(config, "actor_rollout_ref.rollout.multi_turn.tool_config_path")
    return str(path) if path else None


def keep_settings(config: DictConfig) -> None:
    """Writes the resolved settings, without secrets, beside the metrics of verl's file logger.

    Does nothing without that logger. Training goes on whatever fails here: it warns.
    """
    try:
        loggers = config.trainer.logger
        if "file" not in ([loggers] if isinstance(loggers, str) else loggers):
            return
        names = (config.trainer.project_name, config.trainer.experiment_name)
        metrics = metrics_file(*names, os.environ)
        write_settings(metrics, OmegaConf.to_container(config, resolve=True))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        logger.warning(
            "the settings of this run are not kept for verl-msgrpo report (%s: %s)",
            type(error).__name__,
            reason,
        )


def check_search_tools(config: DictConfig) -> None:
    """Asks the retrieval server of every SearchTool once, before anything is started.

    Subclasses of SearchTool are left to verl, which makes them in its workers.

    Raises:
        UserError: the tool file cannot be used, a setting is wrong or the server does not answer,
            in one line.
    """
    path = _tool_config_path(config)
    if path is None:
        return
    from verl_msgrpo.search.client import probe
    from verl_msgrpo.search.settings import read_settings, search_tool_configs

    for tool_config in search_tool_configs(path):
        settings = read_settings(tool_config)
        if settings.probe:
            probe(settings.client)


def register_trainers() -> None:
    """Replaces verl's registered trainers by the same trainers with the mixin.

    The names stay, because verl's base class compares `trainer_mode` with them.
    """
    for name, trainer in trainer_base.TRAINER_REGISTRY.items():
        if not issubclass(trainer, MSGRPOTrainerMixin):
            trainer_base.TRAINER_REGISTRY[name] = type(
                trainer.__name__, (MSGRPOTrainerMixin, trainer), {"__module__": __name__}
            )
