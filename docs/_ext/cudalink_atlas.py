"""Directives that draw the atlas of JIT-link compatibility from ``matrices/atlas.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, ClassVar

from cudalink_tables import add_directives, table, words
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from pytest_cudalink.base.words import counted
from pytest_cudalink.compat.atlas import Atlas, AtlasAnswer, Grid, load
from pytest_cudalink.compat.link_rules import found_words, statements
from tools.atlas_differences import contradictions, disagreements

#: The steps in the order of the pages: what the heading says, what the columns are, and the library by which can-link
#: asks for a cell again, if it does.
STEPS = {
    "nvjitlink": ("nvJitLink links it", "nvJitLink", "nvjitlink"),
    "tileiras": ("tileiras compiles it", "tileiras", "tileiras"),
    "nvrtc": ("NVRTC compiles them", "NVRTC", ""),
    "driver": ("The driver links it", "emulated driver", "driver"),
    "load": ("The driver loads what nvJitLink linked", "emulated driver", "driver"),
    "real-driver": ("A real driver links it", "real driver", "driver"),
    "real-load": ("A real driver loads what nvJitLink linked", "real driver", "driver"),
    "real-run": ("It runs on a GPU, and the numbers are right", "nvJitLink", "nvjitlink"),
}
#: What a step does with a cell's producer and consumer.
NOTES = {
    "nvjitlink": "nvJitLink of the column links two units of the row; the kernel must be in the image.",
    "tileiras": "tileiras of the column compiles bytecode of the row's version; the kernel must be in the cubin.",
    "nvrtc": "NVRTC of the column compiles a program that includes the headers of the row.",
    "driver": "The emulated driver of the column links two units of the row with cuLink*.",
    "load": "nvJitLink of the row's release links what its compiler made; the emulated driver of the column loads it.",
    "real-driver": "A real driver links two units of each release with cuLink*.",
    "real-load": "nvJitLink of each release links what its compiler made; a real driver loads the image.",
    "real-run": "nvJitLink of the column links two units of the row; the GPU runs it, and NumPy compares the numbers.",
}
KINDS = {
    "ptx": "PTX",
    "ltoir": "LTO-IR",
    "cubin": "relocatable cubin",
    "linked-cubin": "linked cubin",
    "fatbin-ptx": "fatbin with PTX",
    "fatbin-cubin": "fatbin with a relocatable cubin",
    "fatbin-ltoir": "fatbin with LTO-IR",
    "nvvm-ltoir": "LTO-IR of NVRTC and libNVVM",
    "merged-cubin": "incrementally linked cubin",
    "merged-lto-cubin": "cubin of an incremental LTO link",
    "merged-ltoir": "linked LTO-IR",
    "tileir": "Tile IR",
    "runtime-headers": "the runtime's headers",
    "cccl-headers": "CCCL's headers",
}
MARKS = {"works": "✓", "not-made": "-"}
CLASSES = {status: f"atlas-{status}" for status in ("works", "refused", "wrong", "crashed", "not-made")}


def family(answer: AtlasAnswer) -> tuple[str, str, int, str]:
    """An answer without its text, which names releases."""
    return answer.status, answer.call, answer.code, answer.name


def letters(atlas: Atlas) -> dict[tuple[str, str, int, str], str]:
    """The letter of every answer that is not a success: a wrong result and a crash have capitals."""
    marks: dict[tuple[str, str, int, str], str] = {}
    small, large = iter("abcdefghijklmnopqrstuvwxyz"), iter("WXYZABCDEFGHIJKLMNOPQRSTUV")
    for grid in atlas.grids:
        places = [grid.consumers.index(consumer) for consumer in consumers(grid)]
        for letter in dict.fromkeys(row[place] for row in grid.rows.values() for place in places):
            key = family(answer := atlas.answers[letter])
            if key not in marks:
                marks[key] = MARKS.get(answer.status) or next(small if answer.status == "refused" else large)
    return marks


def cells(atlas: Atlas, grid: Grid) -> Iterator[tuple[str, str, AtlasAnswer]]:
    """Producer, consumer and answer of every cell that was measured."""
    for producer in grid.rows:
        for consumer in consumers(grid):
            answer = atlas.ask(producer, consumer, grid.kind, grid.step, grid.arch)
            if answer is not None:
                yield str(producer), str(consumer), answer


def consumers(grid: Grid) -> list[str]:
    """The columns of a grid: every release, those with a tileiras, or that of the real driver."""
    return list(dict.fromkeys(grid.consumers))


def drawn(atlas: Atlas, grid: Grid, archs: Sequence[str], known: dict[tuple[str, str, int, str], str]) -> str:
    """A grid as HTML: a letter and a colour for each cell, with the code and the text on hover and focus."""
    answers = {(producer, consumer): answer for producer, consumer, answer in cells(atlas, grid)}
    columns = consumers(grid)
    title, what, library = STEPS[grid.step]
    name = f"{grid.kind}-{grid.step}-{grid.arch}"
    head = "".join(f'<th scope="col"><span>{column}</span></th>' for column in columns)
    rows = []
    for producer in map(str, grid.rows):
        parts = []
        for consumer in columns:
            answer = answers.get((producer, consumer))
            if answer is None:
                parts.append("<td></td>")
                continue
            mark = known[family(answer)]
            said, content = "", mark
            if mark not in MARKS.values():
                said = f' title="{escape(f"{producer} → {consumer}: {found_words(answer)}")}"'
                content = f'<a href="#{name}-{mark}">{mark}</a>'
            parts.append(f'<td class="{CLASSES[answer.status]}"{said}>{content}</td>')
        rows.append(f'<tr><th scope="row">{producer}</th>{"".join(parts)}</tr>')
    where = escape(", ".join(archs))
    return (
        f'<div class="table-wrapper" tabindex="0" role="region" aria-label="{escape(title)}, {grid.kind}, {where}">'
        f'<table class="atlas" data-library="{library}" data-rest="{grid.kind} --arch {grid.arch}">'
        f"<caption>{where}: rows: made by the release; columns: {what} of the release</caption>"
        f'<thead><tr><th scope="col"><span>made by</span></th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="atlas-said" aria-live="polite"></p>{legend(atlas, grid, name, known)}'
    )


def legend(atlas: Atlas, grid: Grid, name: str, known: dict[tuple[str, str, int, str], str]) -> str:
    """The letters of one grid, each with its call, code and name, and one text for each of the file's answers."""
    by_mark: dict[str, dict[str, AtlasAnswer]] = {}
    count: dict[str, int] = {}
    for producer, consumer, answer in cells(atlas, grid):
        mark = known[family(answer)]
        texts = by_mark.setdefault(mark, {})
        texts.setdefault(grid.rows[producer][grid.consumers.index(consumer)], answer)
        count[mark] = count.get(mark, 0) + 1
    rows = []
    for mark, texts in by_mark.items():
        first = next(iter(texts.values()))
        said = escape(found_words(AtlasAnswer(first.status, first.call, first.code, first.name, "")))
        shown = [escape(text.text) for text in texts.values() if text.text]
        more = "".join(f"<li><code>{text}</code></li>" for text in shown)
        if len(shown) > 2:
            more = f"<details><summary>{counted(len(shown), 'text')}</summary><ul>{more}</ul></details>"
        elif more:
            more = f"<ul>{more}</ul>"
        rows.append(
            f'<div><dt id="{name}-{mark}" class="{CLASSES[first.status]}">{mark}</dt>'
            f"<dd>{said.rstrip(': ')} ({counted(count[mark], 'cell')}){more}</dd></div>"
        )
    return f'<dl class="atlas-legend">{"".join(rows)}</dl>'


def html(text: str) -> nodes.raw:
    """Text that only the HTML has."""
    return nodes.raw("", text, format="html")


class AtlasGrids(Directive):
    """The grids of one kind, step by step, without those that were not asked; equal architectures share one."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        atlas, (kind,) = load(), self.arguments
        known = letters(atlas)
        result: list[nodes.Node] = []
        for step, (title, _, _) in STEPS.items():
            grids = [grid for grid in atlas.grids if (grid.kind, grid.step) == (kind, step)]
            grids = [grid for grid in grids if any(answer.status != "not-made" for *_, answer in cells(atlas, grid))]
            if not grids:
                continue
            section = nodes.section(ids=[f"{kind}-{step}"])
            section += nodes.title(text=title)
            section += nodes.paragraph(text=NOTES[step])
            equal: dict[tuple[tuple[str, str, str], ...], list[Grid]] = {}
            for grid in grids:
                same_marks = tuple((made, read, known[family(answer)]) for made, read, answer in cells(atlas, grid))
                equal.setdefault(same_marks, []).append(grid)
            for same in equal.values():
                section += html(drawn(atlas, same[0], [grid.arch for grid in same], known))
            result.append(section)
        return result


def short(answer: AtlasAnswer) -> str:
    """An answer in a word or two, for a small table."""
    words = {"works": "links", "crashed": answer.name, "not-made": "-"}
    return words.get(answer.status, f"{answer.status}, {answer.code}")


def ranges(releases: Sequence[str], chosen: Sequence[str]) -> str:
    """Some releases in words: each run of neighbours is a range."""
    groups: list[list[str]] = []
    for at, release in enumerate(releases):
        if release in chosen:
            if not groups or releases[at - 1] != groups[-1][-1]:
                groups.append([])
            groups[-1].append(release)
    return ", ".join(group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups)


class AtlasExcerpt(Directive):
    """One step and kind for some producers: a row for the consumers with equal answers, by architecture."""

    required_arguments = 2
    option_spec: ClassVar[dict[str, Any]] = {"made": str.split}

    def run(self) -> list[nodes.Node]:
        atlas, (step, kind) = load(), self.arguments
        grids = [grid for grid in atlas.grids if (grid.step, grid.kind) == (step, kind)]
        equal: dict[tuple[str, ...], list[str]] = {}
        for grid in grids:
            asked = ((made, read) for read in grid.consumers for made in self.options["made"])
            answers = [atlas.ask(made, read, kind, step, grid.arch) for made, read in asked]
            equal.setdefault(tuple("" if answer is None else short(answer) for answer in answers), []).append(grid.arch)
        made = self.options["made"]
        rows: dict[tuple[str, ...], list[str]] = {}
        for at, read in enumerate(grids[0].consumers):
            row = tuple(cell for said in equal for cell in said[at * len(made) : (at + 1) * len(made)])
            rows.setdefault(row, []).append(read)
        head = [f"{', '.join(archs)}: {label}" for archs in equal.values() for label in made]
        return [
            table(
                [STEPS[step][1], *head],
                [[ranges(grids[0].consumers, releases), *row] for row, releases in rows.items()],
            )
        ]


def measured(date: str, command: str, machine: str, before: str = "") -> nodes.Node:
    """One measurement, in the form of every figure of the documentation."""
    paragraph = nodes.paragraph()
    paragraph += nodes.Text(f"{before}Measured {date} by ")
    paragraph += nodes.literal(text=command)
    paragraph += nodes.Text(f" on {machine}.")
    return paragraph


def atlas_measured() -> list[nodes.Node]:
    """When, where and by which command the atlas was measured."""
    atlas = load()
    result = [measured(str(atlas.measured["date"]), atlas.measured["command"], atlas.measured["machine"])]
    machines = {m: f"an {m.device}, driver {m.driver} (CUDA {m.cuda})" for m in atlas.real}
    return result + [measured(m.date, m.command, where, "Hardware: ") for m, where in machines.items()]


def atlas_wheels() -> list[nodes.Node]:
    """The wheels of every release."""
    wheels = load().wheels
    names = list(dict.fromkeys(name for versions in wheels.values() for name in versions))
    return [
        table(
            ["CUDA", *names],
            [[str(release), *(versions.get(name, "") for name in names)] for release, versions in wheels.items()],
        )
    ]


def atlas_chooser() -> list[nodes.Node]:
    """The data and the place of the chooser, which a script fills; without it the pages below have the answers."""
    atlas = load()
    known = letters(atlas)
    keys: dict[str, str] = {}
    answers: list[dict[str, str]] = []
    grids = []
    for grid in atlas.grids:
        if grid.step not in ("nvjitlink", "driver", "load"):
            continue
        rows: dict[str, list[int | None]] = {}
        for producer, consumer, answer in cells(atlas, grid):
            said = {"status": answer.status, "mark": known[family(answer)], "said": found_words(answer)}
            key = json.dumps(said)
            if key not in keys:
                keys[key] = str(len(answers))
                answers.append(said)
            row = rows.setdefault(producer, [None] * len(atlas.releases))
            row[list(map(str, atlas.releases)).index(consumer)] = int(keys[key])
        grids.append({"step": grid.step, "kind": grid.kind, "arch": grid.arch, "rows": rows})
    data: dict[str, Any] = {
        "releases": list(map(str, atlas.releases)),
        "kinds": {kind: KINDS[kind] for kind in KINDS if any(grid["kind"] == kind for grid in grids)},
        "answers": answers,
        "grids": grids,
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    return [
        html(
            '<div class="atlas-chooser" hidden></div>'
            f'<script type="application/json" id="atlas-data">{text}</script>'
            "<noscript><p>The chooser needs JavaScript; the grids have the same answers.</p></noscript>"
        )
    ]


def atlas_disagreements() -> list[nodes.Node]:
    """Where NVIDIA's documentation and the measurements differ, by statement, each with its reproducer."""
    by_statement: dict[str, dict[tuple[str, ...], list[Any]]] = {}
    for disagreement in disagreements(load()):
        key = (disagreement.grid.step, disagreement.grid.kind, disagreement.where, found_words(disagreement.answer))
        by_statement.setdefault(disagreement.statement.name, {}).setdefault(key, []).append(disagreement)
    result: list[nodes.Node] = []
    for name, groups in by_statement.items():
        statement = next(iter(groups.values()))[0].statement
        section = nodes.section(ids=[name])
        section += nodes.title(text=statement.says.rstrip("."))
        source = nodes.paragraph(text="So documented in: " if statement.verified else "Unverified, attributed to: ")
        source += nodes.reference("", statement.source, refuri=statement.url)
        source += nodes.Text(f" (read: {statement.read}). Measured otherwise:")
        section += source
        rows: list[list[str | nodes.Node]] = []
        for (step, kind, where, answer), same in groups.items():
            archs = ", ".join(disagreement.grid.arch for disagreement in same)
            rows.append([f"{step}, {kind}, {archs}", where, answer, words([same[0].reproducer])])
        section += table(["grid", "made by, into", "measured", "reproducer"], rows)
        result.append(section)
    return result or [nodes.paragraph(text="Every statement agrees with every cell.")]


def atlas_statements() -> list[nodes.Node]:
    """The statements of NVIDIA's documentation that the atlas is compared with."""
    result = nodes.bullet_list()
    for claim in statements():
        text = nodes.paragraph(text=f"{claim.says} ")
        text += nodes.reference("", claim.source, refuri=claim.url)
        doubt = "" if claim.verified else " Unverified."
        text += nodes.Text(f". Read: {claim.read}.{doubt} For {', '.join(claim.kinds)}, at {', '.join(claim.steps)}.")
        result += nodes.list_item("", text)
    return [result]


def atlas_contradictions() -> list[nodes.Node]:
    """Where our own rules and the measurements differ, each with the reason why the rule stays."""
    counts: dict[tuple[str, ...], int] = {}
    for contradiction in contradictions(load()):
        reason = contradiction.reason.because if contradiction.reason else ""
        does = "allows what fails" if contradiction.prediction.works else "rejects what works"
        key = (contradiction.prediction.rule, does, contradiction.step, contradiction.kind, reason)
        counts[key] = counts.get(key, 0) + 1
    merged: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for (rule, does, step, kind, reason), count in counts.items():
        merged.setdefault((rule, does, step, reason), []).append((kind, count))
    rows = [
        [rule, does, step, ", ".join(f"{kind} ({count})" for kind, count in kinds), reason]
        for (rule, does, step, reason), kinds in merged.items()
    ]
    return [table(["rule", "how", "step", "kinds (cells)", "why the rule stays"], rows)]


def add_files(app: Sphinx, pagename: str, *_: object) -> None:
    """Add the style and the script to the pages of the atlas only."""
    if pagename.startswith("atlas/"):
        app.add_css_file("atlas.css")
        app.add_js_file("atlas.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.connect("html-page-context", add_files)
    app.add_directive("atlas-grids", AtlasGrids)
    app.add_directive("atlas-excerpt", AtlasExcerpt)
    add_directives(
        app, atlas_measured, atlas_wheels, atlas_chooser, atlas_disagreements, atlas_statements, atlas_contradictions
    )
    return {"parallel_read_safe": True}
