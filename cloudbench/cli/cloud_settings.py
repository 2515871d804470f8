"""What a person has set about a cloud: options, then variables, then `config.toml`."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import platformdirs

from cloudbench.errors import CredentialsError, UsageError, did_you_mean

if TYPE_CHECKING:
    from cloudbench.providers.base import Problem

_TABLES = ("azure", "aws")
"""What `config.toml` can have."""

_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


class CloudSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one cloud: each with the variable that it is also known by, and what it is."""

    cloud: str
    title: str
    known: dict[str, tuple[str | None, str]]
    secret: tuple[str, ...]

    def parse(self, assignments: Sequence[str]) -> dict[str, str]:
        """The settings in `--azure KEY=VALUE`.

        Raises:
            UsageError: not a setting, or a secret: everybody on this machine can read a command line.
        """
        found = {}
        for assignment in assignments:
            key, equals, value = assignment.partition("=")
            if key not in self.known:
                raise UsageError(
                    f"--{self.cloud} {key}: expected KEY=VALUE with one of the settings{did_you_mean(key, self.known)}",
                    todo=", ".join(key for key in self.known if key not in self.secret),
                )
            if key in self.secret:
                raise UsageError(
                    f"--{self.cloud} {key}: keys and passwords are not given on the command line",
                    why="others on this machine can read a command line",
                    todo=f"set ${self.variable(key)}, or {key} in {config_path()}",
                )
            if not equals:
                raise UsageError(
                    f"--{self.cloud} {key}: expected KEY=VALUE, and there is no value",
                    todo=f"--{self.cloud} {key}=…: {self.known[key][1]}",
                )
            found[key] = value
        return found

    def look_up(self, options: Mapping[str, str]) -> dict[str, str]:
        """All that is set: by the options, then our variables, then the cloud's own ones, then `config.toml`.

        Raises:
            UsageError: `config.toml` cannot be read, or sets what is no setting.
        """
        configured = self._config()
        found = {}
        for key, (variable, _) in self.known.items():
            value = options.get(key) or os.environ.get(self.variable(key))
            value = value or (os.environ.get(variable) if variable else None) or configured.get(key)
            if value:
                found[key] = value
        return found

    def missing(self, found: Mapping[str, str], needed: Sequence[str]) -> Problem | None:
        """What is needed and not set, and where to set it."""
        from cloudbench.providers.base import Problem

        missing = [key for key in needed if key not in found]
        if not missing:
            return None
        return Problem(
            severity="error",
            what=f"no {self.title} account is set: {', '.join(missing)} missing",
            why="; ".join(f"{key} is {self.known[key][1]}" for key in missing),
            todo=f"export {' '.join(f'{self.variable(key)}=…' for key in missing)}, or set them under "
            f"[{self.cloud}] in {config_path()}; docs/{self.cloud}.md says what to create; --rehearse needs none of it",
            exit_code=CredentialsError.exit_code,
        )

    def refuse_wrong(self, found: Mapping[str, str], key: str, right: Callable[[str], object], words: str) -> None:
        """Refuse a setting that cannot be right, before anything is asked of the cloud; it is not repeated.

        Raises:
            UsageError: it is set, and is not what `words` say.
        """
        if key in found and not right(found[key]):
            raise UsageError(f"{key} is not {words}", why=f"it is {self.known[key][1]}", todo=self.origin(key))

    def origin(self, key: str) -> str:
        """Where a person corrects a setting."""
        other = self.known[key][0]
        option = () if key in self.secret else (f"--{self.cloud} {key}=…",)
        variables = (f"${self.variable(key)}", *([f"${other}"] if other else []))
        return f"correct {key}: it is {', else '.join((*option, *variables))}, else in {config_path()}"

    def variables(self, values: Mapping[str, str]) -> dict[str, str]:
        """Settings as the variables that set them."""
        return {self.variable(key): value for key, value in values.items() if key in self.known}

    def variable(self, key: str) -> str:
        """Our variable for a setting."""
        return f"CLOUDBENCH_{self.cloud.upper()}_{key.upper()}"

    def _config(self) -> dict[str, str]:
        """What the cloud's table in `config.toml` sets."""
        path = config_path()
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{path}: cannot be read", why=str(error), todo="check the file, or take it away"
            ) from error
        tables = _parse_toml(text, path)
        for name in tables:
            if name not in _TABLES:
                raise UsageError(
                    f"{path}: {name}: there is no such table{did_you_mean(name, _TABLES)}",
                    todo="begin each with " + " or ".join(f"[{table}]" for table in _TABLES),
                )
        table = tables.get(self.cloud, {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {self.cloud}: is not a table", todo=f"begin it with [{self.cloud}]")
        for key, value in table.items():
            if key not in self.known:
                raise UsageError(
                    f"{path}: {self.cloud}.{key}: there is no such setting{did_you_mean(key, self.known)}",
                    todo=", ".join(self.known),
                )
            if not isinstance(value, str):
                raise UsageError(f"{path}: {self.cloud}.{key}: is not text", todo=f'{key} = "…"')
        return table


def is_url(text: str) -> bool:
    """Whether it is an address that can be asked over HTTP or HTTPS."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    known = bool(_HOST.fullmatch(host)) or ":" in host
    return parts.scheme in ("http", "https") and known and not re.search(r"\s", text)


def config_path() -> Path:
    """`config.toml` in `$CLOUDBENCH_HOME`, else in the platform's folder for configuration."""
    configured = os.environ.get("CLOUDBENCH_HOME")
    folder = Path(configured).expanduser() if configured else platformdirs.user_config_path("cloudbench")
    return folder / "config.toml"


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(toml.loads(text))
    except ValueError as error:
        raise UsageError(f"{path}: is not TOML", why=str(error), todo="correct the file") from error
