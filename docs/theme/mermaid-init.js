// Draws the diagrams. Their colours come from site.css, so that they follow the theme.
mermaid.initialize({
  startOnLoad: true,
  theme: "base",
  fontFamily: "inherit",
  flowchart: { curve: "basis", nodeSpacing: 28, rankSpacing: 36, padding: 10 },
  sequence: { mirrorActors: false, wrap: true, width: 124, actorMargin: 34, height: 40, messageMargin: 26 },
});
