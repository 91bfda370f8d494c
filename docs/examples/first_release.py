"""Print the requirement that a symbol of a CUDA library needs: ``python first_release.py libnvJitLink SYMBOL``."""

from __future__ import annotations

import sys

from pytest_cudalink.compat import exports


def main(stem: str, symbol: str) -> None:
    for major, distribution in exports.distributions(stem).items():
        since = exports.since(stem, major, symbol)
        if since is None:
            print(f"no {exports.sonames(stem)[major]} of CUDA {major} exports {symbol}")
        else:
            print(f"{distribution}>={exports.first_wheel(stem, major, symbol)}  # CUDA {since}")


if __name__ == "__main__":
    main(*sys.argv[1:])
