//! The invariant over random histories, with a clock that is sometimes set back: once a consumer trusted the CA of a
//! replica's certificate, it always does. A replica's first seconds are excepted, in which it adopts the CA of others.
//! Reads and writes are separate operations, so that other replicas act and replicas restart in between.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const REPLICAS: usize = 3;
const CONSUMERS: usize = 2;
/// Longest partition of a replica from the API server: a sixth of a CA's life.
const MAX_PARTITION: SignedDuration = SignedDuration::from_hours(5);
/// Forced rotations in one history, by a destroyed Secret or a clock that is set back.
const MAX_FORCED: usize = MAX_PREVIOUS;

#[derive(Clone, Debug)]
enum Op {
    /// A replica reads the Secret and decides.
    Read { index: usize, lead: bool },
    /// It writes its decision unless another replica wrote in between, and uses the result.
    Finish { index: usize },
    /// The leader writes its bundle to a consumer, and reports it.
    Distribute { consumer: usize },
    /// A replica restarts and knows no CA.
    Restart { index: usize },
    /// Another replica becomes the leader.
    Elect { index: usize },
    /// The Secret is destroyed in one of several ways.
    Corrupt { how: usize },
    /// Time passes.
    Pass { minutes: i64 },
    /// The clock is set back.
    SetBack { minutes: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let index = 0..REPLICAS;
    prop_oneof![
        6 => (index.clone(), any::<bool>()).prop_map(|(index, lead)| Op::Read { index, lead }),
        6 => index.clone().prop_map(|index| Op::Finish { index }),
        6 => (0..CONSUMERS).prop_map(|consumer| Op::Distribute { consumer }),
        1 => index.clone().prop_map(|index| Op::Restart { index }),
        1 => index.prop_map(|index| Op::Elect { index }),
        1 => (0..5_usize).prop_map(|how| Op::Corrupt { how }),
        3 => (1..200_i64).prop_map(|minutes| Op::Pass { minutes }),
        1 => (1..200_i64).prop_map(|minutes| Op::SetBack { minutes }),
    ]
}

#[derive(Clone, Default)]
struct Replica {
    known: Option<CaSet>,
    /// Whether it has checked the Secret together with the others since its start.
    trusted_ca_established: bool,
    checked: Timestamp,
    pending: Option<PendingDecision>,
    /// CA of its serving certificate.
    serves: Option<CaCert>,
    /// By consumer: whether it trusted that CA once.
    was_trusted: [bool; CONSUMERS],
}

/// A decision that is not written yet.
#[derive(Clone)]
struct PendingDecision {
    /// Revision of the Secret that was read.
    revision: u64,
    set: CaSet,
    is_write: bool,
}

struct World {
    now: Timestamp,
    secret: Option<Data>,
    revision: u64,
    replicas: Vec<Replica>,
    leader: usize,
    consumers: Vec<Consumer>,
    forced: usize,
}

#[derive(Clone, Default)]
struct Consumer {
    bundle: Vec<CaCert>,
    /// Whether the leader has reported it in this term.
    is_reported: bool,
}

impl World {
    fn new() -> Self {
        let replicas = vec![Replica::default(); REPLICAS];
        let consumers = vec![Consumer::default(); CONSUMERS];
        let mut world =
            Self { now: start(), secret: None, revision: 0, replicas, leader: 0, consumers, forced: 0 };
        world.check_secret_by_all();
        world
    }

    fn fresh(&self) -> Ca {
        Ca::generate(LIFE, self.now).unwrap()
    }

    fn read(&mut self, index: usize, lead: bool) {
        let found = self.secret.as_ref().map(|data| ParsedSecret::read(data, self.now));
        let trusted: Vec<_> = self.trusted_by_all().iter().map(|ca| ca.der().clone()).collect();
        let lead = lead && index == self.leader;
        let role = if lead { Role::Leader { trusted: &trusted } } else { Role::Follower };
        let known = self.replicas[index].known.clone();
        let replica = ReplicaView {
            known: known.as_ref(),
            trusted_ca_established: self.replicas[index].trusted_ca_established,
            role,
        };
        let view = SecretView { found: found.as_ref(), replica, now: self.now };
        let (set, is_write) = match decide(view) {
            None => (view.set_without_change().unwrap(), false),
            Some(change) => (view.set_after(&change, || Ok(self.fresh())).unwrap(), true),
        };
        self.replicas[index].pending = Some(PendingDecision { revision: self.revision, set, is_write });
    }

    fn finish(&mut self, index: usize) {
        let Some(PendingDecision { revision, set, is_write }) = self.replicas[index].pending.take() else {
            return;
        };
        if revision != self.revision {
            // A conflict, or an outdated read.
            return;
        }
        if is_write {
            assert_ne!(self.secret, Some(set.to_secret_data()), "an identical write");
            self.secret = Some(set.to_secret_data());
            self.revision += 1;
        }
        let replica = &mut self.replicas[index];
        replica.checked = self.now;
        replica.serves = Some(set.current.cert().clone());
        replica.known = Some(set);
    }

    fn check_secret(&mut self, index: usize) {
        self.read(index, false);
        self.finish(index);
    }

    /// All replicas check the Secret, which takes seconds; a change of the leader takes longer. Replicas that know a CA
    /// come first, because new ones wait for their caches.
    fn check_secret_by_all(&mut self) {
        for knows in [true, false] {
            for index in 0..REPLICAS {
                if self.replicas[index].known.is_some() == knows {
                    self.check_secret(index);
                }
            }
        }
        // Again, because another replica may have overruled one that has just started.
        for index in 0..REPLICAS {
            self.check_secret(index);
            self.replicas[index].trusted_ca_established = true;
        }
    }

    fn trusted_by_all(&self) -> Vec<CaCert> {
        let mut certs = self.consumers[0].bundle.clone();
        certs.retain(|cert| self.consumers.iter().all(|c| c.is_reported && c.bundle.contains(cert)));
        certs
    }

    fn distribute(&mut self, consumer: usize) {
        let Some(known) = &self.replicas[self.leader].known else { return };
        let bundle = known.certs().filter(|cert| self.now < cert.not_after()).cloned().collect();
        self.consumers[consumer] = Consumer { bundle, is_reported: true };
    }

    fn corrupt(&mut self, how: usize) {
        if self.forced == MAX_FORCED {
            return;
        }
        self.forced += 1;
        self.revision += 1;
        let garbage = ByteString(b"garbage".to_vec());
        let foreign = CaSet::new(self.fresh()).to_secret_data();
        match (how, &mut self.secret) {
            (1, Some(data)) => drop(data.insert(CA_CERT.to_owned(), garbage)),
            (2, Some(data)) => drop(data.insert(CA_KEY.to_owned(), foreign[CA_KEY].clone())),
            (3, Some(data)) => drop(data.insert(NEXT_CA_CERT.to_owned(), garbage)),
            (4, secret) => *secret = Some(foreign),
            (_, secret) => *secret = None,
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Read { index, lead } => self.read(index, lead),
            Op::Finish { index } => self.finish(index),
            Op::Distribute { consumer } => self.distribute(consumer),
            Op::Restart { index } => {
                self.replicas[index] = Replica::default();
                if index == self.leader {
                    self.elect(index);
                }
            }
            Op::Elect { index } => self.elect(index),
            Op::Corrupt { how } => self.corrupt(how),
            Op::Pass { minutes } => self.pass(minutes),
            Op::SetBack { minutes } => self.set_back(minutes),
        }
    }

    fn elect(&mut self, index: usize) {
        self.check_secret_by_all();
        self.leader = index;
        self.consumers.iter_mut().for_each(|consumer| consumer.is_reported = false);
    }

    /// Time passes. A replica whose CA expires restarts; none is partitioned for longer than [`MAX_PARTITION`].
    fn pass(&mut self, minutes: i64) {
        self.now += SignedDuration::from_mins(minutes);
        let now = self.now;
        for replica in &mut self.replicas {
            if replica.serves.as_ref().is_some_and(|ca| now >= ca.not_after()) {
                *replica = Replica::default();
            }
        }
        for index in 0..REPLICAS {
            let replica = &self.replicas[index];
            if replica.known.is_some() && now.duration_since(replica.checked) > MAX_PARTITION {
                self.check_secret(index);
            }
        }
    }

    /// The clock is set back. If the CA in use is not valid yet by the new time, replicas use another one at once, before
    /// consumers trust it, as after an expiry. That happens once, and no CA leaves the bundles.
    fn set_back(&mut self, minutes: i64) {
        if self.forced == MAX_FORCED {
            return;
        }
        self.forced += 1;
        self.check_secret_by_all();
        self.now -= SignedDuration::from_mins(minutes);
        let before: Vec<_> = self.replicas.iter().filter_map(|replica| replica.serves.clone()).collect();
        let too_early = before.iter().any(|ca| !ca.is_valid_at(self.now));
        for replica in &mut self.replicas {
            replica.pending = None;
            replica.checked = replica.checked.min(self.now);
            if too_early {
                replica.was_trusted = [false; CONSUMERS];
            }
        }
        let revision = self.revision;
        self.check_secret_by_all();
        assert!(self.revision <= revision + 1, "the Secret is written at most once");
        for replica in &self.replicas {
            let bundle = replica.known.as_ref().unwrap().bundle(self.now);
            let bundle = String::from_utf8(bundle).unwrap();
            assert!(before.iter().all(|ca| bundle.contains(ca.pem())), "a CA left the bundles");
        }
    }

    fn check(&mut self) {
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let Some(serves) = &replica.serves else { continue };
            for (consumer, Consumer { bundle, .. }) in self.consumers.iter().enumerate() {
                let is_trusted = bundle.contains(serves);
                assert!(
                    is_trusted || !replica.was_trusted[consumer],
                    "consumer {consumer} no longer trusts replica {index}"
                );
                replica.was_trusted[consumer] |= is_trusted && replica.trusted_ca_established;
            }
        }
    }

    /// From any state, the replicas converge once all of them run.
    fn settle(&mut self) {
        for _ in 0..6 {
            self.check_secret_by_all();
            self.check();
            self.check_secret(self.leader);
            for consumer in 0..CONSUMERS {
                self.distribute(consumer);
                self.check();
            }
            self.read(self.leader, true);
            self.finish(self.leader);
            self.check();
        }
        self.check_secret_by_all();
        let current = self.replicas[0].serves.clone();
        assert!(self.replicas.iter().all(|r| r.serves == current && r.was_trusted == [true; CONSUMERS]));
        assert!(self.replicas[0].known.as_ref().unwrap().next.is_none(), "the rotation is complete");
    }
}

#[test]
fn trusted_replica_stays_trusted() {
    // A tenth of the default cases, because each creates up to 120 CAs.
    let config = ProptestConfig::default();
    let config = ProptestConfig { cases: config.cases.div_ceil(10), ..config };
    let ops = proptest::collection::vec(op(), 1..120);
    let result = TestRunner::new(config).run(&ops, |ops| {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.settle();
        Ok(())
    });
    result.unwrap();
}
