"""verl's V1 trainers under their own names, which say early what verl says late or never.

Nothing here changes a run of another estimator than `ms_grpo`.
"""

import logging

from omegaconf import DictConfig
from verl.trainer.ppo.v1 import trainer_base

from verl_msgrpo.verl_plugin.estimator import ms_grpo_config

logger = logging.getLogger(__name__)

# Without a limit of the user's, say every so many batches that the filter still finds too little.
WARN_EVERY_GEN_BATCHES = 10


class MSGRPOTrainerMixin(trainer_base.PPOTrainer):
    """Checks `algorithm.ms_grpo` before workers start, and bounds the filtering of groups.

    `algorithm.filter_groups.max_num_gen_batches` is ignored by verl 0.9's V1 trainer, which goes on
    generating for ever when every group is filtered out (all prompts solved, or none). Here a step
    that has used its batches ends the run with the numbers; 0 stays without limit, but warns.
    """

    def __init__(self, config: DictConfig) -> None:
        if config.algorithm.adv_estimator == "ms_grpo":
            ms_grpo_config(config.algorithm)
        self._prompts_of_step = 0
        super().__init__(config)

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


def register_trainers() -> None:
    """Replaces verl's registered trainers by the same trainers with the mixin.

    The names stay, because verl's base class compares `trainer_mode` with them.
    """
    for name, trainer in trainer_base.TRAINER_REGISTRY.items():
        if not issubclass(trainer, MSGRPOTrainerMixin):
            trainer_base.TRAINER_REGISTRY[name] = type(
                trainer.__name__, (MSGRPOTrainerMixin, trainer), {"__module__": __name__}
            )
