"""The built site in a real browser: what a reader sees, finds and can follow."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.report import chromium

ROOT = Path(__file__).parents[3]
SITE = Path(os.environ.get("CUDALINK_SITE", ROOT / "docs" / "_build" / "html")).resolve()
#: What a person reads on a screen, and on a telephone.
WIDTHS = (1400, 400)
#: Pages that Sphinx makes, without text of ours.
MADE = ("genindex.html", "py-modindex.html", "search.html")
#: The page with the grids of the atlas, and the one that has every kind of answer.
GRIDS, GRID = "atlas/grids.html", "#merged-lto-cubin-nvjitlink"
BLOB = "https://github.com/pytest-cudalink/pytest-cudalink/"

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif("CUDALINK_SITE" not in os.environ, reason="needs the built site; run `nox -s docs`"),
]

#: Elements of the text that reach beyond the window and do not scroll in a box.
TOO_WIDE = """
[...document.querySelectorAll('article *')].filter(one => {
  if (one.getBoundingClientRect().right <= window.innerWidth + 1) return false;
  for (let box = one; box && box.tagName !== 'ARTICLE'; box = box.parentElement)
    if (/auto|scroll|hidden|clip/.test(getComputedStyle(box).overflowX)) return false;
  return true;
}).map(one => one.outerHTML.slice(0, 200))
"""
AXE = """
axe.run(document.querySelector('%s'), {resultTypes: ['violations'], rules: {'color-contrast': {enabled: %s}}})
  .then(found => found.violations
  .filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(' | ')}`))
"""


def pages() -> list[str]:
    """The pages of the site, as paths below its folder."""
    pages = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
    return [name for name in pages if name not in MADE]


def resize(browser: chromium.Page, width: int) -> None:
    """Give the window a width."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)


def look(browser: chromium.Page, name: str, width: int = 1400, scheme: str = "light") -> None:
    """Open a page of the site in a window of a width."""
    resize(browser, width)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.events.clear()  # the load event of the page before would end the wait for this one
    browser.open(SITE / name)


def axe(browser: chromium.Page, part: str = "article", *, contrast: bool) -> list[str]:
    """The serious faults that axe-core finds in the first part of the page that a selector finds."""
    package = pytest.importorskip("axe_core_python", reason="needs axe-core-python; run `nox -s docs`")
    script = next(Path(package.__path__[0]).glob("**/axe.min.js"))
    browser.run(script.read_text(encoding="utf-8") + "; undefined")
    violations: list[str] = browser.run(AXE % (part, str(contrast).lower()))
    return violations


def test_every_page_is_reachable(browser: chromium.Page) -> None:
    """Every page is in the navigation of the home page."""
    look(browser, "index.html")
    linked: list[str] = browser.run("[...document.querySelectorAll('.sidebar-tree a')].map(one => one.href)")
    reached = {address.removeprefix(SITE.as_uri() + "/").partition("#")[0] for address in linked}
    assert set(pages()) - reached - {"index.html"} == set()


@pytest.fixture(scope="module")
def faults(browser: chromium.Page) -> dict[str, list[tuple[str, object]]]:
    """What is too wide in a window of each width, and what axe finds apart from contrast: each page is opened once."""
    faults: dict[str, list[tuple[str, object]]] = {"wide": [], "axe": []}
    for name in pages():
        look(browser, name)
        faults["axe"].append((name, axe(browser, GRID if name == GRIDS else "article", contrast=False)))
        for width in WIDTHS:
            resize(browser, width)
            document = browser.run("document.documentElement.scrollWidth - window.innerWidth")
            faults["wide"].append((f"{name}, {width}", [*([document] if document > 0 else []), *browser.run(TOO_WIDE)]))
    return {kind: [fault for fault in each if fault[1]] for kind, each in faults.items()}


def test_no_page_is_wider_than_the_window(faults: dict[str, list[tuple[str, object]]]) -> None:
    """Tables and code scroll in their boxes; nothing else reaches beyond the window."""
    assert faults["wide"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_names_in_tables_stay_whole(browser: chromium.Page, width: int) -> None:
    """The name of a variable is not broken within a word: it can be read and copied."""
    look(browser, "reference/options.html", width)
    names = "[...document.querySelectorAll('article td code')].filter(one => /^[A-Z_]+$/.test(one.textContent))"
    assert browser.run(f"{names}.length") > 20
    assert browser.run(f"{names}.filter(one => one.getClientRects().length > 1).map(one => one.textContent)") == []


def test_axe_finds_nothing_serious(browser: chromium.Page, faults: dict[str, list[tuple[str, object]]]) -> None:
    """A reader with a screen reader or weak eyes can use every page.

    The contrast of colours, which takes axe seconds a page, is looked at where every kind of element is. The grids have
    35,000 elements: one that has every kind of answer is looked at.
    """
    assert faults["axe"] == []
    violations = {}
    for name in ("index.html", "tutorials/first-red-test.html", "atlas/index.html", GRIDS):
        for scheme in ("light", "dark"):
            look(browser, name, scheme=scheme)
            violations[f"{name}, {scheme}"] = axe(browser, GRID if name == GRIDS else "article", contrast=True)
    kinds = "[...new Set([...document.querySelectorAll('{} [class^=atlas-]')].map(one => one.className))].sort()"
    assert browser.run(kinds.format(GRID)) == browser.run(kinds.format("article"))
    assert {name: each for name, each in violations.items() if each} == {}


def test_search_finds_lifetimes(browser: chromium.Page) -> None:
    """The search of the site, run in the browser, finds the pages on lifetimes."""
    browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)
    browser.events.clear()
    browser.call("Page.navigate", url=f"{(SITE / 'search.html').as_uri()}?q=lifetime")
    text = browser.run(
        """new Promise(done => {
          const look = () => {
            const names = [...document.querySelectorAll('#search-results li a')].map(one => one.textContent);
            /finished|did not match/.test(document.querySelector('#search-results')?.textContent ?? '')
              ? done(names) : setTimeout(look, 50);
          };
          look();
        })"""
    )
    assert "Memory that must live" in text


def test_rows_of_a_long_table_are_found(browser: chromium.Page) -> None:
    """The field above the calls that wait leaves the rows with all its words, and all rows again when it is empty."""
    look(browser, "reference/waits.html")
    left = """(words => {
      const field = document.querySelector('.table-filter');
      field.value = words;
      field.dispatchEvent(new Event('input'));
      const rows = [...document.querySelectorAll('#calls-that-wait tbody tr')].filter(row => row.offsetHeight);
      return rows.map(row => row.cells[0].textContent);
    })"""
    whole = browser.run(f"{left}('')")
    assert len(whole) > 20
    assert browser.run(f"{left}('cuMEMFree ASYNC')") == ["cuMemFree"]
    assert browser.run(f"{left}('cuStreamCreate')") == []
    assert browser.run(f"{left}('')") == whole


def test_source_links(browser: chromium.Page) -> None:
    """Each page links to its own text, and each class and function to lines that exist, at one commit."""
    for name in pages():
        text = (SITE / name).read_text(encoding="utf-8")
        own = re.findall(rf'<a [^>]*href="({BLOB}[^"]+)"[^>]* title="(?:View|Edit)', text)
        assert len(own) == 2, name
        assert all((ROOT / path.split("/main/")[1].partition("?")[0]).is_file() for path in own), own
    look(browser, "reference/api.html")
    sources: list[str] = browser.run("[...document.querySelectorAll('a[href*=\"#L\"]')].map(one => one.href)")
    assert len(sources) > 100
    commits = set()
    for address in sources:
        match = re.fullmatch(rf"{BLOB}blob/(\w+)/(\S+)#L(\d+)-L(\d+)", address)
        assert match, address
        commits.add(match[1])
        lines = (ROOT / match[2]).read_text(encoding="utf-8").splitlines()
        assert int(match[3]) <= int(match[4]) <= len(lines)
        assert re.search(r"^\s*(@|class |def |async def )", lines[int(match[3]) - 1]), address
    assert len(commits) == 1


def test_commands_can_be_copied_without_prompt(browser: chromium.Page) -> None:
    """Each block of code has a button; of a session it copies the commands alone."""
    look(browser, "tutorials/first-red-test.html")
    assert browser.run("document.querySelectorAll('.highlight button.copybtn').length") > 3
    copied: str = browser.run(
        """(() => {
          let copied = '';
          document.execCommand = () => {  // clipboard.js copies what a text field of its own has
            copied = [...document.querySelectorAll('body > textarea')].pop()?.value;
            return true;
          };
          document.querySelector('.highlight-console button.copybtn').click();
          return copied;
        })()"""
    )
    assert copied.strip() == "pytest --cudalink-driver=13.0"


def test_dark_mode(browser: chromium.Page) -> None:
    """A reader whose system is dark gets light text on a dark page."""

    def brightness(scheme: str, part: str) -> float:
        look(browser, "index.html", scheme=scheme)
        numbers: list[float] = browser.run(f"getComputedStyle(document.body).{part}.match(/[0-9.]+/g).map(Number)")
        return sum(numbers[:3]) / 3

    assert brightness("light", "backgroundColor") - brightness("light", "color") > 150
    assert brightness("dark", "color") - brightness("dark", "backgroundColor") > 150


def test_the_site_has_its_address_and_release(browser: chromium.Page) -> None:
    """Every page names its canonical address; the home page says which release it describes."""
    look(browser, "reference/cli.html")
    canonical: Any = browser.run("document.querySelector('link[rel=canonical]').href")
    assert re.fullmatch(r"https://pytest-cudalink\.readthedocs\.io/en/[^/]+/reference/cli\.html", canonical)
    look(browser, "index.html")
    text: str = browser.run("document.querySelector('#versions').textContent")
    assert re.search(r"pytest-cudalink \d+\.\d+", text)
