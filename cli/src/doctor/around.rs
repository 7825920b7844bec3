//! What is wrong around the variants: the CRD, the leader, the controllers, the external metrics API, and labels that
//! name an instance nobody runs. Pure.

use wva_crds::names::INSTANCE_LABEL;

use super::chain::Found;
use super::controllers::Controller;
use super::facts::{DESCRIBE_API_SERVICE, Facts, MetricsServer, served_by};
use crate::cluster::{entry, text};

/// The namespaceSelector of every webhook and admission policy excludes it.
const UNREVIEWED: &str = "kube-system";

/// All checks, each with a name like a link's.
pub(super) fn look(facts: &Facts) -> Vec<(&'static str, Found)> {
    let mut found = vec![("crd", crd(facts)), ("controller", controller(facts)), ("leader", leader(facts))];
    found.extend(unreviewed(facts).chain(namespaces(facts)).map(|f| ("namespace", f)));
    found.push(("metrics API", metrics_api(facts)));
    let hidden = facts.hidden.iter().filter(|h| !["controllers", "apiservices"].contains(&h.plural));
    found.extend(hidden.map(|hidden| ("rights", Found::unknown(hidden.why.as_str()))));
    found
}

fn crd(facts: &Facts) -> Found {
    match &facts.crd_lacks {
        Ok(missing) if missing.is_empty() => Found::fine("of this release"),
        Ok(missing) => Found::doubtful(
            format!("an older one, which drops {}", missing.join(", ")),
            "wva crd | kubectl apply --server-side --force-conflicts -f -",
        ),
        Err(why) => Found::unknown(why.as_str()),
    }
}

fn controller(facts: &Facts) -> Found {
    let Some(all) = &facts.controllers else {
        return Found::unknown(facts.hidden("controllers").unwrap_or("the Deployments cannot be seen"));
    };
    let shown: Vec<String> = all.iter().map(Controller::shown).collect();
    let list = shown.join(", ");
    if all.iter().any(|c| c.original) && all.iter().any(|c| !c.original) {
        return Found::doubtful(
            format!("beside the original: {list}"),
            "keep every variant that both take in mode recommend until the original is stopped (docs/migration.md)",
        );
    }
    if facts.leaders.seen.is_empty()
        && let Some(one) = all.iter().find(|c| !c.original && c.ready == 0)
    {
        return Found::broken(
            format!("no replica of {} is ready", one.shown()),
            format!("kubectl get pods -n {}, and look at their logs", one.namespace),
        );
    }
    match all.as_slice() {
        [] if facts.leaders.seen.is_empty() => Found::broken(
            "none is installed: no Deployment has its labels and settings",
            "helm install, or where it runs elsewhere: --address HOST:PORT",
        ),
        [] => Found::fine("no Deployment, but one answers"),
        [one] if one.original => Found::broken(
            format!("only the original runs: {list}"),
            "docs/migration.md, or name ours with --controller-namespace and --selector",
        ),
        _ => Found::fine(list),
    }
}

fn leader(facts: &Facts) -> Found {
    match facts.leaders.nobody() {
        None => {
            let who: Vec<&str> = facts.leaders.seen.iter().map(|seen| seen.who.as_str()).collect();
            Found::fine(format!("{} told its last cycle", who.join(", ")))
        }
        Some(why) => Found::doubtful(
            format!("none told its last cycle, so that what follows is from the cluster alone: {why}"),
            "kubectl get lease -A, and look at the logs of its holder",
        ),
    }
}

/// Controllers in the namespace that webhooks and admission policies leave out.
fn unreviewed(facts: &Facts) -> impl Iterator<Item = Found> {
    let inside = |c: &&Controller| !c.original && c.namespace == UNREVIEWED;
    facts.controllers.iter().flatten().filter(inside).map(|c| {
        Found::doubtful(
            format!(
                "{} is in {UNREVIEWED}, where admission reviews neither config maps nor variants",
                c.shown()
            ),
            "install the release in a namespace of its own (docs/install.md)",
        )
    })
}

/// Namespaces that are given to an instance that nobody runs.
fn namespaces(facts: &Facts) -> Vec<Found> {
    let Some(controllers) = facts.controllers.as_ref().filter(|all| !all.is_empty()) else {
        return Vec::new();
    };
    let orphaned = facts.namespaces.iter().filter_map(|namespace| {
        let instance =
            entry(namespace, "/metadata/labels", INSTANCE_LABEL).filter(|label| !label.is_empty())?;
        let runs = controllers.iter().any(|c| c.instance.as_deref() == Some(instance));
        let name = text(namespace, "/metadata/name");
        (!runs).then(|| {
            Found::doubtful(
                format!("{name} is given to instance {instance}, and no controller of it is installed"),
                format!("kubectl label namespace {name} {INSTANCE_LABEL}-"),
            )
        })
    });
    orphaned.collect()
}

fn metrics_api(facts: &Facts) -> Found {
    let Some(service) = &facts.api_service else {
        if let Some(why) = facts.hidden("apiservices") {
            return Found::unknown(why);
        }
        return Found::fine("none is registered: HPAs cannot read external metrics, ScaledObjects need KEDA");
    };
    let MetricsServer { text, is_available } = served_by(service);
    if is_available { Found::fine(text) } else { Found::broken(text, DESCRIBE_API_SERVICE) }
}
