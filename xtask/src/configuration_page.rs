//! Page of settings, `docs/reference/configuration.md`: the table of settings, and the precedence of their sources.

use std::fmt::Write as _;

use wva_crds::settings::{Alias, Kind, SETTINGS, Setting};

const HEAD: &str = "# Settings

<!-- Written by `make generate` from the table of settings (crds/src/settings/table.rs): change it there, or the text
     around it in xtask/src/configuration_page.rs. -->

Reference of all settings of the controller. Thresholds of models have their own ConfigMaps:
[thresholds](../guides/thresholds.md).

## Precedence of sources

The first of these that is set determines the value:

1. the flag of `wva run`
2. the environment variable; an empty one counts as not set
3. the main ConfigMap (`CONFIG_MAP_NAME` in `POD_NAMESPACE`): a key of `data`, then a key inside its entry `config.yaml`
4. the config file (`--config-file`, `CONFIG_FILE`): the same keys, as YAML
5. the default

```sh
wva run --print-config
```

prints every setting with its value and source. With an invalid or missing setting it also prints the error below, and exits
with 1. Secrets and passwords are masked. It reads the main ConfigMap once; if that fails, the first line says so. To run it in
a pod: `kubectl exec deploy/... -- /manager --print-config`. At the
start, the controller logs the same values in one line, `Settings in force`.

If a setting is invalid or missing, the start fails with status 1. One message names every invalid setting, the source
of its value, the value, and what is expected:

```text
";

const BETWEEN: &str = "```

## Changes at run time

The controller watches the main ConfigMap. A change of a setting that takes effect `at once` applies within a second on
every replica, unless a flag or variable overrides it. It is logged with both values and counted in
`wva_config_reloads_total{config=\"main\",result}`:

```text
Updated optimization interval old=60s new=120s source=\"ConfigMap key GLOBAL_OPT_INTERVAL\" role=\"main config\"
Updated configuration key=WVA_DECISION_HOLD old=10m new=7m source=\"ConfigMap key WVA_DECISION_HOLD\"
```

| change | value in use | report |
|---|---|---|
| an invalid value, an entry `config.yaml` that is not valid YAML, ages that are out of order | the previous value; other keys of the map apply | warning `Invalid setting ignored` with key, source and problem; `result=\"invalid\"` |
| a setting that takes effect `at a restart` | the value of the start | each replica logs `Attempted to change immutable parameters`. The leader, or the next one, writes a Warning event `ImmutableConfigChangeRejected` on the ConfigMap, once for each change. If the annotation `wva.llmd.ai/restart-revision` changes too, there is only one log line and no event |
| the map is deleted | config file and defaults | log lines of the changes |

Admission rejects most invalid changes: [admission](../concepts/admission.md).

## All settings

Key: the environment variable and the key of the main ConfigMap. Durations use Go's format (`1h30m`, `500ms`), booleans
are `true` or `false` (`--x` means `--x=true`). ¹: not a key of the map, because it determines where the map is or which
process reads it.

| key | flag | value | default | takes effect | purpose |
|---|---|---|---|---|---|
";

/// The whole page. `message` is the error of a start with invalid settings.
pub(crate) fn page(message: &str) -> String {
    let mut out = format!("{HEAD}{}\n{BETWEEN}", message.trim_end());
    for setting in SETTINGS {
        row(&mut out, setting);
    }
    out.push_str("\n## Old names\n\nOld names still work and cause a warning.\n\n| old | new |\n|---|---|\n");
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
