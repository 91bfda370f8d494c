"""The pictures of the report's page in the documentation: ``python -m tests.report.screenshots [FOLDER]``."""

import shutil
import sys
import tempfile
from pathlib import Path

from pytest_cudalink.report import html

from . import chromium
from .samples import matrix

IMAGES = Path(__file__).parents[2] / "docs" / "images"
#: Width and height of each picture, and the part that it begins with.
SIZES = {"report.png": (900, 960, ""), "report-grid.png": (1400, 1000, "all"), "report-narrow.png": (400, 1200, "")}
#: Opens what happened in the test of the grid's fourth row, in the last cell.
OPEN = "document.querySelectorAll('#grid tbody tr')[3].lastElementChild.click()"


def take(browser: chromium.Page, folder: Path) -> list[Path]:
    """Write the pictures into a folder; return their files."""
    file = folder / "report.html"
    file.write_text(html.render(matrix()), encoding="utf-8")
    pictures = []
    for name, (width, height, part) in SIZES.items():
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
        browser.open(file)
        if part:
            browser.run(f"document.getElementById('{part}').scrollIntoView({{behavior: 'instant'}}); {OPEN}")
        browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        browser.screenshot(folder / name)
        pictures.append(folder / name)
    browser.call("Emulation.clearDeviceMetricsOverride")
    return pictures


def main() -> int:
    """Take the pictures; return exit code 1 without a browser."""
    program = chromium.find()
    if program is None:
        sys.stderr.write("needs Chromium (Debian: apt-get install chromium), found none on PATH\n")
        return 1
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        browser = chromium.Page(program, Path(scratch) / "profile")
        try:
            for picture in take(browser, Path(scratch)):
                shutil.copy(picture, target / picture.name)
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
