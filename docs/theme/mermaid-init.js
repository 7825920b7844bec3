// Draws the diagrams. Their colours come from site.css, so that they follow the theme.
mermaid.initialize({
  startOnLoad: false,
  theme: "base",
  fontFamily: "inherit",
  flowchart: { curve: "basis", nodeSpacing: 28, rankSpacing: 36, padding: 10 },
  sequence: { mirrorActors: false, wrap: true, width: 124, actorMargin: 34, height: 40, messageMargin: 26 },
});

// A phone shows flowcharts and states from top to bottom, and scrolls diagrams whose letters would become too small.
async function draw() {
  const diagrams = document.querySelectorAll("pre.mermaid");
  const isNarrow = window.matchMedia("(max-width: 620px)").matches;
  if (isNarrow) {
    for (const diagram of diagrams) {
      diagram.textContent = diagram.textContent.replace(/^(\s*(flowchart|direction)) LR/m, "$1 TB");
    }
  }
  await mermaid.run({ nodes: diagrams });
  for (const drawn of document.querySelectorAll("pre.mermaid > svg")) {
    if (isNarrow) drawn.style.minWidth = `${Math.min(540, 0.75 * drawn.viewBox.baseVal.width)}px`;
  }
}

draw();
