"use strict";
// Draws the document of the element "data" (document.rs): headings, text, tables and charts. Every text of it is put in
// as text, so none of them can become an element.

const SVG = "http://www.w3.org/2000/svg";
// Pixels around the lines of a chart.
const [LEFT, RIGHT, TOP, BOTTOM] = [52, 16, 10, 32];
// Pixels of a line of text, and of a mean letter.
const [LINE, LETTER] = [13, 6.2];
// Letters of a chart keep their size on a phone.
const SIZES = { small: [290, 170], large: [innerWidth < 600 ? 360 : 570, 170] };
// Smaller values have no place on a logarithmic axis.
const LEAST = 1e-3;
// A highest value this many times the 95th percentile would flatten a line.
const OUTLIER = 10;

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Axes: share() is 0 at the low end and 1 at the high end, ticks are round values between them.

const isKnown = (value) => Number.isFinite(value);

// Lowest and highest value, moved apart if they are equal. Lists are long: too long for arguments of Math.min.
function range(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values.filter(isKnown)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) return [0, 1];
  if (low < high) return [low, high];
  // Counts have no values below 0.
  return low === 0 ? [0, 1] : [low - 0.5, high + 0.5];
}

// 1, 2 or 5 times a power of ten, for four to ten ticks.
function tickStep(low, high) {
  const rough = (high - low) / 5;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const times = rough / decade;
  return decade * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

const makeAxis = (share, ticks) => ({ share: (value) => Math.min(1, Math.max(0, share(value))), ticks });
const powers = (low, high) => Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));

function linearAxis(low, high) {
  const step = tickStep(low, high);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  const ticks = Array.from({ length: Math.max(0, count) }, (_, i) => (first + i) * step);
  return makeAxis((value) => (value - low) / (high - low), ticks);
}

// From a round value to a round value, `most` at most.
function roundAxis(values, most = Infinity) {
  const [low, high] = range(values);
  const step = tickStep(low, high);
  return linearAxis(Math.floor(low / step) * step, Math.min(most, Math.ceil(high / step) * step));
}

const SCALES = {
  linear: (values) => roundAxis(values),
  percent: (values) => roundAxis(values, 100),
  zero: (values) => roundAxis([0, ...values]),
  outliers(values) {
    const sorted = values.filter(isKnown).sort((a, b) => a - b);
    const usual = sorted[Math.floor((sorted.length * 95) / 100)] ?? 0;
    const highest = sorted.at(-1) ?? 0;
    if (highest <= OUTLIER * Math.max(1, usual)) return SCALES.zero(values);
    const high = Math.max(1, Math.ceil(Math.log10(highest)));
    return makeAxis((value) => Math.log1p(Math.max(0, value)) / Math.log1p(10 ** high), [0, ...powers(0, high)]);
  },
  logarithmic(values) {
    const [from, to] = range(values.filter(isKnown).map((value) => Math.log10(Math.max(LEAST, value))));
    const low = Math.floor(from);
    const high = Math.max(low + 1, Math.ceil(to));
    return makeAxis((value) => (Math.log10(Math.max(LEAST, value)) - low) / (high - low), powers(low, high));
  },
};

// Digits without the noise of binary fractions.
function label(value) {
  return String(Math.round(value * 1e6) / 1e6 || 0);
}

function valueAxis({ scale, values, mark }, drawn) {
  return SCALES[scale]([...drawn, ...values, ...(mark === null ? [] : [mark])]);
}

// A plot with its axes, their titles, and a line to compare with. `place` finds a point in it.
function makePlot([width, height], x, y, [xTitle, yTitle], mark) {
  const place = (across, up) => [
    LEFT + x.share(across) * (width - LEFT - RIGHT),
    height - BOTTOM - y.share(up) * (height - BOTTOM - TOP),
  ];
  const words = (x, y, anchor, text, more = {}) => svg("text", { x, y, "text-anchor": anchor, ...more }, text);
  const level = (name, value) => {
    const [, at] = place(0, value);
    return svg("line", { class: name, x1: LEFT, x2: width - RIGHT, y1: at, y2: at });
  };
  const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": yTitle });
  plot.style.maxWidth = `${width}px`;
  for (const tick of y.ticks) plot.append(level("grid", tick), words(LEFT - 6, place(0, tick)[1] + 4, "end", label(tick)));
  for (const tick of x.ticks) plot.append(words(place(tick, 0)[0], height - BOTTOM + 14, "middle", label(tick)));
  const middle = (height - BOTTOM) / 2;
  plot.append(
    words((LEFT + width - RIGHT) / 2, height - 4, "middle", xTitle),
    words(10, middle, "middle", yTitle, { transform: `rotate(-90 10 ${middle})` }),
  );
  if (mark !== null) plot.append(level("mark", mark));
  return { plot, place };
}

const round = (value) => value.toFixed(1);

// One word for each point. That of a step has its corner too, as four numbers.
function linePoints(run, place, steps) {
  const words = [];
  let last = null;
  for (let i = 0; i < run.length; i += 2) {
    const [x, y] = place(run[i], run[i + 1]).map(round);
    words.push(steps && last !== null && last !== y ? `${x},${last},${x},${y}` : `${x},${y}`);
    last = y;
  }
  return words.join(" ");
}

function drawChart({ title, axis, steps, lines }, { size, title: xTitle }, x, notes) {
  const values = lines.flatMap(({ runs }) => runs.flatMap((run) => run.filter((_, i) => i % 2 === 1)));
  const y = valueAxis(axis, values);
  const { plot, place } = makePlot(SIZES[size], x, y, [xTitle, title], axis.mark);
  for (const { style, runs } of lines) {
    for (const run of runs) plot.append(svg("polyline", { class: style, points: linePoints(run, place, steps) }));
  }
  for (const { at, text, target } of notes) {
    if (target === undefined) continue;
    const [cx, cy] = place(at, target).map(round);
    plot.append(svg("circle", { class: "step", cx, cy, r: 3 }, svg("title", {}, text)));
  }
  const named = lines.filter(({ name }) => name);
  if (named.length === 0) return html("figure", {}, plot);
  const legend = named.map(({ name, style }) => html("span", { class: style }, name));
  const absent = values.length === 0 ? " (unknown)" : "";
  return html("figure", {}, html("figcaption", {}, `${title}${absent} `, ...legend), plot);
}

// Lines over the ranges of a point.
function cross(place, [x, y], [across, up]) {
  const [[x1, y1], [x2, y2]] = [place(across[0], up[0]), place(across[1], up[1])];
  return svg("path", { class: "plan", d: `M${x1} ${y}H${x2}M${x} ${y1}V${y2}` });
}

// Names of points from the top down. One that would overlap another moves below it.
function pointNames(placed, width) {
  const taken = [];
  return placed.map(({ name, x, y }) => {
    const length = LETTER * [...name].length;
    const isRight = x + 8 + length < width;
    const from = isRight ? x + 8 : x - 8 - length;
    const overlaps = (at) => taken.some((other) => other.from < from + length && from < other.to && Math.abs(at - other.at) < LINE);
    let at = y + 4;
    while (overlaps(at)) at += 1;
    taken.push({ from, to: from + length, at });
    return svg("text", { x: isRight ? from : from + length, y: at, "text-anchor": isRight ? "start" : "end" }, name);
  });
}

function drawPoints({ axis, points }) {
  const width = innerWidth < 900 ? 640 : 860;
  const known = points.filter(({ at }) => at.every(isKnown));
  const valuesOf = (i) => known.flatMap(({ at, ranges }) => (ranges ? ranges[i] : [at[i]]));
  const x = SCALES.linear(valuesOf(0));
  const y = valueAxis(axis, valuesOf(1));
  const { plot, place } = makePlot([width, 340], x, y, ["cost", "% of requests in SLO"], axis.mark);
  const placed = known.map((point) => {
    const [x, y] = place(...point.at);
    return { ...point, x, y };
  });
  placed.sort((a, b) => a.y - b.y);
  for (const { x, y, ranges } of placed) if (ranges) plot.append(cross(place, [x, y], ranges));
  for (const { x, y, isCertain } of placed) {
    plot.append(svg("circle", { class: isCertain ? "point" : "step", cx: x, cy: y, r: 4 }));
  }
  plot.append(...pointNames(placed, width));
  return [html("div", { class: "points" }, plot)];
}

// A box with the decision nearest to the pointer, and a line at its time in every chart of its row.

const tip = html("div", { id: "tip", role: "status", hidden: "" });
// Decisions and end of the time axis, by row.
const rows = new Map();

function drawCharts(block) {
  const row = html("div", { class: block.size });
  const end = block.end || 1;
  const x = linearAxis(0, end);
  row.append(...block.charts.map((chart, i) => drawChart(chart, block, x, i === 0 ? block.notes : [])));
  if (block.notes.length > 0) {
    row.dataset.row = rows.size;
    rows.set(row, { notes: block.notes, end });
  }
  return [row];
}

function hide() {
  tip.hidden = true;
  for (const line of document.querySelectorAll(".cursor")) line.remove();
}

function nearest(notes, at) {
  let [from, to] = [0, notes.length - 1];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (notes[middle].at + notes[middle + 1].at < 2 * at) from = middle + 1;
    else to = middle;
  }
  return notes[from];
}

function drawCursor(row, share) {
  for (const plot of row.querySelectorAll("svg")) {
    const { width, height } = plot.viewBox.baseVal;
    const x = LEFT + share * (width - LEFT - RIGHT);
    plot.querySelector(".cursor")?.remove();
    plot.append(svg("line", { class: "cursor", x1: x, x2: x, y1: 0, y2: height }));
  }
}

function show(event) {
  const plot = event.target.closest?.("svg");
  const row = plot?.closest("[data-row]");
  if (tip.row !== row) hide();
  if (!row) return;
  const { notes, end } = rows.get(row);
  const box = plot.getBoundingClientRect();
  const { width } = plot.viewBox.baseVal;
  const x = ((event.clientX - box.left) / box.width) * width;
  const note = nearest(notes, ((x - LEFT) / (width - LEFT - RIGHT)) * end);
  tip.row = row;
  tip.textContent = note.text;
  tip.hidden = false;
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
  const above = event.clientY + 16 + tip.offsetHeight > innerHeight;
  tip.style.top = `${Math.max(0, above ? event.clientY - tip.offsetHeight - 12 : event.clientY + 16)}px`;
  drawCursor(row, note.at / end);
}

function drawTable({ rows, sentences, hasLinks }) {
  const content = (text, column, isTitle) => {
    if (column === sentences) return [html("span", { class: "sentence" }, text)];
    if (column === 0 && hasLinks && !isTitle) return [html("a", { href: `#${text}` }, text)];
    const [first, ...others] = text.split("\n");
    return [first, ...others.map((line) => html("small", {}, line))];
  };
  const line = (cells, i) =>
    html("tr", {}, ...cells.map((text, column) => html(i === 0 ? "th" : "td", {}, ...content(text, column, i === 0))));
  return [html("table", {}, ...rows.map(line))];
}

// Elements of each kind of block.
const BLOCKS = {
  heading: ({ level, text, aside, id }) => {
    const more = aside ? [" ", html("span", {}, aside)] : [];
    return [html(`h${level}`, id === null ? {} : { id }, text, ...more)];
  },
  text: ({ text, warns }) => [html("p", warns ? { class: "warning" } : {}, text)],
  list: ({ items }) => [html("ul", {}, ...items.map((item) => html("li", {}, item)))],
  terms: ({ terms }) => [html("dl", {}, ...terms.flatMap(([term, meaning]) => [html("dt", {}, term), html("dd", {}, meaning)]))],
  table: drawTable,
  charts: drawCharts,
  points: drawPoints,
};

const { title, blocks } = JSON.parse(document.getElementById("data").textContent);
document.title = title;
document.body.append(html("h1", {}, title), ...blocks.flatMap((block) => BLOCKS[block.kind](block)), tip);
document.addEventListener("pointermove", show);
document.addEventListener("pointerdown", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
