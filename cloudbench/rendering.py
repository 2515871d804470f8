"""Template texts with values put in: Jinja2 in a sandbox, and shell text into which every value goes quoted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

import jinja2
import jinja2.sandbox

from cloudbench.errors import SpecError

# A value leaves Jinja2 as NUL, its number, NUL. No template and no argument of a program can hold a NUL, so the
# places of the values in the rendered text are certain, and what is around them is the template's own text.
_PLACE = re.compile("\0([0-9]+)\0")

# A word that stands for itself in every shell, and is no reserved word, assignment or file descriptor there because
# it is only left bare behind a `=` or a `-`.
_BARE = re.compile(r"[A-Za-z0-9_@%+:,./-]+")

# The part of the shell's grammar in which it is certain where a quoted word begins. Between the quotes of "…" stands
# no value, and no `$(…)` or `${…}` that could open quotes of its own. Whatever matches none of these is refused, for
# shells disagree on it or read a quoted value in it again.
_EXPANSION = r"""\$\{[^'"`\\{}()\0]*\} | \$\(\( (?: [^'"`\\()\0] | \([^'"`\\()\0]*\) )* \)\)"""
_SUBSTITUTION = r"""\$\( (?!\() (?![^)]*\bcase\b) [^'"`\\()\#\0]* \)"""
_TOKEN = re.compile(
    rf"""
      \0[0-9]+\0
    | [^'"`\\$\[\#\0 \t\n;&|<>()]+
    | (?: [ \t\n] | (?<=[ \t\n])\\\n )+
    | [;&|] | [<>](?!&) | [<>]&(?:[0-9]|-)(?=[ \t\n;&|<>()]|\Z) | \((?!\() | \)(?!\#)
    | '[^'\0]*'
    | " (?: [^"`\\$\0] | \\[^\n\0] | {_EXPANSION} | {_SUBSTITUTION} | \$(?![{{(]) )* "
    | \\(?![ \t;&|<>(](?:\#|\\\n))[^\n\0]
    | (?<![^ \t\n;&|<>(])\#[^\n\0]*(?=\n|\Z) | (?<=[^ \t\n;&|<>()])\#
    | {_EXPANSION} | \$(?!['"\[{{\0\\]|\(\()
    | (?<![^ \t\n;&|<>()])\[(?=[ \t\n]) | \[(?!\[)[^\[\]'"`\\$\0 \t\n]*\]
    """,
    re.VERBOSE,
)


def render_text(source: str, values: Mapping[str, Any], *, where: str) -> str:
    """The text with its values, stripped: for what is never given to a shell.

    Raises:
        SpecError: the template is wrong, names an unknown value, or refuses the values with `fail(reason)`.
    """
    return _render(source, values, where=where, finalize=None).strip()


def render_shell(source: str, values: Mapping[str, Any], *, where: str) -> str:
    """Shell text in which each value is one quoted word, or several for a list; `None` is no word at all.

    A value is never read as shell syntax, whatever it holds. So that this is certain, the template must not put a
    value inside quotes, a comment, arithmetic or a here-document of its own, and must keep to POSIX `sh`. What a
    program does with its arguments is the template's affair: `eval {{ x }}` or `sh -c {{ x }}` runs the value.

    Raises:
        SpecError: as for `render_text`; also a value in such a place, or one that no program's argument can hold.
    """
    placed: list[str] = []

    def place(value: Any) -> str:
        if isinstance(value, jinja2.Undefined):
            return str(value)  # raises, naming the value; nothing where `… if …` has no `else`
        places: list[str] = []
        for word in value if isinstance(value, (list, tuple)) else [value]:
            if word is not None:
                places.append(f"\0{len(placed)}\0")
                placed.append(_word(word, where))
        return " ".join(places)

    text = _render(source, values, where=where, finalize=place)
    _refuse_uncertain_places(text, len(placed), where)
    return _PLACE.sub(lambda match: _quoted(placed[int(match[1])], match), text).strip()


def _render(source: str, values: Mapping[str, Any], *, where: str, finalize: Any) -> str:
    def fail(reason: str) -> NoReturn:
        raise SpecError(f"{where}: {reason}", todo="change the parameters or the setup")

    if "\0" in source:
        raise SpecError(f"{where}: the template holds a NUL", todo="remove it")
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The same plan renders the same text, always.
    del environment.filters["random"], environment.globals["lipsum"]
    try:
        return environment.from_string(source).render({**values, "fail": fail})
    except jinja2.TemplateSyntaxError as error:
        raise SpecError(f"{where}: line {error.lineno}: {error.message}", todo="correct the template") from error
    except jinja2.TemplateError as error:
        raise SpecError(f"{where}: {error.message}", todo="correct the template") from error
    except RecursionError as error:
        raise SpecError(f"{where}: the template calls itself without an end", todo="correct the template") from error
    except (AttributeError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise SpecError(f"{where}: {error}", todo="correct the template or the values") from error


def _word(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise SpecError(
            f"{where}: a value is neither text, number, true or false, nor a list of them",
            todo="write out what it holds, such as {{ x | list }} or {{ x.name }}",
        )
    word = str(value)
    if "\0" in word:
        raise SpecError(f"{where}: a value holds a NUL, or is itself rendered text", todo="pass the plain value")
    return word


def _quoted(word: str, place: re.Match[str]) -> str:
    before, after = place.string[: place.start()][-1:], place.string[place.end() :][:1]
    bare = before in ("=", "-") and after in ("", " ", "\t", "\n", "=") and _BARE.fullmatch(word)
    # `shlex.quote` leaves `if`, `A=b` and the 2 of `2>file` bare, which are syntax where a command or word begins.
    return word if bare else "'" + word.replace("'", "'\"'\"'") + "'"


def _refuse_uncertain_places(text: str, places: int, where: str) -> None:
    """Read the text as a shell would, and refuse it where it is not certain that a quoted value stays one word."""
    if places == 0:
        return
    if "<<" in text:
        raise SpecError(f"{where}: a here-document beside a value", todo="pass the text as an argument")
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            what, todo = _uncertain(text[at:])
            line = text.count("\n", 0, at) + 1
            raise SpecError(f"{where}: {what} (line {line} of the rendered text)", todo=todo)
        at = token.end()
    if any(int(place[1]) >= places for place in _PLACE.finditer(text)) or "\0" in _PLACE.sub("", text):
        raise SpecError(f"{where}: a filter changes rendered text", todo="use the filter on the values themselves")


def _uncertain(rest: str) -> tuple[str, str]:
    """What stands at the beginning of a text that cannot be read for certain, and what to do about it."""
    for beginning, what, todo in _UNCERTAIN:
        if re.match(beginning, rest):
            return what, todo
    return "a filter changes rendered text", "use the filter on the values themselves"


_UNCERTAIN = (
    (r"'[^']*\0", "a value stands inside ' quotes", "take them away: values are quoted"),
    (r'"[^"]*\0', 'a value stands inside " quotes', "take them away: values are quoted"),
    (r"'[^']*\Z", "' is opened and never closed", "close it"),
    (r'"[^"]*\Z', '" is opened and never closed', "close it"),
    (r'"', 'a command or an expansion with quotes or brackets of its own inside " quotes', "assign it to a variable"),
    ("`", "backquotes", "write $(…)"),
    (r"\\\0", "a value stands behind a backslash", "take it away: values are quoted"),
    (r"\\\n", "a line goes on in the middle of a word", "put a blank before the backslash"),
    (r"\\", "a backslash that shells read differently", "use quotes"),
    (r"#[^\n]*\0", "a value stands inside a comment", "use Jinja2's own comments, {# … #}"),
    (r"\)#", "# behind a bracket", "put a blank before it where it begins a comment, else quotes around it"),
    (
        r"\$?(\(\(|\[)",
        "brackets that not every shell has, or a value inside them",
        "write [ … ], or {{ a + b }} for a sum",
    ),
    (r"[<>]&", "a redirection to something that may not be a descriptor", "write >file 2>&1"),
    (r"\$\{", "${…} around a value, quotes or another expansion", "assign that to a variable"),
    (r"\$", "$ in front of quotes, a backslash or a value", "put $ into ' quotes"),
)
