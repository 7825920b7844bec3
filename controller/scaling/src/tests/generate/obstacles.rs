//! Autoscalers that do not act in a direction.

use proptest::option::weighted;
use proptest::prelude::*;

use crate::snapshot::ScaleObstacles;

pub(super) fn any() -> impl Strategy<Value = ScaleObstacles> {
    let cause = || weighted(0.1, Just("HPA a: behavior".to_owned()));
    (cause(), cause()).prop_map(|(up, down)| ScaleObstacles { up, down })
}
