//! Whether requests may wait as long as a cold start takes.

use wva_crds::GoDuration;
use wva_crds::picker_report::PickerReport;

use crate::cluster::{ObjectId, number};
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;
use crate::doctor::wait_limits::{ConfiguredWait, PickerWait, WaitLimits, picker_service};

/// Time to see the first request, to create the pod, and to find it ready.
const AROUND_START: u64 = 10;
/// Default limit of llm-d router, in seconds. Earlier pickers have none.
const ROUTER_DEFAULT: u64 = 60;

/// Finds waits that are too short for a cold start. Finds nothing for models that requests do not wake, and before a
/// cold start was measured.
pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let Some(cold_start) = number(variant.object, "/status/coldStartSeconds") else { return Vec::new() };
    variant
        .pickers()
        .flat_map(|picker| findings(&variant.facts.leader.wait_limits, picker, cold_start))
        .collect()
}

fn findings(limits: &WaitLimits, picker: &PickerReport, cold_start: u64) -> Vec<Finding> {
    let mut found = Vec::new();
    for pod in &picker.pods {
        let key = ObjectId { namespace: picker.namespace.clone(), name: pod.pod.clone() };
        // Pods of one picker have one configuration.
        if let Some(wait) = limits.pickers.get(&key) {
            found.push(of_picker(picker, wait, pod.router, cold_start));
            break;
        }
    }
    let service = picker_service(picker);
    let routes = limits.routes.iter().filter(|limit| Some(&limit.picker) == service.as_ref());
    found.extend(routes.map(|limit| {
        let ObjectId { namespace, name } = &limit.route;
        let place = format!("HTTPRoute {namespace}/{name}");
        let set = format!("raise {} of {place} above {} s", limit.field, cold_start + AROUND_START);
        compare(&format!("{} of {place}", limit.field), Some(limit.time), cold_start, set)
    }));
    found
}

fn of_picker(picker: &PickerReport, wait: &PickerWait, is_router: bool, cold_start: u64) -> Finding {
    let PickerWait { place, limit } = wait;
    let PickerReport { namespace, picker, .. } = picker;
    let remedy = format!(
        "set flowControl.noEndpointRequestTTL (defaultRequestTTL up to llm-d router 0.10) above {} s in {place} of namespace \
         {namespace}, and restart the picker",
        cold_start + AROUND_START
    );
    match limit {
        Ok(ConfiguredWait::Set(field, time)) => {
            let what = format!("flowControl.{field} of endpoint picker {picker}");
            compare(&what, Some(*time).filter(|time| !time.is_zero()), cold_start, remedy)
        }
        Ok(ConfiguredWait::Default) => {
            let limit = is_router.then(|| GoDuration::from_secs(ROUTER_DEFAULT));
            compare(&format!("the default of endpoint picker {picker}"), limit, cold_start, remedy)
        }
        Err(why) => {
            Finding::unknown(format!("how long endpoint picker {picker} holds requests: {place}: {why}"))
        }
    }
}

fn compare(what: &str, limit: Option<GoDuration>, cold_start: u64, remedy: String) -> Finding {
    let Some(limit) = limit else {
        return Finding::fine(format!(
            "requests wait without limit by {what}, and a cold start takes {cold_start} s"
        ));
    };
    let seconds = limit.get().as_secs();
    if seconds > cold_start + AROUND_START {
        return Finding::fine(format!(
            "requests wait up to {seconds} s by {what}, and a cold start takes {cold_start} s"
        ));
    }
    Finding::warning(
        format!(
            "requests wait at most {seconds} s by {what}, and a cold start takes {cold_start} s: those that wake the model \
             fail"
        ),
        remedy,
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wva_crds::picker_report::PickerPodReport;

    use super::*;
    use crate::doctor::chain::State;
    use crate::doctor::wait_limits::RouteLimit;

    fn object(name: &str) -> ObjectId {
        ObjectId { namespace: "prod".to_owned(), name: name.to_owned() }
    }

    fn picker(router: bool) -> PickerReport {
        PickerReport {
            namespace: "prod".to_owned(),
            picker: "epp".to_owned(),
            models: vec!["m".to_owned()],
            pods: vec![PickerPodReport { pod: "epp-0".to_owned(), router, ..PickerPodReport::default() }],
        }
    }

    fn of_config(limit: Result<ConfiguredWait, String>, router: bool) -> Finding {
        let wait = PickerWait { place: "ConfigMap epp-config".to_owned(), limit };
        let limits = WaitLimits { pickers: BTreeMap::from([(object("epp-0"), wait)]), routes: Vec::new() };
        findings(&limits, &picker(router), 95).remove(0)
    }

    #[test]
    fn compares_the_limit_of_a_picker_with_the_cold_start() {
        let set = |seconds| Ok(ConfiguredWait::Set("defaultRequestTTL", GoDuration::from_secs(seconds)));
        assert_eq!(of_config(set(106), true).state, State::Fine);
        assert_eq!(of_config(set(0), true).state, State::Fine, "no limit");
        let Finding { state, message, remedy } = of_config(set(105), true);
        assert_eq!(state, State::Warning);
        assert_eq!(
            message,
            "requests wait at most 105 s by flowControl.defaultRequestTTL of endpoint picker epp, and a cold start takes 95 s: \
             those that wake the model fail"
        );
        assert_eq!(
            remedy.unwrap(),
            "set flowControl.noEndpointRequestTTL (defaultRequestTTL up to llm-d router 0.10) above 105 s in ConfigMap \
             epp-config of namespace prod, and restart the picker"
        );
    }

    #[test]
    fn only_llm_d_router_has_a_default() {
        assert_eq!(of_config(Ok(ConfiguredWait::Default), true).state, State::Warning);
        assert_eq!(of_config(Ok(ConfiguredWait::Default), false).state, State::Fine);
        let unread = of_config(Err("forbidden".to_owned()), true);
        assert_eq!(unread.state, State::Unknown);
        assert!(unread.message.ends_with("ConfigMap epp-config: forbidden"), "{}", unread.message);
    }

    #[test]
    fn compares_the_timeout_of_a_route() {
        let limit = |service: &str, seconds| RouteLimit {
            route: object("llama"),
            picker: object(service),
            field: "timeouts.request",
            time: GoDuration::from_secs(seconds),
        };
        let limits = WaitLimits {
            pickers: BTreeMap::new(),
            routes: vec![limit("epp", 15), limit("epp", 300), limit("other", 15)],
        };
        let found = findings(&limits, &picker(true), 95);
        let states: Vec<State> = found.iter().map(|finding| finding.state).collect();
        assert_eq!(states, [State::Warning, State::Fine]);
        assert_eq!(
            found[0].remedy.as_deref(),
            Some("raise timeouts.request of HTTPRoute prod/llama above 105 s")
        );
    }
}
