//! Conventions of all commands: flags, output formats, exit codes and completion, checked on clap's tree.

use crate::leaves::{Leaf, leaves};
use crate::{Scratch, assert_contains, finish, run, wva};

/// Commands that reach a cluster; those with `true` choose VariantAutoscalings.
const CLUSTER: [(&str, bool); 7] = [
    ("explain", true),
    ("status", true),
    ("doctor", true),
    ("migrate", true),
    ("generate", false),
    ("backtest", false),
    ("version", false),
];

#[test]
fn commands_with_a_cluster_share_kubectls_options() {
    for leaf in leaves() {
        let expected = CLUSTER.iter().find(|(name, _)| *name == leaf.path);
        for id in ["kubeconfig", "context", "as"] {
            assert_eq!(leaf.option(id).is_some(), expected.is_some(), "{}: --{id}", leaf.path);
        }
        for (id, short) in [("namespace", 'n'), ("all-namespaces", 'A'), ("selector", 'l')] {
            let has = leaf.option(id).is_some_and(|arg| arg.get_help_heading() == Some("Cluster"));
            assert_eq!(has, expected.is_some_and(|(_, objects)| *objects), "{}: --{id}", leaf.path);
            if has {
                assert_eq!(leaf.option(id).unwrap().get_short(), Some(short), "{}", leaf.path);
            }
        }
    }
}

#[test]
fn output_option_is_the_same_everywhere() {
    for leaf in leaves() {
        let Some(output) = leaf.option("output") else {
            assert!(leaf.option("format").is_none(), "{}", leaf.path);
            continue;
        };
        assert_eq!((output.get_short(), output.get_long()), (Some('o'), Some("output")), "{}", leaf.path);
        assert_eq!(output.get_all_aliases(), Some(vec!["format"]), "{}", leaf.path);
        assert!(leaf.formats().contains(&"json".to_owned()), "{}: {:?}", leaf.path, leaf.formats());
        assert!(leaf.formats().contains(&"yaml".to_owned()), "{}: {:?}", leaf.path, leaf.formats());
        let known = ["text", "wide", "json", "yaml", "name"];
        let extra = |format: &String| !known.contains(&format.as_str());
        let extra: Vec<String> = leaf.formats().into_iter().filter(extra).collect();
        let allowed: &[&str] = match leaf.path.as_str() {
            "validate" => &["sarif", "github"],
            "migrate" => &["values"],
            _ => &[],
        };
        assert_eq!(extra, allowed, "{}", leaf.path);
    }
}

#[test]
fn commands_have_examples_and_exit_codes_and_refuse_flags() {
    for Leaf { path, command } in leaves() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example"), "{path} has no example");
        assert!(help.contains("Exit code: 0 "), "{path} has no exit codes");
        let words: Vec<&str> = path.split(' ').chain(["--no-such-flag"]).collect();
        run(&words, "").ends(2);
    }
    run(&["run", "--help"], "").ends(0).prints(&["Example"]);
    run(&["run", "--no-such-flag"], "").ends(2);
}

type CommandLine = &'static [&'static str];

const WORKLOAD: &str = "tests/fixtures/generate/vllm-args.yaml";

/// Of each command: a right input, a wrong one, and what the error names. Without a right one it needs a cluster, a server or
/// a file that the tests of this command make.
const INPUTS: [(&str, Option<CommandLine>, CommandLine, CommandLine); 20] = [
    (
        "validate",
        Some(&["deploy/examples"]),
        &["-n", "A B", "deploy/examples"],
        &["--namespace", "\"A B\"", "lower-case"],
    ),
    ("rule", Some(&["va-003"]), &["WVA-VA-0003"], &["WVA-VA-0003; similar: WVA-VA-003"]),
    ("decide", Some(&["-f", "deploy/examples/cycle.yaml"]), &["-f", "cycle.yml"], &["cannot read cycle.yml"]),
    ("explain", None, &["--address", "x"], &["--address", "'x'", "such as 127.0.0.1:8082"]),
    ("status", None, &["-w", "--interval", "1ms"], &["--interval", "'1ms'", "use 500 ms or more"]),
    ("doctor", None, &["--prometheus", "p:9090"], &["--prometheus", "\"p:9090\"", "use a URL"]),
    (
        "generate",
        Some(&["-f", WORKLOAD]),
        &["-f", WORKLOAD, "--cost", "$4"],
        &["--cost", "\"$4\"", "such as 40.0"],
    ),
    (
        "migrate",
        Some(&["tests/fixtures/migrate/v0.9.yaml"]),
        &["--controller-namespace", "A B"],
        &["--controller-namespace", "\"A B\"", "lower-case"],
    ),
    ("backtest", None, &["--prometheus", "ftp://p"], &["--prometheus", "\"ftp://p\""]),
    ("simulate", Some(&["--list"]), &["laddr"], &["laddr; similar: ladder"]),
    (
        "report",
        Some(&["tests/fixtures/recordings/next/recording.jsonl", "--file", "-"]),
        &["none.jsonl"],
        &["cannot read none.jsonl"],
    ),
    (
        "emulate server",
        None,
        &["--model", "m", "--address", "x"],
        &["--address", "'x'", "such as 127.0.0.1:8000"],
    ),
    (
        "emulate load",
        Some(&["--model", "m", "--url", "http://127.0.0.1:9", "--rates", "0", "--step", "1ms"]),
        &["--model", "m", "--url", "foo"],
        &["--url", "\"foo\"", "use a URL"],
    ),
    ("certs inspect", None, &["none.crt"], &["none.crt: cannot read the file"]),
    (
        "certs make",
        Some(&["-n", "wva", "--secret", "ca"]),
        &["-n", "wva", "--secret", "A B"],
        &["--secret", "\"A B\"", "lower-case"],
    ),
    ("crd", Some(&[]), &["-o", "text"], &["--output", "'text'", "yaml, json"]),
    (
        "webhook-config",
        Some(&[]),
        &["--failure-policy", "fail"],
        &["--failure-policy", "'fail'", "Fail, Ignore"],
    ),
    ("version", Some(&["--client"]), &["-o", "wide"], &["--output", "'wide'", "text, json, yaml"]),
    ("completion", Some(&["bash"]), &["tcsh"], &["<SHELL>", "'tcsh'", "zsh"]),
    ("man", Some(&[]), &["one", "two"], &["'two'"]),
];

#[test]
fn commands_take_a_right_input_and_name_a_wrong_one() {
    let paths: Vec<String> = leaves().into_iter().map(|leaf| leaf.path).collect();
    assert_eq!(INPUTS.map(|(path, ..)| path).as_slice(), paths);
    for (path, right, wrong, parts) in INPUTS {
        let words = |input: &[&'static str]| path.split(' ').chain(input.iter().copied()).collect::<Vec<_>>();
        if let Some(right) = right {
            run(&words(right), "").ends(0);
        }
        let refused = run(&words(wrong), "").ends(2).reports(parts);
        assert_eq!(refused.stdout, "", "{path}");
    }
}

#[test]
fn help_of_each_command_fits_80_columns() {
    let all = leaves().into_iter().map(|leaf| leaf.path);
    for path in all.chain(["", "run", "certs", "emulate"].map(str::to_owned)) {
        let words: Vec<&str> = path.split_whitespace().chain(["--help"]).collect();
        let help = run(&words, "").ends(0).stdout;
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{path}: {long:#?}");
    }
    // A group without a command prints the same.
    for group in ["certs", "emulate"] {
        let help = run(&[group], "").ends(2).stderr;
        assert_eq!(help, run(&[group, "--help"], "").stdout);
    }
    // Texts below the options are not broken again: examples stay on the lines that a reader copies.
    for leaf in leaves() {
        let text = leaf.command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{}: {long:#?}", leaf.path);
    }
}

#[test]
fn completion_and_man_pages_know_every_flag() {
    let bash = run(&["completion", "bash"], "").ends(0).stdout;
    let man = Scratch::new("cli-man");
    let folder = man.path("");
    run(&["man", &folder], "").ends(0);
    for Leaf { path, command } in leaves() {
        let page = man.path(&format!("wva-{}.1", path.replace(' ', "-")));
        let page = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page}: {e}"));
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(bash.contains(&format!("--{flag}")), "{path}: --{flag} is not completed");
            assert!(page.contains(&flag.replace('-', "\\-")), "{path}: --{flag} is not in its man page");
        }
    }
    assert!(bash.contains("WVA-VA-003"), "codes of `wva rule` are not completed");
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        run(&["completion", shell], "").ends(0).prints(&["doctor", "all-namespaces"]);
    }
    run(&["completion", "tcsh"], "").ends(2);
    run(&["man", "/no/such/folder"], "").ends(1);
}

#[test]
fn program_without_a_command_prints_help() {
    for args in [&[][..], &["--help"]] {
        run(args, "").ends(0).prints(&["Usage: wva [COMMAND]", "doctor"]);
    }
    // Flags of `run` need `run`.
    run(&["--leader-elect"], "").ends(2);
}

#[cfg(unix)]
#[test]
fn name_of_the_program_decides_what_it_does() {
    let scratch = Scratch::new("cli-names");
    let link = |name: &str| {
        let path = scratch.path(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_wva"), &path).unwrap();
        path
    };
    let plugin =
        |args: &[&str]| finish(std::process::Command::new(scratch.path("kubectl-wva")).args(args), "");
    link("kubectl-wva");
    plugin(&["status", "--help"]).ends(0).prints(&["Usage: kubectl wva status"]);
    let mut manager = std::process::Command::new(env!("CARGO_BIN_EXE_manager"));
    manager.args(["--print-config", "-v=4"]).env("KUBECONFIG", "/no/such/file");
    let printed = finish(manager.env("PROMETHEUS_BASE_URL", "http://p"), "").ends(0);
    printed.prints(&["V=4 "]);
}

#[test]
fn colours_need_a_terminal() {
    let mut validate = wva(&["validate", "-"]);
    validate.env("TERM", "xterm").env_remove("NO_COLOR");
    let out =
        finish(&mut validate, "kind: VariantAutoscaling\napiVersion: llmd.ai/v1alpha1\nspec: {}\n").ends(1);
    assert!(!out.stdout.contains('\u{1b}'), "{}", out.stdout);
    assert_contains(&out.stdout, &["= help: wva rule WVA-VA-"]);
}

#[test]
fn rule_prints_its_page_and_suggests_codes() {
    let page = run(&["rule", "va-003"], "").ends(0).prints(&["`spec.variantCost` must be", "\nDENIED\n"]);
    assert!(page.stdout.starts_with("WVA-VA-003: The cost is "), "{}", page.stdout);
    run(&["rule"], "").ends(0).prints(&["WVA-CM-001: ", "WVA-FILE-001: "]);
    run(&["rule", "WVA-VA-0003"], "").ends(2).reports(&["similar: WVA-VA-003"]);
}

#[test]
fn version_of_the_client_needs_no_cluster() {
    run(&["version", "--client"], "").ends(0).prints(&["Client: wva ", "revision "]);
    let json = run(&["version", "--client", "-o", "json"], "").ends(0).json();
    assert_eq!(json["client"]["version"], env!("CARGO_PKG_VERSION"));
    // Without a cluster it still prints its own release.
    let mut command = wva(&["version"]);
    command.env("KUBECONFIG", "/no/such/file").env_remove("KUBERNETES_SERVICE_HOST");
    finish(&mut command, "").ends(2).prints(&["Client: wva "]);
}

#[test]
fn context_and_kubeconfig_are_named_if_they_are_unusable() {
    let scratch = Scratch::new("cli-context");
    let kubeconfig = scratch.file("config", "apiVersion: v1\nkind: Config\n");
    for command in ["status", "explain", "doctor", "migrate", "version"] {
        run(&[command, "--kubeconfig", &kubeconfig, "--context", "other"], "").ends(2).reports(&["other"]);
        run(&[command, "--kubeconfig", "/no/such/file"], "").ends(2).reports(&["/no/such/file"]);
    }
}
