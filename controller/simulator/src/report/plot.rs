//! Plots as SVG: lines over time, and points with labels. Just what the report needs, so that it needs no script.

use std::fmt::Write;

/// Colours that stay apart for most eyes.
pub(super) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5f00", "#444444"];

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 10.0;
/// More points than pixels are not to be seen.
const POINTS: usize = 800;

/// One line or set of points of a plot.
pub(super) struct Series {
    pub(super) label: String,
    pub(super) colour: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Axes of a plot.
pub(super) struct Axes {
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) logarithmic: bool,
    /// A horizontal line to compare with.
    pub(super) mark: Option<f64>,
}

/// From values to places on the plot.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    fn of(axes: &Axes, series: &[Series], from_zero: bool) -> Self {
        let all = || series.iter().flat_map(|s| &s.points);
        let x = range(all().map(|p| p.0));
        let logarithm = |v: f64| if axes.logarithmic { v.max(1e-3).log10() } else { v };
        let mut y = range(all().map(|p| p.1).chain(axes.mark).map(logarithm));
        if from_zero && !axes.logarithmic {
            y.0 = 0.0;
        }
        Self { x, y, logarithmic: axes.logarithmic }
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let y = if self.logarithmic { y.max(1e-3).log10() } else { y };
        let across = (x - self.x.0) / (self.x.1 - self.x.0);
        let up = (y - self.y.0) / (self.y.1 - self.y.0);
        (LEFT + across * (WIDTH - LEFT - 12.0), HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP))
    }
}

/// The least and the greatest value; never both the same.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    match (low.is_finite(), high > low) {
        (false, _) => (0.0, 1.0),
        (true, false) => (low - 0.5, high + 0.5),
        (true, true) => (low, high),
    }
}

/// Lines over time.
pub(super) fn lines(axes: &Axes, series: &[Series]) -> String {
    let scale = Scale::of(axes, series, true);
    let mut svg = frame(axes, &scale);
    for one in series {
        let every = one.points.len().div_ceil(POINTS).max(1);
        let path: Vec<String> = one
            .points
            .chunks(every)
            .filter_map(|chunk| {
                chunk.iter().copied().filter(|p| p.1.is_finite()).max_by(|a, b| a.1.total_cmp(&b.1))
            })
            .map(|p| scale.place(p))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\" points=\"{}\"/>",
            one.colour,
            path.join(" ")
        );
    }
    svg + "</svg>" + &legend(series)
}

/// Points with their labels beside them.
pub(super) fn points(axes: &Axes, series: &[Series]) -> String {
    let scale = Scale::of(axes, series, false);
    let mut svg = frame(axes, &scale);
    for one in series {
        for (x, y) in one.points.iter().copied().map(|p| scale.place(p)) {
            let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{}\"/>", one.colour);
        }
    }
    svg + "</svg>" + &legend(series)
}

fn frame(axes: &Axes, scale: &Scale) -> String {
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for i in 0..=4 {
        let share = f64::from(i) / 4.0;
        let value = scale.y.0 + share * (scale.y.1 - scale.y.0);
        let shown = if scale.logarithmic { 10_f64.powf(value) } else { value };
        let (_, y) = scale.place((scale.x.0, shown));
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - 12.0,
            LEFT - 6.0,
            y + 4.0,
            short(shown)
        );
        let at = scale.x.0 + share * (scale.x.1 - scale.x.0);
        let (x, _) = scale.place((at, shown));
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 18.0,
            short(at)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text><text x=\"12\" y=\"{}\" transform=\"rotate(-90 12 {})\" text-anchor=\"middle\">{}</text>",
        WIDTH / 2.0,
        HEIGHT - 4.0,
        axes.x,
        HEIGHT / 2.0,
        HEIGHT / 2.0,
        axes.y
    );
    if let Some(mark) = axes.mark {
        let (_, y) = scale.place((scale.x.0, mark));
        let _ = write!(
            svg,
            "<line class=\"mark\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - 12.0
        );
    }
    svg
}

fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 1.0 {
        1
    } else {
        3
    };
    format!("{value:.digits$}")
}

fn legend(series: &[Series]) -> String {
    let entry = |s: &Series| {
        format!("<span><i style=\"background:{}\"></i>{}</span>", s.colour, super::html::escape(&s.label))
    };
    format!("<p class=\"legend\">{}</p>", series.iter().map(entry).collect::<String>())
}
