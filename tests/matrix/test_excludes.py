"""The reasons for leaving a combination out of a matrix: where each holds, at its bounds."""

from __future__ import annotations

import pytest

from pytest_cudalink.matrix import Cell
from pytest_cudalink.matrix.excludes import REASONS
from pytest_cudalink.matrix.keys import CellValues

HOLDS = {
    "no-skew": [{"driver": "13.0"}, {"nvjitlink": "13.0"}, {"driver": "13.0", "nvjitlink": "13.0"}],
    "no-wheels": [{"ctk": "12.99"}, {"nvjitlink": "12.99"}],
    "driver-too-old": [{"driver": "12.9"}],
    "nvjitlink-unusable": [{"nvjitlink": "12.2"}],
    "other-soname": [{"nvjitlink": "12.9"}],
    "bindings-major": [{"versions": {"cuda-bindings": "==12.*"}}, {"versions": {"cuda-bindings": "12.9.1"}}],
    "arch-unsupported": [
        {"arch": "sm_70"},
        {"arch": "sm_100", "nvjitlink": "12.6"},
        {"arch": "sm_100", "driver": "12.6"},
    ],
    "python-unsupported": [{"python": "3.10"}, {"python": "3.9t"}],
}
FAILS = {
    "no-skew": [{}, {"driver": "13.0", "nvjitlink": "13.1"}, {"driver": "13.1", "nvjitlink": "13.0"}],
    "no-wheels": [{}, {"ctk": "none"}, {"nvjitlink": "12.9"}],
    "driver-too-old": [{}, {"driver": "13.0"}, {"driver": "13.1"}, {"ctk": "none", "driver": "12.9"}],
    "nvjitlink-unusable": [{}, {"nvjitlink": "12.3"}, {"nvjitlink": "13.0"}],
    "other-soname": [{}, {"nvjitlink": "13.1"}, {"ctk": "none", "nvjitlink": "12.9"}],
    "bindings-major": [
        *({}, {"versions": {"cuda-bindings": "13.0.*"}}, {"versions": {"cuda-bindings": "latest"}}),
        {"ctk": "none", "versions": {"cuda-bindings": "12.9.*"}},
    ],
    "arch-unsupported": [{}, {"arch": "sm_75"}, {"arch": "sm_100", "driver": "12.9", "nvjitlink": "13.0"}],
    "python-unsupported": [{}, {"python": "3.11"}, {"python": "3.14t"}],
}


@pytest.mark.parametrize("reason", REASONS)
def test_where_a_reason_holds(reason: str) -> None:
    """The toolkit is CUDA 13.0 where a case does not say another."""

    def holds(values: dict) -> bool:
        return REASONS[reason][1](Cell("c", CellValues(**{"ctk": "13.0", **values}), ()))

    assert [values for values in HOLDS[reason] if not holds(values)] == []
    assert [values for values in FAILS[reason] if holds(values)] == []
