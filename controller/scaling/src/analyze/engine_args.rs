//! Arguments of a vLLM server that bound its capacity, with vLLM's defaults.

use super::shell_words::{parse_vllm_integer, split_shell_words};

/// Replicas with equal arguments on equal hardware have the same capacity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EngineArgs {
    /// `--num-gpu-blocks-override`.
    blocks_override: Option<f64>,
    /// `--block-size`, tokens.
    block_size: f64,
    /// `--max-num-seqs`, concurrent sequences.
    pub(super) max_seqs: f64,
    max_batched_tokens: Option<f64>,
    max_model_len: Option<f64>,
    chunked_prefill: bool,
    v1: bool,
    // No formula uses the following; they decide whether two variants are compatible.
    gpu_memory_utilization: f64,
    kv_cache_dtype: String,
    tensor_parallel_size: f64,
    enforce_eager: bool,
}

/// Extracts the capacity arguments from command, arguments and environment of a vLLM server, in one spelling. Drops all
/// other words, which may contain secrets.
#[must_use]
pub fn engine_arguments(words: &[String]) -> Vec<String> {
    EngineArgs::parse(words).to_words()
}

impl Default for EngineArgs {
    fn default() -> Self {
        Self {
            blocks_override: None,
            block_size: 16.0,
            max_seqs: 256.0,
            max_batched_tokens: None,
            max_model_len: None,
            chunked_prefill: false,
            v1: true,
            gpu_memory_utilization: 0.9,
            kv_cache_dtype: "auto".to_owned(),
            tensor_parallel_size: 1.0,
            enforce_eager: false,
        }
    }
}

impl EngineArgs {
    /// Parses flags of vLLM, and those of `SGLang` with the same meaning: `--k v`, `--k=v`, `-` for `_`, scripts of
    /// `sh -c`, and `VLLM_USE_V1=0`. Ignores unknown flags. The last of several equal flags counts.
    pub(super) fn parse(args: &[String]) -> Self {
        let mut engine = Self::default();
        let words: Vec<String> = args.iter().flat_map(|arg| split_shell_words(arg)).collect();
        for (i, word) in words.iter().enumerate() {
            if let Some(value) = word.strip_prefix("VLLM_USE_V1=") {
                engine.v1 = value != "0";
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
            "max-num-seqs" | "max-running-requests" => self.max_seqs = number().unwrap_or(self.max_seqs),
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
            required("max-num-seqs", self.max_seqs, default.max_seqs),
            number("max-num-batched-tokens", self.max_batched_tokens, None),
            number("max-model-len", self.max_model_len, None),
            required("gpu-memory-utilization", self.gpu_memory_utilization, default.gpu_memory_utilization),
            required("tensor-parallel-size", self.tensor_parallel_size, default.tensor_parallel_size),
            Some(dtype).filter(|d| *d != default.kv_cache_dtype).map(|d| format!("--kv-cache-dtype={d}")),
            switch("--enable-chunked-prefill", self.chunked_prefill),
            switch("--enforce-eager", self.enforce_eager),
            switch("VLLM_USE_V1=0", !self.v1),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// `--max-num-batched-tokens`: most tokens of an engine step; by default vLLM's for the engine version.
    pub(super) fn batched_tokens(&self) -> f64 {
        self.max_batched_tokens.unwrap_or(match (self.v1, self.chunked_prefill) {
            (true, _) => 8192.0,
            (false, true) => 2048.0,
            (false, false) => self.max_model_len.unwrap_or(0.0).max(2048.0),
        })
    }

    /// KV cache size in tokens, if `--num-gpu-blocks-override` sets it.
    pub(super) fn kv_tokens(&self) -> Option<f64> {
        self.blocks_override.map(|blocks| blocks * self.block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &[&str], batched: f64, seqs: f64, kv: Option<f64>) {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let engine = EngineArgs::parse(&args);
        let found = (engine.batched_tokens(), engine.max_seqs, engine.kv_tokens());
        assert_eq!(format!("{found:?}"), format!("{:?}", (batched, seqs, kv)), "{args:?}");
    }

    #[test]
    fn parses_every_spelling() {
        check(&[], 8192.0, 256.0, None);
        check(&["--max-num-seqs=64", "--max_num_batched_tokens", "4096"], 4096.0, 64.0, None);
        check(
            &["sh", "-c", "vllm serve m --num-gpu-blocks-override 100 --block-size=32"],
            8192.0,
            256.0,
            Some(3200.0),
        );
        check(&["VLLM_USE_V1=0"], 2048.0, 256.0, None);
        check(&["VLLM_USE_V1=0", "--max-model-len=4096"], 4096.0, 256.0, None);
        check(&["VLLM_USE_V1=0", "--max-model-len=4096", "--enable-chunked-prefill"], 2048.0, 256.0, None);
        check(
            &["VLLM_USE_V1=0", "--max-model-len=4096", "--enable-chunked-prefill=False"],
            4096.0,
            256.0,
            None,
        );
        check(&["--max-num-seqs=many"], 8192.0, 256.0, None);
        check(&["--max-num-batched-tokens=8k", "--max-num-seqs", "1K"], 8000.0, 1024.0, None);
        check(&["--max-num-seqs=-1", "--max-num-batched-tokens=0"], 8192.0, 256.0, None);
        check(&["--max-num-seqs=4", "--max-num-seqs=8"], 8192.0, 8.0, None);
    }

    #[test]
    fn parses_shell_scripts() {
        check(&["VLLM_USE_V1=0 exec vllm serve m --max-model-len=4096"], 4096.0, 256.0, None);
        check(&["export VLLM_USE_V1=\"0\"; vllm serve m --max-model-len '4096'"], 4096.0, 256.0, None);
        check(
            &["-m sglang.launch_server --max-running-requests 64 --chunked-prefill-size=4096"],
            4096.0,
            64.0,
            None,
        );
        check(&["vllm serve \"my model\" --max-num-seqs=\"64\""], 8192.0, 64.0, None);
        check(&["vllm serve m \\\n  --max-num-seqs 64 \\\n  --max-model-len 4096"], 8192.0, 64.0, None);
        check(&["# --max-num-seqs 4\nvllm serve m"], 8192.0, 256.0, None);
        check(&["--chat-template \"say --max-num-seqs=4\" --max-num-seqs 8"], 8192.0, 8.0, None);
        let v0 = [
            "VLLM_USE_V1=0", "--max-model-len=4096", "--enable-chunked-prefill",
            "--no-enable-chunked-prefill",
        ];
        check(&v0, 4096.0, 256.0, None);
    }

    #[test]
    fn normalized_words_are_equivalent_and_contain_no_secret() {
        let script = "export HF_TOKEN=secret VLLM_USE_V1=0; vllm serve m --api-key secret --max_num_seqs 64 \
                      --num-gpu-blocks-override=1000 --block-size 32 --max-num-batched-tokens=8k --max-model-len 4096 \
                      -tp 2 --gpu-memory-utilization .85 --kv-cache-dtype fp8 --enforce-eager \
                      --enable-chunked-prefill True";
        let words = engine_arguments(&["sh".to_owned(), "-c".to_owned(), script.to_owned()]);
        let expected = [
            "--num-gpu-blocks-override=1000", "--block-size=32", "--max-num-seqs=64",
            "--max-num-batched-tokens=8000", "--max-model-len=4096", "--gpu-memory-utilization=0.85",
            "--tensor-parallel-size=2", "--kv-cache-dtype=fp8", "--enable-chunked-prefill",
            "--enforce-eager", "VLLM_USE_V1=0",
        ];
        assert_eq!(words, expected);
        assert_eq!(EngineArgs::parse(&words), EngineArgs::parse(&[script.to_owned()]));
        assert_eq!(engine_arguments(&words), words);
        assert_eq!(engine_arguments(&["--max-num-seqs=256".to_owned()]), [""; 0]);
        let odd = engine_arguments(&["--kv-cache-dtype".to_owned(), "'fp8 --max-num-seqs=1'".to_owned()]);
        assert_eq!(odd, [""; 0], "not the name of a type");
    }

    #[test]
    fn equivalent_arguments_are_equal() {
        let parse = |text: &str| EngineArgs::parse(&[text.to_owned()]);
        for (one, other) in [
            ("", "--block-size 16 --kv-cache-dtype auto --gpu-memory-utilization=0.90 --port 8000"),
            ("--tensor_parallel_size=2", "-tp 2"),
            ("--enforce-eager --tensor-parallel-size 2", "-tp=2 --enforce-eager=true"),
        ] {
            assert_eq!(parse(one), parse(other), "{one} and {other}");
        }
        for flag in [
            "--block-size 32", "--kv-cache-dtype fp8", "--gpu-memory-utilization .8", "-tp 2",
            "--enforce-eager", "--max-model-len 4096", "--max-num-seqs 64", "VLLM_USE_V1=0",
        ] {
            assert_ne!(parse(""), parse(flag), "{flag}");
        }
    }
}
