//! Costs of `--cost`: of a replica, of all models or of one, and of a GPU by its name.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use wva_objects::hardware::accelerator_key;
use wva_simulator::backtest::history::{Gpus, History};

/// Costs for an hour.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Costs {
    /// Of a replica without another one.
    all: f64,
    /// Of a replica of a model, or of a GPU.
    by_name: BTreeMap<String, f64>,
}

impl Costs {
    /// # Errors
    /// A cost is not a number, or negative.
    pub(super) fn parse(texts: &[&str]) -> anyhow::Result<Self> {
        let mut costs = Self { all: 1.0, by_name: BTreeMap::new() };
        for text in texts {
            let (name, cost) = text.rsplit_once('=').map_or((None, *text), |(name, cost)| (Some(name), cost));
            let cost: Option<f64> = cost.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0);
            let Some(cost) = cost else {
                bail!("--cost: {text:?} is not a cost: give one such as 2.5, llama=2.5 or H100=2.5");
            };
            match name {
                Some(name) => drop(costs.by_name.insert(name.to_owned(), cost)),
                None => costs.all = cost,
            }
        }
        Ok(costs)
    }

    /// Cost of a replica of a model, and what it is made of if that is assumed.
    pub(super) fn of(&self, history: &History) -> (f64, Option<String>) {
        if let Some(cost) = self.by_name.get(&history.key.model) {
            return (*cost, None);
        }
        let of_gpu = history.gpus.as_ref().and_then(|gpus| {
            let (name, cost) = self.by_name.iter().find(|(name, _)| is_same(name, gpus))?;
            Some((gpus.count * cost, format!("a replica has {} {name} (DCGM_FI_DEV_GPU_UTIL)", gpus.count)))
        });
        of_gpu.map_or((self.all, None), |(cost, text)| (cost, Some(text)))
    }

    /// # Errors
    /// A name is neither that of a model nor that of a GPU.
    pub(super) fn ensure_known<'a>(
        &self,
        histories: impl Iterator<Item = &'a History>,
    ) -> anyhow::Result<()> {
        let histories: Vec<&History> = histories.collect();
        for name in self.by_name.keys() {
            let is_of = |history: &&History| {
                history.key.model == *name || history.gpus.as_ref().is_some_and(|gpus| is_same(name, gpus))
            };
            let mut gpus: Vec<&str> =
                histories.iter().filter_map(|own| Some(own.gpus.as_ref()?.name.as_str())).collect();
            gpus.sort_unstable();
            gpus.dedup();
            let gpus = if gpus.is_empty() {
                "no GPU is known: no series DCGM_FI_DEV_GPU_UTIL names their pods".to_owned()
            } else {
                format!("their GPUs are {}", gpus.join(", "))
            };
            let models: Vec<&str> = histories.iter().map(|own| own.key.model.as_str()).collect();
            ensure!(
                histories.iter().any(is_of),
                "--cost: {name:?} is neither a model nor a GPU: the models are {}, and {gpus}; give --cost MODEL=COST",
                models.join(", ")
            );
        }
        Ok(())
    }
}

fn is_same(name: &str, gpus: &Gpus) -> bool {
    accelerator_key(name) == accelerator_key(&gpus.name)
}

#[cfg(test)]
mod tests {
    use wva_simulator::backtest::history::ModelKey;

    use super::*;

    fn history(model: &str, gpus: Option<(&str, f64)>) -> History {
        let key = ModelKey { namespace: "n".to_owned(), model: model.to_owned() };
        let gpus = gpus.map(|(name, count)| Gpus { name: name.to_owned(), count });
        History { key, gpus, ..History::default() }
    }

    #[test]
    fn costs_are_of_models_gpus_or_all() {
        let costs = Costs::parse(&["0.5", "a/b=4", "h100=2.5"]).unwrap();
        for (model, gpus, cost, is_assumed) in [
            ("a/b", Some(("H100", 2.0)), 4.0, false),
            ("c", Some(("H100", 2.0)), 5.0, true),
            ("c", Some(("L4", 1.0)), 0.5, false),
            ("c", None, 0.5, false),
        ] {
            let (found, assumed) = costs.of(&history(model, gpus));
            assert!((found - cost).abs() < 1e-9 && assumed.is_some() == is_assumed, "{model} {gpus:?}");
        }
    }

    #[test]
    fn a_cost_of_nothing_is_refused_with_the_names() {
        let costs = Costs::parse(&["H200=3"]).unwrap();
        let error = |gpus| costs.ensure_known([history("m", gpus)].iter()).unwrap_err().to_string();
        assert!(error(Some(("H100", 1.0))).contains("the models are m, and their GPUs are H100"));
        assert!(error(None).contains("no GPU is known"));
        costs.ensure_known([history("m", Some(("H200", 8.0)))].iter()).unwrap();
    }
}
