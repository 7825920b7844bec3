//! Page of model servers, `docs/reference/model-servers.md`, from the table of their metrics.

use std::fmt::Write as _;

use wva_objects::servers::ServerSignal::{
    Awake, BlockTokens, CacheBlocks, CacheConfig, CacheTokens, CachedTokens, Completed, FirstToken,
    GeneratedTokens, InputCount, InputSum, KvUsage, NoRequestYet, OutputCount, OutputSum, PrefillTime,
    PrefixHits, PrefixLookups, PromptTokens, Refused, Running, TokenGap, Waiting,
};
use wva_objects::servers::{MODEL_SERVERS, ModelServer, ServerSignal};

const HEAD: &str = "# Model servers

<!-- Written by `make generate` from the table of model servers (objects/src/servers/table.rs): change it
     there, or the text around it in xtask/src/model_servers_page.rs. -->

This page tells you which metrics wva reads from each model server, and what works with it.

wva finds the server of a pod by the names that the pod exports; no setting names it. Pods of one model may run
different servers. One query has the names of all servers, so another server makes no more queries:
[queries](queries.md#queries).

## Servers

";

const FEATURES: &str = "
How each release is proven:

| server | release | proof |
|---|---|---|
| vLLM | 0.32 | run on a CPU with a tiny model by `make test-engines`, with a real Prometheus and wva: one engine, two data-parallel engines, load beyond saturation, cancelled requests, one slowed server of two. By hand: a model with sliding layers, sleep. Tests read its recorded pages |
| vLLM | 0.11, 0.15 | names and defaults read from its source |
| vLLM | 0.6 to 0.10 | names of its documentation; not run |
| SGLang | 0.5.23 | names and types read from its package by a script of `make test-engines`, which also shows what the newest release changed; not run |
| SGLang | 0.4.6, 0.5.4 | names read from its source; not run |
| TensorRT-LLM, Triton | | names of their documentation; not proven |

No server was run on a GPU for this. Tests read the pages in `tests/fixtures/model-servers`, and emulated servers of
vLLM and SGLang.

## What works

A signal in brackets is missing; wva works without it. Triton needs a label for scale to zero: [notes](#notes).

";

const SIGNALS: &str = "
## Signals by server

Of several names the first that a pod has counts. Metrics after a `+` are added. The last three are histograms, named
without `_bucket`, `_sum` and `_count`.

";

const TAIL: &str = "
## Notes

- **SGLang** exports metrics only with `--enable-metrics`. It counts tokens when a request ends, so its counters rise in
  larger steps. Gauges change with each prefill and every `--decode-log-interval` steps. wva adds up the ranks of
  `dp_rank`, and takes the maximum over other ranks. Releases before 0.5.6 do not export the size of the KV cache, which
  analyzer `token` needs. 0.4.6 exports the tokens found in the prefix cache, earlier ones may not.
- **Labels of your own on SGLang's counters** (`--tokenizer-metrics-allowed-custom-labels`) split each counter. wva does not
  know these labels, counts only the greatest part, and so sees too few requests. Leave them out.
- **Prefill and decode pods of SGLang** have queues of their own, for which `sglang:num_queue_reqs` shows nothing. A
  request that waits for a peer or for memory (`bootstrap`, `prealloc`) counts as waiting. A request whose KV cache is
  transferred (`inflight`, `transfer`) counts as running: it holds memory, and a slow peer must not make its pods grow.
- **Sleep mode of vLLM**: a pod whose engines all sleep (`/sleep`) has no capacity, and a scale-down removes it first. If
  only some of its engines sleep, the pod counts, and its variant is not scaled down. Releases without
  `vllm:engine_sleep_state` always count as awake.
- **Data parallelism of vLLM**: each engine has its own series. Several API servers export gauges of requests only from the
  first request on; until then the counter `vllm:prompt_tokens_total` is 0, and the pod counts as idle.
- **Several servers in a pod** add up. wva tells them apart by the port of the label `instance`, else by `container`. If
  neither differs, they count once, and `wva doctor --prometheus URL` names the pods.
- **Stalled servers**: if requests run or wait for ten minutes, and no counter of requests or tokens moves, the pod is
  stalled and forbids a scale-down. TensorRT-LLM and Triton count at the end of a request, so one that takes longer
  looks the same.
- **TensorRT-LLM** answers JSON at `/metrics`. Set `path: /prometheus/metrics` in the monitor, and start `trtllm-serve`
  with `return_perf_metrics: true` and `enable_iter_perf_stats: true`. Its time between tokens is a mean of each
  request.
- **Triton** serves metrics at port 8002. Its series have no `model_name`, so the pod must serve one model, and the
  model never goes to zero. To allow that, let the monitor add the label:

  ```yaml
  metricRelabelings:
    - targetLabel: model_name
      replacement: org/model # spec.modelID
  ```

- If a signal is missing, `MetricsAvailable`, `wva explain` and `wva doctor` name the metric of the pod's server.
- The [final check](../concepts/scale-to-zero.md#the-final-check) before a step to zero reads the same names.

## Defaults of vLLM

The analyzers `token` and `throughput` read how many sequences run at once (`--max-num-seqs`) and how many tokens a step
has (`--max-num-batched-tokens`). Without these arguments they assume vLLM's defaults, which depend on the GPU:

| GPU | sequences | tokens of a step |
|---|---|---|
| 70 GiB or more, but not an A100 | 1024 | 8192 |
| 160 GiB or more, from vLLM 0.32 on | 1024 | 16384 |
| others, also an A100 of 80 GB and slices of large cards | 256 | 2048 |
| of unknown memory | 256 | 8192 |
| any, with `VLLM_USE_V1=0` | 256 | 2048, or `--max-model-len` without chunked prefill |

wva derives the memory from the accelerator's name, and the release from the tag of an image `vllm-openai`. With another
image it assumes an earlier release.

wva does not read the file of `--config`, which may set the same arguments. `wva explain` says so. Set arguments that
determine capacity on the command line.
";

/// A feature with the signals that it needs, and those that it can do without.
const USES: [(&str, &[ServerSignal], &[ServerSignal]); 6] = [
    ("analyzer `percentage`", &[KvUsage, Waiting], &[]),
    ("analyzer `token`", &[KvUsage, Waiting, InputSum, InputCount, OutputSum, OutputCount], &[PrefixHits]),
    (
        "analyzer `throughput`",
        &[Completed, PromptTokens, GeneratedTokens, Running, Waiting],
        &[CachedTokens, PrefillTime, TokenGap, FirstToken],
    ),
    ("objective `ttftSlo` measured", &[FirstToken], &[]),
    ("objective `itlSlo` measured", &[TokenGap], &[]),
    ("scale to zero", &[Running, Waiting, Completed], &[FirstToken]),
];

const NAMES: [(ServerSignal, &str); 23] = [
    (KvUsage, "KV cache in use, 0 to 1"),
    (Waiting, "requests waiting"),
    (Running, "requests running"),
    (Awake, "engine awake, 0 or 1"),
    (NoRequestYet, "0 until the first request"),
    (CacheConfig, "KV cache size, in labels"),
    (CacheTokens, "KV cache size, tokens"),
    (CacheBlocks, "KV cache size, blocks"),
    (BlockTokens, "tokens of a block"),
    (InputSum, "mean input: tokens"),
    (InputCount, "mean input: requests"),
    (OutputSum, "mean output: tokens"),
    (OutputCount, "mean output: requests"),
    (PrefixHits, "prefix cache: tokens found"),
    (PrefixLookups, "prefix cache: tokens looked up"),
    (Completed, "requests finished"),
    (Refused, "requests refused by a full queue"),
    (PromptTokens, "prompt tokens"),
    (CachedTokens, "prompt tokens of a cache"),
    (GeneratedTokens, "generated tokens"),
    (PrefillTime, "prefill time"),
    (TokenGap, "time between tokens"),
    (FirstToken, "time to first token"),
];

pub(crate) fn page() -> String {
    let mut text = HEAD.to_owned();
    text += "| server | releases | path and default port of its metrics |\n|---|---|---|\n";
    for row in &MODEL_SERVERS {
        let _ = writeln!(text, "| {} | {} | `{}`, {} |", row.name, row.releases, row.path, row.port);
    }
    text += FEATURES;
    add_table(
        &mut text,
        "feature",
        USES.iter().map(|(name, needed, optional)| (*name, (*needed, *optional))),
        |row, uses| {
            let (needed, optional): (&[ServerSignal], &[ServerSignal]) = uses;
            let missing = |signals: &[ServerSignal]| {
                let names = signals
                    .iter()
                    .filter(|signal| row.metrics(**signal).is_empty())
                    .map(|signal| title(*signal));
                names.collect::<Vec<_>>().join(", ")
            };
            match (missing(needed), missing(optional)) {
                (needed, _) if !needed.is_empty() => format!("no: {needed}"),
                (_, optional) if !optional.is_empty() => format!("yes ({optional})"),
                _ => "yes".to_owned(),
            }
        },
    );
    text += SIGNALS;
    add_table(&mut text, "signal", NAMES.iter().map(|(signal, name)| (*name, *signal)), |row, signal| {
        let names = row.metrics(signal).iter().map(|metric| format!("`{metric}`"));
        let parts = row.parts(signal).map(|metric| format!("+ `{metric}`"));
        let names = names.collect::<Vec<_>>().join(", ");
        [names].into_iter().chain(parts).collect::<Vec<_>>().join(" ")
    });
    text + TAIL
}

fn title(signal: ServerSignal) -> &'static str {
    NAMES.iter().find(|(own, _)| *own == signal).map_or("", |(_, name)| name)
}

/// A row for each item, a column for each server.
fn add_table<T: Copy>(
    text: &mut String,
    head: &str,
    rows: impl Iterator<Item = (&'static str, T)>,
    cell: impl Fn(&ModelServer, T) -> String,
) {
    let names = MODEL_SERVERS.iter().map(|row| row.name).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(text, "| {head} | {names} |\n|---|{}", "---|".repeat(MODEL_SERVERS.len()));
    for (name, item) in rows {
        let cells = MODEL_SERVERS.iter().map(|row| cell(row, item)).collect::<Vec<_>>().join(" | ");
        let _ = writeln!(text, "| {name} | {cells} |");
    }
}

#[test]
fn every_signal_has_a_line() {
    for (signal, _) in MODEL_SERVERS.iter().flat_map(|row| row.signals) {
        assert!(!title(*signal).is_empty(), "{signal:?}");
    }
}
