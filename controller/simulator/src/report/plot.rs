//! Plots as SVG: lines over time, and named points.

use std::fmt::Write;

use super::page::escape;
use super::scale::{Scale, label};

/// Margins, for scripts that find a value at a place.
pub(super) const LEFT: f64 = 52.0;
pub(super) const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 32.0;
const TOP: f64 = 10.0;
/// Pixels.
const LINE: f64 = 13.0;
/// Pixels.
const LETTER: f64 = 6.2;

/// A plot without its content.
pub(super) struct Plot<'a> {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Titles of the x and the y axis.
    pub(super) titles: (&'a str, &'a str),
    pub(super) x: Scale,
    pub(super) y: Scale,
    /// Value of a horizontal line to compare with.
    pub(super) mark: Option<f64>,
}

/// How a line goes from one point to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Straight: the values between two points are between theirs.
    Slopes,
    /// A value holds until the next point, as replicas do.
    Steps,
}

/// A line: its style, and points in order of time.
pub(super) struct Line<'a> {
    pub(super) class: &'static str,
    pub(super) shape: Shape,
    pub(super) points: &'a [(f64, f64)],
}

impl<'a> Line<'a> {
    pub(super) fn slopes(class: &'static str, points: &'a [(f64, f64)]) -> Self {
        Self { class, shape: Shape::Slopes, points }
    }

    pub(super) fn steps(class: &'static str, points: &'a [(f64, f64)]) -> Self {
        Self { class, shape: Shape::Steps, points }
    }
}

/// A point with its name.
pub(super) struct NamedPoint {
    pub(super) name: String,
    pub(super) at: (f64, f64),
    /// Ranges of x and y, if they are known.
    pub(super) ranges: Option<[(f64, f64); 2]>,
    /// The point is filled. False: it is hollow.
    pub(super) is_certain: bool,
}

impl Plot<'_> {
    pub(super) fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let across = self.x.share(x) * (self.width - LEFT - RIGHT);
        let up = self.y.share(y) * (self.height - BOTTOM - TOP);
        (LEFT + across, self.height - BOTTOM - up)
    }

    /// Lines over time, and elements above them.
    pub(super) fn lines(&self, lines: &[Line<'_>], marks: &str) -> String {
        let mut svg = self.open();
        self.frame(&mut svg);
        for line in lines {
            svg += &self.polyline(line);
        }
        svg + marks + "</svg>"
    }

    pub(super) fn polyline(&self, line: &Line<'_>) -> String {
        format!("<polyline class=\"{}\" points=\"{}\"/>", line.class, self.path(line))
    }

    /// One word for each point. That of a step has its corner too, as four numbers.
    fn path(&self, line: &Line<'_>) -> String {
        let mut path = String::new();
        let mut level = None;
        for (x, y) in line.points.iter().map(|point| self.place(*point)) {
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

    /// Points with their names, and the ranges that they are in.
    pub(super) fn points(&self, named: &[NamedPoint]) -> String {
        let mut svg = self.open();
        self.frame(&mut svg);
        let finite = || named.iter().filter(|own| own.at.0.is_finite() && own.at.1.is_finite());
        let mut places: Vec<(&NamedPoint, (f64, f64))> =
            finite().map(|own| (own, self.place(own.at))).collect();
        for (own, at) in &places {
            svg += &own.ranges.map_or_else(String::new, |ranges| self.cross(*at, ranges));
        }
        places.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let mut taken: Vec<(f64, f64, f64)> = Vec::new();
        for (NamedPoint { name, is_certain, .. }, (x, y)) in places {
            let (from, to, anchor) = self.label_extent(name, x);
            let mut line = y + 4.0;
            // A name that would overlap another moves below it.
            while taken.iter().any(|(f, t, at)| from < *t && *f < to && (line - at).abs() < LINE) {
                line += 1.0;
            }
            taken.push((from, to, line));
            let at = if anchor == "start" { from } else { to };
            let class = if *is_certain { "one" } else { "step" };
            let _ = write!(
                svg,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\
                 <text x=\"{at:.1}\" y=\"{line:.1}\" text-anchor=\"{anchor}\">{}</text>",
                escape(name)
            );
        }
        svg + "</svg>"
    }

    /// Lines over the ranges of a point. `at`: its place.
    fn cross(&self, at: (f64, f64), ranges: [(f64, f64); 2]) -> String {
        let [x, y] = ranges;
        let ((x1, y1), (x2, y2)) = (self.place((x.0, y.0)), self.place((x.1, y.1)));
        format!(
            "<path class=\"plan\" fill=\"none\" d=\"M{x1:.1} {1:.1}H{x2:.1}M{0:.1} {y1:.1}V{y2:.1}\"/>",
            at.0, at.1
        )
    }

    /// The label is to the right of the point, or to the left if the right lacks room.
    fn label_extent(&self, name: &str, x: f64) -> (f64, f64, &'static str) {
        let width = name.chars().map(|_| LETTER).sum::<f64>();
        if x + 8.0 + width < self.width {
            (x + 8.0, x + 8.0 + width, "start")
        } else {
            (x - 8.0 - width, x - 8.0, "end")
        }
    }

    fn open(&self) -> String {
        let (width, height) = (self.width, self.height);
        let name = escape(self.titles.1);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" style=\"max-width:{width}px\" role=\"img\" aria-label=\"{name}\">"
        )
    }

    /// Axes, their titles, and the line to compare with.
    pub(super) fn frame(&self, svg: &mut String) {
        let (width, height) = (self.width, self.height);
        let (left, right) = (LEFT, width - RIGHT);
        let across = |class: &str, y: f64| {
            format!("<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")
        };
        for value in self.y.ticks() {
            let (_, y) = self.place((0.0, value));
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
            let (x, _) = self.place((value, 0.0));
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
            *svg += &across("mark", self.place((0.0, mark)).1);
        }
    }
}
