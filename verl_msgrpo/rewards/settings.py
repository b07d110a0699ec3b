"""Settings of a reward that would make it hang, or score every response alike."""


def at_least(lowest: float, **settings: float) -> None:
    """Checks numbers that `reward_kwargs` gives.

    Raises:
        ValueError: one is no number or below `lowest`; names it.
    """
    for name, setting in settings.items():
        if not isinstance(setting, int | float) or not setting >= lowest:
            raise ValueError(f"{name}={setting!r}: a number of at least {lowest:g} is allowed")


def check_format_bonus(format_bonus: float) -> None:
    """Raises ValueError where a share of the score is none."""
    at_least(0, format_bonus=format_bonus)
    if format_bonus > 1:
        raise ValueError(f"format_bonus={format_bonus!r}: a share from 0 to 1 is allowed")
