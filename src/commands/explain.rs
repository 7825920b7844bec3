//! `wva explain`: asks the debug endpoint of a running controller for the trace of its last cycle, and for the
//! snapshot behind it. Recomputes nothing.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ArgMatches;

/// Attempts to get snapshot and explanation of one cycle.
const TRIES: u32 = 5;
/// The endpoint answers from memory; a port-forward adds a little.
const TIMEOUT: Duration = Duration::from_secs(15);

#[expect(clippy::print_stdout, reason = "the explanation is what this command is asked to print")]
pub(crate) fn explain(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let word = |name: &str| arguments.get_one::<String>(name).cloned();
    let address = word("address").unwrap_or_default();
    let query: Vec<(&str, String)> = [("namespace", word("namespace")), ("name", word("name"))]
        .into_iter()
        .filter_map(|(k, v)| Some((k, v?)))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (text, snapshot) = runtime.block_on(async {
        let Some(path) = arguments.get_one::<std::path::PathBuf>("snapshot") else {
            return anyhow::Ok((get(&address, "explain", &query).await?, None));
        };
        // Both are to be of one cycle; one that runs in between is rare, and once more is enough.
        for _ in 0..TRIES {
            let snapshot = get(&address, "snapshot", &[]).await?;
            let text = get(&address, "explain", &query).await?;
            let taken: serde_json::Value =
                serde_json::from_str(&snapshot).context("the snapshot is no JSON")?;
            if taken["now"].as_str().is_some_and(|now| text.starts_with(&format!("cycle of {now}\n"))) {
                return anyhow::Ok((text, Some((path.clone(), snapshot))));
            }
        }
        anyhow::bail!(
            "{address} ran a cycle between snapshot and explanation, {TRIES} times in a row: try again"
        )
    })?;
    println!("{text}");
    if let Some((path, json)) = snapshot {
        std::fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(address: &str, path: &str, query: &[(&str, String)]) -> anyhow::Result<String> {
    let url = format!("http://{address}/{path}");
    let client = reqwest::Client::builder().timeout(TIMEOUT).build()?;
    let hint = || {
        format!(
            "no controller answers at {address}: give its debug address with --address, or open one with `kubectl port-forward -n <namespace> deploy/<controller> 8082`"
        )
    };
    let answer =
        client.get(&url).query(query).send().await.map_err(reqwest::Error::without_url).with_context(hint)?;
    let status = answer.status();
    let text = answer.text().await.with_context(hint)?;
    anyhow::ensure!(status.is_success(), "{address} answered {status}: {text}");
    Ok(text)
}
