"""The estimators that are compared, all as settings of one function."""

from verl_msgrpo.estimator.config import MSGRPOConfig


def methods(group_size: int) -> dict[str, MSGRPOConfig]:
    """Names and settings: the scale G alone is GRPO, and without the std division Dr. GRPO."""
    return {
        "GRPO": MSGRPOConfig(scales=[group_size]),
        "Dr. GRPO": MSGRPOConfig(scales=[group_size], normalize_by_std=False),
        "MS-GRPO exact": MSGRPOConfig(subgroups="all"),
        "MS-GRPO paper": MSGRPOConfig(preset="paper"),
    }
