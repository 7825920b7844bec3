//! What the arguments of a vLLM server say about its capacity. Arguments that are not given have vLLM's defaults.

/// The arguments that bound a replica.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EngineArgs {
    /// `--num-gpu-blocks-override`.
    blocks_override: Option<f64>,
    /// `--block-size`, tokens a block holds.
    block_size: f64,
    /// `--max-num-seqs`, requests that run at once.
    pub(super) max_seqs: f64,
    max_batched_tokens: Option<f64>,
    max_model_len: Option<f64>,
    chunked_prefill: bool,
    v1: bool,
}

impl EngineArgs {
    /// Reads words as a pod template gives them: `--k v`, `--k=v`, `-` and `_` alike, whole command lines as `sh -c`
    /// takes them, and `VLLM_USE_V1=0`. What it does not know it passes over.
    pub(super) fn parse(args: &[String]) -> Self {
        let mut engine = Self {
            blocks_override: None,
            block_size: 16.0,
            max_seqs: 256.0,
            max_batched_tokens: None,
            max_model_len: None,
            chunked_prefill: false,
            v1: true,
        };
        let words: Vec<&str> = args
            .iter()
            .flat_map(|arg| arg.split_whitespace())
            .map(|word| word.trim_matches(['"', '\'', ';']))
            .collect();
        for (i, word) in words.iter().enumerate() {
            if let Some(value) = word.strip_prefix("VLLM_USE_V1=") {
                engine.v1 = value != "0";
            }
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, words.get(i + 1).copied()),
            };
            let number = || value.and_then(|v| v.parse::<u32>().ok()).filter(|n| *n > 0).map(f64::from);
            match name.replace('_', "-").as_str() {
                "num-gpu-blocks-override" => engine.blocks_override = number(),
                "block-size" => engine.block_size = number().unwrap_or(engine.block_size),
                "max-num-seqs" => engine.max_seqs = number().unwrap_or(engine.max_seqs),
                "max-num-batched-tokens" => engine.max_batched_tokens = number(),
                "max-model-len" => engine.max_model_len = number(),
                "enable-chunked-prefill" => {
                    engine.chunked_prefill = !value.is_some_and(|v| v.eq_ignore_ascii_case("false"));
                }
                _ => {}
            }
        }
        engine
    }

    /// Most tokens of one step of the engine.
    pub(super) fn batched_tokens(&self) -> f64 {
        self.max_batched_tokens.unwrap_or(match (self.v1, self.chunked_prefill) {
            (true, _) => 8192.0,
            (false, true) => 2048.0,
            (false, false) => self.max_model_len.unwrap_or(0.0).max(2048.0),
        })
    }

    /// Tokens of KV cache, where the arguments set them.
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
    fn reads_every_spelling() {
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
    }
}
