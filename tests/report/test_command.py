"""The command from end to end: files in, files out."""

import base64
import csv
import html.parser
import re
import sys

import pytest

from tests.report.files import dump_row, settings_of, write_dump, write_run
from verl_msgrpo.cli import main

pytest.importorskip("matplotlib")

VAL = "val-core/task/acc/mean@1"


def metrics(offset, *, ours=False, steps=3):
    """Training reward step / 10 + offset, and a validation at the first and the last step."""
    data = {
        step: {
            "critic/score/mean": step / 10 + offset,
            "response_length/mean": 80.0,
            "timing_s/step": 4.0,
            "timing_s/gen": 3.0,
            **({"ms_grpo/scale": 0.7 + step / 100, "ms_grpo/groups": 8.0} if ours else {}),
        }
        for step in range(1, steps + 1)
    }
    data[steps] |= {VAL: 0.5 + offset, "timing_s/testing": 6.0}
    return {0: {VAL: 0.25}, **data}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """Two methods with two seeds; ours is better by 0.1 and 0.3."""
    folder = tmp_path_factory.mktemp("runs")
    offsets = {("grpo", 1): 0.0, ("grpo", 2): 0.1, ("ms_grpo", 1): 0.1, ("ms_grpo", 2): 0.4}
    return [
        write_run(
            folder / f"{name}-seed{seed}",
            metrics(offset, ours=name == "ms_grpo"),
            settings_of(name, seed),
        )
        for (name, seed), offset in offsets.items()
    ]


def report(tmp_path, *arguments):
    out = tmp_path / "out"
    code = main(["report", *map(str, arguments), "--output", str(out)])
    return code, out


@pytest.fixture(scope="module")
def reported(comparison, tmp_path_factory):
    code, out = report(tmp_path_factory.mktemp("report"), *comparison)
    assert code == 0
    return out


def table(out):
    with (out / "final_numbers.csv").open(newline="") as file:
        return {(row["metric"], row["method"]): row for row in csv.DictReader(file)}


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, *sorted(name for name, _ in attrs)))

    def handle_data(self, data):
        self.text += data


def parsed(page):
    parser = Tags()
    parser.feed(page)
    return parser


def test_two_methods_with_two_seeds(reported):
    row = table(reported)[VAL, "ms_grpo"]
    # Means 0.6 and 0.9 of validations; differences 0.1 and 0.3, whose interval is t(1) * 0.1 wide.
    assert float(row["mean"]) == pytest.approx(0.75)
    assert float(row["difference"]) == pytest.approx(0.2)
    assert float(row["difference_high"]) == pytest.approx(0.2 + 12.706204736 * 0.1)
    assert (row["baseline"], row["pairs"], row["seeds"]) == ("grpo", "2", "2")
    assert table(reported)[VAL, "grpo"]["difference"] == ""
    # The training reward: the mean over steps 1 .. 3.
    assert float(table(reported)["critic/score/mean", "grpo"]["mean"]) == pytest.approx(0.25)
    text = parsed((reported / "index.html").read_text()).text
    assert text.index("What differs between the runs") < text.index("Final numbers")
    assert '"ms_grpo"' in text
    assert "not in: grpo" in text
    assert "In none of the runs: " in text
    assert "actor/kl_loss" in text


def test_every_png_is_in_the_page(reported):
    page = (reported / "index.html").read_text()
    inlined = {
        base64.b64decode(uri) for uri in re.findall(r'src="data:image/png;base64,(.*?)"', page)
    }
    files = list((reported / "figures").iterdir())
    assert {file.read_bytes() for file in files} == inlined
    names = {file.name for file in files}
    assert {"critic-score-mean.png", "phases.png", "ms-grpo-scale.png"} <= names


def test_what_never_changes_is_a_line_and_no_figure(reported):
    page = (reported / "index.html").read_text()
    text = " ".join(parsed(page).text.split())
    assert "Groups 8 in a step · ms_grpo/groups" in text
    assert "Response length 80 mean tokens" in text
    assert "ms-grpo-groups.png" not in {file.name for file in (reported / "figures").iterdir()}


def test_one_run_without_settings_or_most_metrics(tmp_path):
    run = write_run(tmp_path / "alone", {1: {"critic/score/mean": 0.5}})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "data": {"critic/sc')
    code, out = report(tmp_path, run)
    assert code == 0
    text = parsed((out / "index.html").read_text()).text
    assert "One run: nothing to compare" in text
    assert "1 line(s) of its metrics could not be read" in text
    row = table(out)["critic/score/mean", "alone"]
    assert (row["mean"], row["low"], row["difference"]) == ("0.5", "", "")


def test_a_run_with_no_metric_that_is_shown(tmp_path):
    code, out = report(tmp_path, write_run(tmp_path / "a", {1: {"other": 1.0}}))
    assert code == 0
    assert "None of these metrics" in (out / "index.html").read_text()


def test_groups_that_are_named(comparison, tmp_path):
    one, two, three, four = comparison
    code, out = report(tmp_path, "--group", f"B={three},{four}", "--group", f"A={one}, {two}")
    assert code == 0
    assert float(table(out)[VAL, "A"]["difference"]) == pytest.approx(-0.2)


HOSTILE = [
    "<script>alert(1)</script>",
    "</div></details></body><img src=http://127.0.0.1:9/x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %} &lt; \" ' ` <!-- <style>@import 'http://127.0.0.1:9/'</style>",
    '"><meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/">',
    "\x00\x1b[2J\u202e\ud800 <tool_response></textarea><iframe src=//x></tool_response>",
]


def page_with(tmp_path, texts):
    """A page with these five texts wherever a file may put one."""
    folder = tmp_path / ("$_<b>&x" if "<script>" in texts[0] else "plain")
    run = write_run(
        folder / "run",
        {1: {"critic/score/mean": 0.5, f"val-core/{texts[0]}/acc/mean@1": 0.5}},
        {"algorithm": {texts[1]: 1}, "x": texts[2]},
    )
    other = write_run(
        folder / texts[3].replace("/", "|"), {1: {"critic/score/mean": 0.5}}, {"x": 1}
    )
    rows = [
        {
            **dump_row(f"u{n}", f"{text}<tool_response>{text}</tool_response>", float(n)),
            **{"input": text, "gts": text, text: 1.0},
        }
        for n, text in enumerate(texts)
    ]
    write_dump(run / "rollouts" / "1.jsonl", rows)
    code, out = report(folder, run, "--group", f"{texts[2]}={other}")
    assert code == 0
    return out / "index.html"


def test_hostile_text_changes_no_tag(tmp_path):
    plain = parsed(page_with(tmp_path, [f"text {n}" for n in range(5)]).read_text())
    hostile = parsed(page_with(tmp_path, [text.replace("=", ":") for text in HOSTILE]).read_text())
    assert set(hostile.tags) == set(plain.tags)
    assert "<script>alert(1)</script>" in hostile.text
    assert "{{ 7 * 7 }}" in hostile.text
    assert not re.search("[\x00\x1b\u202e\ud800]", hostile.text)


def test_long_text_is_cut(tmp_path):
    run = write_run(tmp_path / "a", {1: {"critic/score/mean": 0.5}})
    endless = "<information>x</information>word" * 5000 + "y" * 10**6
    write_dump(run / "rollouts" / "1.jsonl", [dump_row("u", endless, 1.0)])
    _, out = report(tmp_path, run)
    page = (out / "index.html").read_text()
    assert "characters left out" in page
    assert "parts left out" in page
    assert len(page) < 500_000


@pytest.mark.parametrize("name", ["page.html", "new/folder/Page.HTML"])
def test_a_name_of_a_page_gets_one_file_with_everything_in_it(
    comparison, reported, tmp_path, capsys, name
):
    path = tmp_path / name
    assert main(["report", *map(str, comparison), "--out", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]
    page = path.read_text()
    assert page == (reported / "index.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]{0,10})', page)
    assert len(sources) > len(list((reported / "figures").iterdir()))  # and the icon
    assert all(source.startswith("data:") for source in sources)


def test_a_folder_with_the_name_of_a_page_is_not_replaced(comparison, tmp_path, capsys):
    (tmp_path / "page.html").mkdir()
    assert main(["report", str(comparison[0]), "--out", str(tmp_path / "page.html")]) == 2
    assert f"{tmp_path / 'page.html'}: Is a directory" in capsys.readouterr().err


def test_responses_are_called_cut_only_where_they_were(tmp_path):
    data = {
        step: {
            "response_length/max": 80.0 + step,
            "response_length/clip_ratio": 0.5 + step / 10,
            "search/ended/truncated_share": step / 10,
        }
        for step in (1, 2)
    }
    _, out = report(tmp_path, write_run(tmp_path / "a", data))
    captions = re.findall("<figcaption>(.*?)<", (out / "index.html").read_text())
    assert [caption for caption in captions if "length limit" in caption] == [
        "share that the length limit ended · "
    ]
    assert any("as long as the step&#39;s longest one" in caption for caption in captions)


@pytest.mark.parametrize(
    ("module", "package"),
    [("jinja2", "jinja2"), ("scipy.stats", "scipy"), ("matplotlib.figure", "matplotlib")],
)
def test_without_a_package_of_the_extra(comparison, tmp_path, capsys, monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    code, out = report(tmp_path, *comparison)
    assert code == 2
    error = f"verl-msgrpo report: needs {package}: pip install 'verl-msgrpo[report]'\n"
    assert capsys.readouterr().err == error
    assert not [path for path in out.rglob("*") if path.is_file()]


def test_without_dumps_the_page_says_what_is_needed(tmp_path):
    """verl's own layout, PROJECT/EXPERIMENT.jsonl, beside a run's folder with a dump."""
    run = write_run(tmp_path / "has", {1: {"critic/score/mean": 0.5}})
    file = write_dump(run / "rollouts" / "1.jsonl", [dump_row("u", "text", 1.0)])
    other = write_run(tmp_path / "proj", {1: {"critic/score/mean": 0.5}}) / "metrics.jsonl"
    lacking = other.rename(other.with_name("exp1.jsonl"))
    needed = ["trainer.rollout_data_dir", "trainer.validation_data_dir", "--dump", "metrics.jsonl"]

    def shown(*arguments):
        code, out = report(tmp_path, *arguments)
        assert code == 0
        text = " ".join(parsed((out / "index.html").read_text()).text.split())
        return text.partition("Best and worst trajectories")[2]

    for arguments in ([lacking], ["--group", f"has={run}", lacking]):
        text = shown(*arguments)
        assert text.strip().startswith("None of exp1: ")
        assert all(word in text for word in needed)
    assert "has: has" in text
    assert "None of" not in shown(run)
    assert "None of" not in shown(lacking, "--dump", file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name at least one run"),
        (["nowhere"], "nowhere: no such run"),
        (["RUN", "RUN/metrics.jsonl"], "named twice"),
        (["--group", "RUN"], "expected NAME=RUN,RUN"),
        (["--group", "a=RUN", "--group", "a=OTHER"], "--group a: given twice"),
        (["RUN", "--dump", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
    ],
)
def test_bad_arguments_end_in_one_line(comparison, tmp_path, capsys, arguments, message):
    run, other = map(str, comparison[:2])
    words = [word.replace("RUN", run).replace("OTHER", other) for word in arguments]
    if arguments == ["--group", "RUN"]:
        words = ["--group", "RUN"]
    code, _ = report(tmp_path, *words)
    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_a_folder_that_cannot_be_written(comparison, tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    assert report(tmp_path, comparison[0])[0] == 2
    assert "out" in capsys.readouterr().err
