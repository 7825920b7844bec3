// Draws the diagrams. Their colours come from site.css, so that they follow the theme.
mermaid.initialize({ startOnLoad: true, theme: "base", fontFamily: "inherit", flowchart: { curve: "basis" }, sequence: { mirrorActors: false } });
