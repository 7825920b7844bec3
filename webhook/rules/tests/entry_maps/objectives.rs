//! Names of objectives in service classes.

use super::{CLASSES, check, created, map, map_facts};

#[test]
fn old_names_of_objectives_cause_a_warning_with_the_new_line() {
    let old = "WVA-CM-065";
    let one = map(&[("premium", "name: Premium\npriority: 1\ndata:\n- {model: m, slo-tpot: 24}\n")]);
    let verdict = check(&map_facts(&one, CLASSES), &[(old, "data.premium.data[0].slo-tpot")]);
    assert!(verdict.warnings[0].ends_with("old name; write itlSlo: 24"), "{:?}", verdict.warnings);
    let list = "- {name: Premium, model: m, priority: 1, slo-itl: 24, slo-ttw: 500}\n";
    let fields = [(old, "data.serviceClasses[0].slo-itl"), (old, "data.serviceClasses[0].slo-ttw")];
    created(CLASSES, &[("serviceClasses", list)], &fields);
    let both = "name: A\npriority: 1\ndata:\n- {model: m, slo-tpot: 24, itlSlo: 24}\n- {model: n, slo-tpot: 24, itlSlo: 20}";
    let message = created(CLASSES, &[("a", both)], &[("WVA-CM-029", "data.a.data[1].itlSlo")]);
    assert!(message.contains("20, but slo-tpot is 24; keep one of them"), "{message}");
}

#[test]
fn denies_a_model_that_a_class_lists_twice() {
    let class = "name: A\npriority: 1\ndata:\n- {model: m, itlSlo: 1}\n- {model: m, itlSlo: 2}";
    created(CLASSES, &[("a", class)], &[("WVA-CM-025", "data.a.data[1].model")]);
}
