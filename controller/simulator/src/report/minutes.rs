//! Charts over the minutes of a run.

use super::document::{Block, Chart, Charts, Line, Size};
use super::series::thin;
use crate::measure::Minute;

/// Groups of minutes of a line, each drawn by first, last and extremes.
const GROUPS: usize = 400;
/// Minutes of a run that is shown in days.
const LONG: usize = 3000;

/// Time axis of a run.
#[derive(Clone, Copy)]
pub(super) struct MinuteAxis {
    /// Minutes of a unit.
    unit: f64,
    name: &'static str,
    /// In units.
    end: f64,
}

impl MinuteAxis {
    /// Axis of a run of so many minutes at most. A long run is shown in days, in place of the unit of this name.
    /// `unit`: minutes of it.
    pub(super) fn new(minutes: usize, unit: f64, name: &'static str) -> Self {
        let (unit, name) = if minutes > LONG { (1440.0, "days") } else { (unit, name) };
        let last = u32::try_from(minutes.saturating_sub(1)).unwrap_or(u32::MAX);
        Self { unit, name, end: f64::from(last) / unit }
    }

    pub(super) fn block(self, charts: Vec<Chart>) -> Block {
        let (title, end) = (self.name.to_owned(), self.end);
        Block::Charts(Charts { size: Size::Large, title, end, charts, notes: Vec::new() })
    }

    /// A line without a name.
    pub(super) fn line(self, style: &'static str, minutes: &[Minute], value: fn(&Minute) -> f64) -> Line {
        let points = (0_u32..).zip(minutes).map(|(i, minute)| (f64::from(i) / self.unit, value(minute)));
        Line { name: "", style, runs: vec![thin(points, GROUPS)] }
    }
}

pub(super) fn arrived(minute: &Minute) -> f64 {
    f64::from(minute.arrived) / 60.0
}
