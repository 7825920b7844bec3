//! The picture of a simulated hour: the cycles of wva on the first seed, drawn from the report of their recording.

use std::error::Error;
use std::fmt::Write;

use wva_simulator::measure::Tally;
use wva_simulator::policy::wva::Wva;
use wva_simulator::report::document::{Block, Chart, Document};
use wva_simulator::report::recording::{History, Selection};
use wva_simulator::run::run;
use wva_simulator::scenario::{self, Scenario, Spec};

use super::plot::{LEFT, Line, Plot, Shape, escape};
use super::scale::Scale;

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

/// Draws the hour of `hour.yaml` as one SVG for light and dark pages.
pub(crate) fn picture() -> Result<String, Box<dyn Error>> {
    let scenario = Spec::read(&scenario::parse_tree(include_str!("hour.yaml"))?)?.build(None)?;
    let (document, tally) = simulate(&scenario).ok_or("hour.yaml has no policy wva")?;
    Ok(draw(&document, &caption(&tally)))
}

fn simulate(Scenario { setting, policies, .. }: &Scenario) -> Option<(Document, Tally)> {
    let mut wva =
        Wva::new(policies.iter().find_map(|policy| policy.wva.as_ref())?, &setting.variants).with_recording();
    let tally = run(setting, &mut wva, 1, |_| {});
    let mut history = History::new(Selection::default());
    wva.recorded().for_each(|cycle| history.add_cycle(cycle));
    Some((history.document("hour"), tally))
}

#[expect(clippy::cast_precision_loss, reason = "requests of an hour")]
fn caption(tally: &Tally) -> String {
    format!(
        "Simulated hour: {} requests, {:.1} % with\nthe first token within {} s and {} ms between tokens",
        tally.arrived(),
        100.0 * tally.good as f64 / tally.arrived() as f64,
        tally.objectives.ttft,
        1000.0 * tally.objectives.itl,
    )
}

/// A plot of a chart: the names of its lines in the report, and here.
struct Panel<'a> {
    title: String,
    lines: [(&'static str, &'static str); 2],
    chart: &'a Chart,
    end: f64,
}

/// The load, and the replicas of each variant.
fn panels(document: &Document) -> Vec<Panel<'_>> {
    let mut name = None;
    let mut panels = Vec::new();
    for block in &document.blocks {
        match block {
            Block::Heading(heading) => name = heading.id.is_some().then_some(heading.text.as_str()),
            Block::Charts(charts) => panels.extend(charts.charts.first().map(|chart| Panel {
                title: name.map_or_else(|| "requests/s".to_owned(), |name| format!("{name} replicas")),
                lines: match name {
                    None => [("forecast", "forecast"), ("arriving", "arriving")],
                    Some(_) => [("ready", "ready"), ("target", "desired by wva")],
                },
                chart,
                end: charts.end,
            })),
            _ => {}
        }
    }
    panels
}

fn draw(document: &Document, caption: &str) -> String {
    let panels = panels(document);
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
        svg += &panel.draw(top);
        top += each;
    }
    svg + "</svg>\n"
}

impl Panel<'_> {
    fn draw(&self, top: f64) -> String {
        let mut svg = format!("<g transform=\"translate({MARGIN} {top})\">");
        let mut x = LEFT;
        for ((_, name), class) in self.lines.iter().zip(["two", "one"]) {
            let _ = write!(
                svg,
                "<path class=\"key {class}\" d=\"M{x} 16h22\"/><text x=\"{}\" y=\"20\">{name}</text>",
                x + 28.0
            );
            x += 28.0 + LETTER * f64::from(u8::try_from(name.len()).unwrap_or(u8::MAX)) + 26.0;
        }
        let _ = write!(svg, "<g transform=\"translate(0 {LEGEND})\">");
        let plot = Plot {
            width: WIDTH,
            height: HEIGHT,
            titles: ("minutes", &self.title),
            x: Scale::tight([0.0, self.end].into_iter()),
            y: Scale::from_zero(self.runs().flat_map(|(_, points)| points).map(|point| point.1)),
            mark: None,
        };
        plot.frame(&mut svg);
        let shape = if self.chart.steps { Shape::Steps } else { Shape::Slopes };
        for (class, points) in self.runs() {
            svg += &plot.polyline(&Line { class, shape, points });
        }
        svg + "</g></g>"
    }

    /// Class and points of the parts of the lines.
    fn runs(&self) -> impl Iterator<Item = (&'static str, &Vec<(f64, f64)>)> {
        self.lines.iter().zip(["two", "one"]).flat_map(|((name, _), class)| {
            let lines = self.chart.lines.iter().filter(move |line| line.name == *name);
            lines.flat_map(|line| &line.runs).map(move |run| (class, run))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_load_and_replicas_of_each_variant() {
        let picture = picture().unwrap();
        assert!(picture.starts_with("<svg xmlns=") && !picture.contains("NaN"), "{picture}");
        for title in ["requests/s", "a100 replicas", "h100 replicas"] {
            assert!(picture.contains(&format!(">{title}<")), "{title}");
        }
        for class in ["one", "two"] {
            assert_eq!(picture.matches(&format!("<polyline class=\"{class}\"")).count(), 3, "{class}");
        }
    }

    #[test]
    fn picture_is_current() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/development/evidence/hour.svg");
        let found = std::fs::read_to_string(file).unwrap();
        assert!(found == picture().unwrap(), "{file} is outdated: run `make generate` and commit the result");
    }
}
