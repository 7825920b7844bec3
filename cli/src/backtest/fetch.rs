//! Reads the series of model servers in bounded queries, one after the other.

mod discover;
mod refusal;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ArgMatches;
use wva_objects::hardware::normalize_accelerator;
use wva_runtime::prometheus::{Query, QueryError, TimeRange};
use wva_simulator::backtest::WINDOW;
use wva_simulator::backtest::history::{Chunk, EngineFacts, Gpus, ModelKey, Windows};
use wva_simulator::backtest::plan::{Span, Time, estimate};
use wva_simulator::backtest::scrapes::{Grid, Reduced, Scrapes};
use wva_simulator::backtest::signals::{Counter, Figure, Selector};

use self::discover::Discovery;
use super::matrix::{ScrapeSink, WindowSink, models_of_pods};
use super::options::Options;
use super::store::{Header, Part, Store};
use crate::output::NoAnswer;
use crate::progress::Progress;
use crate::prometheus::{Prometheus, Series, describe};

/// Time limit of a query: a large one reads a day of all pods.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Reads what the options ask for, from the cache as far as it has it.
pub(super) async fn fetch(arguments: &ArgMatches, options: &Options) -> anyhow::Result<Store> {
    let client =
        Prometheus::from_options(arguments)?.context("--prometheus is missing")?.with_timeout(TIMEOUT);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let cached = match options.cache.as_deref().filter(|file| file.exists()) {
        Some(file) => Some(resume(file, options)?),
        None => None,
    };
    let span = match &cached {
        Some(store) => Span { from: store.header.from, to: store.header.to },
        None => options.span(i64::try_from(now)?),
    };
    let discovery = Discovery::read(&client, &options.selector, span).await?;
    let mut store = match (cached, &options.cache) {
        (Some(store), _) => store,
        (None, file) => {
            let header = discovery.header(options, span)?;
            match file {
                Some(file) => Store::create(header, file)?,
                None => Store::new(header),
            }
        }
    };
    let reader = Reader { client, discovery, header: store.header.clone(), options };
    reader.read_all(span, &mut store).await?;
    Ok(store)
}

/// The cache of an earlier run for the same series.
fn resume(file: &Path, options: &Options) -> anyhow::Result<Store> {
    let store = Store::resume(file)?;
    let Selector { namespace, model } = &options.selector;
    ensure!(
        (&store.header.namespace, &store.header.model) == (namespace, model),
        "the cache {} is of another namespace or model: name another file, or delete it",
        file.display()
    );
    Ok(store)
}

struct Reader<'a> {
    client: Prometheus,
    discovery: Discovery,
    header: Header,
    options: &'a Options,
}

impl Reader<'_> {
    /// All spans that the store lacks.
    async fn read_all(&self, span: Span, store: &mut Store) -> anyhow::Result<()> {
        let mut left: Vec<Span> = span
            .chunks(self.discovery.count, self.header.interval)
            .into_iter()
            .filter(|chunk| !store.is_done(*chunk))
            .collect();
        self.announce(&left, span);
        left.reverse();
        let progress = Progress::new(left.len());
        while let Some(chunk) = left.pop() {
            match self.read_chunk(chunk, store).await {
                Ok(()) => progress.count(&Time(chunk.from).to_string(), "read"),
                Err(error) => match (refusal::is_too_much(&error), chunk.halves()) {
                    (true, Some([first, second])) => left.extend([second, first]),
                    _ => return Err(explain(&error)),
                },
            }
        }
        Ok(())
    }

    #[expect(clippy::print_stderr, reason = "a note before the queries; the answer is the output")]
    fn announce(&self, chunks: &[Span], span: Span) {
        let queries_of_chunk = 4 + self.discovery.figures().count();
        let cost = estimate(chunks, self.discovery.count, self.header.interval, queries_of_chunk);
        eprintln!(
            "{} to {}: {:.0} models, {:.0} series; {} queries one after the other, about {:.1} million samples in the \
             answers, of {:.0} million that Prometheus reads",
            Time(span.from),
            Time(span.to),
            self.discovery.count.models,
            self.discovery.count.samples + self.discovery.count.histograms,
            cost.queries,
            cost.samples / 1e6,
            cost.read / 1e6
        );
    }

    async fn read_chunk(&self, chunk: Span, store: &mut Store) -> Result<(), ChunkError> {
        let (scrapes, mut warning) = self.scrapes(chunk, store).await?;
        let grid = Grid { span: chunk, step: self.header.step, interval: self.header.interval };
        let mut models: BTreeMap<ModelKey, Chunk> = BTreeMap::new();
        for (key, Reduced { cells, engine, gap_seconds, gaps, points }) in scrapes.reduce(grid) {
            let windows = Windows { gap_seconds, gaps, ..Windows::default() };
            let part =
                Chunk { key: key.clone(), from: chunk.from, cells, windows, engine, points, gpus: None };
            models.insert(key, part);
        }
        for (figure, names) in self.discovery.figures() {
            let expression = figure.expression(names, &self.options.selector);
            let (sink, partial) = self.windows(&expression, chunk).await?;
            store.queries += 1;
            store.samples += sink.samples;
            warning = warning.or(partial);
            keep(&mut models, figure, sink);
        }
        self.facts(chunk, &scrapes, &mut models).await?;
        self.gpus(chunk, &scrapes, &mut models).await?;
        store.queries += 3;
        let done = Part { from: chunk.from, to: chunk.to, warning };
        store.add(models.into_values().collect(), done).map_err(ChunkError::Other)
    }

    /// Raw samples, with those shortly before: what happened between two scrapes belongs to the second.
    async fn scrapes(&self, chunk: Span, store: &mut Store) -> Result<(Scrapes, Option<String>), ChunkError> {
        let names: Vec<String> = Counter::ALL.into_iter().flat_map(Counter::metrics).collect();
        let names: Vec<String> = names.into_iter().filter(|name| self.discovery.has(name)).collect();
        #[expect(clippy::cast_possible_truncation, reason = "a scrape interval is short")]
        let before = (3.0 * self.header.interval) as i64;
        let select = self.options.selector.select(&names);
        // A scrape after the end says what happened just before it.
        let end = chunk.to + before / 3;
        let expression = format!("{select}[{}s]", end - chunk.from + before);
        let query = Query { at: Some(to_f64(end)), is_raw: true, ..Query::now(&expression) };
        let (ScrapeSink(scrapes), partial) = self.client.samples(&query, ScrapeSink::default).await?;
        store.queries += 1;
        store.samples += scrapes.samples();
        Ok((scrapes, partial))
    }

    async fn windows(
        &self,
        expression: &str,
        chunk: Span,
    ) -> Result<(WindowSink, Option<String>), ChunkError> {
        let window = i64::from(WINDOW);
        let range =
            TimeRange { from: to_f64(chunk.from + window), to: to_f64(chunk.to), step: to_f64(window) };
        let query = Query { range: Some(range), is_raw: true, ..Query::now(expression) };
        Ok(self.client.samples(&query, || WindowSink::new(chunk)).await?)
    }

    /// Size of the KV cache, and start times of servers.
    async fn facts(
        &self,
        chunk: Span,
        scrapes: &Scrapes,
        models: &mut BTreeMap<ModelKey, Chunk>,
    ) -> Result<(), ChunkError> {
        let at = |expression: String| async move {
            let query = Query { at: Some(to_f64(chunk.to)), is_raw: true, ..Query::now(&expression) };
            self.client.series_at(&query).await
        };
        let pods = models_of_pods(scrapes);
        for series in at(self.options.selector.cache_config(chunk.seconds())).await? {
            let pod = (series.label("namespace").to_owned(), series.label("pod").to_owned());
            let number = |name: &str| series.label(name).parse::<f64>().ok().filter(|n| *n > 0.0);
            let block_size = number("block_size");
            let blocks = number("num_gpu_blocks").zip(block_size).map(|(n, size)| n * size);
            for key in pods.get(&pod).into_iter().flatten() {
                if let Some(chunk) = models.get_mut(key) {
                    let kv_tokens = number("kv_cache_size_tokens").or(blocks);
                    let facts = EngineFacts { kv_tokens, block_size, ..EngineFacts::default() };
                    chunk.engine = chunk.engine.merged(facts);
                }
            }
        }
        let mut starts: BTreeMap<ModelKey, Vec<f64>> = BTreeMap::new();
        let processes = at(self.options.selector.process_starts(chunk.seconds())).await?;
        let began: BTreeMap<(&str, &str), f64> =
            processes.iter().map(|s| ((s.label("namespace"), s.label("pod")), s.value)).collect();
        for (key, pod, first) in scrapes.first_scrapes() {
            if let Some(began) = began.get(&(key.namespace.as_str(), pod))
                && first > to_f64(chunk.from) + self.header.interval
                && (1.0..3600.0).contains(&(first - began))
            {
                starts.entry(key.clone()).or_default().push(first - began);
            }
        }
        for (key, mut seconds) in starts {
            seconds.sort_by(f64::total_cmp);
            if let Some(chunk) = models.get_mut(&key) {
                chunk.engine.start_seconds = seconds.get(seconds.len() / 2).copied();
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    /// GPUs of the replicas, for costs by accelerator.
    async fn gpus(
        &self,
        chunk: Span,
        scrapes: &Scrapes,
        models: &mut BTreeMap<ModelKey, Chunk>,
    ) -> Result<(), ChunkError> {
        let expression = Selector::gpus(chunk.seconds());
        let query = Query { at: Some(to_f64(chunk.to)), is_raw: true, ..Query::now(&expression) };
        let found = gpus_of_models(&self.client.series_at(&query).await?, &models_of_pods(scrapes));
        for (key, gpus) in found {
            if let Some(chunk) = models.get_mut(&key) {
                chunk.gpus = Some(gpus);
            }
        }
        Ok(())
    }
}

/// The kind and number that most pods of a model have. `pods`: models by namespace and name of their pods.
fn gpus_of_models(
    series: &[Series],
    pods: &BTreeMap<(String, String), BTreeSet<ModelKey>>,
) -> BTreeMap<ModelKey, Gpus> {
    let mut seen: BTreeMap<&ModelKey, BTreeMap<(String, u64), usize>> = BTreeMap::new();
    for one in series {
        let label = |own: &str, exported: &str| {
            Some(one.label(exported)).filter(|name| !name.is_empty()).unwrap_or(one.label(own)).to_owned()
        };
        let pod = (label("namespace", "exported_namespace"), label("pod", "exported_pod"));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "GPUs of a pod")]
        let kind = (normalize_accelerator(one.label("modelName")), one.value.max(0.0) as u64);
        for key in pods.get(&pod).into_iter().flatten() {
            *seen.entry(key).or_default().entry(kind.clone()).or_default() += 1;
        }
    }
    let usual = |kinds: BTreeMap<(String, u64), usize>| {
        let ((name, count), _) = kinds.into_iter().max_by_key(|(_, pods)| *pods)?;
        Some(Gpus { name, count: f64::from(u32::try_from(count).unwrap_or(u32::MAX)) })
    };
    seen.into_iter().filter_map(|(key, kinds)| Some((key.clone(), usual(kinds)?))).collect()
}

/// Puts the figures of an answer in their place.
fn keep(models: &mut BTreeMap<ModelKey, Chunk>, figure: Figure, sink: WindowSink) {
    if figure.is_histogram() {
        for (key, histogram) in sink.histograms() {
            let Some(Chunk { windows, .. }) = models.get_mut(&key) else { continue };
            let place = match figure {
                Figure::Prompt => &mut windows.prompt,
                Figure::Output => &mut windows.output,
                Figure::Ttft => &mut windows.ttft,
                _ => &mut windows.request_gap,
            };
            *place = histogram;
        }
    } else {
        for (key, row) in sink.sums() {
            let Some(Chunk { windows, .. }) = models.get_mut(&key) else { continue };
            let place = match figure {
                Figure::PrefixHits => &mut windows.prefix_hits,
                _ => &mut windows.prefix_lookups,
            };
            *place = row.into_iter().map(|value| if value.is_nan() { 0.0 } else { value }).collect();
        }
    }
}

#[derive(Debug)]
enum ChunkError {
    Query(QueryError),
    Other(anyhow::Error),
}

impl From<QueryError> for ChunkError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

fn explain(error: &ChunkError) -> anyhow::Error {
    match error {
        ChunkError::Query(error) => query_error(error),
        ChunkError::Other(error) => anyhow::anyhow!("{error:#}"),
    }
}

fn query_error(error: &QueryError) -> anyhow::Error {
    let text = refusal::remedy(error).unwrap_or_else(|| describe(error));
    anyhow::Error::new(NoAnswer(text))
}

#[expect(clippy::cast_precision_loss, reason = "times of this century in seconds")]
fn to_f64(epoch: i64) -> f64 {
    epoch as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_those_of_most_pods_of_a_model() {
        let key = ModelKey { namespace: "n".to_owned(), model: "m".to_owned() };
        let pods: BTreeMap<_, _> = ["a", "b", "c"]
            .map(|pod| (("n".to_owned(), pod.to_owned()), BTreeSet::from([key.clone()])))
            .into();
        let series = |labels: &[(&str, &str)], value| {
            let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Series { labels: labels.collect(), value }
        };
        let h100 = ("modelName", "NVIDIA H100 80GB HBM3");
        let exported =
            [("namespace", "gpu"), ("pod", "x"), ("exported_namespace", "n"), ("exported_pod", "b"), h100];
        let found = [
            series(&[("namespace", "n"), ("pod", "a"), h100], 2.0),
            series(&exported, 2.0),
            series(&[("namespace", "n"), ("pod", "c"), ("modelName", "NVIDIA L4")], 1.0),
            series(&[("namespace", "other"), ("pod", "a"), h100], 8.0),
        ];
        let gpus = gpus_of_models(&found, &pods);
        assert_eq!(gpus, BTreeMap::from([(key, Gpus { name: "H100".to_owned(), count: 2.0 })]));
    }
}
