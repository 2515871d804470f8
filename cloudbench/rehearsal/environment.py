"""What a stand-in node has of this machine's environment, and the variables that mark what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping

MACHINE, EXECUTION, LIFELINE = "CLOUDBENCH_MACHINE", "CLOUDBENCH_EXECUTION", "CLOUDBENCH_LIFELINE"

# What a program needs of this machine. A rented machine has nothing else of the client: no keys, no tokens.
_KEPT = {
    *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "LD_LIBRARY_PATH", "PYTHONPATH"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_DIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
}


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a node has as well. A proxy is not asked for the stand-ins."""
    found = {name: value for name, value in environment.items() if name.upper() in _KEPT or name.startswith("LC_")}
    if any(name.upper().endswith("_PROXY") for name in found):
        without = ",".join(filter(None, (found.get("no_proxy") or found.get("NO_PROXY"), "127.0.0.1,localhost")))
        found |= {"no_proxy": without, "NO_PROXY": without}
    return found


def marks_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that everything of a node keeps, also in its containers."""
    return {name: environment[name] for name in (MACHINE, EXECUTION, LIFELINE) if name in environment}
