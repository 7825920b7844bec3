//! What the page of a report shows, as data. `page.js` draws it: headings, text, tables and charts, one below the other.

use serde::{Serialize, Serializer};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Title of the page.
    pub title: String,
    /// From top to bottom.
    pub blocks: Vec<Block>,
}

/// A part of a report. Texts are plain: none is read as HTML.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Block {
    /// Begins a section.
    Heading(Heading),
    /// A paragraph.
    Text {
        /// Sentences of the paragraph.
        text: String,
        /// The paragraph is emphasized.
        warns: bool,
    },
    /// A list of sentences.
    List {
        /// One for each item.
        items: Vec<String>,
    },
    /// Terms and what they mean.
    Terms {
        /// Term and meaning.
        terms: Vec<(String, String)>,
    },
    /// Titles and rows.
    Table(Table),
    /// Lines over one time axis, side by side.
    Charts(Charts),
    /// Named points in a plane.
    Points(Points),
}

/// Begins a section.
#[derive(Clone, Debug, Serialize)]
pub struct Heading {
    /// Level of the heading, 2 to 4.
    pub level: u8,
    /// Text of the heading.
    pub text: String,
    /// Facts after the text.
    pub aside: String,
    /// Target of a link in a table.
    pub id: Option<String>,
}

/// Titles and rows. In a cell, lines after the first are in small letters.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    /// First the titles.
    pub rows: Vec<Vec<String>>,
    /// Column of sentences, which take as many lines as they need.
    pub sentences: Option<usize>,
    /// The first cell of a row links to the heading with this id.
    pub has_links: bool,
}

/// Size of the charts of a block.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Size {
    /// Up to four side by side.
    Small,
    /// Two side by side.
    Large,
}

/// Charts over the same time.
#[derive(Clone, Debug, Serialize)]
pub struct Charts {
    /// Size of each chart.
    pub size: Size,
    /// Title of the time axis.
    pub title: String,
    /// Right end of the time axis, which begins at 0.
    pub end: f64,
    /// From left to right.
    pub charts: Vec<Chart>,
    /// Decisions in order of time. The chart that points at them shows their text.
    pub notes: Vec<Note>,
}

/// Lines with one axis.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Title of the y axis.
    pub title: String,
    /// The y axis.
    pub axis: Axis,
    /// A value holds until the next point, as replicas do.
    pub steps: bool,
    /// From the back to the front.
    pub lines: Vec<Line>,
}

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Scale {
    /// From 0.
    Zero,
    /// From 0. The logarithm of 1 + value if a few values are far above the others.
    Outliers,
    /// From the lowest value to 100 at most.
    Percent,
    /// Values by their logarithm.
    Logarithmic,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// How values are placed.
    pub scale: Scale,
    /// Values that the axis has in addition to those of its lines or points.
    pub values: Vec<f64>,
    /// Value of a horizontal line to compare with.
    pub mark: Option<f64>,
}

/// Values over time.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Name in the legend. Empty: none.
    pub name: &'static str,
    /// Class of the style.
    pub style: &'static str,
    /// Parts without a gap.
    #[serde(serialize_with = "flatten_runs")]
    pub runs: Vec<Vec<(f64, f64)>>,
}

/// A decision.
#[derive(Clone, Debug, Serialize)]
pub struct Note {
    /// Place on the time axis.
    #[serde(serialize_with = "shorten")]
    pub at: f64,
    /// The decision with its sentence.
    pub text: String,
    /// A new target, which the first chart marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
}

/// Named points in a plane: cost across, attainment up.
#[derive(Clone, Debug, Serialize)]
pub struct Points {
    /// The axis of attainment.
    pub axis: Axis,
    /// In any order.
    pub points: Vec<NamedPoint>,
}

/// A point with its name.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedPoint {
    /// Name of the point.
    pub name: String,
    /// Cost and attainment. A point with an unknown figure is not drawn.
    pub at: (f64, f64),
    /// Ranges of cost and attainment, if they are known.
    pub ranges: Option<[(f64, f64); 2]>,
    /// The point is filled. False: it is hollow.
    pub is_certain: bool,
}

impl Block {
    /// A heading without aside and id.
    pub(super) fn heading(level: u8, text: impl Into<String>) -> Self {
        Self::aside(level, text, "")
    }

    /// A heading with facts after its text.
    pub(super) fn aside(level: u8, text: impl Into<String>, aside: impl Into<String>) -> Self {
        Self::Heading(Heading { level, text: text.into(), aside: aside.into(), id: None })
    }

    /// A paragraph.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), warns: false }
    }
}

impl Chart {
    pub(super) fn new(title: &str, axis: Axis, steps: bool, lines: impl Into<Vec<Line>>) -> Self {
        Self { title: title.to_owned(), axis, steps, lines: lines.into() }
    }
}

impl Axis {
    /// An axis of its lines only.
    pub(super) fn new(scale: Scale) -> Self {
        Self { scale, values: Vec::new(), mark: None }
    }

    /// An axis that has these values, too.
    pub(super) fn with(scale: Scale, values: impl Into<Vec<f64>>) -> Self {
        Self { values: values.into(), ..Self::new(scale) }
    }

    /// An axis of replicas or requests. A lower one would have ticks between whole numbers.
    pub(super) fn counts() -> Self {
        Self::with(Scale::Outliers, [4.0])
    }
}

impl Document {
    /// One page that loads nothing else.
    ///
    /// # Errors
    /// A text cannot be written as JSON; no text of Rust is such a text.
    pub fn html(&self) -> serde_json::Result<String> {
        // No text of a report ends the element.
        let data = serde_json::to_string(self)?.replace('<', "\\u003c");
        // The data comes last, so that nothing in it is replaced.
        Ok(PAGE.replace("{{style}}", STYLE).replace("{{script}}", SCRIPT).replace("{{data}}", &data))
    }
}

/// Seven digits: more than a pixel shows.
#[expect(clippy::cast_possible_truncation, reason = "a place on a chart")]
fn short(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn shorten<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f32(short(*value))
}

/// Time and value alternate, which is half as long as a list of pairs.
fn flatten_runs<S: Serializer>(runs: &[Vec<(f64, f64)>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        runs.iter()
            .map(|run| run.iter().flat_map(|(at, value)| [short(*at), short(*value)]).collect::<Vec<f32>>()),
    )
}
