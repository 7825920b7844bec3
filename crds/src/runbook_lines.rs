//! Log lines that runbooks of llm-d WVA search for. Do not change them.

/// A variant holds its target because its analysis failed.
pub const SAFETY_NET_ACTIVATED: &str = "Safety net activated: emitted fallback metrics";
/// A cycle published targets.
pub const SIGNALS_EMITTED: &str = "Emitted optimization signals for external autoscaler consumption";
/// A cycle ended.
pub const RECONCILIATION_COMPLETED: &str = "Reconciliation completed";
/// The interval of cycles changed.
pub const OPTIMIZATION_INTERVAL_UPDATED: &str = "Updated optimization interval";
/// Another setting of the main ConfigMap changed.
pub const CONFIGURATION_UPDATED: &str = "Updated configuration";
/// A saturation ConfigMap changed.
pub const SATURATION_CONFIG_UPDATED: &str = "Updated saturation config";
/// A scale-to-zero ConfigMap changed.
pub const SCALE_TO_ZERO_CONFIG_UPDATED: &str = "Updated scale-to-zero config";
/// A service class ConfigMap changed.
pub const SERVICE_CLASS_CONFIG_UPDATED: &str = "Updated service class config";
/// A change of settings that need a restart was ignored or denied.
pub const IMMUTABLE_PARAMETERS_CHANGED: &str = "Attempted to change immutable parameters";

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// Rust sources below a folder, without tests.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if path.is_dir() && stem != "tests" {
                found.extend(sources(&path));
            } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
                found.push(path);
            }
        }
        found
    }

    #[test]
    fn each_line_is_logged_by_its_constant() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folders = ["src", "controller/src", "webhook/src"].map(|folder| root.join(folder));
        let sources = folders.iter().flat_map(|folder| sources(folder));
        let code: Vec<String> = sources.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let constants = include_str!("runbook_lines.rs").lines().filter_map(|line| {
            let (name, text) = line.strip_prefix("pub const ")?.split_once(": &str = ")?;
            Some((name, text.trim_end_matches(';')))
        });
        let mut checked = 0;
        for (name, text) in constants {
            assert!(code.iter().any(|code| code.contains(name)), "{name} is not used");
            assert!(!code.iter().any(|code| code.contains(text)), "use {name} instead of {text}");
            checked += 1;
        }
        assert_eq!(checked, 9);
    }
}
