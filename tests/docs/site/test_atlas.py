"""The pages of the atlas in a real browser: the chooser, the grids, and a reader without a mouse or without scripts."""

import json
import os

import pytest

from pytest_cudalink import cli
from pytest_cudalink.compat import atlas
from tests.report import chromium

from .test_site import look

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif("CUDALINK_SITE" not in os.environ, reason="needs the built site; run `nox -s docs`"),
]

#: Chooses in the form, and returns the first sentence and the command.
CHOOSE = """
((kind, producer, arch, library, consumer) => {
  const values = [kind, producer, arch, library, consumer];
  const selects = [...document.querySelectorAll('.atlas-chooser select')];
  selects.forEach((select, number) => {
    select.value = values[number];
    select.dispatchEvent(new Event('change'));
  });
  return [document.querySelector('.atlas-chooser .answer').textContent,
          document.querySelector('.atlas-chooser code').textContent];
})
"""


@pytest.mark.parametrize(
    "words",
    [
        ("cubin", "12.4", "sm_90", "nvjitlink", "13.2"),
        ("ptx", "13.2", "sm_90", "nvjitlink", "13.0"),
        ("ltoir", "12.9", "sm_75", "driver", "13.0"),
        ("linked-cubin", "13.0", "sm_90", "driver", "12.9"),
        ("cubin", "12.0", "sm_100", "nvjitlink", "13.0"),
    ],
    ids="-".join,
)
def test_the_chooser_answers_as_the_command(
    browser: chromium.Page, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Yes, no or not known, with the same code; the page shows the command that says more."""
    look(browser, "atlas/index.html")
    answer, command = browser.run(f"{CHOOSE}({json.dumps(words)[1:-1]})")
    kind, producer, arch, library, consumer = words
    assert command == f"cudalink can-link {producer} {library}-{consumer} {kind} --arch {arch}"
    code = cli.main([*command.split()[1:], "--json"])
    (printed,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer.startswith({0: "Yes: ", 1: "No: ", 2: "Not known: "}[code])
    if code == 1:
        assert f"{printed['answer']['code']} {printed['answer']['name']}" in answer


def test_a_cell_says_its_answer(browser: chromium.Page) -> None:
    """Pointing at a cell, or moving to it with the arrow keys, shows code, text and command; a grid is one Tab stop."""
    browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
    look(browser, "atlas/grids.html")
    said = "document.querySelector('.atlas-said').textContent"
    browser.run("document.querySelector('table.atlas td').dispatchEvent(new Event('mouseenter'))")
    assert browser.run(said) == "12.0 → 12.0: workscudalink can-link 12.0 nvjitlink-12.0 ptx --arch sm_75"
    stops = "[...document.querySelector('table.atlas').querySelectorAll('a')].filter(one => one.tabIndex === 0).length"
    assert browser.run(stops) == 1
    browser.run("document.querySelector('table.atlas td a').focus()")
    first: str = browser.run(said)
    assert first.startswith("12.1 → 12.0: nvJitLinkAddData answers 4 NVJITLINK_ERROR_PTX_COMPILE")
    browser.press("ArrowDown")
    assert browser.run(said).startswith("12.2 → 12.0: ")
    assert browser.run(stops) == 1


def test_every_letter_is_explained(browser: chromium.Page) -> None:
    """Each letter of a grid leads to its meaning below the grid, and no colour is without a letter."""
    look(browser, "atlas/grids.html")
    missing = (
        "[...document.querySelectorAll('table.atlas td a')].map(one => one.getAttribute('href'))"
        ".filter(one => !document.getElementById(one.slice(1)))"
    )
    assert browser.run(missing) == []
    assert browser.run("[...document.querySelectorAll('table.atlas td[class]')].filter(one => !one.textContent)") == []
    assert browser.run("document.querySelectorAll('table.atlas td[class]').length") > 5000


@pytest.mark.parametrize("width", [1400, 400])
def test_a_grid_fits_the_window(browser: chromium.Page, width: int) -> None:
    """All releases are seen at once, on a telephone too."""
    look(browser, "atlas/grids.html", width)
    assert browser.run("document.querySelectorAll('table.atlas tr')[1].cells.length") == len(atlas.load().releases) + 1
    wide = (
        "[...document.querySelectorAll('table.atlas')].filter(one => one.offsetWidth > one.parentElement.clientWidth)"
    )
    assert browser.run(f"{wide}.length") == 0


def test_without_scripts(browser: chromium.Page) -> None:
    """The grids, their letters and the title of each refusal are in the page; the chooser says where to look."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        look(browser, "atlas/grids.html")
        refused = "[...document.querySelectorAll('table.atlas td.atlas-refused')]"
        assert browser.run(f"{refused}.length") > 0
        assert browser.run(f"{refused}.filter(one => !one.title.includes(' answers ')).length") == 0
        look(browser, "atlas/index.html")
        assert browser.run("document.querySelector('.atlas-chooser').hidden") is True
        assert browser.run("document.querySelector('noscript').textContent").startswith("The chooser needs JavaScript")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
