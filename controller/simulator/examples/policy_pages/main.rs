//! Writes the tables of pages from the results that make keeps, so that no figure is copied by hand. `policies` writes
//! those of docs/development/evidence/policies.md with the plot (`make bench-policies`), `traffic` that of traffic.md next
//! to it (`make bench-traces`), `shares` the plot of conditions.md (`make bench-conditions`), and `hour` the picture of
//! README.md (`make generate`). A table stands between `<!-- table NAME -->` and `<!-- end -->`.

#![expect(clippy::print_stdout, reason = "prints the tables that it writes")]

mod fronts;
mod hour;
mod overview;
mod plot;
mod scale;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use fronts::{Trace, fronts};
use overview::{Column, RATIO, Results, Scenario, attainment, figures, losses, plot};

/// Scenarios older than the throughput analyzer, in the order of the page.
const TRACES: [&str; 8] =
    ["ladder", "prefill-heavy", "ramp", "bursts", "two-classes", "stock-out", "cold-morning", "diurnal-week"];
/// Scenarios that break an assumption of the analyzers about servers or signals.
const ATTACKS: [&str; 17] = [
    "adapters", "attention", "clients", "constant", "crashes", "fast", "long-start", "night", "picker-queue",
    "prefix", "pulses", "roles", "scrapes", "slow", "small-card", "speculation", "uneven",
];

const THROUGHPUT: Column<'static> = Column { policy: "throughput", title: "throughput" };
const COLUMNS: [Column<'static>; 5] = [
    Column { policy: "percentage", title: "percentage" },
    Column { policy: "token", title: "token" },
    THROUGHPUT,
    Column { policy: "HPA on queue and KV", title: "HPA on queue and KV" },
    Column { policy: "KEDA on queue", title: "KEDA on queue" },
];
/// Policies to compare throughput with. The fixed replicas were chosen with knowledge of the trace.
const OTHERS: [Column<'static>; 5] =
    [COLUMNS[0], COLUMNS[1], COLUMNS[3], COLUMNS[4], Column { policy: "fixed", title: "fixed replicas" }];
/// Columns in addition to the first three.
const BEFORE: [Column<'static>; 4] = [
    Column { policy: "percentage, 240 s HPA", title: "percentage, 240 s HPA" },
    Column { policy: "llm-d WVA, 60 s", title: "llm-d WVA, 60 s" },
    Column { policy: "fixed", title: "fixed" },
    Column { policy: "oracle", title: "oracle" },
];
/// Scenarios of recorded traffic, in the order of the page.
const RECORDED: [&str; 8] = [
    "azure-conv", "azure-code", "azure-code-relaxed", "mooncake-conv", "mooncake-synthetic", "servegen-r1",
    "servegen-m-large", "servegen-mm-image",
];
/// Policies that recorded traffic runs under.
const TRAFFIC: [Column<'static>; 11] = [
    Column { policy: "percentage", title: "percentage" },
    Column { policy: "token", title: "token" },
    Column { policy: "throughput", title: "throughput" },
    Column { policy: "throughput, objectives", title: "throughput, objectives" },
    Column { policy: "llm-d WVA, 60 s", title: "llm-d WVA, 60 s" },
    COLUMNS[3],
    Column { policy: "KEDA llm-d queue", title: "KEDA queue" },
    Column { policy: "KEDA llm-d token-aware", title: "KEDA token-aware" },
    Column { policy: "KEDA llm-d slo-aware", title: "KEDA slo-aware" },
    Column { policy: "fixed best", title: "fixed best" },
    BEFORE[3],
];
const FIGURES: [(&str, &str, usize); 8] = [
    ("attainment", "in SLO %", 2),
    ("ttftP99", "TTFT p99 s", 2),
    ("gpuHours", "GPU h", 1),
    ("cost", "cost", 1),
    ("moves", "moves", 0),
    ("flaps", "flaps", 0),
    ("recovery", "recovery s", 0),
    (RATIO, "cost/oracle", 2),
];
/// Letters of the policies in the plot of shares. The last two know the requests in advance.
const LETTERS: [(char, &str); 7] = [
    ('T', "token"),
    ('H', "hpa"),
    ('Q', "queue"),
    ('K', "token-aware"),
    ('S', "slo-aware"),
    ('F', "fixed"),
    ('O', "oracle"),
];
const LEGEND: &str = "wva: objectives, sloTarget 90, 95, 99, 99.9 · T token analyzer · H HPA · KEDA: Q queue, K token-aware, \
     S slo-aware · grey: F best fixed fleet, O oracle";
/// Share of requests that must keep their objectives, percent.
const GOAL: f64 = 99.0;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match arguments.as_slice() {
        [table, results, pages] if table == "policies" => policies(results, pages),
        [table, results, pages] if table == "traffic" => traffic(results, pages),
        [table, results, pages] if table == "shares" => shares(results, pages),
        [picture, pages] if picture == "hour" => draw(&pages.join("hour.svg"), &hour::picture()?),
        _ => Err("give policies, traffic or shares, the folder of the results and that of the pages; or hour and the latter"
            .into()),
    }
}

fn traffic(results: &Path, pages: &Path) -> Result<(), Box<dyn Error>> {
    let recorded = read(results, &RECORDED, "make bench-traces")?;
    let recorded = Vec::from_iter(&recorded);
    let warm = ShareTable::read(&results.join(".."))?.cells("no objectives", "throughput");
    let table =
        with_column(&attainment(&recorded, &TRAFFIC), "throughput, warm", |trace| warm.get(trace).cloned());
    println!("{table}");
    write(&pages.join("traffic.md"), &BTreeMap::from([("traffic", seeds(&recorded) + &table)]))
}

fn policies(folder: &Path, pages: &Path) -> Result<(), Box<dyn Error>> {
    let read = |names| read(folder, names, "make bench-policies");
    let (traces, attacks) = (read(&TRACES)?, read(&ATTACKS)?);
    let (traces, attacks) = (Vec::from_iter(&traces), Vec::from_iter(&attacks));
    let all = [traces.clone(), attacks.clone()].concat();
    let page = BTreeMap::from([
        ("traces", seeds(&traces) + &attainment(&traces, &COLUMNS)),
        ("attacks", seeds(&attacks) + &attainment(&attacks, &COLUMNS)),
        ("losses", losses(&all, THROUGHPUT, &OTHERS)),
        ("ladder", seeds(&traces[..1]) + &figures(traces[0], &FIGURES)),
        ("others", seeds(&traces[1..7]) + &attainment(&traces[1..7], &[&COLUMNS[..3], &BEFORE].concat())),
        ("week", seeds(&traces[7..]) + &figures(traces[7], &FIGURES)),
    ]);
    write(&pages.join("policies.md"), &page)?;
    draw(&pages.join("policy.svg"), &plot(&all, &COLUMNS, GOAL))
}

/// Adds a column to a Markdown table, by the first cell of each row.
fn with_column(table: &str, title: &str, cell: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::new();
    for (n, line) in table.lines().enumerate() {
        let first = line.split('|').nth(1).unwrap_or_default().trim();
        let more = match n {
            0 => format!(" {title} |"),
            1 => "---|".to_owned(),
            _ => format!(" {} |", cell(first).unwrap_or_else(|| "-".to_owned())),
        };
        text.extend([line, &more, "\n"]);
    }
    text
}

/// Plot of the shares to keep.
fn shares(folder: &Path, pages: &Path) -> Result<(), Box<dyn Error>> {
    let table = ShareTable::read(folder)?;
    let mut traces: Vec<Trace> = Vec::new();
    for row in &table.rows {
        let named = |policies: &[(char, &str)]| -> Result<Vec<_>, String> {
            policies.iter().map(|(letter, name)| Ok((*letter, table.point(row, name)?))).collect()
        };
        let title = row["base"].clone();
        if traces.last().is_none_or(|last| last.title != title) {
            let (rivals, hindsight) = (named(&LETTERS[..5])?, named(&LETTERS[5..])?);
            traces.push(Trace { title, rivals, hindsight, wva: Vec::new() });
        }
        // Without objectives, wva plans by another rule: no point of the line.
        if row["condition"] != "no objectives"
            && let Some(trace) = traces.last_mut()
        {
            trace.wva.push(table.point(row, "throughput")?);
        }
    }
    draw(&pages.join("shares.svg"), &fronts(&traces, LEGEND))
}

fn draw(file: &Path, svg: &str) -> Result<(), Box<dyn Error>> {
    fs::write(file, svg)?;
    println!("{} is written", file.display());
    Ok(())
}

/// Table that `conditions` printed for tests/targets.yaml, with fleets that begin warm.
struct ShareTable {
    file: PathBuf,
    /// Cells by their column.
    rows: Vec<BTreeMap<String, String>>,
}

impl ShareTable {
    fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let file = folder.join("targets.md");
        let text = fs::read_to_string(&file)
            .map_err(|e| format!("{}: {e}: `make bench-conditions` makes it", file.display()))?;
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect()
        };
        let mut lines = text.lines().filter(|line| line.starts_with("| "));
        let head = cells(lines.next().ok_or_else(|| format!("{} has no table", file.display()))?);
        let rows = lines.map(|line| head.iter().cloned().zip(cells(line)).collect()).collect();
        Ok(Self { file, rows })
    }

    /// Cells of a policy under a condition, by trace, as the pages show them.
    fn cells(&self, condition: &str, policy: &str) -> BTreeMap<String, String> {
        let rows = self.rows.iter().filter(|row| row["condition"] == condition);
        let cell = |row: &BTreeMap<String, String>| row[policy].replace(" ± 0.0", "").replace("± ", "±");
        rows.map(|row| (row["base"].clone(), cell(row))).collect()
    }

    /// Cost by the oracle's, and attainment in percent.
    fn point(&self, row: &BTreeMap<String, String>, policy: &str) -> Result<(f64, f64), String> {
        let cell = row.get(policy).map(String::as_str).unwrap_or_default();
        let parts = cell.split_once(" ± ").zip(cell.split_once('('));
        let point = parts.and_then(|((kept, _), (_, cost))| {
            Some((cost.trim_end_matches(')').parse().ok()?, kept.parse().ok()?))
        });
        point.ok_or_else(|| format!("{}: {policy}: {cell:?} has no attainment and cost", self.file.display()))
    }
}

fn read(folder: &Path, names: &[&str], maker: &str) -> Result<Vec<Scenario>, Box<dyn Error>> {
    let mut scenarios = Vec::new();
    for name in names {
        let file = folder.join(name).with_extension("json");
        let failed = |e: &dyn Error| format!("{}: {e}: `{maker}` makes it", file.display());
        let text = fs::read_to_string(&file).map_err(|e| failed(&e))?;
        let results: Results = serde_json::from_str(&text).map_err(|e| failed(&e))?;
        scenarios.extend(results.scenarios);
    }
    Ok(scenarios)
}

/// Line with the number of seeds behind a table.
fn seeds(scenarios: &[&Scenario]) -> String {
    let usual = scenarios.iter().map(|s| s.seeds).max().unwrap_or(0);
    let fewer = scenarios.iter().filter(|s| s.seeds < usual);
    let fewer: Vec<String> = fewer.map(|s| format!(", {} {}", s.title, s.seeds)).collect();
    let fewer = fewer.concat();
    format!("{usual} seeds{fewer}; ± is half the 95 % confidence interval of the mean.\n\n")
}

/// Puts each table in its place.
fn write(page: &Path, tables: &BTreeMap<&str, String>) -> Result<(), Box<dyn Error>> {
    let mut text = fs::read_to_string(page)?;
    for (name, table) in tables {
        let begin = format!("<!-- table {name} -->\n");
        let place = text.find(&begin).map(|at| at + begin.len());
        let place = place.and_then(|from| text[from..].find("<!-- end -->").map(|to| from..from + to));
        let place = place.ok_or_else(|| format!("{}: no place for the table {name}", page.display()))?;
        text.replace_range(place, &format!("\n{table}\n"));
    }
    fs::write(page, text)?;
    println!("{} is written", page.display());
    Ok(())
}
