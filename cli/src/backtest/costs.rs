//! Costs of a replica: `--cost` of a model, of a GPU by its name, the variants' `variantCost`, and `--cost` of all models.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use wva_objects::hardware::accelerator_key;
use wva_simulator::backtest::history::{Gpus, History};

use super::variants::Stated;

/// Costs for an hour.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Costs {
    /// Cost of a replica that no name matches.
    all: f64,
    /// Costs of a replica of a model, or of a GPU, by name.
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

    /// Cost of a replica of a model, and what it is made of if the command line does not say it.
    pub(super) fn of(&self, history: &History, stated: Option<&Stated>) -> (f64, Option<String>) {
        if let Some(cost) = self.by_name.get(&history.key.model) {
            return (*cost, None);
        }
        let of_gpu = history.gpus.as_ref().and_then(|gpus| {
            let (name, cost) = self.by_name.iter().find(|(name, _)| is_same(name, gpus))?;
            Some((gpus.count * cost, format!("a replica has {} {name} (DCGM_FI_DEV_GPU_UTIL)", gpus.count)))
        });
        let of_variants = || stated.map(|s| (s.cost, format!("a replica costs {}, {}", s.cost, s.source)));
        of_gpu.or_else(of_variants).map_or((self.all, None), |(cost, text)| (cost, Some(text)))
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
    fn costs_are_of_models_gpus_variants_or_all() {
        let costs = Costs::parse(&["0.5", "a/b=4", "h100=2.5"]).unwrap();
        let variants = Stated { cost: 7.0, min: 1, max: None, source: "variantCost of v".to_owned() };
        for (model, gpus, stated, cost, assumed) in [
            ("a/b", Some(("H100", 2.0)), Some(&variants), 4.0, None),
            ("c", Some(("H100", 2.0)), Some(&variants), 5.0, Some("a replica has 2 h100")),
            ("c", Some(("L4", 1.0)), Some(&variants), 7.0, Some("a replica costs 7, variantCost of v")),
            ("c", Some(("L4", 1.0)), None, 0.5, None),
            ("c", None, None, 0.5, None),
        ] {
            let (found, text) = costs.of(&history(model, gpus), stated);
            assert!((found - cost).abs() < 1e-9, "{model} {gpus:?}: {found}");
            assert_eq!(assumed.is_some(), text.is_some(), "{text:?}");
            assert!(text.unwrap_or_default().starts_with(assumed.unwrap_or_default()));
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
