// A field above each long table of a page hides the rows without its words. The page is whole without it.
"use strict";
for (const table of document.querySelectorAll("article table.docutils")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 10) continue;
  const field = Object.assign(document.createElement("input"), { type: "search", ariaLabel: "Show the rows with these words" });
  field.placeholder = "show the rows with, such as cuMemFree";
  field.className = "table-filter";
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });
  (table.closest(".table-wrapper") ?? table).before(field);
}
