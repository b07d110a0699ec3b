"""The pages say what is so: commands exist, tables match the code, links lead somewhere."""

import argparse
import dataclasses
import functools
import importlib.util
import inspect
import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from verl_msgrpo import MSGRPOConfig, cli, ms_grpo_advantages
from verl_msgrpo.checked_versions import CHECKED_VERSIONS, VERL_RANGE

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
]
REPOSITORY = "https://github.com/verl-msgrpo/verl-msgrpo"
PAPER = "https://openreview.net/forum?id=ktHj6YazEE"
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@functools.cache
def tokens(page: Path) -> list[Token]:
    """The blocks of a page, and what is inside of them, in order."""
    blocks = MarkdownIt("commonmark").enable("table").parse(page.read_text())
    return [inner for block in blocks for inner in (block, *(block.children or ()))]


def fences(page: Path, language: str) -> list[str]:
    found = tokens(page)
    return [token.content for token in found if token.type == "fence" and token.info == language]


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        if token.type == "link_open":
            yield str(token.attrs["href"])
        elif token.type == "image":
            yield str(token.attrs["src"])
        elif token.type in ("html_block", "html_inline"):
            yield from re.findall(r'(?:src|href)="([^"]+)"', token.content)


@functools.cache
def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    blocks = MarkdownIt("commonmark").parse(page.read_text())
    found: dict[str, int] = {}
    names = set()
    for opened, inline in itertools.pairwise(blocks):
        if opened.type == "heading_open":
            text = "".join(part.content for part in inline.children or ())
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = found[name] = found.get(name, -1) + 1
            names.add(f"{name}-{number}" if number else name)
    return names


def table(page: Path, head: str) -> list[list[str]]:
    """The cells of the table whose first line begins with `| head |`, without that line."""
    _, begin, rest = page.read_text().partition(f"\n| {head} |")
    assert begin, head
    lines = rest.split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def codes(cell: str) -> list[str]:
    """What a cell has in code marks."""
    return re.findall(r"`([^`]+)`", cell)


@functools.cache
def parser_of(command: str) -> argparse.ArgumentParser:
    module, _ = cli.COMMANDS[command]
    parser = argparse.ArgumentParser()
    importlib.import_module(module).add_arguments(parser)
    return parser


# --- Links ----------------------------------------------------------------------------------------


@every_page
def test_links_and_anchors_lead_somewhere(page):
    for target in links(page):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        if anchor:
            assert found.suffix == ".md", target
            assert anchor in anchors(found), target


def test_a_broken_link_and_a_broken_anchor_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Two words: `a.b`, c\n\n## Two\n\n## Two\n\n[a](b.md#c) ![d](e.png)\n")
    assert list(links(page)) == ["b.md#c", "e.png"]
    assert anchors(page) == {"two-words-ab-c", "two", "two-1"}


def test_every_page_can_be_reached_from_the_front_page():
    seen: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop()
        if page in seen or not page.is_file():
            continue
        seen.add(page)
        if page.suffix == ".md":
            waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
    assert {page for page in PAGES if page.name != "summary.md"} <= seen


def test_pictures_are_small():
    for picture in DOCS.glob("images/*"):
        assert picture.stat().st_size < 200_000, picture


# --- Commands and code ----------------------------------------------------------------------------


@every_page
def test_commands_and_their_options_exist(page):
    for block in fences(page, "bash"):
        text = block.replace("\\\n", " ")
        for script in re.findall(r"\b(?:bash|python) ([\w./-]+\.(?:sh|py))", text):
            assert (ROOT / script).exists(), script
        for tests in re.findall(r"pytest (tests/\S+)", text):
            assert (ROOT / tests).exists(), tests
        for command, arguments in re.findall(r"^verl-msgrpo ([\w-]+)(.*)", text, re.MULTILINE):
            assert command in cli.COMMANDS, command
            known = parser_of(command).format_help()
            own = re.split(r"\s(?:#|--\s)", arguments)[0]
            for option in re.findall(r"\s(--[\w-]+)", own):
                assert re.search(rf"{option}\b", known), (command, option)


@every_page
def test_files_that_are_named_exist(page):
    """Paths in code marks that begin with a folder of the repository."""
    text = page.read_text()
    folders = "verl_msgrpo|tests|scripts|examples|reward_fns|docs"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"pkg://([\w.]+)", text):
        assert importlib.util.find_spec(module.rstrip(".")), module


@every_page
def test_code_runs_and_data_can_be_read(page):
    for block in fences(page, "python"):
        exec(compile(block, str(page), "exec"), {})
    for block in fences(page, "json"):
        json.loads(block)
    for block in fences(page, "yaml"):
        yaml.safe_load(block)


def test_there_is_code_to_run():
    assert fences(README, "python")
    assert fences(DOCS / "settings.md", "python")


@every_page
def test_extras_that_are_named_exist(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = page.read_text()
    named = re.findall(r"(?:verl-msgrpo|\.)\[([a-z, -]+)\]", text)
    named += re.findall(r"extra `([a-z-]+)`", text)
    for names in named:
        assert {name.strip() for name in names.split(",")} <= set(project["optional-dependencies"])


# --- Form -----------------------------------------------------------------------------------------


def test_the_front_page_is_short():
    lines = README.read_text().splitlines()
    assert len(lines) <= 140
    assert max(map(len, lines)) <= 120


def test_the_first_screen_has_formula_picture_and_verdict():
    first = README.read_text().partition("\n## ")[0]
    assert len(first.splitlines()) <= 40
    order = [first.find(part) for part in ("```math", "one_group.png", "In our runs it is not")]
    assert -1 not in order
    assert order == sorted(order)


@every_page
def test_no_line_of_prose_is_long(page):
    generated = re.compile(r"<!-- written by.*?<!-- end -->", re.DOTALL)
    for line in generated.sub("", page.read_text()).splitlines():
        assert len(line) <= 120 or line.startswith("|") or page.name == "summary.md", line


@every_page
def test_nothing_is_left_to_fill_in(page):
    text = page.read_text()
    assert not re.search(r"^[A-Z]{5,}$|\bTODO\b|\bTBD\b", text, re.MULTILINE)
    assert set(re.findall(r"\| *([A-Z]{4,}) *(?=\|)", text)) <= {"GRPO"}  # a cell of a table


def test_one_address_each_for_the_repository_and_the_paper():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["Repository"] == citation["repository-code"] == REPOSITORY
    assert project["Paper"] == citation["references"][0]["url"] == PAPER
    text = README.read_text()
    assert f"git clone {REPOSITORY} " in text
    assert PAPER in text
    for name, url in project.items():
        path = url.removeprefix(f"{REPOSITORY}/blob/main/")
        assert path == url or (ROOT / path).exists(), name


# --- Tables ---------------------------------------------------------------------------------------


def test_settings_table_is_the_configuration():
    rows = [
        (codes(name)[0], default) for name, default, _ in table(DOCS / "settings.md", "setting")
    ]
    config = MSGRPOConfig()
    assert [name for name, _ in rows] == [field.name for field in dataclasses.fields(config)]
    for name, default in rows:
        shown = default if default == "auto" else json.loads(default)
        assert getattr(config, name) == shown, name


def test_the_group_size_from_which_auto_is_diverse():
    """docs/settings.md: with rewards that all differ and every size, from groups of 17 on."""
    assert "from groups of 17 on" in " ".join((DOCS / "settings.md").read_text().split())
    config = MSGRPOConfig(subgroups="all")
    ms_grpo_advantages(torch.arange(16.0)[None], config)
    with pytest.raises(ValueError, match="max_terms"):
        ms_grpo_advantages(torch.arange(17.0)[None], config)


def test_metrics_table_is_what_the_estimator_returns():
    from verl_msgrpo.estimator.metrics import ms_grpo_advantages_and_metrics

    rewards = torch.arange(8.0)
    _, found = ms_grpo_advantages_and_metrics(
        rewards, torch.zeros(8, dtype=torch.int64), MSGRPOConfig(preset="paper")
    )
    rows = table(DOCS / "metrics.md", "metric")
    shown = [name for cells in rows for name in codes(cells[0])]
    assert sorted(shown) == sorted(f"ms_grpo/{name}" for name in found)


def test_search_metrics_table_is_what_is_logged():
    from verl_msgrpo.search.metrics import ENDED, FINISHED, counts_of, search_metrics

    rollout: dict[str, object] = {ENDED: FINISHED}
    counts_of(rollout)
    text = (DOCS / "metrics.md").read_text().partition("\n## Search")[2]
    section = text.partition("\n## ")[0]
    shown = {name for line in section.splitlines() for name in codes(line) if "search/" in name}
    assert shown == set(search_metrics([rollout]))


def test_metrics_that_pages_name_exist():
    """Everywhere: names of ours are those of the tables."""
    known = {name for name in codes((DOCS / "metrics.md").read_text()) if "/" in name}
    for page in PAGES:
        for name in codes(page.read_text()):
            if re.fullmatch(r"(ms_grpo|search)/[\w/]+", name):
                assert name in known, (page, name)


@pytest.mark.parametrize(
    ("section", "reward"),
    [
        ("Mathematics", "math_answer"),
        ("Multiple choice", "multiple_choice"),
        ("Short answers", "search_qa"),
        ("Programs", "code_tests"),
    ],
)
def test_reward_settings_are_parameters(section, reward):
    module = importlib.import_module(f"verl_msgrpo.rewards.{reward}")
    parameters = inspect.signature(module.compute_score).parameters
    text = (DOCS / "rewards.md").read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| ", text, re.MULTILINE)
    assert rows
    for name, default in rows:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY, name
        if name != "workers" or reward != "code_tests":  # there: or the cores, if fewer
            assert str(parameters[name].default) == default, name
    hidden = {"observation_tags", "concurrent_semaphore"}
    own = {n for n, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert own - hidden == {name for name, _ in rows}


def test_sources_table_is_the_one_of_dispatch():
    from verl_msgrpo.rewards.sources import BY_VERL, BY_VERL_PREFIX, TABLE

    *ours, (by_verl, of_verl) = table(DOCS / "rewards.md", "reward")
    shown = {source: codes(reward)[0] for reward, sources in ours for source in codes(sources)}
    assert shown == TABLE
    assert by_verl == "verl's own scorer"
    assert codes(of_verl) == [*BY_VERL, BY_VERL_PREFIX]


def test_search_tool_table_is_its_configuration():
    from verl_msgrpo.search.settings import read_settings

    rows = {codes(key)[0]: default for key, default, _ in table(DOCS / "search.md", "key")}
    assert rows.pop("retrieval_service_url") == "required"
    url = {"retrieval_service_url": "http://127.0.0.1:8000/retrieve"}
    shown = {key: json.loads(default) for key, default in rows.items()}
    assert read_settings({**url, **shown}) == read_settings(url)
    # Each of them is read: another value gives other settings.
    for key, value in shown.items():
        other = (not value) if isinstance(value, bool) else value - 1 if value > 1 else value + 1
        beside = (
            {"num_workers": 200, "rate_limit": 200} if key in ("num_workers", "rate_limit") else {}
        )
        changed = read_settings({**url, **beside, key: other})
        assert changed != read_settings({**url, **beside}), key


def test_limits_of_the_server_are_its_defaults():
    pytest.importorskip("fastapi")
    parser = parser_of("serve")
    mib = 2**20
    for option, default, *_ in table(DOCS / "search.md", "limit"):
        name = codes(option)[0].removeprefix("--").replace("-", "_")
        number = int(default.split()[0]) * (mib if default.endswith("MiB") else 1)
        assert parser.get_default(name) == number, option


def test_tasks_table_is_what_prepare_knows():
    from verl_msgrpo.tasks.registry import TASKS

    page = DOCS / "tasks-and-data.md"
    rows = table(page, "task")
    assert {name for row in rows for name in codes(row[1])} == set(TASKS)
    for row in rows:
        assert (ROOT / "reward_fns" / codes(row[2])[0]).exists(), row
    help_text = " ".join(parser_of("prepare").format_help().split())
    sources = page.read_text().partition("| task | validation |")[2].partition("\n\n")[0]
    for name in set(re.findall(r"`([\w-]+/[\w-]+)`", sources)) - {"PeterJinGo/nq_hotpotqa_train"}:
        assert name in help_text, name


def test_versions_table_is_what_was_checked():
    page = (DOCS / "limits.md").read_text()
    rows = " ".join(" ".join(cells) for cells in table(DOCS / "limits.md", "what"))
    assert f"verl {CHECKED_VERSIONS['verl']} " in rows
    for package in CHECKED_VERSIONS.keys() - {"verl"}:
        assert f"{package} {CHECKED_VERSIONS[package]}" in rows, package
    assert f"`{VERL_RANGE}`" in page
    assert f"verl {CHECKED_VERSIONS['verl']} " in README.read_text()


def test_overrides_of_a_cpu_run_are_keys_of_verl():
    pytest.importorskip("verl")
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    folder = Path(verl.__file__).parent / "trainer/config"
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("ppo_trainer")
    overrides = [code for cells in table(DOCS / "cpu.md", "override") for code in codes(cells[0])]
    assert len(overrides) >= 9
    run = (ROOT / "examples/quickstart/run.sh").read_text()
    missing = object()
    for override in overrides:
        key = override.partition("=")[0]
        assert key in run, key
        known = OmegaConf.select(config, key.lstrip("+"), default=missing) is not missing
        assert known != key.startswith("+"), key


def test_scaling_table_of_the_page_on_grpo():
    """Against the closed form for binary rewards: c = multi-scale advantage / GRPO's."""
    page = (DOCS / "from-grpo-to-ms-grpo.md").read_text()
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


def test_index_of_the_recipes_is_complete():
    rows = [*table(ROOT / "examples/README.md", "recipe")]
    text = (ROOT / "examples/README.md").read_text()
    recipes = {path.parent.name for path in ROOT.glob("examples/*/README.md")}
    assert rows
    assert recipes - {"common"} <= set(
        re.findall(r"^\| \[(\w+)\]\(\1/README\.md\)", text, re.MULTILINE)
    )
    for script in re.findall(r"`(?:bash|python) (\S+)`", text):
        assert (ROOT / script).exists(), script
