//! Limits on reading the pages of pods: requests in flight, and bytes. Endpoint pickers and model servers share them. Pods
//! belong to tenants and are not trusted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests in flight, in total and per namespace.
const MAX_REQUESTS: usize = 64;
const MAX_NAMESPACE_REQUESTS: usize = 8;
/// Bytes per second, in total and per namespace.
const TOTAL_RATE: f64 = 8_388_608.0;
const NAMESPACE_RATE: f64 = 1_048_576.0;
/// A namespace can save up the bytes of this many seconds.
const BURST_SECONDS: f64 = 4.0;
/// Bytes. Requests that were admitted together can cost more than the burst.
const MOST_DEBT: f64 = 8.0 * NAMESPACE_RATE;
/// Shortest and longest wait of a namespace with a debt.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Clones share the limits.
#[derive(Clone, Debug)]
pub struct PageBudget {
    slots: Arc<Semaphore>,
    namespaces: Arc<Mutex<BTreeMap<String, Account>>>,
}

#[derive(Debug)]
struct Account {
    slots: Arc<Semaphore>,
    /// Negative after a long page.
    bytes: f64,
    at: Instant,
}

#[derive(Debug)]
pub(crate) struct RequestPermit {
    _slots: [Option<OwnedSemaphorePermit>; 2],
}

impl Default for PageBudget {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(MAX_REQUESTS)), namespaces: Arc::default() }
    }
}

impl PageBudget {
    pub(crate) async fn admit(&self, namespace: &str) -> RequestPermit {
        let own = self.with_account(namespace, |account, _| account.slots.clone());
        let own = own.acquire_owned().await.ok();
        while let Some(wait) = self.debt(namespace) {
            tokio::time::sleep(wait).await;
        }
        RequestPermit { _slots: [own, self.slots.clone().acquire_owned().await.ok()] }
    }

    /// False if the namespace has spent so much more than its share that requests in flight must end.
    pub(crate) fn spend(&self, namespace: &str, bytes: usize) -> bool {
        // Pages are shorter than 2^32 bytes.
        let bytes = u32::try_from(bytes).map_or(f64::MAX, f64::from);
        self.with_account(namespace, |account, _| {
            account.bytes -= bytes;
            account.bytes > -MOST_DEBT
        })
    }

    /// Keeps namespaces with a debt.
    pub(crate) fn retain(&self, is_polled: impl Fn(&str) -> bool) {
        let now = Instant::now();
        let mut all = self.lock();
        let rate = rate(&all);
        all.retain(|namespace, account| {
            account.refill(rate, now);
            is_polled(namespace) || account.bytes < 0.0
        });
    }

    /// Time until the next request; `None` without a debt.
    fn debt(&self, namespace: &str) -> Option<Duration> {
        let wait = |account: &mut Account, rate: f64| (account.bytes < 0.0).then(|| -account.bytes / rate);
        let wait = self.with_account(namespace, wait)?;
        Some(Duration::try_from_secs_f64(wait).unwrap_or(LONGEST_WAIT).clamp(SHORTEST_WAIT, LONGEST_WAIT))
    }

    fn with_account<T>(&self, namespace: &str, action: impl FnOnce(&mut Account, f64) -> T) -> T {
        let now = Instant::now();
        let mut all = self.lock();
        let rate = rate(&all);
        let account = all.entry(namespace.to_owned()).or_insert_with(|| Account {
            slots: Arc::new(Semaphore::new(MAX_NAMESPACE_REQUESTS)),
            bytes: 0.0,
            at: now,
        });
        account.refill(rate, now);
        action(account, rate)
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

/// Bytes per second. Namespaces with a debt share the total rate.
fn rate(all: &BTreeMap<String, Account>) -> f64 {
    let waiting = all.values().filter(|account| account.bytes < 0.0).count();
    let waiting = u32::try_from(waiting.max(1)).map_or(f64::MAX, f64::from);
    NAMESPACE_RATE.min(TOTAL_RATE / waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn namespace_has_a_share_of_all_requests() {
        let budget = PageBudget::default();
        let mut held = Vec::new();
        for _ in 0..MAX_NAMESPACE_REQUESTS {
            held.push(budget.admit("a").await);
        }
        let soon = Duration::from_millis(20);
        assert!(
            tokio::time::timeout(soon, budget.admit("a")).await.is_err(),
            "the namespace has all of its requests in flight"
        );
        for namespace in 1..MAX_REQUESTS / MAX_NAMESPACE_REQUESTS {
            for _ in 0..MAX_NAMESPACE_REQUESTS {
                held.push(tokio::time::timeout(soon, budget.admit(&format!("b{namespace}"))).await.unwrap());
            }
        }
        assert!(tokio::time::timeout(soon, budget.admit("c")).await.is_err(), "all requests are in flight");
        held.clear();
        assert!(tokio::time::timeout(soon, budget.admit("a")).await.is_ok());
    }

    #[test]
    fn limits_the_bytes_of_a_namespace_per_second() {
        let budget = PageBudget::default();
        assert_eq!(budget.debt("a"), None);
        budget.spend("a", 4 << 20);
        let wait = budget.debt("a").unwrap();
        assert!(wait > Duration::from_secs(3) && wait <= Duration::from_secs(4), "{wait:?}");
        assert_eq!(budget.debt("b"), None, "another namespace does not wait");
        budget.spend("a", usize::MAX);
        assert_eq!(budget.debt("a"), Some(LONGEST_WAIT));
        budget.retain(|_| false);
        assert!(budget.debt("a").is_some(), "a debt is kept");
    }

    #[test]
    fn limits_the_bytes_of_all_namespaces_per_second() {
        for namespaces in [1_u32, 8, 9, 500] {
            let account = |bytes| Account { slots: Arc::new(Semaphore::new(1)), bytes, at: Instant::now() };
            let mut all: BTreeMap<String, Account> =
                (0..namespaces).map(|n| (format!("waits{n}"), account(-1.0))).collect();
            let waiting = rate(&all);
            let sum = waiting * f64::from(namespaces);
            assert!(sum <= TOTAL_RATE && waiting <= NAMESPACE_RATE, "{namespaces}: {sum}");
            all.insert("idle".to_owned(), account(0.0));
            assert!((rate(&all) - waiting).abs() < 1e-9, "a namespace without debt takes no share");
        }
    }
}
