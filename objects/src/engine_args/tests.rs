//! Spellings of arguments, and the defaults of vLLM by hardware.

use super::*;

#[track_caller]
fn check(args: &[&str], batched: f64, seqs: f64, kv: Option<f64>) {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let engine = EngineArgs::parse(&args);
    let found = (engine.batched_tokens(), engine.max_seqs(), engine.kv_tokens());
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
    check(&["VLLM_USE_V1=0", "--max-model-len=4096", "--enable-chunked-prefill=False"], 4096.0, 256.0, None);
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
    let v0 =
        ["VLLM_USE_V1=0", "--max-model-len=4096", "--enable-chunked-prefill", "--no-enable-chunked-prefill"];
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
        "--tensor-parallel-size=2", "--kv-cache-dtype=fp8", "--enable-chunked-prefill", "--enforce-eager",
        "VLLM_USE_V1=0",
    ];
    assert_eq!(words, expected);
    assert_eq!(EngineArgs::parse(&words), EngineArgs::parse(&[script.to_owned()]));
    assert_eq!(engine_arguments(&words), words);
    let default_somewhere = ["--max-num-seqs=256".to_owned()];
    assert_eq!(engine_arguments(&default_somewhere), default_somewhere, "defaults depend on the hardware");
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
        "--block-size 32", "--kv-cache-dtype fp8", "--gpu-memory-utilization .8", "-tp 2", "--enforce-eager",
        "--max-model-len 4096", "--max-num-seqs 64", "VLLM_USE_V1=0",
    ] {
        assert_ne!(parse(""), parse(flag), "{flag}");
    }
}

#[test]
fn defaults_depend_on_memory_card_and_release() {
    let small = (256.0, 2048.0);
    for (accelerator, release, want) in [
        ("H100", None, (1024.0, 8192.0)),
        ("NVIDIA-H200", Some("0.32"), (1024.0, 8192.0)),
        ("NVIDIA-A100-SXM4-80GB", Some("0.32"), small),
        ("L4", None, small),
        ("H100-MIG-2g.20gb", None, small),
        ("B200", None, (1024.0, 8192.0)),
        ("B200", Some("0.31"), (1024.0, 8192.0)),
        ("B200", Some("0.32"), (1024.0, 16384.0)),
        ("MI300X", Some("1.0"), (1024.0, 16384.0)),
        ("B200", Some("latest"), (1024.0, 8192.0)),
        ("unresolved", None, (256.0, 8192.0)),
    ] {
        let words: Vec<String> =
            release.map(|release| format!("{ENGINE_RELEASE}{release}")).into_iter().collect();
        let words = engine_arguments(&words);
        let engine = EngineArgs::on(accelerator, &words);
        assert_eq!((engine.max_seqs(), engine.batched_tokens()), want, "{accelerator} {release:?}");
    }
    let args = ["--max-num-seqs=64", "--max-num-batched-tokens=512"].map(str::to_owned);
    let engine = EngineArgs::on("H100", &args);
    assert_eq!((engine.max_seqs(), engine.batched_tokens()), (64.0, 512.0));
    let v0 = EngineArgs::on("H100", &["VLLM_USE_V1=0".to_owned()]);
    assert_eq!((v0.max_seqs(), v0.batched_tokens()), (256.0, 2048.0));
}

#[test]
fn a_config_file_is_known_without_its_name() {
    let words = engine_arguments(&["--config=/secret/name.yaml".to_owned()]);
    assert_eq!(words, [CONFIG_FILE]);
    assert!(has_config_file(&words) && !has_config_file(&engine_arguments(&["--configuration".to_owned()])));
}
