//! Arguments of a vLLM server that bound its capacity, with the defaults that vLLM has on this hardware.

use crate::hardware::gpu_memory;
use crate::shell_words::{parse_vllm_integer, split_shell_words};

/// Word for the release of vLLM, such as `VLLM_RELEASE=0.32`, as the tag of its image shows it.
pub(crate) const ENGINE_RELEASE: &str = "VLLM_RELEASE=";
/// Release from which on the defaults are higher on large GPUs.
const LARGE_BATCHES: Release = Release { major: 0, minor: 32 };
/// Flag for a file with more arguments, which only the server reads.
const CONFIG_FILE: &str = "--config";

/// Arguments of a server. Replicas with equal arguments on equal hardware have the same capacity.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct EngineArgs {
    /// `--num-gpu-blocks-override`.
    blocks_override: Option<f64>,
    /// `--block-size`, tokens.
    block_size: f64,
    /// `--max-num-seqs`.
    max_seqs: Option<f64>,
    max_batched_tokens: Option<f64>,
    max_model_len: Option<f64>,
    chunked_prefill: bool,
    v1: bool,
    /// The release is [`LARGE_BATCHES`] or later.
    has_large_batches: bool,
    defaults: Defaults,
    /// The server has `--config`, whose arguments are unknown.
    has_config_file: bool,
    // No formula uses the following; they decide whether two variants are compatible.
    gpu_memory_utilization: f64,
    kv_cache_dtype: String,
    tensor_parallel_size: f64,
    enforce_eager: bool,
}

/// Defaults of the API server of vLLM's engine V1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Defaults {
    /// Concurrent sequences.
    seqs: f64,
    /// Tokens of an engine step.
    batched_tokens: f64,
}

impl Defaults {
    /// Defaults on hardware of unknown memory.
    const UNKNOWN: Self = Self { seqs: 256.0, batched_tokens: 8192.0 };

    /// Defaults by the memory of a GPU, as vLLM sets them. vLLM takes an A100 of 80 GB for a small card, as one of 40
    /// GB is.
    fn on(accelerator: &str, has_large_batches: bool) -> Self {
        let Some(gib) = gpu_memory(accelerator) else { return Self::UNKNOWN };
        match gib {
            _ if gib < 70.0 => Self { seqs: 256.0, batched_tokens: 2048.0 },
            _ if has_large_batches && gib >= 160.0 => Self { seqs: 1024.0, batched_tokens: 16384.0 },
            _ => Self { seqs: 1024.0, batched_tokens: 8192.0 },
        }
    }
}

/// Whether a file has arguments of the server that wva cannot read. `words`: of [`engine_arguments`].
#[must_use]
pub fn has_config_file(words: &[String]) -> bool {
    words.iter().any(|word| word == CONFIG_FILE)
}

/// Extracts the capacity arguments from command, arguments and environment of a vLLM server, in one spelling. Drops all
/// other words, which may contain secrets.
pub(crate) fn engine_arguments(words: &[String]) -> Vec<String> {
    EngineArgs::parse(words).to_words()
}

impl Default for EngineArgs {
    fn default() -> Self {
        Self {
            blocks_override: None,
            block_size: 16.0,
            max_seqs: None,
            max_batched_tokens: None,
            max_model_len: None,
            chunked_prefill: false,
            v1: true,
            has_large_batches: false,
            defaults: Defaults::UNKNOWN,
            has_config_file: false,
            gpu_memory_utilization: 0.9,
            kv_cache_dtype: "auto".to_owned(),
            tensor_parallel_size: 1.0,
            enforce_eager: false,
        }
    }
}

impl EngineArgs {
    /// Arguments of a server on this hardware.
    #[must_use]
    pub fn on(accelerator: &str, args: &[String]) -> Self {
        let engine = Self::parse(args);
        Self { defaults: Defaults::on(accelerator, engine.has_large_batches), ..engine }
    }

    /// Parses flags of vLLM, and those of `SGLang` with the same meaning: `--k v`, `--k=v`, `-` for `_`, scripts of
    /// `sh -c`, and `VLLM_USE_V1=0`. Ignores unknown flags. The last of several equal flags counts.
    fn parse(args: &[String]) -> Self {
        let mut engine = Self::default();
        let words: Vec<String> = args.iter().flat_map(|arg| split_shell_words(arg)).collect();
        for (i, word) in words.iter().enumerate() {
            if let Some(value) = word.strip_prefix("VLLM_USE_V1=") {
                engine.v1 = value != "0";
            } else if let Some(release) = word.strip_prefix(ENGINE_RELEASE) {
                engine.has_large_batches =
                    Release::parse(release).is_some_and(|release| release >= LARGE_BATCHES);
            } else if let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) {
                let (name, value) = match flag.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (flag, words.get(i + 1).map(String::as_str)),
                };
                engine.set(&name.replace('_', "-"), value);
            }
        }
        engine
    }

    /// Ignores values that vLLM rejects.
    fn set(&mut self, name: &str, value: Option<&str>) {
        let number = || value.and_then(parse_vllm_integer);
        let on = !value.is_some_and(|v| v.eq_ignore_ascii_case("false"));
        match name {
            "num-gpu-blocks-override" => self.blocks_override = number().or(self.blocks_override),
            "block-size" => self.block_size = number().unwrap_or(self.block_size),
            "max-num-seqs" | "max-running-requests" => self.max_seqs = number().or(self.max_seqs),
            "config" => self.has_config_file = true,
            "max-num-batched-tokens" | "chunked-prefill-size" => {
                self.max_batched_tokens = number().or(self.max_batched_tokens);
            }
            "max-model-len" | "context-length" => self.max_model_len = number().or(self.max_model_len),
            "enable-chunked-prefill" => self.chunked_prefill = on,
            "no-enable-chunked-prefill" => self.chunked_prefill = false,
            "enforce-eager" => self.enforce_eager = on,
            "no-enforce-eager" => self.enforce_eager = false,
            "tensor-parallel-size" | "tp" | "tp-size" => {
                self.tensor_parallel_size = number().unwrap_or(self.tensor_parallel_size);
            }
            "kv-cache-dtype" => {
                // A name such as fp8_e4m3.
                let name = |v: &&str| v.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                let value = value.filter(|v| !v.is_empty()).filter(name);
                value.unwrap_or(&self.kv_cache_dtype.clone()).clone_into(&mut self.kv_cache_dtype);
            }
            "gpu-memory-utilization" | "mem-fraction-static" => {
                let share = value.and_then(|v| v.parse().ok()).filter(|v| (0.0..=1.0).contains(v));
                self.gpu_memory_utilization = share.unwrap_or(self.gpu_memory_utilization);
            }
            _ => {}
        }
    }

    /// Arguments that differ from vLLM's defaults. [`Self::parse`] reads them back.
    fn to_words(&self) -> Vec<String> {
        let default = Self::default();
        let number = |flag: &str, value: Option<f64>, default: Option<f64>| {
            value.filter(|_| value != default).map(|v| format!("--{flag}={v}"))
        };
        let switch = |word: &str, on: bool| on.then(|| word.to_owned());
        let required = |flag: &str, value: f64, default: f64| number(flag, Some(value), Some(default));
        let dtype = self.kv_cache_dtype.clone();
        [
            number("num-gpu-blocks-override", self.blocks_override, None),
            required("block-size", self.block_size, default.block_size),
            number("max-num-seqs", self.max_seqs, None),
            number("max-num-batched-tokens", self.max_batched_tokens, None),
            number("max-model-len", self.max_model_len, None),
            required("gpu-memory-utilization", self.gpu_memory_utilization, default.gpu_memory_utilization),
            required("tensor-parallel-size", self.tensor_parallel_size, default.tensor_parallel_size),
            Some(dtype).filter(|d| *d != default.kv_cache_dtype).map(|d| format!("--kv-cache-dtype={d}")),
            switch("--enable-chunked-prefill", self.chunked_prefill),
            switch("--enforce-eager", self.enforce_eager),
            switch("VLLM_USE_V1=0", !self.v1),
            switch(CONFIG_FILE, self.has_config_file),
            self.has_large_batches
                .then(|| format!("{ENGINE_RELEASE}{}.{}", LARGE_BATCHES.major, LARGE_BATCHES.minor)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// `--max-num-seqs`: concurrent sequences.
    #[must_use]
    pub fn max_seqs(&self) -> f64 {
        self.max_seqs.unwrap_or_else(|| self.usual_seqs())
    }

    /// The same without the argument.
    #[must_use]
    pub fn usual_seqs(&self) -> f64 {
        if self.v1 { self.defaults.seqs } else { Defaults::UNKNOWN.seqs }
    }

    /// `--max-num-batched-tokens`: most tokens of an engine step.
    #[must_use]
    pub fn batched_tokens(&self) -> f64 {
        self.max_batched_tokens.unwrap_or(match (self.v1, self.chunked_prefill) {
            (true, _) => self.defaults.batched_tokens,
            (false, true) => 2048.0,
            (false, false) => self.max_model_len.unwrap_or(0.0).max(2048.0),
        })
    }

    /// KV cache size in tokens, if `--num-gpu-blocks-override` sets it.
    #[must_use]
    pub fn kv_tokens(&self) -> Option<f64> {
        self.blocks_override.map(|blocks| blocks * self.block_size)
    }
}

/// Release of vLLM. The order of the fields is that of releases.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// Parses a release such as `0.32`.
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

#[cfg(test)]
mod tests;
