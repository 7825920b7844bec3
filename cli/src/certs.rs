//! `wva certs`: make or inspect certificates by hand, without a cluster. The making and the judging are those of the
//! running program.

mod input;
mod inspect;
mod make;

use std::process::ExitCode;

use clap::{ArgGroup, ArgMatches, Command};

use crate::arguments::{file_option, option, paths};

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
                .arg(paths(1, "What to look at")),
        )
        .subcommand(make_command())
}

fn make_command() -> Command {
    Command::new("make")
        .about("A CA and a serving certificate as files, or the Secret with a CA as a manifest")
        .after_help(MAKE)
        .arg(option("namespace", "NAMESPACE", "Namespace of the Service, and of the Secret").required(true))
        .arg(
            option("service", "SERVICE", "Service that the certificate is for")
                .required_unless_present("secret"),
        )
        .arg(option("ca-lifetime", "DURATION", "Life of the CA").default_value("8760h"))
        .arg(option("cert-lifetime", "DURATION", "Life of the serving certificate").default_value("2160h"))
        .arg(file_option("out", "Write files into this folder; none is overwritten").value_name("DIR"))
        .arg(option("secret", "NAME", "Print the manifest of this Secret to standard output"))
        .group(ArgGroup::new("to").args(["out", "secret"]).required(true))
}

/// Runs `wva certs`.
pub(super) fn certs(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        Some(("inspect", own)) => inspect::inspect(own),
        Some(("make", own)) => make::make(own),
        // clap lets nothing else through.
        _ => Ok(ExitCode::from(crate::WRONG_USAGE)),
    }
}
