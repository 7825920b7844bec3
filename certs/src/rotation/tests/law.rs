//! The law, over random histories, with a clock that is set back now and then: what a replica serves is signed by a CA
//! that everybody who verifies carries, from the moment it first was (but for a replica's first seconds, in which it
//! gives way to others). Looks and writes are apart, so that others come and replicas die in between.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const REPLICAS: usize = 3;
const CONSUMERS: usize = 2;
/// Nobody is cut off from the API server for longer: a sixth of a CA's life.
const LONGEST_AWAY: SignedDuration = SignedDuration::from_hours(5);
/// Rotations that are forced in one history, by a Secret that is spoilt or a clock that is set back: as many as earlier CAs are remembered.
const MOST_FORCED: usize = MOST_PREVIOUS;

#[derive(Clone, Debug)]
enum Op {
    /// A replica reads the Secret and decides.
    Read { who: usize, lead: bool },
    /// It writes what it decided, unless somebody wrote in between, and uses what it wrote or read.
    Finish { who: usize },
    /// The leader puts its bundle into a consumer, and reports it.
    Carry { consumer: usize },
    /// A replica dies and starts anew, knowing nothing.
    Restart { who: usize },
    /// Somebody else leads.
    Elect { who: usize },
    /// The Secret is destroyed in one of some ways.
    Spoil { how: usize },
    /// Time passes.
    Pass { minutes: i64 },
    /// The clock is set back.
    SetBack { minutes: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..REPLICAS;
    prop_oneof![
        6 => (who.clone(), any::<bool>()).prop_map(|(who, lead)| Op::Read { who, lead }),
        6 => who.clone().prop_map(|who| Op::Finish { who }),
        6 => (0..CONSUMERS).prop_map(|consumer| Op::Carry { consumer }),
        1 => who.clone().prop_map(|who| Op::Restart { who }),
        1 => who.prop_map(|who| Op::Elect { who }),
        1 => (0..5_usize).prop_map(|how| Op::Spoil { how }),
        3 => (1..200_i64).prop_map(|minutes| Op::Pass { minutes }),
        1 => (1..200_i64).prop_map(|minutes| Op::SetBack { minutes }),
    ]
}

#[derive(Clone, Default)]
struct Replica {
    known: Option<CaSet>,
    /// Has looked since it started when the others did: no replica is away for the first seconds of another.
    trusted_ca_established: bool,
    looked: Timestamp,
    /// Decided, and not yet written: what, at which revision.
    pending: Option<(u64, CaSet, bool)>,
    /// CA of what it serves, and its end.
    serves: Option<CaCert>,
    /// By consumer: what it serves was trusted once.
    joined: [bool; CONSUMERS],
}

struct World {
    now: Timestamp,
    secret: Option<Data>,
    revision: u64,
    replicas: Vec<Replica>,
    leader: usize,
    /// The bundle in each consumer, and whether this leader saw it there.
    carried: Vec<(Vec<CaCert>, bool)>,
    forced: usize,
}

impl World {
    fn new() -> Self {
        let replicas = vec![Replica::default(); REPLICAS];
        let carried = vec![(Vec::new(), false); CONSUMERS];
        let mut world =
            Self { now: start(), secret: None, revision: 0, replicas, leader: 0, carried, forced: 0 };
        world.everybody_looks();
        world
    }

    fn fresh(&self) -> Ca {
        Ca::generate(LIFE, self.now).unwrap()
    }

    fn read(&mut self, who: usize, lead: bool) {
        let found = self.secret.as_ref().map(|data| Found::read(data, self.now));
        let trusted: Vec<_> = self.carried_by_all().iter().map(|ca| ca.der().clone()).collect();
        let lead = lead && who == self.leader;
        let role = if lead { Role::Leader { trusted: &trusted } } else { Role::Follower };
        let known = self.replicas[who].known.clone();
        let replica = ReplicaView {
            known: known.as_ref(),
            trusted_ca_established: self.replicas[who].trusted_ca_established,
            role,
        };
        let view = SecretView { found: found.as_ref(), replica, now: self.now };
        let (set, write) = match decide(view) {
            None => (view.kept().unwrap(), false),
            Some(change) => (view.after(&change, || Ok(self.fresh())).unwrap(), true),
        };
        self.replicas[who].pending = Some((self.revision, set, write));
    }

    fn finish(&mut self, who: usize) {
        let Some((revision, set, write)) = self.replicas[who].pending.take() else { return };
        if revision != self.revision {
            // A conflict, or an answer that is out of date: read again.
            return;
        }
        if write {
            assert_ne!(self.secret, Some(set.to_secret_data()), "what is there is not written again");
            self.secret = Some(set.to_secret_data());
            self.revision += 1;
        }
        let replica = &mut self.replicas[who];
        replica.looked = self.now;
        replica.serves = Some(set.current.cert().clone());
        replica.known = Some(set);
    }

    fn look(&mut self, who: usize) {
        self.read(who, false);
        self.finish(who);
    }

    /// What happens within seconds, while a lease takes longer to change hands. Those who know something come first:
    /// whoever starts waits for the caches.
    fn everybody_looks(&mut self) {
        for knows in [true, false] {
            for who in 0..REPLICAS {
                if self.replicas[who].known.is_some() == knows {
                    self.look(who);
                }
            }
        }
        // Twice: who has just started may have been overruled.
        for who in 0..REPLICAS {
            self.look(who);
            self.replicas[who].trusted_ca_established = true;
        }
    }

    fn carried_by_all(&self) -> Vec<CaCert> {
        let mut certs = self.carried[0].0.clone();
        certs.retain(|cert| self.carried.iter().all(|(carried, seen)| *seen && carried.contains(cert)));
        certs
    }

    fn carry(&mut self, consumer: usize) {
        let Some(known) = &self.replicas[self.leader].known else { return };
        let bundle = known.certs().filter(|cert| self.now < cert.not_after()).cloned().collect();
        self.carried[consumer] = (bundle, true);
    }

    fn spoil(&mut self, how: usize) {
        if self.forced == MOST_FORCED {
            return;
        }
        self.forced += 1;
        self.revision += 1;
        let garbage = ByteString(b"garbage".to_vec());
        let foreign = CaSet::of(self.fresh()).to_secret_data();
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
            Op::Read { who, lead } => self.read(who, lead),
            Op::Finish { who } => self.finish(who),
            Op::Carry { consumer } => self.carry(consumer),
            Op::Restart { who } => {
                self.replicas[who] = Replica::default();
                if who == self.leader {
                    self.elect(who);
                }
            }
            Op::Elect { who } => self.elect(who),
            Op::Spoil { how } => self.spoil(how),
            Op::Pass { minutes } => self.pass(minutes),
            Op::SetBack { minutes } => self.set_back(minutes),
        }
    }

    fn elect(&mut self, who: usize) {
        self.everybody_looks();
        self.leader = who;
        self.carried.iter_mut().for_each(|(_, seen)| *seen = false);
    }

    /// Nobody is away for so long that its certificates expire: whoever is, serves nothing that counts.
    fn pass(&mut self, minutes: i64) {
        self.now += SignedDuration::from_mins(minutes);
        let now = self.now;
        for replica in &mut self.replicas {
            if replica.serves.as_ref().is_some_and(|ca| now >= ca.not_after()) {
                *replica = Replica::default();
            }
        }
        for who in 0..REPLICAS {
            let replica = &self.replicas[who];
            if replica.known.is_some() && now.duration_since(replica.looked) > LONGEST_AWAY {
                self.look(who);
            }
        }
    }

    /// Where what is in use is not valid yet by the new time, something else is used at once: new bundles are needed
    /// first, as where it has expired. But that happens once, and no CA loses its place in the bundles.
    fn set_back(&mut self, minutes: i64) {
        if self.forced == MOST_FORCED {
            return;
        }
        self.forced += 1;
        self.everybody_looks();
        self.now -= SignedDuration::from_mins(minutes);
        let before: Vec<_> = self.replicas.iter().filter_map(|replica| replica.serves.clone()).collect();
        let too_early = before.iter().any(|ca| !ca.valid_at(self.now));
        for replica in &mut self.replicas {
            replica.pending = None;
            replica.looked = replica.looked.min(self.now);
            if too_early {
                replica.joined = [false; CONSUMERS];
            }
        }
        let revision = self.revision;
        self.everybody_looks();
        assert!(self.revision <= revision + 1, "the Secret is written at most once");
        for replica in &self.replicas {
            let bundle = replica.known.as_ref().unwrap().bundle(self.now);
            let bundle = String::from_utf8(bundle).unwrap();
            assert!(before.iter().all(|ca| bundle.contains(ca.pem())), "a CA left the bundles");
        }
    }

    fn check(&mut self) {
        for (who, replica) in self.replicas.iter_mut().enumerate() {
            let Some(serves) = &replica.serves else { continue };
            for (consumer, (carried, _)) in self.carried.iter().enumerate() {
                let trusted = carried.contains(serves);
                assert!(
                    trusted || !replica.joined[consumer],
                    "replica {who} is not trusted by {consumer} any more"
                );
                replica.joined[consumer] |= trusted && replica.trusted_ca_established;
            }
        }
    }

    /// However things stand: they end well once everybody goes on.
    fn settle(&mut self) {
        for _ in 0..6 {
            self.everybody_looks();
            self.check();
            self.look(self.leader);
            for consumer in 0..CONSUMERS {
                self.carry(consumer);
                self.check();
            }
            self.read(self.leader, true);
            self.finish(self.leader);
            self.check();
        }
        self.everybody_looks();
        let current = self.replicas[0].serves.clone();
        assert!(self.replicas.iter().all(|r| r.serves == current && r.joined == [true; CONSUMERS]));
        assert!(self.replicas[0].known.as_ref().unwrap().next.is_none(), "no rotation is left half done");
    }
}

#[test]
fn whoever_was_trusted_stays_trusted() {
    // A tenth of the cases of other laws: each makes up to 120 CAs.
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
