//! Pods of a group that serve, such as a group of a `LeaderWorkerSet`. The command line of its workers tells.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ServerKind;
use crate::shell_words::split_shell_words;

/// Pods of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroup {
    /// Pods of the group, with the leader.
    pub pods: u32,
    /// Pods that hold requests.
    #[serde(default)]
    pub serving: ServingPods,
}

/// Pods of a group that hold requests and export metrics of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ServingPods {
    /// The leader. Its workers compute parts of the same requests.
    #[default]
    Leader,
    /// Every pod, each for the requests of its own ranks.
    Every,
}

impl ServingPods {
    /// Derives it from the command line of a worker.
    #[must_use]
    pub fn of_worker<'a>(server: ServerKind, words: impl Iterator<Item = &'a str>) -> Self {
        let WorkerFlags { serve, compute } = WorkerFlags::of(server);
        // `eval "vllm serve ..."` is one word of a script.
        let words: Vec<String> = words.flat_map(split_shell_words).collect();
        let mut serving = Self::Leader;
        for word in words.iter().flat_map(|word| word.split_whitespace()) {
            let Some(flag) = word.strip_prefix('-') else { continue };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            let name = flag.split_once('=').map_or(flag, |(name, _)| name).replace('_', "-");
            if compute.contains(&name.as_str()) {
                return Self::Leader;
            }
            if serve.contains(&name.as_str()) {
                serving = Self::Every;
            }
        }
        serving
    }
}

/// Flags of a worker, without dashes.
struct WorkerFlags {
    /// Flags of a worker that holds requests of its own.
    serve: &'static [&'static str],
    /// Flags of a worker that holds none, whatever its other flags.
    compute: &'static [&'static str],
}

impl WorkerFlags {
    const fn of(server: ServerKind) -> Self {
        match server {
            // With hybrid or external load balancing each pod has an API server; vLLM infers the first from a start rank.
            // With internal load balancing workers are headless.
            ServerKind::Vllm => Self {
                serve: &[
                    "data-parallel-hybrid-lb", "dph", "data-parallel-external-lb", "dpe",
                    "data-parallel-multi-port-external-lb", "dpm", "data-parallel-rank", "dpn",
                    "data-parallel-start-rank", "dpr",
                ],
                compute: &["headless"],
            },
            // The leader takes all requests. Each pod exports metrics of the ranks that it runs.
            ServerKind::Sglang => Self { serve: &["enable-dp-attention"], compute: &[] },
            ServerKind::TensorrtLlm | ServerKind::Triton => Self { serve: &[], compute: &[] },
        }
    }
}

impl fmt::Display for PodGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let serving = match self.serving {
            ServingPods::Leader => "its leader serves",
            ServingPods::Every => "all serve",
        };
        write!(f, "a replica is a group of {} pods, {serving}", self.pods)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(server: ServerKind, words: &[&str], serving: ServingPods, of: &str) {
        assert_eq!(ServingPods::of_worker(server, words.iter().copied()), serving, "{of}");
    }

    /// Command lines of the workers in manifests of the projects.
    #[test]
    fn derives_serving_pods_of_vllm() {
        let llm_d = "#################\n# RUN vLLM decode worker\n#################\n\
            START_RANK=$(( ${LWS_WORKER_INDEX:-0} * DP_SIZE_LOCAL ))\n\n\
            # --enable-dbo:  Dual batch overlap (DBO) overlaps compute with collective communication.\n\
            exec vllm serve \\\n  deepseek-ai/DeepSeek-R1-0528 \\\n  --port 8200 \\\n  --api-server-count 1 \\\n  \
            --data-parallel-hybrid-lb \\\n  --enable-expert-parallel \\\n  --tensor-parallel-size $TP_SIZE \\\n  \
            --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL)) \\\n  --data-parallel-size-local $DP_SIZE_LOCAL \\\n  \
            --data-parallel-address ${LWS_LEADER_ADDRESS} \\\n  --data-parallel-rpc-port 5555 \\\n  \
            --data-parallel-start-rank $START_RANK \\\n  \
            --kv_transfer_config '{\"kv_connector\":\"NixlConnector\",\n \"kv_role\":\"kv_both\"}'";
        let dp_aware = "exec vllm serve \\\n  deepseek-ai/DeepSeek-R1-0528 \\\n  --port=8200 \\\n  \
            --data-parallel-multi-port-external-lb \\\n  --data-parallel-supervisor-port=8208 \\\n  \
            --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL)) --data-parallel-size-local $DP_SIZE_LOCAL";
        let kserve = "START_RANK=$(( ${LWS_WORKER_INDEX:-0} * 2 ))\nif [ \"${LWS_WORKER_INDEX:-0}\" -eq 0 ]; then\n  \
            vllm serve \\\n    llama \\\n    --api-server-count 4 \\\n    --data-parallel-size 4 \\\n    \
            --data-parallel-size-local 2 \\\n    --data-parallel-start-rank $START_RANK\nelse\n  vllm serve \\\n    \
            llama \\\n    --data-parallel-size 4 \\\n    --data-parallel-size-local 2 \\\n    \
            --data-parallel-start-rank $START_RANK \\\n    --headless\nfi";
        let ray = "bash /vllm-workspace/examples/online_serving/multi-node-serving.sh worker \
            --ray_address=$(LWS_LEADER_ADDRESS)";
        let script = |text| vec!["/bin/bash", "-c", text];
        let (every, leader) = (ServingPods::Every, ServingPods::Leader);
        for (words, serving, of) in [
            (script(llm_d), every, "llm-d 0.7, guides/wide-ep-lws/modelserver/gpu/vllm/base/decode.yaml"),
            (script(dp_aware), every, "llm-d 0.7, guides/wide-ep-lws/experimental-dp-aware, decode.yaml"),
            (script(kserve), leader, "KServe 0.16, config-llm-worker-data-parallel.yaml"),
            (script(ray), leader, "vLLM 0.11, lws.md"),
            (script("eval \"vllm serve m --data-parallel-external-lb -dpn 1\""), every, "eval"),
            (script("# vllm serve --data-parallel-hybrid-lb\nvllm serve m"), leader, "a comment"),
            (
                vec!["vllm", "serve", "m", "--data-parallel-size", "2", "--data-parallel-rank", "1"],
                every,
                "vLLM 0.11, data_parallel_deployment.md, external",
            ),
            (
                vec![
                    "vllm", "serve", "m", "--headless", "--data-parallel-size=4",
                    "--data-parallel-start-rank=2",
                ],
                leader,
                "vLLM 0.11, data_parallel_deployment.md, internal",
            ),
            (vec!["vllm", "serve", "m", "--data_parallel_start_rank=8"], every, "underscores"),
            (vec!["vllm", "serve", "m", "-dph", "-dpr", "8"], every, "short flags"),
            (vec!["vllm", "serve", "m", "--tensor-parallel-size=16"], leader, "tensor parallel"),
        ] {
            check(ServerKind::Vllm, &words, serving, of);
        }
    }

    #[test]
    fn derives_serving_pods_of_other_servers() {
        let pipeline = "exec python3 -m sglang.launch_server \\\n  --model-path deepseek-ai/DeepSeek-R1-0528 \\\n  \
            --nnodes ${LWS_GROUP_SIZE:-2} \\\n  --node-rank ${LWS_WORKER_INDEX:-0} \\\n  --tensor-parallel-size 8 \\\n  \
            --pipeline-parallel-size 2 --enable-metrics";
        let wide = [
            "python3", "-m", "sglang.launch_server", "--enable-dp-attention", "--enable-dp-lm-head",
            "--dp-size", "16", "--moe-a2a-backend", "deepep", "--nnodes", "2",
        ];
        let sglang = ServerKind::Sglang;
        check(sglang, &["bash", "-c", pipeline], ServingPods::Leader, "llm-d 0.9, wide-ep-lws, sglang");
        check(sglang, &wide, ServingPods::Every, "SGLang 0.5, lws_pd_deploy.md, decode");
        let flags = ["--data-parallel-hybrid-lb", "--enable-dp-attention"];
        check(ServerKind::TensorrtLlm, &flags, ServingPods::Leader, "flags of other servers");
        check(sglang, &flags[..1], ServingPods::Leader, "a flag of vLLM");
    }

    #[test]
    fn names_the_serving_pods() {
        let text = |serving| PodGroup { pods: 4, serving }.to_string();
        assert_eq!(text(ServingPods::Every), "a replica is a group of 4 pods, all serve");
        assert_eq!(text(ServingPods::Leader), "a replica is a group of 4 pods, its leader serves");
    }
}
