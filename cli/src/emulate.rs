//! `wva emulate`: a model server without GPUs and a load for it, to try the autoscaler on any cluster. The server is the
//! simulator's, driven by the clock of the machine; its metrics have vLLM's names.

mod load;
mod metrics;
mod server;
mod timeline;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use wva_crds::duration::GoDuration;
use wva_simulator::scenario::engines::ENGINES;

const HELP: &str = "\
docs/getting-started/quickstart.md uses both in a cluster.

Examples:
  wva emulate server --model demo/llama --address 127.0.0.1:8000
  wva emulate load --model demo/llama --url http://127.0.0.1:8000 --rates 1,6,1 --step 3m";

/// The command line of `wva emulate`.
pub(crate) fn command() -> Command {
    Command::new("emulate")
        .about("An emulated vLLM server and a load for it, to try the autoscaler without GPUs")
        .after_help(HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(server_command())
        .subcommand(load_command())
}

fn model() -> Arg {
    option("model", "NAME").required(true).help("Model name, as spec.modelID of the VariantAutoscaling")
}

fn option(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value)
}

fn server_command() -> Command {
    let engines = ENGINES.iter().map(|(name, _)| *name);
    Command::new("server")
        .about("Serve the OpenAI API and vLLM's metrics, with the timing of a GPU that is not there")
        .arg(model())
        .arg(
            option("engine", "ENGINE")
                .value_parser(engines.collect::<Vec<_>>())
                .default_value("guide-a100")
                .help("Engine whose speed and KV cache it has"),
        )
        .arg(
            option("address", "ADDRESS")
                .value_parser(value_parser!(SocketAddr))
                .default_value("0.0.0.0:8000")
                .help("Where it listens"),
        )
        .arg(
            option("load-time", "DURATION")
                .value_parser(value_parser!(GoDuration))
                .default_value("20s")
                .help("Time to load the model: until then /health answers 503"),
        )
}

fn load_command() -> Command {
    Command::new("load")
        .about("Send completions at given rates, and print how long they took")
        .arg(model())
        .arg(option("url", "URL").required(true).help("Server or Service, such as http://llama:8000"))
        .arg(
            option("rates", "R,R,...")
                .value_delimiter(',')
                .value_parser(load::rate)
                .default_value("1")
                .help("Requests per second, one value for each step; arrivals are a Poisson process"),
        )
        .arg(
            option("step", "DURATION")
                .value_parser(value_parser!(GoDuration))
                .default_value("3m")
                .help("How long each rate lasts"),
        )
        .arg(
            option("prompt-tokens", "N")
                .value_parser(value_parser!(u32).range(1..=100_000))
                .default_value("256")
                .help("Tokens of each prompt, about 4 characters each"),
        )
        .arg(
            option("output-tokens", "N")
                .value_parser(value_parser!(u32).range(1..=100_000))
                .default_value("128")
                .help("Tokens that each request asks for"),
        )
        .arg(
            option("most", "N")
                .value_parser(value_parser!(u32).range(1..=4096))
                .default_value("512")
                .help("Requests under way at most; one that would be more is counted as dropped"),
        )
        .arg(
            Arg::new("repeat")
                .long("repeat")
                .action(ArgAction::SetTrue)
                .help("Begin again after the last rate, until a signal ends it"),
        )
}

/// Runs the command.
pub(super) fn emulate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        Some(("server", own)) => super::block_on(server::run(own))?,
        Some(("load", own)) => super::block_on(load::run(own))?,
        // clap requires one of the two.
        _ => return Ok(ExitCode::from(2)),
    }
    Ok(ExitCode::SUCCESS)
}
