//! Bounds of existing autoscalers.

use serde_json::json;

use super::*;

#[test]
fn bounds_are_read_from_any_version_of_an_hpa() {
    for version in ["v1", "v2", "v2beta2"] {
        let hpa = json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": "prod"},
            "spec": {"minReplicas": 2, "maxReplicas": 8, "scaleTargetRef": {"kind": "Deployment", "name": "phi"}}});
        let mut inputs = read("existing-hpa", None).unwrap();
        inputs.autoscalers =
            vec![SourceObject { place: String::new(), namespace: "prod".to_owned(), object: hpa }];
        let (plans, problems) = plan_all(&inputs, &Options::default());
        assert_eq!(problems, Vec::<String>::new(), "{version}");
        let spec = &plans[0].documents[1].object["spec"];
        assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(2), &json!(8)), "{version}");
    }
}
