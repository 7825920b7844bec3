//! Engines that a scenario can name. docs/development/evidence/simulator.md lists the published figures and errors, which
//! `tests/calibration.rs` computes.

use crate::fleet::engine::{Engine, StepTokens};

/// `Qwen/Qwen3-32B` on H100s, fitted to the llm-d autoscaling benchmarks.
pub const QWEN3_32B_H100: Engine = Engine {
    step: 0.017,
    per_sequence: 0.000_25,
    per_prompt_token: 0.000_06,
    per_cached_token: 3e-8,
    max_seqs: 256,
    max_batched_tokens: 8192,
    block_size: 16,
    kv_blocks: 17_000,
    prefix_hit_rate: 0.0,
    tokens: StepTokens::ONE,
};

/// The same on A100s, estimated: memory-bound times by the ratio of the bandwidths (3.35 to 2.04 TB/s), compute-bound
/// times by that of the dense bf16 rates (989 to 312 Tflop/s).
pub const QWEN3_32B_A100: Engine = Engine {
    step: 0.017 * 1.64,
    per_sequence: 0.000_25 * 1.64,
    per_prompt_token: 0.000_06 * 3.17,
    per_cached_token: 3e-8 * 1.64,
    ..QWEN3_32B_H100
};

/// The server in a log of llm-d WVA's guide to the HPA: `ITL = 20.58 ms + 0.41 ms * batch`, batches of 4.
pub const GUIDE_A100: Engine = Engine {
    step: 0.020_58,
    per_sequence: 0.000_41,
    per_prompt_token: 0.0,
    per_cached_token: 0.0,
    max_seqs: 4,
    max_batched_tokens: 8192,
    block_size: 16,
    kv_blocks: 16_000,
    prefix_hit_rate: 0.0,
    tokens: StepTokens::ONE,
};

/// All engines by name.
pub const ENGINES: &[(&str, Engine)] =
    &[("qwen3-32b-h100", QWEN3_32B_H100), ("qwen3-32b-a100", QWEN3_32B_A100), ("guide-a100", GUIDE_A100)];
