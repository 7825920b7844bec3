//! The endpoint picker of a model that is at zero or may scale to zero, as the leader read it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use wva_crds::duration::rounded;
use wva_crds::picker_report::{PickerPodReport, PickerReport};

use crate::cluster::{ObjectId, id, items, text};
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;
use crate::doctor::wait_limits::{flag, pods_of};
use crate::output::first_names;

/// Flag with the name of the pool that a picker serves.
const POOL_NAME: &str = "pool-name";

/// Nothing for models whose requests need no picker.
pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let model = text(variant.object, "/spec/modelID");
    let pickers: Vec<&PickerReport> = variant.pickers().collect();
    let mut found: Vec<Finding> = pickers.iter().flat_map(|picker| findings(picker, model)).collect();
    found.extend(unread_pods(&pickers, &variant.facts.objects.pods));
    found
}

/// Pods that serve the pool of a picker and are not read, such as those of a Service that the pool does not name.
fn unread_pods(pickers: &[&PickerReport], pods: &[Value]) -> Vec<Finding> {
    let read: BTreeSet<ObjectId> = pickers.iter().flat_map(|picker| pods_of(picker)).collect();
    let pool = |pod: &Value| {
        let name = items(pod, "/spec/containers").find_map(|container| flag(container, POOL_NAME))?;
        Some(ObjectId { namespace: id(pod).namespace, name: name.to_owned() })
    };
    let pools: BTreeSet<ObjectId> =
        pods.iter().filter(|pod| read.contains(&id(pod))).filter_map(pool).collect();
    let is_unread = |pod: &&Value| !read.contains(&id(pod)) && text(pod, "/status/phase") == "Running";
    let unread = pods.iter().filter(is_unread).filter_map(|pod| Some((id(pod), pool(pod)?)));
    let unread = unread.filter(|(_, pool)| pools.contains(pool));
    let finding = |(ObjectId { namespace, name }, pool): (ObjectId, ObjectId)| {
        Finding::warning(
            format!(
                "pod {name} serves pool {} as its endpoint picker, and wva does not read its queue",
                pool.name
            ),
            format!(
                "name all pods of the picker by endpoint_picker in the scale-to-zero map; kubectl get pods -n {namespace} {name} \
                 --show-labels"
            ),
        )
    };
    unread.map(finding).collect()
}

fn findings(picker: &PickerReport, model: &str) -> Vec<Finding> {
    if picker.pods.is_empty() {
        let PickerReport { namespace, picker, .. } = picker;
        return vec![Finding::warning(
            format!("endpoint picker {picker} has no pods with an address"),
            format!(
                "kubectl get services,pods -n {namespace}; name its pods by endpoint_picker in the scale-to-zero map"
            ),
        )];
    }
    picker.pods.iter().map(|pod| finding(picker, pod, model)).collect()
}

fn finding(
    PickerReport { namespace, picker, .. }: &PickerReport,
    pod: &PickerPodReport,
    model: &str,
) -> Finding {
    let PickerPodReport { pod: name, url, bytes, families, flow_control, names, .. } = pod;
    let age = rounded(Duration::from_secs(pod.age_seconds));
    if url.is_empty() {
        return Finding::unknown(format!("endpoint picker {picker}: pod {name} has not been read yet"));
    }
    let place = format!("endpoint picker {picker}: pod {name} at {url}");
    if let Some(error) = &pod.error {
        let remedy = pod.advice.clone();
        let look =
            || format!("kubectl logs -n {namespace} {name}; check its port, scheme and NetworkPolicies");
        return Finding::warning(format!("{place}, {age} ago: {error}"), remedy.unwrap_or_else(look));
    }
    let flow_control = match flow_control.as_str() {
        "On" => "flow control",
        "NotYetShown" => "no request since its start, so flow control is not shown yet",
        _ => "no flow control",
    };
    let found = if families.is_empty() { "none of its metrics".to_owned() } else { families.join(", ") };
    let names = match names.as_slice() {
        [] => "no model names".to_owned(),
        names => format!("model names {}", first_names(names.iter().map(String::as_str))),
    };
    let message = format!("{place}, {age} ago: 200, {} kB, {flow_control}; {found}; {names}", bytes / 1000);
    if !pod.is_picker {
        let remedy =
            format!("name the port of the picker of {model} by endpoint_picker in the scale-to-zero map");
        return Finding::warning(message, remedy);
    }
    Finding::fine(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::chain::State;

    fn report(pod: PickerPodReport) -> (State, String, Option<String>) {
        let picker = PickerReport {
            namespace: "ns".to_owned(),
            picker: "epp".to_owned(),
            models: vec!["m".to_owned()],
            pods: vec![pod],
        };
        let Finding { state, message, remedy } = findings(&picker, "m").remove(0);
        (state, message, remedy)
    }

    fn read() -> PickerPodReport {
        PickerPodReport {
            pod: "epp-0".to_owned(),
            url: "http://10.0.0.7:9090/metrics".to_owned(),
            age_seconds: 2,
            bytes: 84_000,
            families: vec!["flow_control_queue_size".to_owned()],
            is_picker: true,
            flow_control: "On".to_owned(),
            names: vec!["m".to_owned()],
            ..PickerPodReport::default()
        }
    }

    #[test]
    fn shows_status_size_families_flow_control_and_names() {
        let (state, message, _) = report(read());
        assert_eq!(state, State::Fine);
        assert_eq!(
            message,
            "endpoint picker epp: pod epp-0 at http://10.0.0.7:9090/metrics, 2 s ago: 200, 84 kB, flow control; \
             flow_control_queue_size; model names m"
        );
        let not_yet = PickerPodReport { flow_control: "NotYetShown".to_owned(), names: Vec::new(), ..read() };
        assert!(report(not_yet).1.contains("not shown yet; flow_control_queue_size; no model names"));
    }

    #[test]
    fn a_page_that_cannot_be_read_has_its_remedy() {
        let error = Some("the pod answered 500 Internal Server Error instead of its metrics".to_owned());
        let advice = Some("The picker cannot check tokens".to_owned());
        let (state, message, remedy) = report(PickerPodReport { error, advice: advice.clone(), ..read() });
        assert_eq!((state, remedy), (State::Warning, advice));
        assert!(
            message.ends_with("2 s ago: the pod answered 500 Internal Server Error instead of its metrics")
        );
        let other = PickerPodReport {
            is_picker: false,
            families: Vec::new(),
            flow_control: "Off".to_owned(),
            ..read()
        };
        let (state, message, remedy) = report(other);
        assert_eq!(state, State::Warning, "{message}");
        assert!(remedy.unwrap().contains("endpoint_picker"));
    }

    #[test]
    fn a_pod_of_the_same_pool_outside_the_service_is_named() {
        let pod = |name: &str, namespace: &str, pool: &str, phase: &str| {
            serde_json::json!({
                "metadata": {"name": name, "namespace": namespace}, "status": {"phase": phase},
                "spec": {"containers": [{"name": "epp", "args": ["--pool-name", pool]}]},
            })
        };
        let picker =
            PickerReport { namespace: "ns".to_owned(), pods: vec![read()], ..PickerReport::default() };
        let pods = [
            pod("epp-0", "ns", "llama", "Running"),
            pod("active", "ns", "llama", "Running"),
            pod("ended", "ns", "llama", "Succeeded"),
            pod("other", "ns", "qwen", "Running"),
            pod("foreign", "elsewhere", "llama", "Running"),
        ];
        let found = unread_pods(&[&picker], &pods);
        let messages: Vec<&str> = found.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(
            messages,
            ["pod active serves pool llama as its endpoint picker, and wva does not read its queue"]
        );
    }
}
