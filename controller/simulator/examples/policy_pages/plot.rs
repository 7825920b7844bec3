//! Plots as SVG: axes and lines.

use std::fmt::Write;

use super::scale::{Scale, label};

/// Pixels around the lines of a plot.
pub(crate) const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 32.0;
const TOP: f64 = 10.0;

/// Text between elements of an SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A plot without its content.
pub(crate) struct Plot<'a> {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Titles of the x and the y axis.
    pub(crate) titles: (&'a str, &'a str),
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    /// Value of a horizontal line to compare with.
    pub(crate) mark: Option<f64>,
}

/// How a line goes from one point to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Straight: the values between two points are between theirs.
    Slopes,
    /// A value holds until the next point, as replicas do.
    Steps,
}

/// A line: its style, and points in order of time.
pub(crate) struct Line<'a> {
    pub(crate) class: &'static str,
    pub(crate) shape: Shape,
    pub(crate) points: &'a [(f64, f64)],
}

impl<'a> Line<'a> {
    pub(crate) fn slopes(class: &'static str, points: &'a [(f64, f64)]) -> Self {
        Self { class, shape: Shape::Slopes, points }
    }

    pub(crate) fn steps(class: &'static str, points: &'a [(f64, f64)]) -> Self {
        Self { class, shape: Shape::Steps, points }
    }
}

impl Plot<'_> {
    pub(crate) fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let across = self.x.share(x) * (self.width - LEFT - RIGHT);
        let up = self.y.share(y) * (self.height - BOTTOM - TOP);
        (LEFT + across, self.height - BOTTOM - up)
    }

    pub(crate) fn polyline(&self, line: &Line<'_>) -> String {
        format!("<polyline class=\"{}\" points=\"{}\"/>", line.class, self.path(line))
    }

    /// One word for each point. That of a step has its corner too, as four numbers.
    fn path(&self, line: &Line<'_>) -> String {
        let mut path = String::new();
        let mut level = None;
        for (x, y) in line.points.iter().map(|point| self.place(point.0, point.1)) {
            if let Some(level) =
                level.filter(|level: &f64| line.shape == Shape::Steps && (level - y).abs() > 0.0)
            {
                let _ = write!(path, "{x:.1},{level:.1},");
            }
            let _ = write!(path, "{x:.1},{y:.1} ");
            level = Some(y);
        }
        path.trim_end().to_owned()
    }

    /// Axes, their titles, and the line to compare with.
    pub(crate) fn frame(&self, svg: &mut String) {
        let (width, height) = (self.width, self.height);
        let (left, right) = (LEFT, width - RIGHT);
        let across = |class: &str, y: f64| {
            format!("<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")
        };
        for value in self.y.ticks() {
            let (_, y) = self.place(0.0, value);
            *svg += &across("grid", y);
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 4.0,
                label(value)
            );
        }
        for value in self.x.ticks() {
            let (x, _) = self.place(value, 0.0);
            let y = height - BOTTOM + 14.0;
            let _ =
                write!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", label(value));
        }
        let middle = (height - BOTTOM) / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text x=\"10\" y=\"{middle}\" transform=\"rotate(-90 10 {middle})\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(left, right),
            height - 4.0,
            escape(self.titles.0),
            escape(self.titles.1)
        );
        if let Some(mark) = self.mark {
            *svg += &across("mark", self.place(0.0, mark).1);
        }
    }
}
