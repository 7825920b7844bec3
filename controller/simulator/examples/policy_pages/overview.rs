//! Overview of many scenarios for the pages in docs/, from `wva simulate -o json`: Markdown tables and one plot
//! for light and dark pages.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::plot::{Plot, escape};
use super::scale::Scale;

/// A file of results.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Results {
    /// Scenarios of the file.
    pub(crate) scenarios: Vec<Scenario>,
}

/// Results of a scenario.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Scenario {
    /// Its title.
    pub(crate) title: String,
    /// Seeds that each policy ran on.
    pub(crate) seeds: u64,
    policies: Vec<Policy>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    name: String,
    figures: BTreeMap<String, Figure>,
    best_size: Option<u32>,
    cost_by_oracle: Option<Figure>,
}

/// A mean with its interval; the values are absent if unknown.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Figure {
    mean: Option<f64>,
    from: Option<f64>,
    to: Option<f64>,
}

/// A policy and its title in tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    /// Name in scenarios.
    pub(crate) policy: &'a str,
    /// Title in tables.
    pub(crate) title: &'a str,
}

/// Key of the ratio among the figures of a table.
pub(crate) const RATIO: &str = "costByOracle";

impl Scenario {
    fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|p| p.name == name)
    }

    fn figure(&self, policy: &str, key: &str) -> Figure {
        let policy = self.policy(policy);
        let found =
            policy.and_then(|p| if key == RATIO { p.cost_by_oracle } else { p.figures.get(key).copied() });
        found.unwrap_or_default()
    }

    /// Cost relative to the oracle's, and attainment in percent.
    fn point(&self, policy: &str) -> Option<(f64, f64)> {
        Some((self.figure(policy, RATIO).mean?, self.figure(policy, "attainment").mean?))
    }
}

impl Figure {
    fn text(self, digits: usize) -> String {
        let Some(mean) = self.mean else { return "-".to_owned() };
        let half = (self.to.unwrap_or(mean) - self.from.unwrap_or(mean)) / 2.0;
        // An interval that rounds to zero is left out.
        let shown = format!("{half:.digits$}");
        if shown.chars().all(|c| matches!(c, '0' | '.')) {
            format!("{mean:.digits$}")
        } else {
            format!("{mean:.digits$} ±{shown}")
        }
    }
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    cells.into_iter().fold("|".to_owned(), |row, cell| row + " " + &cell + " |") + "\n"
}

fn header(titles: &[String]) -> String {
    row(titles.iter().cloned()) + "|" + &"---|".repeat(titles.len()) + "\n"
}

/// Requests in SLO in percent, and the cost relative to the oracle's in brackets. The highest share is in bold. A size
/// chosen in hindsight precedes it.
pub(crate) fn attainment(scenarios: &[&Scenario], columns: &[Column<'_>]) -> String {
    let titles = std::iter::once("trace").chain(columns.iter().map(|c| c.title)).map(str::to_owned);
    let mut table = header(&titles.collect::<Vec<_>>());
    for scenario in scenarios {
        let kept = |c: &Column<'_>| scenario.figure(c.policy, "attainment");
        let most = columns.iter().filter_map(|c| kept(c).mean).fold(f64::NEG_INFINITY, f64::max);
        let cell = |c: &Column<'_>| {
            let Some((ratio, mean)) = scenario.point(c.policy) else { return "-".to_owned() };
            let shown = kept(c).text(1);
            // Values that look equal in the table count as equal.
            let shown = if most - mean < 0.05 { format!("**{shown}**") } else { shown };
            let size = scenario.policy(c.policy).and_then(|p| p.best_size);
            let size = size.map_or_else(String::new, |size| format!("{size}: "));
            format!("{size}{shown} ({ratio:.2})")
        };
        table += &row(std::iter::once(scenario.title.clone()).chain(columns.iter().map(cell)));
    }
    table
}

/// A row for each policy, in the order of the file.
pub(crate) fn figures(scenario: &Scenario, columns: &[(&str, &str, usize)]) -> String {
    let titles =
        std::iter::once("policy").chain(columns.iter().map(|(_, title, _)| *title)).map(str::to_owned);
    let mut table = header(&titles.collect::<Vec<_>>());
    for policy in &scenario.policies {
        let cells = columns.iter().map(|(key, _, digits)| scenario.figure(&policy.name, key).text(*digits));
        table += &row(std::iter::once(policy.name.clone()).chain(cells));
    }
    table
}

/// `policy` keeps over 3 points less, or costs over 15 % more.
pub(crate) fn losses(scenarios: &[&Scenario], policy: Column<'_>, others: &[Column<'_>]) -> String {
    let titles = ["trace", "against", "in SLO %: its, the other's", "cost: its by the other's"];
    let mut table = header(&titles.map(str::to_owned));
    for scenario in scenarios {
        for other in others {
            let figure = |policy: &str, key| scenario.figure(policy, key).mean;
            let both = |key| figure(policy.policy, key).zip(figure(other.policy, key));
            let (Some(kept), Some(cost)) = (both("attainment"), both("cost")) else { continue };
            if kept.1 - kept.0 > 3.0 || cost.0 > 1.15 * cost.1 {
                table += &row([
                    scenario.title.clone(),
                    other.title.to_owned(),
                    format!("{:.1}, {:.1}", kept.0, kept.1),
                    format!("{:.2}", cost.0 / cost.1),
                ]);
            }
        }
    }
    table
}

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#222}.back{fill:#fff}.grid{stroke:#e4e4e4}\
.mark{stroke:#c00;stroke-dasharray:5 4}.s{stroke:#fff;stroke-width:.7;fill-opacity:.85}\
.s0{fill:#e69f00}.s1{fill:#56b4e9}.s2{fill:#0072b2}.s3{fill:#cc79a7}.s4{fill:#7a7a7a}\
@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.back{fill:#161b22}.grid{stroke:#30363d}.s{stroke:#161b22}\
.mark{stroke:#ff7b72}.s0{fill:#f0b429}.s1{fill:#79c8f5}.s2{fill:#4a9ff5}.s3{fill:#e29cc3}.s4{fill:#a8a8a8}}";

/// Pixels, above the plot and to either side.
const LEGEND: f64 = 34.0;
const MARGIN: f64 = 8.0;

/// A point for each scenario, a shape and a colour for each policy. At most five policies.
pub(crate) fn plot(scenarios: &[&Scenario], columns: &[Column<'_>], goal: f64) -> String {
    let points: Vec<(usize, &str, (f64, f64))> = columns
        .iter()
        .enumerate()
        .flat_map(|(i, c)| {
            scenarios.iter().filter_map(move |s| Some((i, s.title.as_str(), s.point(c.policy)?)))
        })
        .collect();
    let plot = Plot {
        width: 900.0,
        height: 620.0,
        titles: ("cost relative to the oracle", "% of requests in SLO"),
        x: Scale::linear(points.iter().map(|p| p.2.0)),
        y: Scale::linear(points.iter().map(|p| p.2.1).chain([goal, 100.0])),
        mark: Some(goal),
    };
    let (width, height) = (plot.width + 2.0 * MARGIN, plot.height + LEGEND + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\"><title>Attainment against cost</title><style>{STYLE}</style>\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>"
    );
    let each = width / f64::from(u16::try_from(columns.len().max(1)).unwrap_or(u16::MAX));
    for ((i, column), n) in columns.iter().enumerate().zip(0_u16..) {
        let x = each * f64::from(n) + 24.0;
        svg += &shape(i, (x, 20.0));
        let _ = write!(svg, "<text x=\"{}\" y=\"24\">{}</text>", x + 12.0, escape(column.title));
    }
    let _ = write!(svg, "<g transform=\"translate({MARGIN} {LEGEND})\">");
    plot.frame(&mut svg);
    for (i, title, at) in points {
        let _ = write!(svg, "<g><title>{}: {}</title>", escape(columns[i].title), escape(title));
        svg += &shape(i, plot.place(at.0, at.1));
        svg += "</g>";
    }
    svg + "</g></svg>\n"
}

/// Shapes differ as well as colours.
fn shape(policy: usize, (x, y): (f64, f64)) -> String {
    let path = match policy {
        0 => "M-5-5H5V5H-5Z",
        1 => "M0-6.5L6 5H-6Z",
        2 => "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0Z",
        3 => "M0-6.5L6.5 0L0 6.5L-6.5 0Z",
        _ => "M-6-2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z",
    };
    format!("<path class=\"s s{policy}\" transform=\"translate({x:.1} {y:.1})\" d=\"{path}\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<'static>; 2] =
        [Column { policy: "a", title: "first" }, Column { policy: "b", title: "second" }];

    fn scenario(kept: (f64, f64), cost: (f64, f64)) -> Scenario {
        let policy = |name: &str, kept: f64, cost: f64| {
            format!(
                r#"{{"name": "{name}", "costByOracle": {{"mean": {}, "from": 1, "to": 1}}, "figures": {{
                    "attainment": {{"mean": {kept}, "from": {}, "to": {}}},
                    "cost": {{"mean": {cost}, "from": {cost}, "to": {cost}}},
                    "recovery": {{"mean": null, "from": null, "to": null}}}}}}"#,
                cost / 100.0,
                kept - 0.5,
                kept + 0.5
            )
        };
        let policies = [policy("a", kept.0, cost.0), policy("b", kept.1, cost.1)].join(",");
        let text = format!(r#"{{"title": "x<y", "seeds": 30, "policies": [{policies}]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn tables_are_markdown_and_show_what_is_not_known_as_such() {
        let one = scenario((90.0, 95.25), (120.0, 150.0));
        assert_eq!(
            attainment(&[&one], &COLUMNS),
            "| trace | first | second |\n|---|---|---|\n| x<y | 90.0 ±0.5 (1.20) | **95.2 ±0.5** (1.50) |\n"
        );
        let mut sized = scenario((90.0, 95.25), (120.0, 150.0));
        sized.policies[0].best_size = Some(8);
        assert!(
            attainment(&[&sized], &COLUMNS)
                .ends_with("| x<y | 8: 90.0 ±0.5 (1.20) | **95.2 ±0.5** (1.50) |\n")
        );
        let missing = [Column { policy: "c", title: "third" }];
        assert_eq!(attainment(&[&one], &missing).lines().last(), Some("| x<y | - |"));
        assert_eq!(
            figures(&one, &[("recovery", "recovery s", 0), ("cost", "cost", 1), (RATIO, "ratio", 2)]),
            "| policy | recovery s | cost | ratio |\n|---|---|---|---|\n| a | - | 120.0 | 1.20 |\n| b | - | 150.0 | 1.50 |\n"
        );
    }

    #[test]
    fn a_loss_is_over_three_points_or_fifteen_percent() {
        let lost =
            |kept, cost| losses(&[&scenario(kept, cost)], COLUMNS[0], &COLUMNS[1..]).lines().count() - 2;
        assert_eq!(lost((97.0, 100.0), (114.0, 100.0)), 0);
        assert_eq!(lost((96.9, 100.0), (100.0, 100.0)), 1);
        assert_eq!(lost((99.0, 50.0), (116.0, 100.0)), 1);
    }

    #[test]
    fn the_plot_has_a_point_for_each_scenario_and_policy() {
        let (one, two) = (scenario((90.0, 95.0), (120.0, 150.0)), scenario((80.0, 99.0), (110.0, 300.0)));
        let svg = plot(&[&one, &two], &COLUMNS, 99.0);
        // The legend has one more of each.
        assert_eq!((svg.matches("s s0").count(), svg.matches("s s1").count()), (3, 3));
        assert!(svg.starts_with("<svg xmlns=") && svg.contains("first: x&lt;y") && !svg.contains("NaN"));
    }
}
