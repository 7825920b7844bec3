//! Scrapes of pods, reduced to cells of their models. Between two scrapes of a pod, the requests that finished and the
//! change of those that it has are the requests that arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::WINDOW;
use super::delta::{Delta, Scrape};
use super::history::{Cell, EngineFacts, ModelKey};
use super::plan::Span;
use super::signals::Counter;
use super::steps::{MOST_POINTS, Point};

/// A series of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesId {
    /// The model.
    pub key: ModelKey,
    /// Name of the pod, or what tells the servers apart.
    pub pod: String,
    /// Counter or gauge.
    pub counter: Counter,
    /// Other labels that tell the parts of a pod's counter apart: engine, reason.
    pub part: String,
}

/// Scrapes of the pods of all models within a span.
#[derive(Clone, Debug, Default)]
pub struct Scrapes {
    /// Scrapes by pod: time in milliseconds, and values by counter.
    pods: BTreeMap<(ModelKey, String), BTreeMap<i64, Scrape>>,
    known: BTreeSet<SeriesId>,
    /// Series that another scrape job also has.
    duplicates: u64,
    samples: u64,
}

/// What the scrapes of a model say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reduced {
    /// Cells of the grid.
    pub cells: Vec<Cell>,
    /// Facts of the engines.
    pub engine: EngineFacts,
    /// Sum of the times between tokens in each window, seconds.
    pub gap_seconds: Vec<f32>,
    /// Number of these times in each window.
    pub gaps: Vec<f32>,
    /// Steps of the engines.
    pub points: Vec<Point>,
}

/// How scrapes become cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Span of the cells.
    pub span: Span,
    /// Length of a cell, seconds.
    pub step: u32,
    /// Usual scrape interval, seconds.
    pub interval: f64,
}

impl Scrapes {
    /// Adds the samples of a series: seconds since the epoch, and value. The series of a second scrape job are left out.
    pub fn add(&mut self, id: SeriesId, samples: impl IntoIterator<Item = (f64, f64)>) {
        if self.known.contains(&id) {
            self.duplicates += 1;
            return;
        }
        let scrapes = self.pods.entry((id.key.clone(), id.pod.clone())).or_default();
        let counter = id.counter;
        self.known.insert(id);
        for (at, value) in samples.into_iter().filter(|(_, value)| value.is_finite()) {
            self.samples += 1;
            #[expect(clippy::cast_possible_truncation, reason = "times of this century in milliseconds")]
            let scrape = scrapes.entry((at * 1000.0).round() as i64).or_default();
            scrape.values[counter as usize] += value;
            scrape.present |= 1 << counter as u16;
        }
    }

    /// Samples that were added.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Series that another scrape job also has.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Model, pod and time of the first scrape of each pod, seconds since the epoch.
    pub fn first_scrapes(&self) -> impl Iterator<Item = (&ModelKey, &str, f64)> {
        self.pods.iter().filter_map(|((key, pod), scrapes)| {
            scrapes.first_key_value().map(|(at, _)| (key, pod.as_str(), seconds_of(*at)))
        })
    }

    /// What the scrapes say of each model.
    #[must_use]
    pub fn reduce(&self, grid: Grid) -> BTreeMap<ModelKey, Reduced> {
        let mut models: BTreeMap<ModelKey, Reduced> = BTreeMap::new();
        // Scrapes of any pod: between two of them Prometheus was there.
        let all: BTreeSet<i64> = self.pods.values().flat_map(|scrapes| scrapes.keys().copied()).collect();
        for ((key, _), scrapes) in &self.pods {
            let model = models.entry(key.clone()).or_insert_with(|| Reduced::new(grid));
            let scrapes: Vec<(f64, Scrape)> = scrapes
                .iter()
                .filter(|(_, scrape)| scrape.has(Counter::Running) || scrape.has(Counter::Waiting))
                .map(|(at, scrape)| (seconds_of(*at), *scrape))
                .collect();
            for (_, scrape) in &scrapes {
                observe(&mut model.engine, scrape);
            }
            if let Some(first) = new_pod(&scrapes, &all, grid) {
                model.add(grid, first, &Delta::since_start(&scrapes[0].1));
            }
            if let Some((last, delta)) = gone_pod(&scrapes, &all, grid) {
                model.add(grid, last, &delta);
            }
            for pair in scrapes.windows(2) {
                let [(from, before), (to, after)] = pair else { continue };
                let times = *from..*to;
                if to - from > 2.5 * grid.interval + 1.0 {
                    spread(grid, grid.step, &times, |cell, share, _| model.cells[cell].missing += share);
                } else {
                    let delta = Delta::new(before, after);
                    model.points.extend(delta.point(to - from));
                    model.add(grid, times, &delta);
                }
            }
        }
        models.values_mut().for_each(Reduced::thin);
        models
    }
}

impl Reduced {
    fn new(grid: Grid) -> Self {
        let seconds = usize::try_from(grid.span.seconds()).unwrap_or(0);
        let cells = vec![Cell::default(); seconds / grid.step.max(1) as usize];
        let windows = vec![0.0; seconds / WINDOW as usize];
        Self { cells, gap_seconds: windows.clone(), gaps: windows, ..Self::default() }
    }

    /// Adds the work between two scrapes to the cells and windows in proportion to the time in each.
    fn add(&mut self, grid: Grid, times: Range<f64>, delta: &Delta) {
        spread(grid, grid.step, &times, |i, covered, share| {
            let cell = &mut self.cells[i];
            let part = |value: f64| to_f32(value * f64::from(share));
            cell.arrivals += part(delta.arrivals);
            cell.first_tokens += part(delta.first_tokens);
            cell.first_token_seconds += part(delta.first_token_seconds);
            cell.prompt_tokens += part(delta.prompt_tokens);
            cell.generated += part(delta.generated);
            cell.replicas += covered;
        });
        spread(grid, WINDOW, &times, |i, _, share| {
            if let Some((seconds, gaps)) = self.gap_seconds.get_mut(i).zip(self.gaps.get_mut(i)) {
                *seconds += to_f32(delta.gap_seconds * f64::from(share));
                *gaps += to_f32(delta.gaps * f64::from(share));
            }
        });
    }

    /// Keeps some of the points, evenly over the pods and the time.
    fn thin(&mut self) {
        let every = self.points.len().div_ceil(MOST_POINTS).max(1);
        self.points = self.points.iter().step_by(every).copied().collect();
    }
}

/// The time before the first scrape of a pod that was not there before, although Prometheus was.
fn new_pod(scrapes: &[(f64, Scrape)], all: &BTreeSet<i64>, grid: Grid) -> Option<Range<f64>> {
    let (first, _) = scrapes.first()?;
    let before = first - grid.interval;
    let was_there = is_any_between(all, before - grid.interval, before);
    was_there.then(|| first - grid.interval / 2.0..*first)
}

/// The time after the last scrape of a pod that is gone, although Prometheus is still there, and what it did then, as in
/// the interval before. The pod left at any time before the next scrape: half an interval is the mean.
fn gone_pod(scrapes: &[(f64, Scrape)], all: &BTreeSet<i64>, grid: Grid) -> Option<(Range<f64>, Delta)> {
    let [.., (from, before), (to, last)] = scrapes else { return None };
    let after = to + grid.interval;
    if to - from > 1.5 * grid.interval || !is_any_between(all, after, after + grid.interval) {
        return None;
    }
    Some((*to..to + grid.interval / 2.0, Delta::new(before, last).halved()))
}

/// Whether there is a scrape of any pod between two times.
fn is_any_between(all: &BTreeSet<i64>, from: f64, to: f64) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "times of this century in milliseconds")]
    let [from, to] = [from, to].map(|at| (at * 1000.0) as i64);
    all.range(from..to).next().is_some()
}

fn observe(facts: &mut EngineFacts, scrape: &Scrape) {
    let running = scrape.get(Counter::Running);
    facts.most_running = facts.most_running.max(running);
    if scrape.get(Counter::Waiting) >= 1.0 {
        let met =
            EngineFacts { most_running_while_waiting: running, ceiling_scrapes: 1, ..EngineFacts::default() };
        *facts = facts.merged(met);
    }
}

/// Calls for each cell of `step` seconds that overlaps a time: its index, the covered share of the cell, and the share of
/// the time.
fn spread(grid: Grid, step: u32, times: &Range<f64>, mut each: impl FnMut(usize, f32, f32)) {
    let (start, step) = (seconds_since(grid.span.from), f64::from(step));
    let end = seconds_since(grid.span.to);
    let (first, last) = (times.start.max(start), times.end.min(end));
    if last <= first {
        return;
    }
    let length = times.end - times.start;
    let mut at = first;
    while at < last {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the span")]
        let cell = ((at - start) / step + 1e-9) as usize;
        let until = (start + step * (crate::fleet::engine::to_f64(cell as u64) + 1.0)).min(last);
        if until >= end + 1e-9 || until <= at {
            break;
        }
        each(cell, to_f32((until - at) / step), to_f32((until - at) / length));
        at = until;
    }
}

fn seconds_of(milliseconds: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "times of this century in milliseconds")]
    let milliseconds = milliseconds as f64;
    milliseconds / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "times of this century in seconds")]
fn seconds_since(epoch: i64) -> f64 {
    epoch as f64
}

#[expect(clippy::cast_possible_truncation, reason = "counts of a cell need no more")]
fn to_f32(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ModelKey {
        ModelKey { namespace: "a".to_owned(), model: "m".to_owned() }
    }

    fn scrapes(pod: &str, rows: &[(f64, f64, f64, f64)]) -> Scrapes {
        let mut all = Scrapes::default();
        push(&mut all, pod, rows);
        all
    }

    /// Time, finished, running, waiting.
    fn push(all: &mut Scrapes, pod: &str, rows: &[(f64, f64, f64, f64)]) {
        let id = |counter| SeriesId { key: key(), pod: pod.to_owned(), counter, part: String::new() };
        all.add(id(Counter::Finished), rows.iter().map(|r| (r.0, r.1)));
        all.add(id(Counter::Running), rows.iter().map(|r| (r.0, r.2)));
        all.add(id(Counter::Waiting), rows.iter().map(|r| (r.0, r.3)));
    }

    fn grid(from: i64, to: i64) -> Grid {
        Grid { span: Span { from, to }, step: 15, interval: 15.0 }
    }

    fn cells(all: &Scrapes, grid: Grid) -> Vec<Cell> {
        all.reduce(grid).remove(&key()).unwrap().cells
    }

    fn arrivals(cells: &[Cell]) -> Vec<f32> {
        cells.iter().map(|c| (c.arrivals * 100.0).round() / 100.0).collect()
    }

    #[test]
    fn arrivals_are_finished_requests_and_the_change_in_flight() {
        let all = scrapes("p", &[(0.0, 5.0, 2.0, 0.0), (15.0, 6.0, 3.0, 1.0), (30.0, 10.0, 0.0, 0.0)]);
        let cells = cells(&all, grid(0, 30));
        assert_eq!(arrivals(&cells), [3.0, 0.0]);
        assert!((cells[0].replicas - 1.0).abs() < 1e-6, "{cells:?}");
    }

    #[test]
    fn a_restart_counts_from_zero() {
        let all = scrapes("p", &[(0.0, 50.0, 2.0, 0.0), (15.0, 3.0, 1.0, 0.0)]);
        assert_eq!(arrivals(&cells(&all, grid(0, 15))), [4.0]);
    }

    #[test]
    fn work_between_scrapes_is_shared_by_time() {
        let all = scrapes("p", &[(10.0, 0.0, 0.0, 0.0), (25.0, 3.0, 0.0, 0.0)]);
        assert_eq!(arrivals(&cells(&all, grid(0, 30))), [1.0, 2.0]);
    }

    #[test]
    fn a_gap_is_missing_and_no_load() {
        let all = scrapes("p", &[(0.0, 0.0, 0.0, 0.0), (60.0, 30.0, 0.0, 0.0)]);
        let cells = cells(&all, grid(0, 60));
        assert_eq!(arrivals(&cells), [0.0; 4]);
        assert!(cells.iter().all(|c| (c.missing - 1.0).abs() < 1e-6 && c.replicas == 0.0), "{cells:?}");
    }

    /// The pod is gone some time before its next scrape: half an interval of its requests and of its time on average.
    #[test]
    fn a_pod_that_is_gone_served_for_half_an_interval_more() {
        let mut all = scrapes("gone", &[(0.0, 0.0, 0.0, 0.0), (15.0, 6.0, 2.0, 0.0)]);
        assert_eq!(arrivals(&cells(&all, grid(0, 60))), [8.0, 0.0, 0.0, 0.0], "Prometheus may be gone, too");
        let calm = [0.0, 15.0, 30.0, 45.0].map(|at| (at, 0.0, 0.0, 0.0));
        push(&mut all, "stays", &calm);
        let cells = cells(&all, grid(0, 60));
        assert_eq!(arrivals(&cells), [8.0, 4.0, 0.0, 0.0]);
        assert!((cells[1].replicas - 1.5).abs() < 1e-6, "{cells:?}");
    }

    #[test]
    fn steps_of_a_pod_are_points_and_windows() {
        let mut all = scrapes("p", &[(0.0, 0.0, 2.0, 0.0), (15.0, 6.0, 2.0, 0.0)]);
        let id = |counter| SeriesId { key: key(), pod: "p".to_owned(), counter, part: String::new() };
        all.add(id(Counter::GapSeconds), [(0.0, 5.0), (15.0, 35.0)]);
        all.add(id(Counter::Gaps), [(0.0, 100.0), (15.0, 1600.0)]);
        all.add(id(Counter::PromptTokens), [(0.0, 0.0), (15.0, 700.0)]);
        let reduced = all.reduce(grid(0, 300)).remove(&key()).unwrap();
        let point = Point { gap: 0.02, sequences: 2.0, prompt_tokens: 700.0, gaps: 1500.0 };
        assert_eq!(reduced.points, [point]);
        assert_eq!((&*reduced.gap_seconds, &*reduced.gaps), (&[30.0][..], &[1500.0][..]));
    }

    #[test]
    fn a_new_pod_counts_from_its_start_and_a_second_job_does_not() {
        let mut all = scrapes("old", &[(0.0, 0.0, 0.0, 0.0), (15.0, 0.0, 0.0, 0.0), (30.0, 0.0, 0.0, 0.0)]);
        push(&mut all, "new", &[(30.0, 1.0, 2.0, 0.0)]);
        push(&mut all, "new", &[(30.0, 1.0, 2.0, 0.0)]);
        assert_eq!(all.duplicates(), 3);
        assert_eq!(arrivals(&cells(&all, grid(0, 30))), [0.0, 3.0]);
    }
}
