//! What was found, for a person at night: of what is fine one line, of what is not the whole chain, with the remedy below
//! each finding.

use std::fmt::Write as _;

use super::chain::{Followed, Found, State};
use crate::output::{count, printable};

/// As wide as the longest name of a link.
const LINK: usize = 11;
/// As wide as the longest word for a state.
const STATE: usize = 6;

/// The whole report. `verbose`: the chain of what is fine, too.
pub(super) fn render(around: &[(&'static str, Found)], all: &[Followed], verbose: bool) -> String {
    let mut out = String::from("cluster\n");
    chain(&mut out, around);
    for followed in all {
        let state = followed.state();
        let (variant, verdict) = (printable(&followed.variant), verdict(followed));
        // A String never refuses to grow.
        let _ = writeln!(out, "\n{variant}  {verdict}");
        if verbose || state > State::Unknown {
            chain(&mut out, &followed.found);
        }
    }
    let of = |state: State| all.iter().filter(|followed| followed.state() == state).count();
    let (broken, doubtful) = (of(State::Broken), of(State::Doubtful));
    let fine = all.len() - broken - doubtful;
    let _ = writeln!(
        out,
        "\n{}: {broken} broken, {doubtful} to look at, {fine} fine",
        count(all.len(), "variant")
    );
    out
}

fn verdict(followed: &Followed) -> String {
    match (followed.broken_at(), followed.state()) {
        (Some(link), _) => format!("BROKEN at {link}"),
        (None, State::Doubtful) => "to look at".to_owned(),
        _ => {
            let decided = followed.found.iter().find(|(link, _)| *link == "decision");
            let decided = decided.map(|(_, found)| printable(&found.what)).unwrap_or_default();
            format!("fine  {decided}").trim_end().to_owned()
        }
    }
}

fn chain(out: &mut String, found: &[(&'static str, Found)]) {
    for (link, found) in found {
        let state = match found.state {
            State::Fine => "ok",
            State::Unknown => "?",
            State::Doubtful => "look",
            State::Broken => "BROKEN",
        };
        let _ = writeln!(out, "  {state:<STATE$} {link:<LINK$} {}", printable(&found.what));
        if let Some(remedy) = &found.remedy {
            let _ = writeln!(out, "{}-> {}", " ".repeat(2 + STATE + 1 + LINK + 1), printable(remedy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fine_is_one_line_and_what_is_not_is_the_chain_with_its_remedy() {
        let fine = Followed {
            variant: "prod/a".to_owned(),
            found: vec![("variant", Found::fine("accepted")), ("decision", Found::fine("1 -> 1"))],
        };
        let broken = Followed {
            variant: "prod/b".to_owned(),
            found: vec![
                ("variant", Found::fine("accepted")),
                ("scrape", Found::broken("no metrics\n", "do this")),
            ],
        };
        let told = render(&[("crd", Found::fine("of this release"))], &[fine, broken], false);
        let want = "cluster
  ok     crd         of this release

prod/a  fine  1 -> 1

prod/b  BROKEN at scrape
  ok     variant     accepted
  BROKEN scrape      no metrics\u{fffd}
                     -> do this

2 variants: 1 broken, 0 to look at, 1 fine
";
        assert_eq!(told, want);
    }
}
