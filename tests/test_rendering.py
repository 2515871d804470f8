"""Values in template texts: whatever a value holds, a shell reads it as one word, or the template is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudbench.errors import SpecError
from cloudbench.rendering import render_shell, render_text

SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]

needs_a_shell = pytest.mark.skipif(sys.platform == "win32", reason="there is no POSIX shell on Windows")

ARGUMENTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)

HOSTILE = [
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a\ntouch pwned\n",
    "&& touch pwned",
    "| touch pwned",
    "> pwned",
    "a[$(touch pwned)]",
    "*",
    "~",
    "--flag=x y",
    "-n",
    "#",
    "\\",
    "",
    " ",
    "größe 日本 🚂",
    "if",
    "PATH=/nowhere",
    "2",
    "!",
    "\x01\x7f\x81",
]


def shell(name: str) -> list[str]:
    return ["busybox", "sh", "-c"] if name == "busybox" else [name, "-c"]


def arguments(shell_name: str, text: str) -> list[str]:
    """What a shell hands to a program that is started with these arguments."""
    command = [*shell(shell_name), text]
    done = subprocess.run(command, capture_output=True, check=True, timeout=180, cwd=tempfile.gettempdir())
    return done.stdout.decode("utf-8").split("\0")[:-1]


@needs_a_shell
@pytest.mark.parametrize("shell_name", SHELLS)
@given(first=ARGUMENTS, second=ARGUMENTS, several=st.lists(ARGUMENTS, max_size=4))
@settings(max_examples=60)
def test_a_shell_gives_back_exactly_the_values(shell_name: str, first: str, second: str, several: list[str]) -> None:
    template = "printf '%s\\0' x {{ first }} --flag={{ first }} pre{{ second }}post $(: {{ first }}) {{ several }}"
    text = render_shell(template, {"first": first, "second": second, "several": several}, where="t")
    assert arguments(shell_name, text) == ["x", first, f"--flag={first}", f"pre{second}post", *several]


@needs_a_shell
@pytest.mark.parametrize("shell_name", SHELLS)
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_arguments_and_never_commands(tmp_path: Path, shell_name: str, value: str) -> None:
    # The word of its own, the flag, the word that a command begins with, and the one in front of a redirection.
    template = "printf '%s\\0' {{ v }} --flag={{ v }} ; {{ v }} printf x >/dev/null ; printf '%s\\0' {{ v }}>&1"
    text = render_shell(template, {"v": value}, where="t")
    done = subprocess.run([*shell(shell_name), text], capture_output=True, timeout=180, cwd=tmp_path)
    assert done.stdout.decode().split("\0") == [value, f"--flag={value}", value, ""]
    assert list(tmp_path.iterdir()) == []


PIECES = [
    *(
        "{{ v }}",
        "{{ v }}",
        "{{ none }}",
        "echo ",
        "true ",
        "x=",
        "$x",
        "~",
        "a",
        "a[",
        "=1",
        "2",
        "!",
        "*",
        "-eq",
        "]",
    ),
    *('"', "'", "`", "\\", "\\\n", "#", "\n", " ", "\t", "$", "$'", "$(", "$((", "$[", "((", "(", ")", "[[", "[", "]]"),
    *("${x:-", "}", "{", '"${', '"$(', ')"', " case x in x)", " esac ", " if ", " then ", " fi ", ";", "&&", "|"),
    *("<", ">", ">&", "<(", "<<E"),
]


@needs_a_shell
@pytest.mark.parametrize("shell_name", SHELLS)
@given(
    template=st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join),
    value=st.sampled_from([value for value in HOSTILE if "pwned" in value]),
)
@settings(max_examples=150)
def test_no_template_that_is_accepted_runs_a_value(shell_name: str, template: str, value: str) -> None:
    try:
        text = render_shell(template, {"v": value, "none": None}, where="t")
    except SpecError:
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [*shell(shell_name), text], stdin=subprocess.DEVNULL, capture_output=True, timeout=180, cwd=folder
        )
        assert not (Path(folder) / "pwned").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "p 'true'"),
        (False, "p 'false'"),
        (3, "p '3'"),
        (0.5, "p '0.5'"),
        (None, "p"),
        ([], "p"),
        (["a b", None, 1], "p 'a b' '1'"),
        (("x",), "p 'x'"),
        ("", "p ''"),
        ("it's", "p 'it'\"'\"'s'"),
    ],
)
def test_each_kind_of_value_has_one_way_into_a_command(value: object, text: str) -> None:
    assert render_shell("p {{ v }}", {"v": value}, where="t") == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("p --n={{ v }}", "p --n=64"),
        ("p --n={{ v }} \\\n  --m={{ v }}", "p --n=64 \\\n  --m=64"),
        ("p --{{ v }}={{ v }} -{{ v }}", "p --64=64 -64"),
        ("p --n={{ v }}>f", "p --n='64'>f"),
        ("p --n={{ v }}x", "p --n='64'x"),
        ("p {{ v }}", "p '64'"),
    ],
)
def test_a_plain_value_of_a_flag_needs_no_quotes_to_be_read(template: str, text: str) -> None:
    assert render_shell(template, {"v": 64}, where="t") == text


@pytest.mark.parametrize(
    "template",
    [
        'echo "$HOME" ${x:-y} $? $# $$ \'#\' "a $(nproc) ${x#y} $((1 + (2 * 3))) \\" z" {{ v }}',
        'for x in {{ v }} b; do echo "$x"; done',
        "case {{ v }} in a) true;; esac",
        "[ {{ v }} = a ] && echo $(echo {{ v }}) || exit 1",
        "# a comment, isn't it\necho {{ v }} # and \"another\n",
        "cd /tmp &&\n  echo {{ v }} >out 2>&1 # done",
        "a=1; ( echo {{ v }} ); { echo b; }",
        "ls a[0-9]* *.txt {{ v }}",
        "echo a#b 50% a\\ b \\$x {{ v }}",
    ],
)
def test_ordinary_shell_text_takes_values(template: str) -> None:
    assert "'a b'" in render_shell(template, {"v": "a b"}, where="t")


REFUSED = {
    'echo "{{ v }}"': 'inside " quotes',
    "echo '{{ v }}'": "inside ' quotes",
    "sh -c 'train --x={{ v }}'": "inside ' quotes",
    'echo "$(echo {{ v }})"': 'inside " quotes',
    "echo \"$(echo '{{ v }}')\"": 'inside " quotes',
    'echo "$(echo "{{ v }}")"': 'of its own inside " quotes',
    'echo "$(case x in x) echo "{{ v }}" ;; esac)"': 'of its own inside " quotes',
    'echo "${x:-"{{ v }}"}"': 'of its own inside " quotes',
    "echo ${x:-{{ v }}}": "${…}",
    "echo ${x:-'{{ v }}'}": "${…}",
    "echo $(( {{ v }} + 1 ))": "brackets",
    "(( x = {{ v }} ))": "brackets",
    "[[ {{ v }} -eq 1 ]]": "brackets",
    "a[{{ v }}]=1": "brackets",
    "echo $[ {{ v }} ]": "brackets",
    "echo `echo {{ v }}`": "backquotes",
    "echo \\{{ v }}": "behind a backslash",
    "echo $'it\\' {{ v }} '": "$ in front of",
    "echo ${{ v }}": "$ in front of",
    "echo # {{ v }}": "inside a comment",
    "(true)#'\n' {{ v }}": "# behind a bracket",
    "true\\\n#'\n{{ v }}\n'": "middle of a word",
    "cat <<END\n{{ v }}\nEND": "here-document",
    "cat <<'END'\n{{ v }}\nEND": "here-document",
    "echo >&{{ v }}": "redirection",
    "echo 'a {{ v }}": "inside ' quotes",
    "echo {{ v }} 'a": "never closed",
    'echo {{ v }} "a': "never closed",
}


@pytest.mark.parametrize("template", REFUSED)
def test_a_value_where_quoting_would_not_hold_is_refused(template: str) -> None:
    with pytest.raises(SpecError) as refused:
        render_shell(template, {"v": "a"}, where="template x: command")
    assert refused.value.what.startswith("template x: command: ")
    assert REFUSED[template] in refused.value.what
    assert refused.value.todo


def test_text_without_values_is_the_author_s_own() -> None:
    text = 'cat <<END\n"$(echo `date`)" $(( 1 << 2 ))\nEND'
    assert render_shell(text, {}, where="t") == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ fail.__globals__ }}",
        "{{ ''|attr('__class__') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ fail.__call__.__self__ }}",
        "{{ parameters.update({'a': 1}) }}",
        "{{ parameters.clear() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ [1, 2] | random }}",
        "{{ lipsum() }}",
    ],
)
@pytest.mark.parametrize("render", [render_text, render_shell])
def test_the_sandbox_lets_nothing_out(template: str, render: Callable[..., str]) -> None:
    with pytest.raises(SpecError, match=r"^t: "):
        render(template, {"parameters": {"b": 2}}, where="t")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ modle }}", "'modle' is undefined"),
        ("{{ parameters.modle }}", "has no attribute 'modle'"),
        ("{% if modle %}x{% endif %}", "'modle' is undefined"),
        ("a\n{% if %}", "line 2: "),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' + 1 }}", "str"),
        ("{{ 5 | wordwrap }}", "'int' object has no attribute"),
        ("{% for i in range(10**9) %}x{% endfor %}", "Range too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without an end"),
        ("a\0b", "holds a NUL"),
        ("{{ fail('no such combination') }}", "no such combination"),
        ("{% filter replace('0', '7') %}{{ v }}{% endfilter %}", "a filter changes rendered text"),
        ("{% filter wordwrap(1) %}{{ v }}{{ v }}{% endfilter %}", "filter"),
        ("{% set x %}{{ v }}{% endset %}{{ x }}", "is itself rendered text"),
        ("{{ '\\0' }}", "holds a NUL"),
        ("{{ fail }}", "neither text, number"),
        ("{{ parameters }}", "neither text, number"),
        ("{{ parameters.items }}", "neither text, number"),
    ],
)
def test_a_wrong_template_is_one_clear_error(template: str, says: str) -> None:
    with pytest.raises(SpecError) as wrong:
        render_shell(template, {"parameters": {"b": 2}, "v": "a"}, where="t")
    assert wrong.value.what.startswith("t: ")
    assert says in wrong.value.what


def test_fail_gives_the_author_s_reason_and_what_to_change() -> None:
    with pytest.raises(SpecError) as refused:
        render_text("{{ fail('one node only') }}", {}, where="template x: launcher")
    assert str(refused.value) == "template x: launcher: one node only\n  try: change the parameters or the setup"


def test_an_if_without_else_gives_no_word_at_all() -> None:
    assert render_shell("p {{ v if v > 3 }} q", {"v": 1}, where="t") == "p  q"
    assert render_text("{{ v if v > 3 }}", {"v": 1}, where="t") == ""


def test_blocks_leave_no_empty_lines_behind() -> None:
    template = "a \\\n{% if v %}\n  --v={{ v }} \\\n{% endif %}\n  b"
    assert render_shell(template, {"v": 1}, where="t") == "a \\\n  --v=1 \\\n  b"
    assert render_shell(template, {"v": 0}, where="t") == "a \\\n  b"


@given(value=ARGUMENTS)
@settings(max_examples=50)
def test_a_text_that_no_shell_reads_holds_its_values_as_they_are(value: str) -> None:
    assert render_text("<{{ v }}>", {"v": value}, where="t") == f"<{value}>"
