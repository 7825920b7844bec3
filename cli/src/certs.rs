//! `wva certs`: make or inspect certificates by hand, without a cluster. The making and the judging are those of the
//! running program.

mod input;
mod inspect;
mod make;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};

/// As clap ends on wrong usage.
const WRONG_USAGE: u8 = 2;

const INSPECT: &str = "\
PATH is a PEM file, a manifest (YAML or JSON) of a Secret, of webhook
configurations or of an APIService, or - for standard input. All that is given
is looked at together. No key is ever printed.

Examples:
  kubectl get secret -n wva-system wva-ca -o yaml | wva certs inspect -
  kubectl get validatingwebhookconfigurations,secrets -A -o yaml -l app=wva | wva certs inspect -
  wva certs inspect tls.crt tls.key ca.crt

Exit code: 0 all fits, 1 something does not (expired, another key, garbage),
2 wrong usage or a path that cannot be read.";

const MAKE: &str = "\
Examples:
  wva certs make --namespace wva-system --service wva-webhook --out certs/
  wva certs make --namespace wva-system --secret wva-webhook-ca | kubectl create -f -

With --out: tls.crt, tls.key and ca.crt as cert-manager lays them out, for
WVA_CERT_MODE=files. The CA's key is not kept, so renewing means making all of
them anew. With --secret: the Secret of WVA_CERT_MODE=self, which needs none of
this: the program makes its own where there is none.";

/// The command line of `wva certs`.
pub(crate) fn command() -> Command {
    Command::new("certs")
        .about("Make or inspect the certificates by hand")
        .after_help("Example: kubectl get secret -n wva-system wva-ca -o yaml | wva certs inspect -")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("inspect")
                .about("What certificates, keys and CA bundles are, until when they are valid, and whether they fit")
                .after_help(INSPECT)
                .arg(
                    Arg::new("path")
                        .value_name("PATH")
                        .required(true)
                        .num_args(1..)
                        .value_parser(value_parser!(PathBuf))
                        .help("What to look at"),
                ),
        )
        .subcommand(make_command())
}

fn make_command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("make")
        .about("A CA and a serving certificate as files, or the Secret with a CA as a manifest")
        .after_help(MAKE)
        .arg(text("namespace", "NAMESPACE", "Namespace of the Service, and of the Secret").required(true))
        .arg(
            text("service", "SERVICE", "Service that the certificate is for")
                .required_unless_present("secret"),
        )
        .arg(text("ca-lifetime", "DURATION", "Life of the CA").default_value("8760h"))
        .arg(text("cert-lifetime", "DURATION", "Life of the serving certificate").default_value("2160h"))
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Write files into this folder; none is overwritten"),
        )
        .arg(text("secret", "NAME", "Print the manifest of this Secret to standard output"))
        .group(ArgGroup::new("to").args(["out", "secret"]).required(true))
}

/// Runs `wva certs`.
pub(super) fn certs(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        Some(("inspect", own)) => Ok(inspect::inspect(own)),
        Some(("make", own)) => make::make(own),
        // clap lets nothing else through.
        _ => Ok(ExitCode::from(WRONG_USAGE)),
    }
}
