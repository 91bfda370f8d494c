"""The HTML report in a real browser: what a person sees and does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudalink.report import html
from pytest_cudalink.report.cell_run import CellRun, Detail
from pytest_cudalink.report.compare import compare
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.merge import merge

from . import chromium
from .samples import write

pytestmark = pytest.mark.xdist_group("browser")

CTKS, DRIVERS = ("12.9", "13.0", "13.2"), ("12.9", "13.0", "13.2", "none")
SCREENSHOT = Path(__file__).parents[2] / "docs" / "images" / "report.png"


def outcome(number: int, ctk: str, driver: str) -> tuple[str, Detail]:
    """Letter and detail of one test in one cell."""
    if number % 41 == 3 and ctk == "13.2":
        return "F", Detail("AssertionError: <b>not bold</b>", "E   line one\nE   line two")
    if number % 37 == 5 and driver == "12.9" and ctk != "12.9":
        return "D", Detail("driver >= 13 not met: CUDA_ERROR_UNSUPPORTED_PTX_VERSION")
    if number % 29 == 7 or (number % 23 == 9 and driver == "none"):
        return "S", Detail("cudalink: needs a GPU (found none)")
    if number == 60 and driver not in ("none", "12.9"):
        return "U", Detail("cuGraphicsGLRegisterBuffer is not emulated")
    if number == 111 and (ctk, driver) == ("13.0", "12.9"):
        return "C", Detail("SIGSEGV")
    return ("x", Detail("known")) if number % 31 == 11 else ("P", Detail())


def report() -> MatrixReport:
    """Twelve cells of two hundred tests, with something of everything."""
    cells = []
    for ctk in CTKS:
        for driver in DRIVERS:
            cell = CellRun(f"ctk-{ctk}-driver-{driver.replace('none', 'absent')}", finished=True, exitstatus=0)
            cell.axes = {"ctk": ctk, "driver": driver, "backend": "auto", "python": "3.11"}
            cell.versions = {
                "driver": {
                    "requested": driver,
                    "found": driver if driver != "none" else None,
                    "kind": "emulated",
                    "source": "cuDriverGetVersion",
                }
            }
            cell.versions |= {
                name: {"requested": None, "found": found, "kind": "real", "source": "wheel"}
                for name, found in (
                    ("ctk", f"{ctk}.2"),
                    ("nvjitlink", f"{ctk}.2"),
                    ("cuda-bindings", "13.1.0" if (ctk, driver) == ("13.2", "13.0") else "13.2.0"),
                    ("cuda-core", "1.1.1"),
                )
            }
            cell.links, cell.duration = {"nvjitlink": 120, "driver": 40}, 12.5
            if (ctk, driver) == ("12.9", "13.0"):
                cell.versions["ctk"]["requested"] = "13.0"
                cell.violations = [{"nodeid": "tests/test_link_0.py::test_case[2]", "text": "log buffer freed before cuLinkDestroy"}]
            if (ctk, driver) == ("13.0", "13.0"):
                place = {"via": "cuda.bindings.driver", "call": "cuLinkComplete", "where": "sample/jit.py:41"}
                cell.unsteered = [{**place, "backend": "driver", "forced": None, "number": 3}]
            for number in range(190 if driver == "none" else 200):
                test = f"tests/test_link_{number // 40}.py::test_case[{number}]"
                letter, detail = outcome(number, ctk, driver)
                cell.outcomes[test], cell.durations[test] = letter, 0.05
                if letter != "P":
                    cell.details[test] = detail
                if letter == "C":
                    cell.crashes = [{"nodeid": test, "signal": "SIGSEGV", "last_events": ["cuLinkAddData_v2"]}]
            cells.append(cell)
    reasons = {"ctk-13.2-gpu": "it needs a GPU; none was found", "ctk-13.0-python-3.13": "no Python 3.13 here"}
    return MatrixReport(cells, missing=[*reasons], reasons=reasons)


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[chromium.Page]:
    program = chromium.find()
    if program is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium), found none on PATH")
    page = chromium.Page(program, tmp_path_factory.mktemp("profile"))
    yield page
    page.close()


@pytest.fixture
def page(browser, tmp_path) -> chromium.Page:
    """The report, freshly opened."""
    file = tmp_path / "report.html"
    file.write_text(html.render(report()), encoding="utf-8")
    browser.events.clear()
    browser.open(file)
    return browser


FOCUSED = "document.activeElement.getAttribute('aria-label')"
STATUS = "document.getElementById('status').textContent"
SET = """(() => {{ const c = document.getElementById('{0}'); c.value = '{1}';
          c.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"""

SECTIONS = "[...document.querySelectorAll('section')].map((e) => e.id)"
#: What is wider than the window and does not scroll.
WIDER = """[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1
           && !e.closest('.scroll table, #grid table, #detail')).map((e) => e.outerHTML.slice(0, 80))
           .concat(document.scrollingElement.scrollWidth > innerWidth ? ['the page'] : [])"""


def test_opens_without_network_or_errors(page) -> None:
    """The page asks for nothing but itself, and its script runs to the end."""
    assert page.run("document.documentElement.dataset.ready") is not None
    assert [address.split("/")[-1].split("#")[0] for address in page.requests()] == ["report.html"]
    faults = [event for event in page.events if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert faults == []
    assert page.run(STATUS) == "200 of 200 tests, 12 of 12 cells"
    assert page.run("document.querySelectorAll('#grid thead th').length") == 13


def test_filters(page) -> None:
    """Text, kind, axis and outcome narrow the grid; the address remembers it; reset brings all back."""
    page.run(SET.format("search", "test_link_1"))
    assert page.run(STATUS) == "40 of 200 tests, 12 of 12 cells"
    page.run(SET.format("kind", "some"))
    assert page.run(STATUS).startswith("1 of 200 tests")
    page.run("document.querySelector('#reset').click()")
    page.run("""(() => { const s = document.querySelector('select[data-axis="ctk"]'); s.value = '13.2';
                s.dispatchEvent(new Event('input', {bubbles: true})); })()""")
    assert page.run(STATUS) == "200 of 200 tests, 4 of 12 cells"
    page.run("document.querySelector('#outcomes input[value=F]').click()")
    assert page.run(STATUS) == "5 of 200 tests, 4 of 12 cells"
    assert page.run("location.hash") == "#has=F&ctk=13.2"
    page.run("document.querySelector('#reset').click()")
    assert page.run(STATUS) == "200 of 200 tests, 12 of 12 cells"


def test_keyboard(page) -> None:
    """Without a mouse: slash to the search, arrows in the grid, Enter for what happened, Escape back."""
    page.press("/", "/")
    assert page.run("document.activeElement.id") == "search"
    page.run("document.querySelector('#grid td[tabindex=\"0\"]').focus()")
    assert page.run(FOCUSED) == "ctk-12.9-driver-12.9: passed"
    for _ in range(3):
        page.press("ArrowDown")
    page.press("End")
    assert page.run(FOCUSED) == "ctk-13.2-driver-absent: failed"
    page.press("Enter")
    assert page.run("document.getElementById('detail').hidden") is False
    text = page.run("document.getElementById('detail').innerText")
    assert "AssertionError: <b>not bold</b>" in text
    assert "line two" in text
    assert "Fails in some cells only: ctk 13.2" in text
    assert page.run("document.activeElement.textContent") == "Close (Escape)"
    page.press("Escape")
    assert page.run("document.getElementById('detail').hidden") is True
    assert page.run(FOCUSED) == "ctk-13.2-driver-absent: failed"


def test_only_visible_rows_are_drawn(page) -> None:
    """The grid draws what is seen, keeps the height of all, and follows scrolling and keys to the last row."""
    drawn = "document.querySelectorAll('#grid tbody tr[aria-rowindex]').length"
    assert page.run(drawn) < 100
    assert page.run("document.getElementById('grid').scrollHeight") >= 200 * 22
    page.run("document.querySelector('#grid td[tabindex=\"0\"]').focus()")
    for _ in range(30):
        page.press("PageDown")
    rows = """Math.max(...[...document.querySelectorAll('#grid tr[aria-rowindex]')]
              .map((row) => Number(row.getAttribute('aria-rowindex'))))"""
    assert page.run(rows) == 201
    assert page.run(FOCUSED) == "ctk-12.9-driver-12.9: passed"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(page, scheme) -> None:
    """Every letter can be read in both schemes: a contrast of at least 4.5 (WCAG 2.1, 1.4.3)."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    ratios = page.run("""(() => {
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map((v) => { v /= 255;
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      return [...document.querySelectorAll('.legend .letter:not(.o-none)')].map((e) => { const s = getComputedStyle(e);
        const [a, b] = [light(s.color), light(s.backgroundColor)].sort((x, y) => y - x);
        return [e.textContent, (a + 0.05) / (b + 0.05)]; });
    })()""")
    page.call("Emulation.setEmulatedMedia", features=[])
    assert len(ratios) == 9
    assert [pair for pair in ratios if pair[1] < 4.5] == []


def test_letters_tell_outcomes_apart(page) -> None:
    """Colour is never alone: each outcome has a letter of its own, and a name for screen readers."""
    letters = page.run("[...document.querySelectorAll('.legend .letter')].map((e) => e.textContent)")
    assert sorted(letters) == sorted(set(letters))
    assert page.run(
        "[...document.querySelectorAll('#grid tbody td[aria-label]')].every((e) => e.textContent.length === 1)"
    )


def test_print(page) -> None:
    """Printing draws every row that the filters leave, without the tools; afterwards the page is as before."""
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("document.querySelectorAll('#grid tbody tr[aria-rowindex]').length") == 200
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("document.querySelectorAll('#grid tbody tr[aria-rowindex]').length") < 100
    assert page.pdf().startswith(b"%PDF")


def test_without_javascript(page) -> None:
    """The tables that matter most stand in the page itself."""
    text = html.render(report())
    assert "<td>tests/test_link_0.py::test_case[3]</td><td>ctk 13.2</td>" in text
    assert "<noscript>" in text


@pytest.mark.parametrize("width", [1400, 400])
def test_no_state_makes_the_page_wider_than_the_window(width, browser, tmp_path) -> None:
    """Not a long name, a crash, damage, records that differ, or links that were not steered; wide tables scroll."""
    folder, long = tmp_path / "records", "tests/" + "a_long_name_" * 20
    place = (f"{long}.py:3", "driver")
    first = write(folder, "a", {"t": "passed", "d": "cut", long: "failed"}, end=False, unsteered=[place], modules=3)
    first.write_text(first.read_text() + "not JSON\n{}\n")
    second = write(folder, "b", {"t": "failed", long: "unsupported"}, modules=2, unsteered=[place, ("", "unknown")])
    second.write_text(second.read_text().replace('"cell": "b"', '"cell": "a"'))
    write(folder, f"c-{'wide-' * 20}", {"t": "skipped", long: "passed"}, violations=["array freed " * 40], asked="13.9")
    merged = merge(
        [
            folder,
        ],
        expected=["a", "gone-" * 30],
    )
    merged.damaged["x" * 300] = "is empty"
    file = tmp_path / "states.html"
    file.write_text(html.render(merged, compare(merged, MatrixReport([], damaged={"old" * 90: "is empty"}))))
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.events.clear()
    browser.open(file)
    wide = browser.run(WIDER)
    column = browser.run("Math.max(...[...document.querySelectorAll('.facts td')].map((e) => e.offsetWidth))")
    browser.call("Emulation.clearDeviceMetricsOverride")

    assert {"unsteered", "crashed", "incomplete", "repeats"} <= {*browser.run(SECTIONS)}
    assert wide == []
    assert column <= 36 * 16  # rem; the columns after a long name are in sight


def test_screenshot(page, tmp_path) -> None:
    """The documentation's picture has this page's size; ``CUDALINK_SCREENSHOT=1`` takes it anew."""
    page.call("Emulation.setDeviceMetricsOverride", width=1300, height=1760, deviceScaleFactor=1, mobile=False)
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.screenshot(tmp_path / "report.png")
    picture = (tmp_path / "report.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    if os.environ.get("CUDALINK_SCREENSHOT"):
        shutil.copy(tmp_path / "report.png", SCREENSHOT)
    header = slice(8, 24)  # IHDR with width and height
    assert SCREENSHOT.read_bytes()[header] == picture[header]
