"""The HTML report in a real browser: what a person sees and does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import axe_core_python
import pytest

from pytest_cudalink.report import html
from pytest_cudalink.report.cell_run import CellRun, Detail
from pytest_cudalink.report.compare import history
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.merge import merge
from tests.report import chromium
from tests.report.samples import LAUNCH, ORIGIN, SKEW, matrix, write

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture
def page(browser, tmp_path) -> chromium.Page:
    """The report, freshly opened."""
    file = tmp_path / "report.html"
    file.write_text(html.render(matrix()), encoding="utf-8")
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
    """The page asks for nothing but itself, and its script runs to the end; the verdict is seen first."""
    assert page.run("document.documentElement.dataset.ready") is not None
    assert [address.split("/")[-1].split("#")[0] for address in page.requests()] == ["report.html"]
    faults = [event for event in page.events if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert faults == []
    assert page.run(STATUS) == "200 of 200 tests, 12 of 12 cells"
    assert page.run("document.querySelectorAll('#grid thead th').length") == 13
    assert page.run("document.title") == "Compatibility matrix of sample"
    assert page.run("document.getElementById('verdict').getBoundingClientRect().top < 100")


def test_filters(page) -> None:
    """Text, kind, axis and outcome narrow the grid; the address remembers it, also a pasted one; reset undoes it."""
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
    page.run("""new Promise((done) => {
      addEventListener('hashchange', () => setTimeout(done)); location.hash = 'has=F'; })""")
    assert page.run(STATUS) == "5 of 200 tests, 12 of 12 cells"
    page.reload()
    assert page.run(STATUS) == "5 of 200 tests, 12 of 12 cells"


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
    assert "AssertionError: linked add<int>, expected add<float>" in text
    assert "expected: add<float>" in text
    assert "Fails in some cells only: ctk 13.2" in text
    assert page.run("document.activeElement.textContent") == "Close (Escape)"
    page.press("Escape")
    assert page.run("document.getElementById('detail').hidden") is True
    assert page.run(FOCUSED) == "ctk-13.2-driver-absent: failed"


def test_what_happened_is_in_sight(page) -> None:
    """On a wide window next to the grid, on a narrow one at its lower edge."""
    box = "(({left, top, bottom}) => [left, top, bottom])(document.getElementById('detail').getBoundingClientRect())"
    for width in (1400, 400):
        with opened_report(page, width):
            page.run("document.querySelector('#grid td[tabindex=\"0\"]').focus()")
            page.press("Enter")
            left, top, bottom = page.run(box)
            page.press("Escape")
        assert 0 <= top < bottom <= 900
        assert (left > 700) if width == 1400 else (bottom == 900)


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


def test_print(page) -> None:
    """Printing draws every row that the filters leave, without the tools; afterwards the page is as before."""
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("document.querySelectorAll('#grid tbody tr[aria-rowindex]').length") == 200
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("document.querySelectorAll('#grid tbody tr[aria-rowindex]').length") < 100
    assert page.pdf().startswith(b"%PDF")


def states(folder: Path) -> MatrixReport:
    """A few cells in every state at once: long names, a crash, damage, records that differ, unsteered links."""
    long = "tests/" + "a_long_name_" * 20
    place = (f"{long}.py:3", "driver")
    suggestion = ["pip install " + "a_long_name_" * 20]
    causes = {"t": LAUNCH, long: {**SKEW, "what": "a_long_name_" * 20, "suggestion": suggestion}}
    state = {"end": False, "unsteered": [place], "modules": 3, "causes": causes}
    first = write(folder, "a", {"t": "passed", "d": "cut", long: "failed"}, **state)
    first.write_text(first.read_text() + "not JSON\n{}\n")
    second = write(
        folder, "b", {"t": "failed", long: "unsupported"}, causes=causes, modules=2, unsteered=[place, ("", "unknown")]
    )
    second.write_text(second.read_text().replace('"cell": "b"', '"cell": "a"'))
    write(folder, f"c-{'wide-' * 20}", {"t": "skipped", long: "passed"}, violations=["array freed " * 40], asked="13.9")
    write(folder, "d", {"t": "passed", "e": "error", "x": "xfailed", "X": "xpassed", "D": "documented", "n": "failed"})
    merged = merge([folder], expected=["a", "gone-" * 30])
    merged.damaged["x" * 300] = "is empty"
    return merged


def earlier(*letters: str) -> MatrixReport:
    """An older report of the cell d, with the letters of some tests."""
    names = ("t", "e", "n")
    cell = CellRun("d", finished=True, exitstatus=0, origins=[replace(ORIGIN, started="2026-11-20T08:00:00Z")])
    cell.outcomes = {f"tests/test_a.py::{name}": letter for name, letter in zip(names, letters, strict=True)}
    return MatrixReport([cell])


@pytest.fixture(scope="module")
def every_state(tmp_path_factory) -> Path:
    """The page of `states`, with the history of two older reports."""
    folder = tmp_path_factory.mktemp("states")
    (folder / "records").mkdir()
    merged = states(folder / "records")
    older = earlier("F", "F", "P"), earlier("F", "F", "P")
    older[-1].damaged["old" * 90] = "is empty"
    past = history([("report 1", older[0]), ("report 2", older[1]), ("this report", merged)])
    file = folder / "states.html"
    file.write_text(html.render(merged, past), encoding="utf-8")
    return file


#: A part that is not in sight has no layout, and so no text for `innerText`; this gives it one.
WHOLE = """document.head.append(Object.assign(document.createElement('style'),
           {textContent: 'section { content-visibility: visible !important }'}))"""


def open_whole(browser, file: Path) -> None:
    """Open a page, and lay out all of it."""
    browser.open(file)
    browser.run(WHOLE)


@contextmanager
def opened_report(browser, width: int, scheme: str = "light", media: str = "screen") -> Iterator[None]:
    """A window of a width, a scheme of colours, and paper instead of a screen."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    # without the motion, what scrolls is there at once
    features = [("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]
    named = [{"name": name, "value": value} for name, value in features]
    browser.call("Emulation.setEmulatedMedia", media=media, features=named)
    try:
        yield
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")
        browser.call("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize("width", [1400, 800, 400])
def test_no_state_makes_the_page_wider_than_the_window(width, browser, every_state) -> None:
    """Not a long name, a crash, damage, records that differ, or links that were not steered."""
    with opened_report(browser, width):
        open_whole(browser, every_state)
        wide = browser.run(WIDER)
        hidden = browser.run(
            """[...document.querySelectorAll('.facts td, .facts tbody th, .why, .message')]
               .filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.textContent)"""
        )
    assert {"unsteered", "crashed", "incomplete", "repeats"} <= {*browser.run(SECTIONS)}
    assert wide == []
    assert hidden == []


CHIP = "document.querySelector('[data-shows=\"{}\"]')"
PRESSED = "[...document.querySelectorAll('[aria-pressed=true]')].map((e) => e.dataset.shows)"
FAILURES = "[...document.querySelectorAll('#some .failures > li')].filter((e) => e.checkVisibility()).length"


def test_chips_filter(page) -> None:
    """A chip filters grid and lists by mouse and by key, says that it is pressed, and the address remembers it."""
    page.run(CHIP.format("has=C") + ".click()")
    assert page.run(PRESSED) == ["has=C"]
    assert page.run(STATUS) == "1 of 200 tests, 12 of 12 cells"
    assert page.run(FAILURES) == 1
    assert page.run("document.querySelector('#some .count').textContent") == "1 of 6"
    assert page.run("location.hash") == "#has=C"
    page.run(CHIP.format("has=FE") + ".focus()")
    page.press("Enter")
    assert page.run(PRESSED) == ["has=FE", "has=C"]
    assert page.run(STATUS) == "6 of 200 tests, 12 of 12 cells"
    assert page.run(FAILURES) == 6
    page.run("document.getElementById('reset').click()")
    assert (page.run(PRESSED), page.run("location.hash"), page.run(FAILURES)) == ([], "", 6)
    assert page.run("document.activeElement.className") == "chip"
    page.run(CHIP.format("show=some") + ".click()")
    assert page.run(STATUS) == "6 of 200 tests, 12 of 12 cells"
    assert page.run("document.getElementById('kind').value") == "some"


def test_a_chip_leads_to_its_part(page) -> None:
    """Of what the grid does not show; the filter stays in the address."""
    page.run(CHIP.format("has=S") + ".click()")
    page.run("document.querySelector('a.chip[href=\"#violations\"]').click()")
    assert page.run("document.activeElement.id") == "violations-title"
    assert page.run("location.hash") == "#has=S"
    broken = "[...document.querySelectorAll('a.chip')].filter((e) => !document.querySelector(e.getAttribute('href')))"
    assert page.run(f"{broken}.length") == 0


def test_the_failure_is_told_where_it_is_named(page) -> None:
    """Message, cells and explanation at once; what pytest printed opens by Enter."""
    page.run(WHOLE)
    card = "document.querySelector('#some .failures > li')"
    text = page.run(f"{card}.innerText")
    assert "explained by ctk 13.2" in text
    assert "in 4 of 12 cells: ctk-13.2-driver-12.9, ctk-13.2-driver-13.0" in text
    assert "AssertionError: linked add<int>, expected add<float>" in text
    assert "expected: add<float>" not in text
    page.run(f"{card}.querySelector('summary').focus()")
    page.press("Enter")
    page.run("new Promise((done) => setTimeout(done, 50))")
    assert page.run(f"{card}.querySelector('pre').innerText") == "E   linked:   add<int>\nE   expected: add<float>"
    assert "ctk-13.2-driver-absent:" in page.run(f"{card}.querySelector('details').innerText")


def caused() -> MatrixReport:
    """Twelve tests that fail for one reason in the older of two cells, and one test that needs a GPU in both."""
    cells = [
        CellRun(f"driver-{driver}", axes={"driver": driver}, finished=True, exitstatus=1) for driver in ("12.9", "13.0")
    ]
    for number in range(12):
        for cell, letter in zip(cells, "FP", strict=True):
            cell.outcomes[f"t.py::skew_{number}"] = letter
        cells[0].details[f"t.py::skew_{number}"] = Detail("DriverError: 222", f"what {number} printed", SKEW)
    for cell in cells:
        cell.outcomes |= {"t.py::launch": "F", "t.py::fine": "P"}
        cell.details["t.py::launch"] = Detail("DriverError: 801", "what it printed", LAUNCH)
    return MatrixReport(cells)


def test_a_cause_is_one_card(browser, tmp_path) -> None:
    """It has the block, the tests and the cells; filters narrow its tests, and the grid shows the block of each."""
    file = tmp_path / "report.html"
    file.write_text(html.render(caused()), encoding="utf-8")
    open_whole(browser, file)
    assert browser.run(SECTIONS)[:2] == ["causes", "gpu"]
    card = "document.querySelector('#causes .failures > li')"
    first, second = SKEW["suggestion"]
    block = f"error  {SKEW['what']}\nwhy    {SKEW['why']}\nfix    {first}\n       {second}"
    tests = f"[...{card}.querySelectorAll('.tests > li')].filter((e) => e.checkVisibility()).map((e) => e.innerText)"
    text = browser.run(f"{card}.innerText")
    assert browser.run(f"{card}.querySelector('pre').innerText") == block
    assert "12 tests in 1 of 2 cells: driver-12.9" in " ".join(text.split())
    assert "explained by driver 12.9" in text
    assert browser.run(tests) == [f"t.py::skew_{number}" for number in range(10)]
    assert "2 more tests" in text
    browser.run(f"{card}.querySelector('summary').click()")
    assert browser.run(f"{tests}.length") == 12
    browser.run(f"{card}.querySelector('[data-of] summary').click()")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    assert browser.run(f"{card}.querySelector('details pre').innerText") == "what 0 printed"
    browser.run(SET.format("search", "skew_7"))
    assert browser.run(tests) == ["t.py::skew_7"]
    count = "document.querySelector('#{} .count').textContent"
    assert [browser.run(count.format(part)) for part in ("causes", "gpu")] == ["1", "0 of 1"]
    browser.run("document.getElementById('reset').click()")
    browser.run(CHIP.format("show=gpu") + ".click()")
    assert browser.run(STATUS) == "1 of 14 tests, 2 of 2 cells"
    assert [browser.run(count.format(part)) for part in ("causes", "gpu")] == ["0 of 1", "1"]
    browser.run(CHIP.format("show=some") + ".click()")
    assert browser.run(STATUS) == "12 of 14 tests, 2 of 2 cells"
    browser.run("document.querySelector('#grid tbody td').click()")
    assert browser.run("document.querySelector('#detail pre').innerText") == block
    browser.press("Escape")


def test_no_column_is_empty(page, browser, every_state) -> None:
    """A column of zeros or of nothing is left out."""
    empty = """[...document.querySelectorAll('table.facts')].flatMap((table) => [...table.tHead.rows[0].cells]
      .map((_, column) => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent.trim()))
      .filter((values) => values.every((one) => one === '' || one === '0')))"""
    assert page.run(empty) == []
    open_whole(browser, every_state)
    assert browser.run(empty) == []


def test_the_right_half_is_used(page) -> None:
    """At 1,400 pixels every part has text beyond the middle, or shares the line with another one."""
    with opened_report(page, 1400):
        page.run(WHOLE)
        left = page.run("""[...document.querySelectorAll('main > section:not(.half)')].filter((section) => {
          const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT), range = document.createRange();
          while (walker.nextNode()) { range.selectNodeContents(walker.currentNode);
            const box = range.getBoundingClientRect(); if (box.width > 1 && box.right > innerWidth / 2) return false; }
          return true; }).map((section) => section.id)""")
        halves = page.run("document.querySelectorAll('section.half').length")
    assert left == []
    assert halves % 2 == 0


def test_paper(browser, every_state) -> None:
    """Printed, details are open, tools are gone, colours are of the light scheme, words stay together."""
    with opened_report(browser, 1030, "dark", "print"):
        open_whole(browser, every_state)
        browser.run("window.dispatchEvent(new Event('beforeprint'))")
        closed = browser.run("document.querySelectorAll('details:not([open])').length")
        tools = browser.run(
            "[...document.querySelectorAll('.tools, #reset, .skip')].filter((e) => e.checkVisibility())"
        )
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        # a column of one word a line is narrow, and has the words to fill a wider one
        thin = browser.run("""[...document.querySelectorAll('.facts td, .facts tbody th, .failures > li > div')]
          .filter((e) => e.checkVisibility() && e.innerText.trim().split(/\\s+/).length > 3 && e.clientWidth < 100)
          .map((e) => [e.innerText, e.clientWidth])""")
        texts = browser.run("[...document.querySelectorAll('.failures details pre')].map((e) => e.innerText)")
        browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert (closed, tools, ground, thin) == (0, [], "rgb(255, 255, 255)", [])
    assert any(text.startswith("long ") for text in texts)
    assert browser.run("document.querySelectorAll('details[open]').length") == 0


def test_every_control_is_reached_by_tab(browser, every_state) -> None:
    """The first is a link past everything to the grid; each shows that it has the focus."""
    with opened_report(browser, 1400):
        open_whole(browser, every_state)
        browser.press("Tab")
        assert browser.run("document.activeElement.textContent") == "Skip to the grid of all tests"
        assert browser.run("document.activeElement.getBoundingClientRect().left >= 0")
        reached = 1
        invisible = []
        for _ in range(200):
            browser.press("Tab")
            name, visible = browser.run("""(() => { const e = document.activeElement, s = getComputedStyle(e);
              e.dataset.reached = '';
              return [e.tagName, s.outlineStyle !== 'none' && s.outlineWidth !== '0px']; })()""")
            if name == "BODY":
                break
            reached += 1
            if not visible:
                invisible.append(name)
        lost = browser.run("""[...document.querySelectorAll('a, button, summary, input, select')]
          .filter((e) => e.checkVisibility() && !('reached' in e.dataset) && !e.matches('.skip'))
          .map((e) => e.outerHTML)""")
        browser.run("document.querySelector('.skip').focus()")
        browser.press("Enter")
        assert browser.run("document.activeElement.id") == "all-title"
    assert reached > 20
    assert invisible == []
    assert lost == []


def test_a_screen_reader_hears_all(browser, every_state) -> None:
    """Headings in order, tables with captions and heads, and a word for each letter."""
    open_whole(browser, every_state)
    levels = browser.run("[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))")
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert browser.run("[...document.querySelectorAll('table.facts')].every((e) => e.caption && e.caption.textContent)")
    assert browser.run("[...document.querySelectorAll('table th')].every((e) => ['col', 'row'].includes(e.scope))")
    mute = browser.run("""[...document.querySelectorAll('.letter[aria-hidden]')]
      .filter((e) => !e.nextElementSibling || !e.parentElement.textContent.replace(e.textContent, '').trim())
      .map((e) => e.outerHTML)""")
    assert mute == []


def test_every_state_has_a_letter(page, browser, every_state) -> None:
    """No two share one, and each cell of the grid has a letter and its name; also what needs a GPU, and lost links."""
    page.run(WHOLE)
    legend = "[...document.querySelectorAll('.legend li')].map((e) => e.innerText.replace(/\\s+/g, ' '))"
    words = page.run(legend)
    assert [word[0] for word in words] == list("CEFXDxUSP.IVN")
    named = "[...document.querySelectorAll('#grid tbody td[aria-label]')].every((e) => e.textContent.length === 1)"
    assert page.run(named)
    assert {"Uneeds a GPU 6", "Ncell: links not steered (unsteered)"} <= {*words}
    heads = "[...document.querySelectorAll('#grid thead th.cell')].map((e) => e.textContent)"
    assert [head for head in page.run(heads) if "absent" not in head and not head[-1].isdigit()] == [
        "ctk-12.9-driver-13.0Vviolations (lifetimes, order, nvJitLink)",
        "ctk-13.0-driver-13.0Nlinks not steered (unsteered)",
    ]
    open_whole(browser, every_state)
    shown = browser.run("[...document.querySelectorAll('#cells .badges .letter')].map((e) => e.textContent)")
    assert set("IVNFEPUSxXD") <= {*shown}


def test_history(browser, every_state) -> None:
    """There is a chip for each kind of change; `tests.report.forms` has the rows."""
    open_whole(browser, every_state)
    browser.run(CHIP.format("show=new") + ".click()")
    assert browser.run(STATUS).startswith("2 of ")
    assert browser.run("location.hash") == "#show=new"


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core."""
    return (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1400, 400])
def test_axe_finds_nothing(width, browser, every_state, axe) -> None:
    """The rules of axe-core hold in both schemes, with a filter and without, and with everything open."""
    # only the contrast depends on the scheme
    script = """axe.run(document, {{resultTypes: ['violations'], {0}}}).then((result) => result.violations
      .map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))]))"""
    contrast = script.format("runOnly: ['color-contrast']")
    with opened_report(browser, width):
        open_whole(browser, every_state)
        browser.run(f"{axe};0")
        assert browser.run(script.format("")) == []
    with opened_report(browser, width, "dark"):
        assert browser.run(contrast) == []
        browser.run(CHIP.format("has=FE") + ".click()")
        browser.run("document.querySelector('#grid td[tabindex=\"0\"]').focus()")
        browser.press("Enter")
        browser.run("for (const box of document.querySelectorAll('details')) box.open = true")
        assert browser.run(contrast) == []
    with opened_report(browser, width):
        assert browser.run(script.format("")) == []
