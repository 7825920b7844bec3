//! CAs that expired, or are not valid yet because the clock was set back.

use super::*;

#[test]
fn expired_ca_is_replaced() {
    let cas = Cas::with_life("nf").and('k', ca(Duration::from_hours(1)));
    let expired = || CaFault::Expired { entry: CA_CERT, not_after: hours(1) };
    let rows = [
        // It stays for a while, so that a replica with a slow clock does not write it back.
        ("the next one is good", cas.secret("k>n"), "k>n", 1, PromotedAtOnce(expired()), "n<k"),
        ("the next one is good, long ago", cas.secret("k>n"), "", 2, PromotedAtOnce(expired()), "n"),
        ("no next one", cas.secret("k"), "k", 2, Replaced(expired()), "*"),
        ("the next one is remembered", cas.secret("k"), "k>n", 2, PromotedAtOnce(expired()), "n"),
        ("deleted", None, "k>n", 2, PromotedAtOnce(CaFault::NoSecret), "n"),
        ("deleted, nothing good", None, "k", 2, Change::Created, "*"),
    ];
    for (what, secret, known, hour, change, after) in rows {
        cas.check(what, secret.as_ref(), known, (hours(hour), None), Some((change, after)));
    }
    cas.check("another one is adopted", cas.secret("f").as_ref(), "k", (hours(2), None), None);
}

#[test]
fn clock_set_back_costs_one_change_and_no_trust() {
    // x and e were created with a clock that is ahead: not valid before start() + 1 h.
    let early = || Arc::new(Ca::generate(LIFE, hours(2)).unwrap());
    let cas = Cas::with_life("kf").and('x', early()).and('e', early());
    let too_early = |entry| CaFault::NotYetValid { entry, not_before: hours(1) };
    let replaced = || Replaced(too_early(CA_CERT));
    let at_once = || PromotedAtOnce(too_early(CA_CERT));
    let again = AnnouncedAgain(too_early(NEXT_CA_CERT));
    let rows = [
        ("known", cas.secret("x"), "x", None, replaced(), "*<x"),
        ("not known: others may sign with it", cas.secret("x"), "", None, replaced(), "*<x"),
        ("the next one is good", cas.secret("x>k"), "x", None, at_once(), "k<x"),
        ("the next one is remembered", cas.secret("x"), "x>k", None, at_once(), "k<x"),
        ("the next one is too early as well", cas.secret("x>e"), "x>e", None, replaced(), "*<xe"),
        ("deleted", None, "x", None, Change::Created, "*<x"),
        ("another's clock runs ahead", cas.secret("x<k"), "k>x", None, Restored(too_early(CA_CERT)), "k>*<x"),
        ("the leader announces one that is valid", cas.secret("k>x"), "k>x", Some("k"), again, "k>*<x"),
    ];
    for (what, secret, known, trusted, change, after) in rows {
        cas.check(what, secret.as_ref(), known, (start(), trusted), Some((change, after)));
    }
    // A replica with a correct clock finds its CA among the trusted ones and adopts the new one.
    cas.check("another clock", cas.secret("f<x").as_ref(), "x", (hours(2), None), None);
}
