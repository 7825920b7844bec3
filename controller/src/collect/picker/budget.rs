//! What endpoint pickers may cost: requests in flight and bytes read, of each namespace and in all, and how often a pod is
//! asked that says nothing of use. Pods of pickers belong to tenants, and answer what they like.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::PERIOD;

/// Requests in flight, and so sockets, in all and in one namespace.
const MOST_REQUESTS: usize = 64;
const MOST_IN_NAMESPACE: usize = 8;
/// Bytes of pages in a second, in all and in one namespace.
const ALL_BYTES: f64 = 8_388_608.0;
const NAMESPACE_BYTES: f64 = 1_048_576.0;
/// A namespace may read what it did not read in the last seconds.
const BURST_SECONDS: f64 = 4.0;

/// Longest time to the next request to a pod that gives no answer while a model of it is at zero.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// The same where it answers something that is not its metrics or too long, or where no model is at zero.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The budget of all pickers.
#[derive(Debug)]
pub(super) struct Budget {
    slots: Arc<Semaphore>,
    namespaces: Mutex<BTreeMap<String, Account>>,
}

/// What one namespace has left.
#[derive(Debug)]
struct Account {
    slots: Arc<Semaphore>,
    /// Bytes; less than 0 after a long page.
    bytes: f64,
    at: Instant,
}

/// A request in flight; dropping it frees its place.
#[derive(Debug)]
pub(super) struct Admission {
    _slots: [Option<OwnedSemaphorePermit>; 2],
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { slots: Arc::new(Semaphore::new(MOST_REQUESTS)), namespaces: Mutex::default() }
    }

    /// Waits until the namespace may make a request.
    pub(super) async fn admit(&self, namespace: &str) -> Admission {
        let own = self.with(namespace, |account, _| account.slots.clone());
        // They are never closed.
        let own = own.acquire_owned().await.ok();
        while let Some(wait) = self.debt(namespace) {
            tokio::time::sleep(wait).await;
        }
        Admission { _slots: [own, self.slots.clone().acquire_owned().await.ok()] }
    }

    /// Counts what a request of the namespace has read.
    pub(super) fn charge(&self, namespace: &str, bytes: usize) {
        // Pages are shorter than 2^32 bytes.
        let bytes = u32::try_from(bytes).map_or(f64::MAX, f64::from);
        self.with(namespace, |account, _| account.bytes -= bytes);
    }

    /// Forgets namespaces of which no picker is asked, once they owe nothing.
    pub(super) fn retain(&self, is_asked: impl Fn(&str) -> bool) {
        let now = Instant::now();
        let mut all = self.lock();
        let rate = rate(&all);
        all.retain(|namespace, account| {
            account.refill(rate, now);
            is_asked(namespace) || account.bytes < 0.0
        });
    }

    /// How long the namespace has to wait for its next request.
    fn debt(&self, namespace: &str) -> Option<Duration> {
        let wait = |account: &mut Account, rate: f64| (account.bytes < 0.0).then(|| -account.bytes / rate);
        let wait = self.with(namespace, wait)?;
        Some(Duration::try_from_secs_f64(wait).unwrap_or(LONGEST_PAUSE).clamp(PERIOD, LONGEST_PAUSE))
    }

    fn with<T>(&self, namespace: &str, look: impl FnOnce(&mut Account, f64) -> T) -> T {
        let now = Instant::now();
        let mut all = self.lock();
        let rate = rate(&all);
        let account = all.entry(namespace.to_owned()).or_insert_with(|| Account {
            slots: Arc::new(Semaphore::new(MOST_IN_NAMESPACE)),
            bytes: 0.0,
            at: now,
        });
        account.refill(rate, now);
        look(account, rate)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn refill(&mut self, rate: f64, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.bytes = (self.bytes + seconds * rate).min(BURST_SECONDS * rate);
        self.at = now;
    }
}

/// Bytes in a second for a namespace. Those that have to wait share the bound; the others take nothing from them.
fn rate(all: &BTreeMap<String, Account>) -> f64 {
    let waiting = all.values().filter(|account| account.bytes < 0.0).count();
    let waiting = u32::try_from(waiting.max(1)).map_or(f64::MAX, f64::from);
    NAMESPACE_BYTES.min(ALL_BYTES / waiting)
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It shows flow control.
    Useful,
    /// It gives no answer, or shows no flow control.
    Useless,
    /// It answers with something else, or too much.
    Misused,
}

/// When each pod of a picker is asked again.
#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeMap<Box<str>, Turn>);

#[derive(Debug)]
struct Turn {
    next: Instant,
    /// Answers in a row that were of no use.
    useless: u32,
}

impl Schedule {
    pub(super) fn is_due(&self, pod: &str, now: Instant) -> bool {
        // The ticks are not exact.
        self.0.get(pod).is_none_or(|turn| turn.next <= now + PERIOD / 5)
    }

    /// Every pod is asked at once.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|pod, _| is_there(pod));
    }

    /// Notes what came of a request. `at_zero`: a model of the picker is at zero.
    pub(super) fn note(&mut self, pod: Box<str>, of_use: Use, at_zero: bool, now: Instant) {
        let turn = self.0.entry(pod).or_insert(Turn { next: now, useless: 0 });
        let longest = if at_zero && of_use != Use::Misused { LONGEST_WAIT } else { LONGEST_PAUSE };
        let wait = match of_use {
            Use::Useful if at_zero => PERIOD,
            Use::Useful => LONGEST_PAUSE,
            Use::Useless | Use::Misused => PERIOD.saturating_mul(1 << turn.useless.min(6)).min(longest),
        };
        turn.useless = if of_use == Use::Useful { 0 } else { turn.useless.saturating_add(1) };
        turn.next = now + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_takes_a_part_of_all_requests() {
        let budget = Budget::new();
        let mut held = Vec::new();
        for _ in 0..MOST_IN_NAMESPACE {
            held.push(budget.admit("a").await);
        }
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, budget.admit("a")).await.is_err(), "it has all of its own");
        for namespace in 1..MOST_REQUESTS / MOST_IN_NAMESPACE {
            for _ in 0..MOST_IN_NAMESPACE {
                held.push(tokio::time::timeout(soon, budget.admit(&format!("b{namespace}"))).await.unwrap());
            }
        }
        assert!(tokio::time::timeout(soon, budget.admit("c")).await.is_err(), "all are taken");
        held.clear();
        assert!(tokio::time::timeout(soon, budget.admit("a")).await.is_ok());
    }

    #[test]
    fn what_a_namespace_reads_is_bounded_in_time() {
        let budget = Budget::new();
        assert_eq!(budget.debt("a"), None);
        budget.charge("a", 4 << 20);
        let wait = budget.debt("a").unwrap();
        assert!(wait > Duration::from_secs(3) && wait <= Duration::from_secs(4), "{wait:?}");
        assert_eq!(budget.debt("b"), None, "another namespace does not wait");
        budget.charge("a", usize::MAX);
        assert_eq!(budget.debt("a"), Some(LONGEST_PAUSE));
        budget.retain(|_| false);
        assert!(budget.debt("a").is_some(), "a debt is not forgotten");
    }

    #[test]
    fn all_namespaces_together_read_no_more_than_the_bound() {
        for namespaces in [1_u32, 8, 9, 500] {
            let account = |bytes| Account { slots: Arc::new(Semaphore::new(1)), bytes, at: Instant::now() };
            let mut all: BTreeMap<String, Account> =
                (0..namespaces).map(|n| (format!("waits{n}"), account(-1.0))).collect();
            let waiting = rate(&all);
            let sum = waiting * f64::from(namespaces);
            assert!(sum <= ALL_BYTES && waiting <= NAMESPACE_BYTES, "{namespaces}: {sum}");
            all.insert("rests".to_owned(), account(0.0));
            assert!((rate(&all) - waiting).abs() < 1e-9, "one that owes nothing takes nothing");
        }
    }

    #[test]
    fn a_pod_of_no_use_is_asked_ever_more_rarely() {
        let waits = |of_use: Use, at_zero: bool| {
            let (mut schedule, now) = (Schedule::default(), Instant::now());
            let mut wait = || {
                schedule.note("p".into(), of_use, at_zero, now);
                schedule.0["p"].next.duration_since(now).as_millis()
            };
            [wait(), wait(), wait(), wait(), wait(), wait(), wait(), wait()]
        };
        assert_eq!(waits(Use::Useful, true), [500; 8]);
        assert_eq!(waits(Use::Useful, false), [30_000; 8]);
        assert_eq!(waits(Use::Useless, true), [500, 1000, 2000, 3000, 3000, 3000, 3000, 3000]);
        let rarely = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        assert_eq!(waits(Use::Useless, false), rarely);
        assert_eq!(waits(Use::Misused, true), rarely);
    }
}
