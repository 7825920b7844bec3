//! The page of settings, `docs/configuration.md`: every row of the table of settings, and how the sources of a value go
//! together.

use std::fmt::Write as _;

use wva_crds::settings::{Alias, Kind, SETTINGS, Setting};

const HEAD: &str = "# Settings: what there is, where a value comes from, what changes while the program runs

<!-- Written by `make generate` from the table of settings (crds/src/settings/table.rs): change it there, or the text
     around it in tests/program/configuration_page.rs. -->

For whoever installs the program or wonders why it does what it does. Thresholds of models have ConfigMaps of their own:
[configuration-maps.md](configuration-maps.md).

## Where a value comes from

The first of these that gives it:

1. the flag of `wva run`; a flag that is not given hides nothing
2. the environment variable; one that is set to nothing is not set
3. the main ConfigMap (`CONFIG_MAP_NAME` in `POD_NAMESPACE`): a key of `data`, then a key inside its entry `config.yaml`
4. the config file (`--config-file`, `CONFIG_FILE`): the same keys, as YAML
5. the default

```sh
wva run --print-config
```

prints every setting with its value and source, with the flags and the environment it is given; secrets and passwords are
masked. It asks the API server once for the main ConfigMap, and says so where it cannot. In a pod of the program:
`kubectl exec deploy/... -- /wva run --print-config`. The log of a start has the same in one line, `Settings in force`.

A start with a wrong or missing setting ends with status 1 and one message that names every setting that is wrong, the
source of its value, what was found, and what would be right:

```text
";

const BETWEEN: &str = "```

## What changes while the program runs

The main ConfigMap is watched. A change of a setting that takes effect `at once` holds within a second, on every replica,
as long as no flag or variable hides it. It is logged with both values, and counted in
`wva_config_reloads_total{config=\"main\",result}`:

```text
Updated optimization interval old=60s new=120s source=\"ConfigMap key GLOBAL_OPT_INTERVAL\"
Updated configuration key=WVA_DECISION_HOLD old=10m new=7m source=\"ConfigMap key WVA_DECISION_HOLD\"
```

| what | what holds | what is said |
|---|---|---|
| a value that does not parse, an entry `config.yaml` that is no YAML, ages that are out of order | the value that held before; the other keys of the map hold as they are written | a warning with key, source and problem; `result=\"invalid\"` |
| a setting that takes effect `at a restart` | the value the program was started with | `Attempted to change immutable parameters` in the log of each replica, and from the leader, or the next one where nobody leads at that moment, a Warning event `ImmutableConfigChangeRejected` on the ConfigMap, once for each change. Where the annotation `wva.llmd.ai/restart-revision` has changed, too, a restart is announced: one line, no event |
| the map is deleted | config file and defaults, as above | the lines of a change |

Admission refuses most of this before it is stored: [admission.md](admission.md).

## All settings

Key: the environment variable and the key of the main ConfigMap. Durations are written as in Go (`1h30m`, `500ms`), booleans as
`true` or `false` (`--x` alone is `--x=true`). ¹: not a key of the map, for it says where the map is, or who reads it.

| key | flag | value | default | takes effect | what it is for |
|---|---|---|---|---|---|
";

/// The whole page. `wrong` is the message of a start with wrong settings.
pub(crate) fn page(wrong: &str) -> String {
    let mut out = format!("{HEAD}{}\n{BETWEEN}", wrong.trim_end());
    for setting in SETTINGS {
        row(&mut out, setting);
    }
    out.push_str("\n## Old names\n\nRead, with a warning.\n\n| old | now |\n|---|---|\n");
    for setting in SETTINGS {
        for alias in setting.aliases {
            let old = match alias {
                Alias::Flag(name) => format!("--{name}"),
                Alias::Key(name) => (*name).to_owned(),
            };
            let _ = writeln!(out, "| `{old}` | `{}` |", setting.key);
        }
    }
    out
}

fn row(out: &mut String, setting: &Setting) {
    let key = format!("`{}`{}", setting.key, if setting.in_map { "" } else { "¹" });
    let dashes = |flag: &str| if flag.len() == 1 { format!("`-{flag}`") } else { format!("`--{flag}`") };
    let flag = setting.flag.map(dashes).unwrap_or_default();
    let default = setting.default.filter(|text| !text.is_empty()).map(|text| format!("`{text}`"));
    let effect = if setting.mutable { "at once" } else { "at a restart" };
    let (value, help) = (value(setting), setting.help.replace('|', "\\|"));
    let _ =
        writeln!(out, "| {key} | {flag} | {value} | {} | {effect} | {help} |", default.unwrap_or_default());
}

fn value(setting: &Setting) -> String {
    let value = match setting.kind {
        Kind::Bool => "boolean".to_owned(),
        Kind::Int { min } => format!("whole number from {min}"),
        Kind::Duration { min_ms: 0 } => "duration".to_owned(),
        Kind::Duration { min_ms: 1 } => "duration above 0".to_owned(),
        Kind::Duration { min_ms } => format!("duration of at least {}s", min_ms / 1000),
        Kind::Address => "address, `0` for off".to_owned(),
        Kind::LoopbackAddress => "loopback address, `0` for off".to_owned(),
        Kind::Url => "URL".to_owned(),
        Kind::Text | Kind::Token => "text".to_owned(),
        Kind::LabelValue => "label value".to_owned(),
        Kind::Name { .. } => "name".to_owned(),
        Kind::DnsName => "DNS name".to_owned(),
        Kind::Selector => "label selector".to_owned(),
        Kind::Matchers => "PromQL label matchers".to_owned(),
        Kind::OneOf(words) => {
            let words = words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`"));
            words.collect::<Vec<_>>().join(", ")
        }
    };
    if setting.secret { format!("{value}, secret") } else { value }
}
