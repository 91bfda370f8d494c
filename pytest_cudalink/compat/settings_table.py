"""The settings of the project: option, ini entry, variable, key of a cell and flag of ``cudalink driver run`` of each.

``data/options.json`` declares them. Imports nothing but words, because the start of every pytest reads it;
`plugin/settings.py` has the checks of values.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from . import names


class Twin:
    """What a cell or ``cudalink driver run`` calls a setting, and its meaning there."""

    def __init__(self, name: str, help: str) -> None:  # noqa: A002 (argparse's word)
        self.name, self.help = name, help


class Part:
    """One setting of an option that has several.

    `word`: what stands before its value; empty for a value alone.
    `values`: what it may be; one in capitals stands for any.
    `env`: variable of our own processes that counts where the user chose no value.
    """

    def __init__(self, word: str, values: tuple[str, ...], default: str, env: str = "") -> None:
        self.word, self.values, self.default, self.env = word, values, default, env


class Option:
    """What a user writes on the command line, in the environment, in an ini file or a cell: one setting, or several.

    The command-line default is None for each, because any other would hide the environment and the ini file.

    `choices`: what the value may be; empty for a free value.
    `words`: values with a special meaning besides free ones.
    `parts`: for an option with several settings: what it says of each, by the name of the setting.
    `flag`: on the command line; empty for a setting that only ini files and variables have.
    `env`: environment variable; empty for a setting without one.
    `inherited`: whether its environment variable also counts for a pytest that a test starts.
    `bare`: what the option means without a value; empty for an option that needs a value.
    `cell`: the key of a cell, if cells have the setting.
    `program`: the flag of ``cudalink driver run``, if programs have the setting.
    """

    # no NamedTuple: every start of pytest would pay for what is generated
    name: str
    help: str
    default = ""
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    metavar: str | None = None
    parts: dict[str, Part]
    key = ""
    inherited = True
    bare = ""
    cell: Twin | None = None
    program: Twin | None = None

    def __init__(self, **entry: Any) -> None:
        vars(self).update(entry)
        self.ini = f"cudalink_{self.key or self.name}"
        self.flag: str = entry.get("flag", f"--cudalink-{self.name.replace('_', '-')}")
        self.env: str = entry.get("env", self.ini.upper())

    @property
    def settings(self) -> dict[str, tuple[str, str]]:
        """The name by which messages call each of its settings, and the default."""
        label = self.flag or self.ini
        return {
            name: (f"{label} ({part.word})" if part.word else label, part.default) for name, part in self.parts.items()
        } or {self.name: (label, self.default)}


def _read() -> tuple[Option, ...]:
    """Return the settings of ``data/options.json``; every start of pytest would wait for a parser of TOML."""
    text = _FILE.read_bytes().decode()
    for word, known in _KNOWN.items():
        text = text.replace(word, known)
    return tuple(_option(entry) for entry in json.loads(text))


def _option(entry: dict[str, Any]) -> Option:
    entry["help"] = _joined(entry["help"])
    for key in entry.keys() & {"cell", "program"}:
        entry[key] = Twin(entry[key]["name"], _joined(entry[key]["help"]))
    for key in entry.keys() & {"choices", "words"}:
        entry[key] = _several(entry[key])
    parts = entry.get("parts", {}).items()
    entry["parts"] = {key: Part(word, _several(values), *more) for key, (word, values, *more) in parts}
    return Option(**entry)


def _joined(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else " ".join(lines)


def _several(words: str | list[str]) -> tuple[str, ...]:
    """Return words that are listed, or those that `names` has under a name."""
    listed: tuple[str, ...] = getattr(names, words) if isinstance(words, str) else tuple(words)
    return listed


_FILE: Final = Path(__file__).parents[1] / "data" / "options.json"
#: What `names` knows and texts of the file mention.
_KNOWN: Final = {
    "$DEVICES": ", ".join(names.EMULATED_DEVICES),
    "$ARCHITECTURE": names.DEFAULT_ARCHITECTURE,
    "$POLICY": names.DEFAULT_POLICY,
    "$TIMEOUT": str(names.LIMIT_LINK_TIMEOUT),
}
OPTIONS: Final = _read()
#: Where libraries may come from, besides folders.
PROVENANCES: Final = next(option.words for option in OPTIONS if option.name == "provenance")

#: Settings that apply only to an emulated driver.
OF_EMULATION: Final = ("device", "faults", "events")


def label(name: str) -> str:
    """Return the name by which messages call a setting, such as ``--cudalink-driver`` or ``cudalink_events``."""
    return next(option.settings[name][0] for option in OPTIONS if name in option.settings)


def known_variables() -> set[str]:
    """Return the name of every variable that some part of the project reads."""
    from ..base.tables import read_table

    table = read_table("variables.toml")
    of_settings = {option.env for option in OPTIONS} - {""}
    return of_settings.union(*(table[group] for group in ("parts", "internal", "tests")))


def unread_variables(environment: Iterable[str]) -> list[str]:
    """Return a sentence for each variable of the project that is set and that no part reads.

    `environment`: the names of the variables that are set.
    """
    from ..base.tables import read_table
    from ..base.words import did_you_mean

    names = known_variables()
    prefixes = tuple(read_table("variables.toml")["prefixes"])
    return [
        f"the environment variable {name} is ignored: no part of pytest-cudalink reads it"
        f"{did_you_mean(name, names, alike=0.8)}"
        for name in sorted(environment)
        if name.startswith("CUDALINK_") and name not in names and not name.startswith(prefixes)
    ]
