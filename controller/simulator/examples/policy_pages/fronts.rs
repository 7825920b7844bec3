//! Attainment against cost, a plot for each trace: wva by the share that it is asked to keep, and the policies around it.

use std::fmt::Write;

use super::plot::{Line, Plot, escape};
use super::scale::Scale;

/// Cost by the oracle's, and requests within the objectives in percent.
type Point = (f64, f64);

/// A trace and what policies made of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trace {
    /// Its name.
    pub(crate) title: String,
    /// Letters and points of the policies that scale by themselves.
    pub(crate) rivals: Vec<(char, Point)>,
    /// Those that know the requests in advance: no part of the front.
    pub(crate) hindsight: Vec<(char, Point)>,
    /// Points of wva, with less to keep first.
    pub(crate) wva: Vec<Point>,
}

/// Pixels of a plot, and of all text above them.
const WIDTH: f64 = 330.0;
const HEIGHT: f64 = 230.0;
const TITLE: f64 = 26.0;
const LEGEND: f64 = 40.0;
const COLUMNS: usize = 3;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#222}.title{font-weight:600}.back{fill:#fff}.grid{stroke:#e4e4e4}\
.one{fill:#0072b2}.wva{stroke:#0072b2;fill:none;stroke-width:1.5}.front{stroke:#7a7a7a;fill:none;stroke-dasharray:4 3}\
.letter{font-weight:700}.later{fill:#7a7a7a;font-weight:700}\
@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.back{fill:#161b22}.grid{stroke:#30363d}.one{fill:#4a9ff5}\
.wva{stroke:#4a9ff5}.front,.later{stroke:#a8a8a8}.later{fill:#a8a8a8;stroke:none}}";

/// A plot for each trace, three in a row. `legend`: what the letters mean.
pub(crate) fn fronts(traces: &[Trace], legend: &str) -> String {
    let rows = u32::try_from(traces.len().div_ceil(COLUMNS)).unwrap_or(u32::MAX);
    let (width, height) = (WIDTH * 3.0, LEGEND + f64::from(rows) * (HEIGHT + TITLE));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\"><title>Attainment against cost, by trace</title><style>{STYLE}</style>\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\
         <circle class=\"one\" cx=\"18\" cy=\"20\" r=\"4\"/><text x=\"28\" y=\"24\">{}</text>",
        escape(legend)
    );
    for (trace, n) in traces.iter().zip(0_u32..) {
        let (column, row) = (n % 3, n / 3);
        let (x, y) = (f64::from(column) * WIDTH, LEGEND + f64::from(row) * (HEIGHT + TITLE));
        let _ = write!(svg, "<g transform=\"translate({x} {y})\">{}</g>", trace.draw());
    }
    svg + "</svg>\n"
}

impl Trace {
    fn draw(&self) -> String {
        let named = || self.rivals.iter().chain(&self.hindsight).map(|(_, at)| *at);
        let all: Vec<Point> = named().chain(self.wva.iter().copied()).collect();
        let plot = Plot {
            width: WIDTH,
            height: HEIGHT,
            titles: ("cost by the oracle's", "% in SLO"),
            x: Scale::from_zero(all.iter().map(|at| at.0)),
            y: Scale::percent(all.iter().map(|at| at.1).chain([100.0])),
            mark: None,
        };
        let mut svg = format!("<text class=\"title\" x=\"52\" y=\"16\">{}</text>", escape(&self.title));
        let _ = write!(svg, "<g transform=\"translate(0 {TITLE})\">");
        plot.frame(&mut svg);
        svg += &plot.polyline(&Line::steps("front", &self.front()));
        svg += &plot.polyline(&Line::slopes("wva", &self.wva));
        for at in &self.wva {
            let (x, y) = plot.place(at.0, at.1);
            let _ = write!(svg, "<circle class=\"one\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
        }
        for (class, policies) in [("later", &self.hindsight), ("letter", &self.rivals)] {
            for (letter, at) in policies {
                let (x, y) = plot.place(at.0, at.1);
                let _ = write!(
                    svg,
                    "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{letter}</text>",
                    y + 4.0
                );
            }
        }
        svg + "</g>"
    }

    /// Points of which no other one keeps more for less: by rising cost.
    fn front(&self) -> Vec<Point> {
        let mut points: Vec<Point> =
            self.rivals.iter().map(|(_, at)| *at).chain(self.wva.iter().copied()).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut front: Vec<Point> = Vec::new();
        for point in points {
            if front.last().is_none_or(|last| point.1 > last.1) {
                front.push(point);
            }
        }
        front
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        Trace {
            title: "a < b".to_owned(),
            rivals: vec![('T', (1.0, 90.0)), ('H', (2.0, 95.0)), ('S', (2.0, 99.0))],
            hindsight: vec![('O', (1.0, 100.0))],
            wva: vec![(1.2, 90.0), (1.5, 97.0)],
        }
    }

    #[test]
    fn the_front_has_what_no_other_keeps_for_less() {
        assert_eq!(trace().front(), [(1.0, 90.0), (1.5, 97.0), (2.0, 99.0)]);
    }

    #[test]
    fn draws_each_policy_of_each_trace() {
        let svg = fronts(&[trace(), trace(), trace(), trace()], "wva");
        assert_eq!(svg.matches("a &lt; b").count(), 4);
        assert_eq!((svg.matches(">T</text>").count(), svg.matches("class=\"wva\"").count()), (4, 4));
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
