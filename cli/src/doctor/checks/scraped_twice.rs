//! Engines with several series: another server of the pod, or a server that is scraped more than once.

use std::collections::{BTreeMap, BTreeSet};

use wva_objects::servers::server_in_pod;

use super::pod_series::{pod_names, pod_of};
use crate::doctor::chain::Finding;
use crate::doctor::facts::ENGINE_LABELS;
use crate::doctor::variant_state::VariantState;
use crate::output::{count, first_names};
use crate::prometheus::Series;

/// Label that differs, and its values.
type Differences<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Pods by what their series are.
#[derive(Default)]
struct Pods<'a> {
    /// Pods with several servers, which the controller adds up.
    several: BTreeSet<&'a str>,
    servers: BTreeSet<&'a str>,
    /// Pods whose server is scraped more than once.
    repeated: BTreeSet<&'a str>,
    repeated_by: Differences<'a>,
    /// Pods of which nothing tells whether they have several servers.
    unclear: BTreeSet<&'a str>,
    unclear_by: Differences<'a>,
}

/// `series`: those of engines that have several.
pub(super) fn check(variant: &VariantState<'_>, series: &[Series]) -> Vec<Finding> {
    let names = pod_names(variant);
    let mut engines: BTreeMap<Vec<&str>, Vec<&Series>> = BTreeMap::new();
    for one in series.iter().filter(|s| s.label("namespace") == variant.namespace) {
        if names.contains(pod_of(one)) {
            let keys = ["__name__", "pod", "pod_name", "model_name"].into_iter().chain(ENGINE_LABELS);
            engines.entry(keys.map(|key| one.label(key)).collect()).or_default().push(one);
        }
    }
    let mut pods = Pods::default();
    for engine in engines.values() {
        pods.add(engine);
    }
    pods.findings()
}

impl<'a> Pods<'a> {
    fn add(&mut self, engine: &[&'a Series]) {
        let mut servers: BTreeMap<&str, Vec<&'a Series>> = BTreeMap::new();
        for one in engine {
            servers.entry(server_of(one)).or_default().push(one);
        }
        let Some(pod) = engine.first().map(|one| pod_of(one)) else { return };
        if servers.len() > 1 {
            self.several.insert(pod);
            self.servers.extend(servers.keys());
        }
        for scrapes in servers.values().filter(|scrapes| scrapes.len() > 1) {
            let instances: BTreeSet<&str> = scrapes.iter().map(|one| one.label("instance")).collect();
            // Two servers cannot listen on the same address and port.
            let is_same = instances.len() == 1 && scrapes.iter().all(|one| has_port(one));
            let (pods, differences) = if is_same {
                (&mut self.repeated, &mut self.repeated_by)
            } else {
                (&mut self.unclear, &mut self.unclear_by)
            };
            pods.insert(pod);
            for (label, values) in differing_labels(scrapes) {
                differences.entry(label).or_default().extend(values);
            }
        }
    }

    fn findings(&self) -> Vec<Finding> {
        let several = (!self.several.is_empty()).then(|| {
            let servers = self.servers.iter().copied().collect::<Vec<_>>().join(", ");
            Finding::fine(format!(
                "{} with several servers ({servers}), which add up",
                describe(&self.several)
            ))
        });
        let repeated = (!self.repeated.is_empty()).then(|| {
            Finding::warning(
                format!(
                    "Prometheus scrapes the server of {} more than once, with other {}; it counts once",
                    describe(&self.repeated),
                    text(&self.repeated_by)
                ),
                "no figure is wrong; select these pods once to save the scrapes",
            )
        });
        let unclear = (!self.unclear.is_empty()).then(|| {
            Finding::warning(
                format!(
                    "Prometheus has several series for each engine of {}; they differ in {}, which does not tell servers \
                     apart, so the highest value counts",
                    describe(&self.unclear),
                    text(&self.unclear_by)
                ),
                "if they are several servers, let their monitors keep the label instance (address and port) or container of \
                 each; if Prometheus stores several clusters, set PROMETHEUS_EXTRA_MATCHERS to the labels of this cluster",
            )
        });
        [several, repeated, unclear].into_iter().flatten().collect()
    }
}

fn server_of(series: &Series) -> &str {
    server_in_pod(series.label("instance"), series.label("container"))
}

/// Whether the instance itself tells the server.
fn has_port(series: &Series) -> bool {
    !server_in_pod(series.label("instance"), "").is_empty()
}

fn differing_labels<'a>(series: &[&'a Series]) -> Differences<'a> {
    let labels = series.iter().flat_map(|one| one.labels.keys()).map(String::as_str);
    let labels: BTreeSet<&str> = labels.filter(|key| !ENGINE_LABELS.contains(key)).collect();
    let values = |label: &str| -> BTreeSet<&str> { series.iter().map(|one| one.label(label)).collect() };
    labels.into_iter().map(|label| (label, values(label))).filter(|(_, all)| all.len() > 1).collect()
}

fn text(differences: &Differences<'_>) -> String {
    let one = |(label, all): (&&str, &BTreeSet<&str>)| {
        format!("{label} ({})", all.iter().copied().collect::<Vec<_>>().join(", "))
    };
    differences.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn describe(pods: &BTreeSet<&str>) -> String {
    format!("{} ({})", count(pods.len(), "pod"), first_names(pods.iter().copied()))
}
