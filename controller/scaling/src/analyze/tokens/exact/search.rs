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
    for (i, offer) in offers.iter().enumerate() {
        search.offers[i].most = offer.most.min(search.fits(offer));
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SLACK: f64 = 1e-6;

    fn offer(size: f64, cost: f64, most: u32, step: u32) -> Offer {
        Offer { size, cost, most, ignored: 1..step, gpus: None }
    }

    #[track_caller]
    fn check(offers: &[Offer], stock: &[u64], need: f64, want: Option<&[u32]>) {
        let found = cheapest(offers, stock, need, SLACK);
        assert_eq!((found.counts.as_deref(), found.proven), (want, true), "{offers:?} {stock:?} {need}");
    }

    #[test]
    fn a_small_need_is_met_by_a_small_replica() {
        let offers = [offer(100.0, 40.0, 9, 1), offer(10.0, 5.0, 9, 1)];
        check(&offers, &[], 0.0, Some(&[0, 0]));
        check(&offers, &[], 8.0, Some(&[0, 1]));
        check(&offers, &[], 70.0, Some(&[0, 7]));
        check(&offers, &[], 81.0, Some(&[1, 0]));
        check(&offers, &[], 110.0, Some(&[1, 1]));
        check(&offers, &[], 991.0, None);
        check(&[], &[], 1.0, None);
    }

    #[test]
    fn of_equal_costs_the_earlier_offer_is_taken() {
        check(&[offer(10.0, 5.0, 9, 1), offer(10.0, 5.0, 9, 1)], &[], 15.0, Some(&[2, 0]));
        check(&[offer(10.0, 0.0, 9, 1), offer(10.0, 0.0, 9, 1)], &[], 95.0, Some(&[9, 1]));
    }

    #[test]
    fn numbers_that_an_hpa_ignores_are_passed_over() {
        check(&[offer(10.0, 5.0, 9, 4)], &[], 15.0, Some(&[4]));
        check(&[offer(10.0, 5.0, 3, 4)], &[], 15.0, None);
        // Four of the cheap one cost more than two of the dear one.
        check(&[offer(10.0, 5.0, 9, 4), offer(10.0, 6.0, 9, 1)], &[], 15.0, Some(&[0, 2]));
        // To keep 2 of 3 is a step down that would be ignored.
        let kept = Offer { ignored: 2..3, ..offer(10.0, 5.0, 3, 1) };
        check(std::slice::from_ref(&kept), &[], 15.0, Some(&[3]));
        check(&[kept], &[], 10.0, Some(&[1]));
    }

    #[test]
    fn offers_of_one_accelerator_share_what_is_left() {
        let on = |place, gpus, offer| Offer { gpus: Some((place, gpus)), ..offer };
        let big = on(0, 4, offer(50.0, 40.0, 9, 1));
        let small = on(0, 1, offer(10.0, 9.0, 9, 1));
        let other = on(1, 1, offer(10.0, 20.0, 9, 1));
        let offers = [big, small, other];
        check(&offers, &[8, 0], 100.0, Some(&[2, 0, 0]));
        check(&offers, &[7, 0], 80.0, Some(&[1, 3, 0]));
        check(&offers, &[7, 1], 90.0, Some(&[1, 3, 1]));
        check(&offers, &[7, 0], 90.0, None);
    }

    #[test]
    fn a_search_that_ends_early_says_so_and_has_what_the_rule_would_do() {
        // Prices of a token that differ by less than the remainder of any division, and costs without a common part.
        let offers: Vec<Offer> = (0..12)
            .map(|i| {
                let size = 1000.0 + 37.0 * f64::from(i * i % 7) + f64::from(i);
                offer(size, size * (1.0 + 1e-7 * f64::from(i)) + 1e-5 / 3.0, 500, 1)
            })
            .collect();
        let found = cheapest(&offers, &[], 1_234_567.0, SLACK);
        let held: f64 = found.counts.iter().flatten().zip(&offers).map(|(n, o)| f64::from(*n) * o.size).sum();
        assert!(!found.proven);
        assert!(held >= 1_234_567.0, "{held}");
        let many = vec![offer(1.0, 1.0, 1, 1); OFFERS + 1];
        assert_eq!(cheapest(&many, &[], 1.0, SLACK), Found { counts: None, proven: false });
    }

    #[test]
    fn figures_without_bounds_end_the_search() {
        check(&[offer(10.0, 5.0, u32::MAX, 1)], &[], f64::INFINITY, None);
        check(&[offer(1e-300, 5.0, u32::MAX, 1)], &[], 1e300, None);
        check(&[offer(10.0, f64::MAX, u32::MAX, 1)], &[], 100.0, None);
        check(&[offer(10.0, 5.0, u32::MAX, u32::MAX)], &[], 100.0, Some(&[u32::MAX]));
    }

    /// Every way there is.
    fn brute_force(offers: &[Offer], stock: &[u64], need: f64) -> Option<f64> {
        let mut ways = vec![(0.0, 0.0, stock.to_vec())];
        for offer in offers {
            let counts: Vec<u32> = (0..=offer.most).filter(|n| !offer.ignored.contains(n)).collect();
            let with = |(held, cost, left): &(f64, f64, Vec<u64>), n: u32| {
                let mut left = left.clone();
                if let Some((place, gpus)) = offer.gpus {
                    left[place] = left[place].checked_sub(gpus * u64::from(n))?;
                }
                Some((held + f64::from(n) * offer.size, cost + f64::from(n) * offer.cost, left))
            };
            ways = ways.iter().flat_map(|way| counts.iter().filter_map(move |n| with(way, *n))).collect();
        }
        ways.iter().filter(|(held, ..)| *held >= need - SLACK).map(|(_, cost, _)| *cost).reduce(f64::min)
    }

    prop_compose! {
        fn any_offer()(
            size in 1_u32..40, cost in 0_u32..60, parts in prop_oneof![Just(1.0), Just(3.0), Just(7.0)], most in 0_u32..7,
            ignored in 1_u32..5, below in 0_u32..4, gpus in proptest::option::of((0_usize..2, 1_u64..4)),
        ) -> Offer {
            // As it is for what may be added, and for what may be kept.
            let ignored = if below == 0 { (most + 1).saturating_sub(ignored).max(1)..most } else { 1..ignored };
            Offer { size: f64::from(size), cost: f64::from(cost) / parts, most, ignored, gpus }
        }
    }

    proptest! {
        #[test]
        fn nothing_costs_less(mut offers in vec(any_offer(), 0..5), stock in vec(0_u64..16, 2), need in 0_u32..300) {
            let need = f64::from(need);
            offers.sort_by(|a, b| (a.cost / a.size).total_cmp(&(b.cost / b.size)));
            let found = cheapest(&offers, &stock, need, SLACK);
            prop_assert!(found.proven);
            let least = brute_force(&offers, &stock, need);
            prop_assert_eq!(found.counts.is_some(), least.is_some());
            let Some((counts, least)) = found.counts.zip(least) else { return Ok(()) };
            let each = || counts.iter().zip(&offers);
            let held: f64 = each().map(|(n, o)| f64::from(*n) * o.size).sum();
            let cost: f64 = each().map(|(n, o)| f64::from(*n) * o.cost).sum();
            prop_assert!(held >= need - SLACK);
            prop_assert!((cost - least).abs() < 1e-6, "{} is not {}", cost, least);
            for (place, left) in stock.iter().enumerate() {
                let on = |(n, o): (&u32, &Offer)| o.gpus.filter(|g| g.0 == place).map_or(0, |g| g.1 * u64::from(*n));
                prop_assert!(each().map(on).sum::<u64>() <= *left);
            }
            prop_assert!(each().all(|(n, o)| *n <= o.most && !o.ignored.contains(n)));
        }
    }
}
