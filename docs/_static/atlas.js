// The chooser of the atlas, and what a cell says on hover and focus. The pages are whole without it.
"use strict";
(() => {
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  // A grid is one stop for the Tab key; the arrows move inside of it.
  for (const table of document.querySelectorAll("table.atlas")) {
    const said = table.parentElement.nextElementSibling;
    const links = [...table.querySelectorAll("td a")];
    links.forEach((link, number) => { link.tabIndex = number ? -1 : 0; });
    const show = (cell) => {
      const producer = cell.parentElement.cells[0].textContent;
      const consumer = table.rows[0].cells[cell.cellIndex].textContent;
      const works = cell.className === "atlas-works" ? "works" : "cannot be asked";
      const library = table.dataset.library;
      const again = library && `cudalink can-link ${producer} ${library}-${consumer} ${table.dataset.rest}`;
      const text = cell.title || `${producer} → ${consumer}: ${works}`;
      said.replaceChildren(text, element("br"), element("code", { textContent: again }));
    };
    for (const cell of table.querySelectorAll("td[class]")) {
      cell.addEventListener("mouseenter", () => show(cell));
      cell.addEventListener("focusin", () => show(cell));
    }
    table.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      const cell = event.target.closest("td");
      if (!step || !cell) return;
      event.preventDefault();
      let [row, column] = [cell.parentElement.rowIndex, cell.cellIndex];
      for (;;) {
        row += step[0];
        column += step[1];
        const next = table.rows[row]?.cells[column];
        if (!next) return;
        const link = next.querySelector("a");
        if (link) {
          links.forEach((one) => { one.tabIndex = one === link ? 0 : -1; });
          link.focus();
          return;
        }
      }
    });
  }

  const place = document.querySelector(".atlas-chooser");
  const source = document.getElementById("atlas-data");
  if (!place || !source) return;
  const data = JSON.parse(source.textContent);
  const choice = (label, values, chosen) => {
    const select = element("select", { ariaLabel: label });
    for (const [value, text] of values) select.append(element("option", { value, textContent: text }));
    select.value = chosen;
    select.addEventListener("change", answer);
    return select;
  };
  const releases = data.releases.map((one) => [one, one]);
  const architectures = [...new Set(data.grids.map((one) => one.arch))].map((one) => [one, one]);
  const kind = choice("kind of code", Object.entries(data.kinds), "cubin" in data.kinds ? "cubin" : "ptx");
  const producer = choice("release of the compiler", releases, releases.some(([one]) => one === "12.4") ? "12.4" : releases[0][0]);
  const library = choice("library that reads it", [["nvjitlink", "nvJitLink"], ["driver", "driver"]], "nvjitlink");
  const consumer = choice("release of the library", releases, releases.some(([one]) => one === "13.2") ? "13.2" : releases.at(-1)[0]);
  const arch = choice("architecture", architectures, architectures.some(([one]) => one === "sm_90") ? "sm_90" : architectures[0][0]);
  const result = element("div", { ariaLive: "polite" });
  place.append(
    element("p", {}, "My ", kind, " is from CUDA ", producer, ", for ", arch, "; my ", library, " is ", consumer, "."), result);
  place.hidden = false;

  function ask(step) {
    const grid = data.grids.find((one) => one.step === step && one.kind === kind.value && one.arch === arch.value);
    const found = grid?.rows[producer.value]?.[data.releases.indexOf(consumer.value)];
    return found === undefined || found === null ? null : data.answers[found];
  }

  function answer() {
    const what = library.value === "nvjitlink" ? "nvJitLink" : "the driver of CUDA";
    const linked = kind.value === "linked-cubin" && library.value === "driver";
    const step = linked ? "load" : library.value;
    const found = ask(step);
    const yes = found?.status === "works";
    const verb = linked ? (yes ? "loads" : "does not load") : (yes ? "links" : "does not link");
    const known = found && found.status !== "not-made";
    const sentence = known
      ? `${yes ? "Yes" : "No"}: ${what} ${consumer.value} ${verb} it${yes ? "." : `: ${found.said}`}`
      : `Not known: ${found ? `CUDA ${producer.value} cannot make it for ${arch.value}` : "this was not measured"}.`;
    const line = element("p", { className: `answer atlas-${known ? found.status : "not-made"}`, textContent: sentence });
    const more = [];
    if (step === "driver" && known && !yes && ask("load")?.status === "works")
      more.push(element("p", { textContent: `Instead, nvJitLink ${producer.value} can link it: the driver of CUDA ${consumer.value} loads the image.` }));
    const command = `cudalink can-link ${producer.value} ${library.value}-${consumer.value} ${kind.value} --arch ${arch.value}`;
    result.replaceChildren(line, ...more, element("p", {}, "What is documented, and what to do instead: ", element("code", { textContent: command })));
  }
  answer();
})();
