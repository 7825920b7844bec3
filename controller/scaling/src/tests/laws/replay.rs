//! A snapshot from a file decides the same, byte by byte.

use proptest::prelude::*;

use super::assert_same;
use crate::tests::generate::any_case;
use crate::{Snapshot, decide};

proptest! {
    #[test]
    fn a_snapshot_written_as_json_decides_the_same(case in any_case()) {
        let json = serde_json::to_string(&case.0).unwrap();
        let read = Snapshot::read(&mut serde_json::Deserializer::from_str(&json)).unwrap();
        assert_same(&decide(&read), &decide(&case))?;
        prop_assert_eq!(read, case.0);
    }

    #[test]
    fn a_snapshot_written_as_yaml_decides_the_same(case in any_case()) {
        let read = Snapshot::parse(&serde_saphyr::to_string(&case.0).unwrap()).unwrap();
        assert_same(&decide(&read), &decide(&case))?;
        prop_assert_eq!(read, case.0);
    }
}
