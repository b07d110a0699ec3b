"""The README says what is so: snippets run, tables match the code, links lead somewhere."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from verl_msgrpo import MSGRPOConfig, cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *ROOT.glob("examples/**/*.md"), *ROOT.glob("verl_msgrpo/**/*.md")]


def test_python_snippets_run():
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})


def test_settings_table_is_the_configuration():
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| ", README, re.MULTILINE)
    config = MSGRPOConfig()
    names = [field.name for field in dataclasses.fields(config)]
    assert [name for name, _ in rows] == names
    for name, default in rows:
        shown = json.loads(default) if default not in ("auto",) else default
        assert getattr(config, name) == shown, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page):
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        for script in re.findall(r"\b(?:bash|python) ([\w./-]+\.(?:sh|py))", block):
            assert (ROOT / script).exists(), script
        for command in re.findall(r"^verl-msgrpo ([\w-]+)", block, re.MULTILINE):
            assert command in cli.COMMANDS, command


def test_scaling_table_of_the_page_on_grpo():
    """Against the closed form for binary rewards: c = multi-scale advantage / GRPO's."""
    import torch

    from verl_msgrpo import ms_grpo_advantages

    page = (ROOT / "examples/from_grpo_to_ms_grpo.md").read_text()
    for label, settings in {
        "c, all scales 2..8": {},
        "c, scales 2, 4, 6, 8": {"scales": (2, 4, 6, 8)},
    }.items():
        (row,) = re.findall(rf"^\| {label} \| (.*) \|$", page, re.MULTILINE)
        shown = [float(cell) for cell in row.split("|")]
        for right, c in zip(range(1, 8), shown, strict=True):
            rewards = torch.tensor([[1.0] * right + [0.0] * (8 - right)], dtype=torch.float64)
            ours = ms_grpo_advantages(rewards, MSGRPOConfig(epsilon=0.0, **settings))
            grpo = ms_grpo_advantages(rewards, MSGRPOConfig(epsilon=0.0, scales=(8,)))
            assert (ours / grpo)[0, 0].item() == pytest.approx(c, abs=5e-4)


def test_nothing_is_left_to_fill_in():
    for page in PAGES:
        assert not re.search(r"^[A-Z]{5,}$|\bTODO\b", page.read_text(), re.MULTILINE), page
