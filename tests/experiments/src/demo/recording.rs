//! The demo's own recording: the leader's cycles, a timeline of them in the terminal, and their report.

use std::fmt;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::sync::oneshot;
use wva_scaling::Snapshot;
use wva_simulator::report::recording::{Selection, TimelineStyle};

use super::stage::Stage;
use crate::command::{SOON, print_line};

/// Columns of the timeline with its indent; a narrower terminal has fewer.
const COLUMNS: usize = 100;
const INDENT: usize = 4;

/// Recording and report of the demo.
pub(super) struct Recording {
    file: PathBuf,
    page: PathBuf,
}

impl Recording {
    /// An empty recording in a folder.
    pub(super) fn create(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let (file, page) = (folder.join("cycles.jsonl"), folder.join("report.html"));
        // Recordings are appended to; this one begins now.
        std::fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Self { file, page })
    }

    /// Records the controller at this debug address while `work` runs, and returns the result of `work`.
    pub(super) async fn during<T>(
        &self,
        address: &str,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let (end, ended) = oneshot::channel::<()>();
        let work = async {
            let done = work.await;
            drop(end);
            done
        };
        let (done, recorded) = tokio::join!(work, self.record(address, ended));
        let done = done?;
        recorded.context("the demo was not recorded")?;
        Ok(done)
    }

    /// The controller has no cycle to record until its first one.
    async fn record(&self, address: &str, ended: oneshot::Receiver<()>) -> anyhow::Result<u64> {
        let begin = tokio::time::Instant::now();
        let mut ended = pin!(async {
            // The sender is dropped when the work ends.
            let _ = ended.await;
        });
        loop {
            match wva_cli::record_cycles(address, &self.file, &mut ended).await {
                Err(_) if begin.elapsed() < SOON => tokio::time::sleep(Duration::from_millis(500)).await,
                recorded => return recorded,
            }
        }
    }

    /// Prints the timeline, and writes the report. `decision` is a text that the report must have.
    pub(super) fn report(&self, stage: &mut Stage, decision: &str) -> anyhow::Result<()> {
        stage.step("The recording becomes a report", "Since the two variants exist, the demo has recorded the leader's cycles, as `wva explain --record` does. `wva report`\ndraws them.")?;
        let history = wva_cli::read_recording(&self.file, Selection::default())?;
        let html = history.document("demo").html()?;
        std::fs::write(&self.page, &html).with_context(|| format!("cannot write {}", self.page.display()))?;
        Stage::print(&history.timeline(columns(), style()))?;
        let recorded = std::fs::read_to_string(&self.file)?;
        let points = check(&html, &recorded, decision)?;
        let cycles = history.cycles();
        let costs = costs(&recorded).context("the recording has no two cycles")?;
        print_line(&costs.to_string())?;
        print_line(&format!(
            "\n{cycles} cycles were recorded. The report has a point for each cycle of each variant, {points} together."
        ))?;
        print_line(&format!("Open it in a browser: {} ({} KiB)", self.page.display(), html.len() / 1024))
    }
}

fn columns() -> usize {
    wva_cli::terminal_size().map_or(COLUMNS, |size| usize::from(size.columns).clamp(70, COLUMNS)) - INDENT
}

fn style() -> TimelineStyle {
    if wva_cli::use_colours() {
        TimelineStyle::Coloured
    } else if std::io::stdout().is_terminal() {
        TimelineStyle::Blocks
    } else {
        TimelineStyle::Digits
    }
}

/// Checks that each variant of the report has a point and a decision for each of its cycles. Returns the
/// number of all points.
fn check(html: &str, recorded: &str, decision: &str) -> anyhow::Result<usize> {
    let data = html.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let data: Value = serde_json::from_str(data.context("the report has no data")?.0)?;
    let (mut name, mut all, mut is_shown) = ("", 0, false);
    for block in items(&data["blocks"]) {
        if let Some(id) = block["id"].as_str() {
            name = id.rsplit('/').next().unwrap_or_default();
        }
        // Only the charts of a variant have decisions.
        let notes = items(&block["notes"]);
        if notes.is_empty() {
            continue;
        }
        let texts = notes.iter().filter_map(|note| note["text"].as_str());
        is_shown |= texts.into_iter().any(|text| text.contains(decision));
        let wanted = recorded.lines().filter(|line| line.contains(&format!("\"name\":\"{name}\""))).count();
        let drawn = points(block, "three");
        ensure!(drawn == wanted, "{name} has {drawn} points of ready replicas in {wanted} cycles");
        all += drawn;
    }
    ensure!(all > 0, "the report has no variant");
    ensure!(is_shown, "no decision of the report has {decision:?}");
    Ok(all)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Points of all lines of a style; each is two numbers.
fn points(block: &Value, style: &str) -> usize {
    let lines = items(&block["charts"]).iter().flat_map(|chart| items(&chart["lines"]));
    let runs = lines.filter(|line| line["style"] == style).flat_map(|line| items(&line["runs"]));
    runs.map(|run| items(run).len() / 2).sum()
}

/// Cost of what ran, and of a fleet that never changes and is as large as the one at the peak.
struct Costs {
    hours: f64,
    ran: f64,
    fixed: f64,
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hours, ran, fixed } = self;
        write!(
            f,
            "\nIn {:.1} minutes the replicas cost {ran:.2}. A fixed fleet, always as large as at the peak, costs {fixed:.2}: wva saved {:.0} %.",
            hours * 60.0,
            100.0 * (1.0 - ran / fixed)
        )
    }
}

/// The replicas of a cycle last until the next one. `None`: fewer than two cycles.
fn costs(recorded: &str) -> Option<Costs> {
    let cycle = |line: &str| -> Option<(Timestamp, f64)> {
        let Snapshot { now, models, .. } = Snapshot::parse(line).ok()?;
        let variants = models.iter().flat_map(|model| &model.variants);
        let cost = variants.map(|v| v.cost.get() * f64::from(v.current)).sum::<f64>();
        Some((now?.parse().ok()?, cost))
    };
    let cycles: Vec<(Timestamp, f64)> = recorded.lines().filter_map(cycle).collect();
    let hours = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64() / 3600.0;
    let ran = cycles.windows(2).map(|pair| pair[0].1 * hours(pair[0].0, pair[1].0)).sum();
    let peak = cycles.iter().map(|(_, cost)| *cost).fold(0.0, f64::max);
    let hours = hours(cycles.first()?.0, cycles.last()?.0);
    (hours > 0.0).then_some(Costs { hours, ran, fixed: peak * hours })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"name":"a"}"#;

    fn page(points: &str) -> String {
        format!(
            "<script id=\"data\">{{\"blocks\":[{{\"id\":\"demo/a\"}},{{\"notes\":[{{\"text\":\"1 -> 2\\nUp: because\"}}],\
             \"charts\":[{{\"lines\":[{{\"style\":\"three\",\"runs\":[[{points}]]}}]}}]}}]}}</script>"
        )
    }

    #[test]
    fn a_fixed_fleet_is_as_large_as_at_the_peak() -> anyhow::Result<()> {
        let cycle = |minute: u32, replicas: u32| {
            format!(
                "{{\"now\":\"2026-01-01T00:0{minute}:00Z\",\"models\":[{{\"modelID\":\"m\",\"namespace\":\"demo\",\"variants\":[\
                 {{\"name\":\"a\",\"cost\":60.0,\"current\":{replicas}}},{{\"name\":\"b\",\"cost\":60.0,\"current\":1}}]}}]}}\n"
            )
        };
        let recorded: String = [cycle(0, 1), cycle(1, 3), cycle(2, 1)].concat();
        let Costs { hours, ran, fixed } = costs(&recorded).context("two cycles")?;
        assert_eq!((hours * 60.0, ran.round(), fixed.round()), (2.0, 6.0, 8.0));
        assert!(costs("{}").is_none());
        Ok(())
    }

    #[test]
    fn report_needs_a_point_for_each_cycle_and_the_decision() -> anyhow::Result<()> {
        let two = format!("{LINE}\n{LINE}\n");
        assert_eq!(check(&page("1,1,2,2"), &two, "1 -> 2\nUp: ")?, 2);
        assert!(check(&page("1,1"), &two, "1 -> 2\nUp: ").is_err(), "a point is missing");
        assert!(check(&page("1,1,2,2"), &two, "2 -> 3").is_err(), "the decision is missing");
        assert!(check("", &two, "").is_err());
        Ok(())
    }
}
