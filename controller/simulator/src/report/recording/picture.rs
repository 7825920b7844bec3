//! A recording as one SVG for documentation pages, for light and dark.

use std::fmt::Write;

use super::rows::{ModelRows, Row};
use super::{Axis, History};
use crate::report::page::escape;
use crate::report::plot::{LEFT, Line, Plot, Shape};
use crate::report::scale::Scale;
use crate::report::series::{Run, Series};

const STYLE: &str = "text{font:15px system-ui,sans-serif;fill:#222}.back{fill:#fff}.grid{stroke:#e4e4e4}.soft{fill:#595959}\
polyline,.key{fill:none;stroke-width:2;stroke-linejoin:round}.one{stroke:#0072b2}.two{stroke:#a34f00;stroke-dasharray:6 3}\
.three{stroke:#00785a}@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.back{fill:#161b22}.grid{stroke:#30363d}\
.soft{fill:#a5abb3}.one{stroke:#6cb8f0}.two{stroke:#f0a35e}.three{stroke:#4cc9a0}}";

/// Letters stay readable where a phone shrinks the picture to its width.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 170.0;
/// Above each plot, for its legend.
const LEGEND: f64 = 26.0;
/// Around all plots, and a line of the caption.
const MARGIN: f64 = 10.0;
const CAPTION: f64 = 21.0;
/// Mean width of a letter.
const LETTER: f64 = 7.8;

struct Panel<'a> {
    title: String,
    shape: Shape,
    /// Class, name and values of each line.
    lines: Vec<(&'static str, &'static str, &'a Series)>,
}

pub(super) fn picture(history: &History, caption: &str) -> String {
    let axis = Axis::new(history);
    let panels: Vec<Panel<'_>> = history.models.values().flat_map(panels).collect();
    let each = LEGEND + HEIGHT;
    let count = f64::from(u16::try_from(panels.len()).unwrap_or(u16::MAX));
    let caption = escape(caption);
    let mut top = MARGIN;
    let mut words = String::new();
    for line in caption.lines() {
        let _ = write!(words, "<text class=\"soft\" x=\"{MARGIN}\" y=\"{}\">{line}</text>", top + 15.0);
        top += CAPTION;
    }
    let (width, height) = (WIDTH + 2.0 * MARGIN, top + count * each + MARGIN);
    let name = caption.replace('\n', " ");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\"><title>{name}</title><style>{STYLE}</style>\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>{words}"
    );
    for panel in panels {
        svg += &draw(&axis, &panel, top);
        top += each;
    }
    svg + "</svg>\n"
}

fn panels(model: &ModelRows) -> Vec<Panel<'_>> {
    let load = &model.load;
    let mut panels: Vec<Panel<'_>> = vec![Panel {
        title: "requests/s".to_owned(),
        shape: Shape::Slopes,
        lines: vec![("two", "forecast", &load.forecast), ("one", "arriving", &load.arrivals)],
    }];
    panels.extend(model.variants.iter().map(|(name, row): (&String, &Row)| {
        let replicas = &row.replicas;
        Panel {
            title: format!("{name} replicas"),
            shape: Shape::Steps,
            lines: vec![("two", "ready", &replicas.ready), ("one", "desired by wva", &replicas.target)],
        }
    }));
    panels
}

fn draw(axis: &Axis, panel: &Panel<'_>, top: f64) -> String {
    let Panel { title, shape, lines } = panel;
    let runs: Vec<(&'static str, Vec<Run>)> =
        lines.iter().map(|(class, _, series)| (*class, axis.runs(series))).collect();
    let values = runs.iter().flat_map(|(_, runs)| runs.iter().flatten()).map(|point| point.1);
    let plot = Plot {
        width: WIDTH,
        height: HEIGHT,
        titles: (axis.unit_name, title),
        x: axis.scale,
        y: Scale::from_zero(values),
        mark: None,
    };
    let mut svg = format!("<g transform=\"translate({MARGIN} {top})\">");
    let mut x = LEFT;
    for (class, name, _) in lines {
        let _ = write!(
            svg,
            "<path class=\"key {class}\" d=\"M{x} 16h22\"/><text x=\"{}\" y=\"20\">{name}</text>",
            x + 28.0
        );
        x += 28.0 + LETTER * f64::from(u8::try_from(name.len()).unwrap_or(u8::MAX)) + 26.0;
    }
    let _ = write!(svg, "<g transform=\"translate(0 {LEGEND})\">");
    plot.frame(&mut svg);
    for (class, runs) in &runs {
        for points in runs {
            svg += &plot.polyline(&Line { class, shape: *shape, points });
        }
    }
    svg + "</g></g>"
}
