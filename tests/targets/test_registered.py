"""What a project's hook may return as targets."""

import pytest

from pytest_cudalink.targets import Target
from pytest_cudalink.targets.base import registered


def test_target_needs_force() -> None:
    """A target without `force` is abstract."""
    with pytest.raises(TypeError, match="abstract"):
        Target()


class _Own(Target):
    name, modules = "own", ("own",)

    def force(self, module, backend):
        """Nothing to force."""


def _with(**attributes) -> Target:
    return type("Own", (_Own,), attributes)()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_Own(), r"is not a list of targets; return \[_Own\(\)\]"),
        ([_Own], r"is not a target; return an instance, _Own\(\)"),
        ([object()], "is not a target; inherit from pytest_cudalink.targets.Target"),
        ([int], "is not a target; inherit from pytest_cudalink.targets.Target"),
        ([_with(modules=("",))], "write their full names in a tuple"),
        ({"own": _Own()}, "'own' is not a target"),
        ([_with(name="")], r"Own\(\) has the name ''; give the class a name"),
        ([_with(modules="own")], r"Own\(\) has the modules 'own'; write their full names in a tuple"),
        ([_with(modules=(_Own,))], "write their full names in a tuple"),
    ],
)
def test_what_is_not_a_target(answer, words) -> None:
    """The error for a mistake in the hook says what to write."""
    with pytest.raises(TypeError, match=words):
        registered(answer)


@pytest.mark.parametrize("answer", [[_Own()], (_Own(),), iter([_Own()]), [_with(modules=["own"])], []])
def test_registered(answer) -> None:
    """Any iterable of targets is accepted."""
    assert all(target.name == "own" for target in registered(answer))
