//! Arguments in the forms that several commands have, and their values.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};

/// An option with a value.
pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// An option that names a file.
pub(crate) fn file_option(name: &'static str, help: &'static str) -> Arg {
    option(name, "FILE", help).value_parser(value_parser!(PathBuf))
}

/// An option without a value.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Paths of what is read, `least` of them or more.
pub(crate) fn paths(least: usize, help: &'static str) -> Arg {
    let paths = Arg::new("path").value_name("PATH").value_parser(value_parser!(PathBuf)).help(help);
    paths.num_args(least..).required(least > 0)
}

/// The argument that names one variant.
pub(crate) fn name_argument() -> Arg {
    Arg::new("name").value_name("NAME").help("One VariantAutoscaling; all where it is left out")
}

/// The option that names one namespace.
pub(crate) fn namespace_option(help: &'static str) -> Arg {
    option("namespace", "NAMESPACE", help).short('n')
}

/// The option that chooses the form of what is printed; the first is the default.
pub(crate) fn format_option(words: &'static [&'static str]) -> Arg {
    option("format", "FORMAT", "Output format").value_parser(words.to_vec()).default_value(words[0])
}

/// The value of an option that is a text.
pub(crate) fn word<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a str> {
    arguments.get_one::<String>(name).map(String::as_str)
}

/// The value of an option that names a file.
pub(crate) fn file<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a Path> {
    arguments.get_one::<PathBuf>(name).map(PathBuf::as_path)
}
