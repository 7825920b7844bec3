//! Arguments that several commands share, and access to their values.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};

pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

pub(crate) fn file_option(name: &'static str, help: &'static str) -> Arg {
    option(name, "FILE", help).value_parser(value_parser!(PathBuf))
}

pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub(crate) fn paths(min: usize, help: &'static str) -> Arg {
    let paths = Arg::new("path").value_name("PATH").value_parser(value_parser!(PathBuf)).help(help);
    paths.num_args(min..).required(min > 0)
}

pub(crate) fn name_argument() -> Arg {
    Arg::new("name").value_name("NAME").help("One VariantAutoscaling; default: all")
}

pub(crate) fn namespace_option(help: &'static str) -> Arg {
    option("namespace", "NAMESPACE", help).short('n')
}

/// `--format`; the first format is the default.
pub(crate) fn format_option(formats: &'static [&'static str]) -> Arg {
    option("format", "FORMAT", "Output format").value_parser(formats.to_vec()).default_value(formats[0])
}

pub(crate) fn value<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a str> {
    arguments.get_one::<String>(name).map(String::as_str)
}

pub(crate) fn path_value<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a Path> {
    arguments.get_one::<PathBuf>(name).map(PathBuf::as_path)
}
