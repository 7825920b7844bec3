//! `wva certs`: creates or inspects certificates without a cluster.

mod input;
mod inspect;
mod make;

use std::process::ExitCode;

use clap::{ArgGroup, ArgMatches, Command};

use crate::arguments::{file_option, namespace_option, option, parse_label, parse_name, paths};

const INSPECT: &str = "\
PATH is a PEM file, a manifest (YAML or JSON) of a Secret, a webhook
configuration or an APIService, or - for standard input. All inputs are checked
against each other. Private keys are never printed.

Examples:
  kubectl get secret -n wva-system wva-ca -o yaml | wva certs inspect -
  kubectl get validatingwebhookconfigurations,secrets -A -o yaml -l app=wva |
    wva certs inspect -
  wva certs inspect tls.crt tls.key ca.crt

Exit code: 0 no finding, 1 findings (expired, key mismatch, invalid data),
2 wrong usage or an unreadable path.";

const MAKE: &str = "\
Examples:
  wva certs make --namespace wva-system --service wva-webhook --out certs/
  wva certs make --namespace wva-system --secret wva-ca | kubectl create -f -

--out writes tls.crt, tls.key and ca.crt with the names of cert-manager, for
WVA_CERT_MODE=files. The CA's key is not stored, so to renew them you create all
of them again. --secret prints the Secret of WVA_CERT_MODE=self. You rarely need
it: in that mode the controller creates a missing Secret itself.

Exit code: 0 created, 1 a file exists or cannot be written, 2 wrong usage.";

pub(crate) fn command() -> Command {
    Command::new("certs")
        .about("Create or inspect the certificates of the webhooks")
        .after_help("Example: kubectl get secret -n wva-system wva-ca -o yaml | wva certs inspect -")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("inspect")
                .about("Show certificates, keys and CA bundles, their validity, and whether they match")
                .after_help(INSPECT)
                .arg(paths(1, "PEM files or manifests")),
        )
        .subcommand(make_command())
}

fn make_command() -> Command {
    Command::new("make")
        .about("Create a CA and a serving certificate as files, or a Secret with a CA as a manifest")
        .after_help(MAKE)
        .arg(namespace_option("Namespace of the Service and of the Secret").required(true))
        .arg(
            option("service", "SERVICE", "Service of the serving certificate")
                .required_unless_present("secret")
                .value_parser(parse_label),
        )
        .arg(
            option("ca-lifetime", "DURATION", "Lifetime of the CA")
                .value_parser(make::lifetime)
                .default_value("8760h"),
        )
        .arg(
            option("cert-lifetime", "DURATION", "Lifetime of the serving certificate")
                .value_parser(make::lifetime)
                .default_value("2160h"),
        )
        .arg(
            file_option("out", "Directory for the files; existing files are not overwritten")
                .value_name("DIR"),
        )
        .arg(
            option("secret", "NAME", "Print the manifest of a Secret with this name")
                .value_parser(parse_name),
        )
        .group(ArgGroup::new("to").args(["out", "secret"]).required(true))
}

pub(super) fn certs(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        Some(("inspect", own)) => inspect::inspect(own),
        Some(("make", own)) => make::make(own),
        _ => Ok(ExitCode::from(crate::WRONG_USAGE)),
    }
}
