// On a narrow screen, a table that would hide its last columns becomes a list: one entry for each row, and the heading of a
// column before each cell. Tables of six and more columns compare figures, and scroll. Styles: site.css.
const narrow = window.matchMedia("(max-width: 620px)");

function stackTables() {
  for (const table of document.querySelectorAll(".content table")) {
    const titles = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    table.classList.remove("stacked");
    const area = table.parentElement;
    if (!narrow.matches || titles.length > 5 || area.scrollWidth <= area.clientWidth) continue;
    for (const row of table.tBodies[0].rows) {
      titles.forEach((title, i) => row.cells[i]?.setAttribute("data-title", title));
    }
    table.classList.add("stacked");
  }
}

stackTables();
narrow.addEventListener("change", stackTables);
