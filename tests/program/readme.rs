//! README.md: its figures are those of the evidence, and its example prints what the README shows.

use crate::run;

const README: &str = include_str!("../../README.md");
const TRAFFIC: &str = include_str!("../../docs/development/evidence/traffic.md");
/// Columns of the table in traffic.md, in the README's order.
const COLUMNS: [&str; 8] = [
    "trace", "throughput", "HPA on queue and KV", "KEDA queue", "KEDA token-aware", "KEDA slo-aware",
    "llm-d WVA, 60 s", "fixed best",
];

/// Cells of the table between two markers, row by row, without the line below the heading.
fn table(page: &str, begin: &str, end: &str) -> Vec<Vec<String>> {
    let text = page.split_once(begin).unwrap().1.split_once(end).unwrap().0;
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace("**", "")).collect())
        .collect()
}

/// `9: 99.2 ±0.1 (2.08)` without the size of the fleet and the confidence interval.
fn figures(cell: &str) -> String {
    let cell = cell.split_once(": ").map_or(cell, |(_, figures)| figures);
    cell.split(' ').filter(|word| !word.starts_with('±')).collect::<Vec<_>>().join(" ")
}

#[test]
fn figures_are_those_of_recorded_traffic() {
    let evidence = table(TRAFFIC, "<!-- table traffic -->", "<!-- end -->");
    let columns = COLUMNS.map(|name| evidence[0].iter().position(|column| column == name).unwrap());
    let wanted: Vec<Vec<String>> =
        evidence[1..].iter().map(|row| columns.iter().map(|at| figures(&row[*at])).collect()).collect();
    let found = table(README, "traffic.md: begin -->", "<!-- figures");
    assert_eq!(wanted.len(), 8);
    assert_eq!(found[1..], wanted);
}

#[test]
fn example_prints_what_the_readme_shows() {
    let (command, shown) = README.split_once("$ wva ").unwrap().1.split_once('\n').unwrap();
    // A long line goes on with an indentation of six spaces.
    let shown = shown.split_once("  ...\n").unwrap().0.replace("\n      ", " ");
    let answer = run(&command.split(' ').collect::<Vec<_>>(), "");
    assert!(
        shown.lines().count() > 2 && answer.stdout.starts_with(&shown),
        "{}{}",
        answer.stdout,
        answer.stderr
    );
}
