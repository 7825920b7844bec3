//! `wva emulate`: an emulated model server and a load generator, to try the autoscaler without GPUs.

mod gaps;
mod load;
mod metrics;
mod page;
mod server;
mod sglang;
mod timeline;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use wva_crds::duration::GoDuration;
use wva_simulator::scenario::engines::ENGINES;

use crate::arguments::{flag, option, parse_url};

pub use metrics::Metrics;
pub use sglang::as_sglang;
pub use timeline::{Reading, Rejection, Timeline};

const SERVER: &str = "\
Example: wva emulate server --model demo/llama --address 127.0.0.1:8000

Exit code: 0 ended by a signal, 1 it cannot serve, 2 wrong usage.";

const LOAD: &str = "\
Example:
  wva emulate load --model demo/llama --url http://127.0.0.1:8000 --rates 1,6,1

Exit code: 0 all steps were sent, 1 the load cannot be sent, 2 wrong usage.";

pub(crate) fn command() -> Command {
    Command::new("emulate")
        .about("Emulate a model server, or send load to one, without GPUs")
        .after_help("docs/getting-started/quickstart.md shows how to use both in a cluster.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(server_command())
        .subcommand(load_command())
}

fn model() -> Arg {
    let model = option("model", "NAME", "Model name, as spec.modelID of the VariantAutoscaling");
    model.required(true).value_parser(NonEmptyStringValueParser::new())
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:8000".to_owned())
}

fn server_command() -> Command {
    let engines = ENGINES.iter().map(|(name, _)| *name);
    Command::new("server")
        .about("Serve the OpenAI API and the metrics of vLLM or SGLang with the timing of a GPU")
        .after_help(SERVER)
        .arg(model())
        .arg(
            option("engine", "ENGINE", "Engine whose speed and KV cache are emulated")
                .value_parser(engines.collect::<Vec<_>>())
                .default_value("guide-a100"),
        )
        .arg(
            option("address", "ADDRESS", "Listen address")
                .value_parser(parse_address)
                .default_value("0.0.0.0:8000"),
        )
        .arg(
            option(
                "max-num-seqs",
                "N",
                "Most requests that run at once, as of vLLM; default: that of the engine",
            )
            .value_parser(value_parser!(u32).range(1..=4096)),
        )
        .arg(
            option("metrics", "NAMES", "Model server whose metrics are exported")
                .value_parser(["vllm", "sglang"])
                .default_value("vllm"),
        )
        .arg(
            option("load-time", "DURATION", "Time to load the model; until then /health answers 503")
                .value_parser(value_parser!(GoDuration))
                .default_value("20s"),
        )
}

fn load_command() -> Command {
    Command::new("load")
        .about("Send completion requests at given rates, and print their latency")
        .after_help(LOAD)
        .arg(model())
        .arg(
            option("url", "URL", "Server or Service, such as http://llama:8000")
                .required(true)
                .value_parser(parse_url),
        )
        .arg(
            option(
                "rates",
                "R,R,...",
                "Requests per second, one value per step; arrivals follow a Poisson process",
            )
            .value_delimiter(',')
            .value_parser(load::rate)
            .default_value("1"),
        )
        .arg(option("step", "DURATION", "Duration of each step").value_parser(load::step).default_value("3m"))
        .arg(
            option("prompt-tokens", "N", "Tokens of each prompt, about 4 characters each")
                .value_parser(value_parser!(u32).range(1..=100_000))
                .default_value("256"),
        )
        .arg(
            option("output-tokens", "N", "Tokens to generate for each request")
                .value_parser(value_parser!(u32).range(1..=100_000))
                .default_value("128"),
        )
        .arg(
            option("most", "N", "Most concurrent requests; more are counted as dropped")
                .value_parser(value_parser!(u32).range(1..=4096))
                .default_value("512"),
        )
        .arg(flag("repeat", "Repeat the steps until a signal arrives"))
}

pub(super) fn emulate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        Some(("server", own)) => super::block_on(server::run(own))?,
        Some(("load", own)) => super::block_on(load::run(own))?,
        _ => return Ok(ExitCode::from(crate::WRONG_USAGE)),
    }
    Ok(ExitCode::SUCCESS)
}
