//! A need of tokens, met at the least cost: a small integer program, solved by branch and bound. It goes through the
//! offers from the cheapest token to the dearest and tries the most of each first, so that the first way it finds is
//! the one that the greedy rule finds. Its work is bounded; where that does not suffice, it says so.

use std::ops::Range;

use crate::units::whole;

/// Offers that may be looked at for one need, which takes some tenths of a millisecond.
const WORK: u32 = 20_000;

/// Most offers of one need: the search goes as deep as there are offers.
const OFFERS: usize = 64;

/// Replicas of one variant that may be had.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    /// Tokens that one holds, above 0.
    pub(super) size: f64,
    /// Cost of one.
    pub(super) cost: f64,
    /// Most that may be had.
    pub(super) most: u32,
    /// Numbers that may not be had, for the HPA would ignore the change; never 0.
    pub(super) ignored: Range<u32>,
    /// Place of its accelerator in the stock, and GPUs of one. `None`: it is not limited.
    pub(super) gpus: Option<(usize, u64)>,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// Replicas of each offer. `None`: no way was found.
    pub(super) counts: Option<Vec<u32>>,
    /// Nothing costs less, or there is no way. If not, the search ended at its limit.
    pub(super) proven: bool,
}

/// The least cost at which `offers` meet `need`. They come from the cheapest token to the dearest; of ways that cost the
/// same the one that takes more of the earlier offers is found. `stock`: GPUs that are left; `slack`: a need this small
/// is met.
pub(super) fn cheapest(offers: &[Offer], stock: &[u64], need: f64, slack: f64) -> Found {
    if offers.len() > OFFERS {
        return Found { counts: None, proven: false };
    }
    let mut search = Search {
        offers: offers.to_vec(),
        slack,
        unit: unit(offers),
        stock: stock.to_vec(),
        counts: vec![0; offers.len()],
        best: None,
        work: WORK,
    };
    for i in 0..offers.len() {
        search.offers[i].most = offers[i].most.min(search.fits(&offers[i]));
    }
    search.descend(0, need, 0.0);
    Found { counts: search.best.map(|(_, counts)| counts), proven: search.work > 0 }
}

struct Search {
    offers: Vec<Offer>,
    slack: f64,
    /// Every cost is a multiple of it, so every sum is; 0 where there is none.
    unit: f64,
    /// What is left beside `counts`.
    stock: Vec<u64>,
    counts: Vec<u32>,
    /// The least cost so far, and what it buys.
    best: Option<(f64, Vec<u32>)>,
    /// What is left of [`WORK`].
    work: u32,
}

impl Search {
    /// Tries every number of the offer at `depth` that may lead to less cost. `need` is what the offers before it
    /// leave, `cost` what they cost.
    fn descend(&mut self, depth: usize, need: f64, cost: f64) {
        if need <= self.slack {
            if self.improves(cost) {
                self.best = Some((cost, self.counts.clone()));
            }
            return;
        }
        let Some(offer) = self.offers.get(depth).cloned() else { return };
        let mut next = Some(offer.enough(need, self.fits(&offer)));
        while let Some(count) = next {
            let left = need - f64::from(count) * offer.size;
            let spent = cost + f64::from(count) * offer.cost;
            if self.work == 0 {
                return;
            }
            let least = spent + self.rest(depth + 1, left);
            if self.improves(least) {
                self.take(depth, count);
                self.descend(depth + 1, left, spent);
                self.put_back(depth);
            } else if left > self.slack {
                // With fewer of this one, dearer tokens would have to meet more of the need.
                return;
            }
            next = offer.fewer(count);
        }
    }

    /// True where a way of this cost, or of at least this cost, would be the cheapest so far.
    fn improves(&self, cost: f64) -> bool {
        let Some((best, _)) = self.best else { return cost.is_finite() };
        let lifted = if self.unit > 0.0 { (cost / self.unit - 1e-6).ceil() * self.unit } else { cost };
        lifted < best - 1e-9 * best.max(1.0)
    }

    /// The least that the offers from `depth` on can cost where parts of replicas could be had.
    fn rest(&mut self, depth: usize, mut need: f64) -> f64 {
        let mut cost = 0.0;
        self.work = self.work.saturating_sub(1);
        for offer in self.offers.iter().skip(depth) {
            if need <= self.slack {
                return cost;
            }
            self.work = self.work.saturating_sub(1);
            let count = (need / offer.size).min(f64::from(offer.most));
            cost += count * offer.cost;
            need -= count * offer.size;
        }
        if need <= self.slack { cost } else { f64::INFINITY }
    }

    fn fits(&self, offer: &Offer) -> u32 {
        let fits = |(place, gpus): (usize, u64)| self.stock.get(place)?.checked_div(gpus);
        offer.gpus.and_then(fits).map_or(u32::MAX, |fits| u32::try_from(fits).unwrap_or(u32::MAX))
    }

    fn take(&mut self, depth: usize, count: u32) {
        self.counts[depth] = count;
        if let Some((left, gpus)) = self.stocked(depth) {
            *left = left.saturating_sub(gpus.saturating_mul(u64::from(count)));
        }
    }

    fn put_back(&mut self, depth: usize) {
        let count = std::mem::take(&mut self.counts[depth]);
        if let Some((left, gpus)) = self.stocked(depth) {
            *left = left.saturating_add(gpus.saturating_mul(u64::from(count)));
        }
    }

    /// What is left of an offer's accelerator, and GPUs of one replica.
    fn stocked(&mut self, depth: usize) -> Option<(&mut u64, u64)> {
        let (place, gpus) = self.offers[depth].gpus?;
        self.stock.get_mut(place).map(|left| (left, gpus))
    }
}

impl Offer {
    /// The smallest number that may be had and meets `need`; where that is too many, the greatest that may be had.
    fn enough(&self, need: f64, fits: u32) -> u32 {
        let most = self.most.min(fits);
        // The allowance keeps a quotient of 2.0000000001 at 2.
        let count = whole((need / self.size - 1e-9).ceil()).min(most);
        if !self.ignored.contains(&count) {
            count
        } else if self.ignored.end <= most {
            self.ignored.end
        } else {
            self.ignored.start.saturating_sub(1)
        }
    }

    /// The next smaller number that may be had.
    fn fewer(&self, count: u32) -> Option<u32> {
        let fewer = count.checked_sub(1)?;
        Some(if self.ignored.contains(&fewer) { self.ignored.start.saturating_sub(1) } else { fewer })
    }
}

/// The greatest figure of four decimals of which every cost is a multiple, 0 where there is none. Costs are seldom
/// more precise, and it rules out most ways that are not cheaper at a glance.
fn unit(offers: &[Offer]) -> f64 {
    const PARTS: f64 = 1e4;
    // Far below 2^53, so that products and quotients stay exact.
    const MOST: f64 = 1e12;
    let mut unit = 0.0_f64;
    for offer in offers {
        let parts = (offer.cost * PARTS).round();
        if parts > MOST || (offer.cost * PARTS - parts).abs() > 1e-6 {
            return 0.0;
        }
        let (mut a, mut b) = (unit, parts);
        while b > 0.0 {
            (a, b) = (b, a % b);
        }
        unit = a;
    }
    unit / PARTS
}
