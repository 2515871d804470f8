from __future__ import annotations

import re
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudbench.errors import UsageError
from cloudbench.parsers import FORMATS, ParsedLog, parse
from tests.parsers.logs import HEADER, banner, horovod_ranks, horovod_synthetic, one_process, step, total

LOGS = {
    "one process": one_process(),
    "ranks": horovod_ranks(3),
    "tagged ranks": horovod_ranks(3, prefix=lambda rank: f"Mon Oct 15 23:15:16 2018[1,{rank}]<stdout>:"),
    "two runs": one_process(100) + one_process(200),
    "independent": banner() * 2 + HEADER * 2 + (step(10, 100) + step(20, 100)) * 2 + total(100) * 2,
    "horovod": horovod_synthetic(),
    "horovod excerpts": horovod_synthetic(summary=False) + "Iter #20: 50.0 img/sec per GPU\n",
}
PREFIXES = {
    "container": "2019-03-02T10:25:35.038567112Z ",
    "Kubeflow": "INFO|2024-12-07T13:54:54|/opt/launcher.py|27| ",
    "date": "2024-12-07 13:54:54,123 ",
    "comment": "  # ",
    "colour": "\x1b[1;34m",
}
TAGS = {
    "Open MPI": "[1,0]<stdout>:",
    "Open MPI with time": "Mon Oct 15 23:15:16 2018[1,0]<stdout>:",
    "Horovod on gloo": "[0]<stdout>:",
    "KungFu": "[\x1b[1;34m127.0.0.1/00/00-of-01\x1b[m::stdout] ",
}
OF_ONE_RANK = ("one process", "two runs", "horovod", "horovod excerpts")

logs = pytest.mark.parametrize("text", LOGS.values(), ids=LOGS.keys())


def read(text: str | bytes, **options: bool) -> ParsedLog:
    return parse([text.encode() if isinstance(text, str) else text], **options)


def figures(log: ParsedLog) -> list[tuple[float | None, str, tuple[float, ...], int | None, int | None]]:
    return [(run.throughput, run.scope, run.printed, run.processes, run.steps) for run in log.runs]


@pytest.mark.parametrize(
    ("name", "text"), [("tf_cnn_benchmarks", one_process()), ("horovod_synthetic", horovod_synthetic())]
)
def test_the_format_is_found_out(name, text):
    assert read("some noise\n" * 9 + text).format == name
    assert read(text) == parse([text.encode()], name)


def test_a_log_of_no_known_format_is_no_result():
    log = read("Epoch 1/5\n")
    assert (log.format, log.status, log.runs) == (None, "no-result", ())
    assert log.reason == f"no known format: the log is none of {', '.join(FORMATS)}"


def test_an_empty_log_is_no_result():
    assert (parse([]).status, parse([b""]).runs) == ("no-result", ())


def test_an_unknown_format_is_refused_with_a_near_match():
    with pytest.raises(UsageError, match="did you mean 'tf_cnn_benchmarks'"):
        parse([], "tf_cnn_benchmark")


def test_missing_is_null_in_json():
    [run] = msgspec.json.decode(msgspec.json.encode(read(banner())))["runs"]
    assert run["throughput"] is None
    assert run["printed"] == []


def behind(prefix: str, text: str) -> str:
    return "".join(prefix + line for line in text.splitlines(keepends=True))


@logs
@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
def test_a_prefix_does_not_change_the_figures(text, prefix):
    assert figures(read(behind(prefix, text))) == figures(read(text))


@pytest.mark.parametrize("name", OF_ONE_RANK)
@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS.keys())
def test_a_rank_s_tag_does_not_change_its_figures(name, tag):
    assert figures(read(behind(tag, LOGS[name]))) == figures(read(LOGS[name]))


@pytest.mark.parametrize("tag", ["[1,{}]<stdout>:", "[{}]<stdout>:", "[127.0.0.1/0{0}/0{0}-of-03::stdout] "])
def test_tagged_ranks_have_the_figures_of_ranks_without_tags(tag):
    log = read(horovod_ranks(3, prefix=tag.format), observations=True)
    assert figures(log) == figures(read(horovod_ranks(3)))
    assert {seen.rank for seen in log.runs[0].observations} == {0, 1, 2}


@logs
@pytest.mark.parametrize(
    "end", ["\r\n", "\r", "\x1b[0m\n", "\x00\n", "   \n"], ids=["CR LF", "CR", "ANSI", "NUL", "blanks"]
)
def test_line_ends_do_not_change_the_figures(text, end):
    assert figures(read(text.replace("\n", end))) == figures(read(text))


@logs
def test_collecting_observations_changes_nothing_else(text):
    log = read(text, observations=True)
    figure_lines = re.findall(r"images/sec: |mg/sec (?:per|on)", text)
    assert sum(len(run.observations) for run in log.runs) == len(figure_lines)
    bare = tuple(msgspec.structs.replace(run, observations=msgspec.UNSET) for run in log.runs)
    assert msgspec.structs.replace(log, runs=bare) == read(text)


@logs
def test_observations_are_in_the_json_only_where_they_were_asked_for(text):
    for run in msgspec.to_builtins(read(text))["runs"]:
        assert "observations" not in run
    for run in msgspec.to_builtins(read(text, observations=True))["runs"]:
        assert isinstance(run["observations"], (list, tuple))


@logs
def test_an_observation_stands_on_its_line(text):
    lines = text.splitlines()
    for run in read(text, observations=True).runs:
        for seen in run.observations:
            assert re.search(rf"\b{seen.value:.1f}", lines[seen.line - 1])


@given(st.sampled_from(list(LOGS.values())), st.lists(st.integers(min_value=0, max_value=4000), max_size=8))
def test_chunks_do_not_matter(text, cuts):
    data = text.encode()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(bounds)]
    assert parse(pieces, observations=True) == parse([data], observations=True)


@given(st.sampled_from(list(LOGS.values())), st.integers(min_value=0, max_value=4000))
def test_a_cut_log_has_no_figure_that_the_whole_one_has_not(text, cut):
    whole = read(text, observations=True)
    known = {seen.value for run in whole.runs for seen in run.observations}
    for run in read(text[:cut], observations=True).runs:
        assert set(run.printed) <= known
        assert {seen.value for seen in run.observations} <= known


@given(st.lists(st.binary(max_size=200)))
def test_any_bytes_are_read(chunks):
    assert parse(chunks, observations=True).status == "no-result"


NINES = "9" * 5000
FRAGMENTS = [
    *sorted({line + "\n" for line in "".join(LOGS.values()).splitlines()}),
    *(
        "total images/sec: ",
        "images/sec: ",
        " examples/sec\n",
        "Iter #",
        "nan",
        "\r",
        "\x1b[",
        "\xff",
        "9" * 400,
        NINES,
    ),
    *(
        f"total images/sec: {NINES}\n",
        f"{NINES}\timages/sec: {NINES}.0 +/- {NINES}.0\n",
        f"Iter #{NINES}: {NINES} img/sec",
    ),
    *(f"Total img/sec on {NINES} GPU(s): {NINES} +-1.0\n", f"[1,{NINES}]<stdout>:", f"Batch size: {NINES} global\n"),
    *("Batch size: 0 global\n", "0 per device\n", "Devices: []\n", "Number of GPUs: 0\n", "[1,0]<stdout>:"),
    "Traceback (most recent call last)\n",
]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30))
def test_any_order_of_known_fragments_is_read(fragments):
    text = "".join(fragments).encode("latin-1")
    for name in (None, *FORMATS):
        log = parse([text], name, observations=True)
        assert msgspec.json.decode(msgspec.json.encode(log), type=ParsedLog) == log
        assert figures(parse([text], name)) == figures(log)
        for run in log.runs:
            assert (run.throughput is None) == (run.printed == ()) == (run.reason is not None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "repeated",
    [
        "total images/sec: ",
        "Batch size: 1 global Devices: [",
        "Batch size: 1 Mode: a a a a a a a a a a",
        "Img/sec per Total img/sec on 1 GPU",
        "1\timages/sec: 5.0 \n",
        "Iter #1: 5.0 img/sec per GPU\n",
        "Traceback (most recent call last)\na.b.c:",
        "\x1b]",
    ],
)
def test_no_line_takes_time_that_grows_faster_than_its_length(repeated):
    text = repeated * ((1 << 20) // len(repeated))  # minutes, where every occurrence looks at the whole line
    assert figures(read(text)) == figures(read(text, observations=True))
