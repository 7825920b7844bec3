//! Builds a scenario from the fields of a file: defaults, seconds, resolved names.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wva_crds::GoDuration;
use wva_crds::entries::{Amount, PositiveDuration};

use super::engines::{ENGINES, QWEN3_32B_H100};
use super::spec::{self, Spec};
use super::{Scenario, ScenarioError};
use crate::fleet::engine::{Engine, StepTokens, to_f64};
use crate::fleet::rollout::Rollout;
use crate::fleet::server::Request;
use crate::fleet::variant::{Gateway, GpuSupply, Saturation, ScrapeFaults, SlowStart, Variant};
use crate::measure::Objectives;
use crate::random::RandomQuantity;
use crate::run::Setting;
use crate::traffic::{Traffic, build_profile, diurnal_profile, trace};

/// A working week and a calmer weekend.
const WEEK: [f64; 7] = [1.0, 1.0, 1.0, 1.0, 1.0, 0.6, 0.5];

impl Spec {
    /// Requests of the trace, if the scenario names one. `open` opens it; its path is relative to `scenario`, the file of
    /// the scenario.
    ///
    /// # Errors
    /// The file cannot be read, or a line is invalid.
    pub fn read_trace<R: Read>(
        &self,
        scenario: &Path,
        open: impl FnOnce(PathBuf) -> std::io::Result<R>,
    ) -> Result<Option<Arc<[Request]>>, ScenarioError> {
        let Some(recorded) = &self.traffic.trace else { return Ok(None) };
        let file = scenario.with_file_name(&recorded.file);
        let invalid = |problem: &dyn std::fmt::Display| {
            ScenarioError::new("traffic.trace.file", format!("{}: {problem}", file.display()))
        };
        let opened = open(file.clone()).map_err(|error| invalid(&error))?;
        let requests = trace::read(BufReader::new(opened), recorded.layout, recorded.model.as_deref());
        Ok(Some(requests.map_err(|error| invalid(&error))?.into()))
    }

    /// `trace`: the requests of the trace, if the scenario names one.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn build(&self, trace: Option<Arc<[Request]>>) -> Result<Scenario, ScenarioError> {
        let traffic = self.traffic.build(trace)?;
        let duration = self.duration.map_or_else(|| traffic.duration(), positive);
        let variants = self.variants.iter().enumerate().map(|(i, v)| v.build(i));
        let gpu_supply = self.gpu_supply.iter().enumerate().map(|(i, s)| s.build(i));
        let setting = Setting {
            variants: variants.collect::<Result<_, _>>()?,
            gateway: self.gateway.build(),
            gpu_supply: gpu_supply.collect::<Result<_, _>>()?,
            objectives: Objectives {
                ttft: positive(self.objectives.ttft),
                itl: positive(self.objectives.itl),
                attainment: self.objectives.attainment.map_or(0.99, f64::from),
            },
            traffic,
            duration,
        };
        Ok(Scenario { name: self.name.clone(), setting, policies: self.policies.clone() })
    }
}

impl spec::Traffic {
    fn build(&self, trace: Option<Arc<[Request]>>) -> Result<Traffic, ScenarioError> {
        let profile = match (&self.segments, &self.diurnal, &self.trace) {
            (Some(segments), None, None) if !segments.is_empty() => build_profile(
                segments.iter().map(|s| (positive(s.length), s.rate.get(), s.to.unwrap_or(s.rate).get())),
            ),
            (None, Some(days), None) => {
                let weights = days.days.as_ref().map(|d| d.iter().map(|w| w.get()).collect::<Vec<_>>());
                let weights = weights.unwrap_or_else(|| WEEK.to_vec());
                if weights.iter().sum::<f64>() <= 0.0 {
                    return Err(ScenarioError::new("traffic.diurnal.days", "no day has a weight above 0"));
                }
                diurnal_profile(days.mean.get(), days.swing.map_or(0.6, f64::from), &weights)
            }
            (None, None, Some(_)) => {
                return trace
                    .map(Traffic::Recorded)
                    .ok_or_else(|| ScenarioError::new("traffic.trace", "the trace was not read"));
            }
            _ => {
                let problem = "has to be given once: as segments (at least one), diurnal or trace";
                return Err(ScenarioError::new("traffic", problem));
            }
        };
        Ok(Traffic::Generated {
            profile,
            cv: self.cv.map_or(1.0, f64::from),
            input: build_length("traffic.input", self.input)?,
            output: build_length("traffic.output", self.output)?,
        })
    }
}

fn build_length(path: &str, length: Option<spec::Length>) -> Result<RandomQuantity, ScenarioError> {
    let valid = length.filter(|l| l.mean.get() >= 1.0);
    let problem = || {
        let found = length.map_or_else(|| "nothing".to_owned(), |l| format!("a mean of {}", l.mean.get()));
        ScenarioError::new(
            path,
            format!("found {found}: give a mean of 1 token or more, such as {{mean: 1000, cv: 0.5}}"),
        )
    };
    valid.map(|l| RandomQuantity::log_normal(l.mean.get(), l.cv.get())).ok_or_else(problem)
}

impl spec::Gateway {
    fn build(&self) -> Gateway {
        let saturation = |f: spec::FlowControl| Saturation {
            queue: f.queue.unwrap_or(5) as usize,
            kv: f.kv.map_or(0.8, f64::from),
        };
        Gateway {
            router: self.router,
            flow_control: self.flow_control.map(saturation),
            queue: self.queue.unwrap_or(10_000) as usize,
            client_timeout: self.patience.map_or(300.0, positive),
            grace: self.grace.map_or(120.0, seconds),
            retries: self.retries.get(),
            uncounted: self.uncounted.get(),
            scrapes: ScrapeFaults { lost: self.lost_scrapes.get(), late: seconds(self.late_scrapes) },
        }
    }
}

impl spec::Variant {
    fn build(&self, i: usize) -> Result<Variant, ScenarioError> {
        let (min, max) = (self.min.unwrap_or(1), self.max.unwrap_or(10));
        if min > max {
            let problem = format!("min {min} is above max {max}: an HPA refuses that");
            return Err(ScenarioError::new(format!("variants[{i}].min"), problem));
        }
        let start = self.start.as_ref();
        let (mean, cv) = start.map_or((103.0, 0.1), |s| (seconds(s.mean), s.cv.get()));
        let slow = |s: &spec::Start| SlowStart {
            share: s.slow_share.get(),
            factor: s.slow_factor.map_or(5.0, Amount::get),
        };
        Ok(Variant {
            name: self.name.clone(),
            accelerator: self.accelerator.clone(),
            cost: self.cost.get(),
            gpus: self.gpus.unwrap_or(1),
            engine: self.engine.build(i)?,
            engine_args: self.engine_args.clone(),
            initial: self.initial.unwrap_or(min),
            min,
            max,
            start: RandomQuantity::log_normal(mean, cv),
            slow_start: start.map_or(SlowStart::NEVER, slow),
            time_to_failure: self.time_to_failure.map_or(f64::INFINITY, positive),
            slowness: RandomQuantity::log_normal(1.0, self.unevenness.get()),
            prefix_hits: check_order(
                &format!("variants[{i}].prefixHits"),
                self.prefix_hits.iter().map(|h| (seconds(h.at), h.share.get())),
            )?,
            speculation: speculation(&self.speculation, i)?,
            rollouts: self.rollouts.iter().map(rollout).collect(),
            role: self.role,
        })
    }
}

fn rollout(spec: &spec::Rollout) -> Rollout {
    Rollout { at: seconds(spec.at), surge: spec.surge.get() }
}

fn speculation(levels: &[spec::Speculation], i: usize) -> Result<Vec<(f64, StepTokens)>, ScenarioError> {
    let invalid = levels.iter().enumerate().find(|(_, l)| l.least < 1 || l.most < l.least);
    if let Some((n, l)) = invalid {
        let problem = format!("found {} to {}: give least 1 or more, and most not below it", l.least, l.most);
        return Err(ScenarioError::new(format!("variants[{i}].speculation[{n}]"), problem));
    }
    let each = levels.iter().map(|l| (seconds(l.at), StepTokens { min: l.least, max: l.most }));
    check_order(&format!("variants[{i}].speculation"), each)
}

fn check_order<T>(
    path: &str,
    levels: impl Iterator<Item = (f64, T)>,
) -> Result<Vec<(f64, T)>, ScenarioError> {
    let levels: Vec<_> = levels.collect();
    let invalid = levels.windows(2).enumerate().find(|(_, pair)| pair[1].0 <= pair[0].0);
    if let Some((n, pair)) = invalid {
        let problem = format!("found {} s after {} s: give them in order of time", pair[1].0, pair[0].0);
        return Err(ScenarioError::new(format!("{path}[{}].at", n + 1), problem));
    }
    Ok(levels)
}

impl spec::Engine {
    fn build(&self, i: usize) -> Result<Engine, ScenarioError> {
        let like = match &self.like {
            None => QWEN3_32B_H100,
            Some(name) => find_engine(name).ok_or_else(|| {
                let known: Vec<_> = ENGINES.iter().map(|(n, _)| *n).collect();
                let problem = format!("{name:?} is not an engine; use one of {}", known.join(", "));
                ScenarioError::new(format!("variants[{i}].engine.like"), problem)
            })?,
        };
        let engine = Engine {
            step: self.step.map_or(like.step, positive),
            per_sequence: self.per_sequence.map_or(like.per_sequence, seconds),
            per_prompt_token: self.per_prompt_token.map_or(like.per_prompt_token, seconds),
            per_cached_token: self.per_cached_token.map_or(like.per_cached_token, seconds),
            max_seqs: self.max_seqs.map_or(like.max_seqs, |n| n as usize),
            max_batched_tokens: self.max_batched_tokens.map_or(like.max_batched_tokens, u64::from),
            block_size: self.block_size.map_or(like.block_size, u64::from),
            kv_blocks: self.kv_blocks.map_or(like.kv_blocks, u64::from),
            prefix_hit_rate: self.prefix_hit_rate.map_or(like.prefix_hit_rate, f64::from),
            tokens: like.tokens,
        };
        let counts = [
            ("maxSeqs", to_f64(engine.max_seqs as u64)),
            ("maxBatchedTokens", to_f64(engine.max_batched_tokens)),
            ("blockSize", to_f64(engine.block_size)),
            ("kvBlocks", to_f64(engine.kv_blocks)),
        ];
        match counts.iter().find(|(_, n)| *n < 1.0) {
            Some((field, _)) => {
                Err(ScenarioError::new(format!("variants[{i}].engine.{field}"), "found 0: give 1 or more"))
            }
            None => Ok(engine),
        }
    }
}

fn find_engine(name: &str) -> Option<Engine> {
    ENGINES.iter().find(|(n, _)| *n == name).map(|(_, engine)| *engine)
}

impl spec::GpuSupply {
    fn build(&self, i: usize) -> Result<GpuSupply, ScenarioError> {
        let levels = self.levels.iter().map(|l| (seconds(l.at), l.gpus));
        let levels = check_order(&format!("stock[{i}].levels"), levels)?;
        Ok(GpuSupply { accelerator: self.accelerator.clone(), levels })
    }
}

fn seconds(span: GoDuration) -> f64 {
    span.get().as_secs_f64()
}

fn positive(span: PositiveDuration) -> f64 {
    seconds(span.get())
}
