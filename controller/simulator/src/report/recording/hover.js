"use strict";
// Shows the decision nearest to the pointer, and a line at its time in every plot of its row.
(() => {
  const { left, right, low, high, rows } = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");

  function hide() {
    tip.hidden = true;
    for (const line of document.querySelectorAll(".cursor")) line.remove();
  }

  function nearest(times, at) {
    let [from, to] = [0, times.length - 1];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (times[middle] + times[middle + 1] < 2 * at) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  function drawCursor(row, at) {
    for (const svg of row.querySelectorAll("svg")) {
      const { width, height } = svg.viewBox.baseVal;
      const x = left + ((at - low) / (high - low)) * (width - left - right);
      let line = svg.querySelector(".cursor");
      if (!line) {
        line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        line.setAttribute("class", "cursor");
        svg.append(line);
      }
      for (const [key, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: height })) line.setAttribute(key, value);
    }
  }

  function show(event) {
    const svg = event.target.closest?.("svg");
    const row = svg?.closest("[data-row]");
    if (tip.row !== row) hide();
    if (!row) return;
    const { t, s } = rows[row.dataset.row];
    if (t.length === 0) return;
    const box = svg.getBoundingClientRect();
    const { width } = svg.viewBox.baseVal;
    const x = ((event.clientX - box.left) / box.width) * width;
    const i = nearest(t, low + ((x - left) / (width - left - right)) * (high - low));
    tip.row = row;
    tip.textContent = s[i];
    tip.hidden = false;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
    const above = event.clientY + 16 + tip.offsetHeight > innerHeight;
    tip.style.top = `${Math.max(0, above ? event.clientY - tip.offsetHeight - 12 : event.clientY + 16)}px`;
    drawCursor(row, t[i]);
  }

  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
