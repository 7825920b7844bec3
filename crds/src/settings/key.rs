//! Typed keys of the table.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Kind, Value};

/// Key of a setting, with the type of its values. The table makes one for each row, so a mistyped key or type does not compile.
pub struct Key<T> {
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// Environment variable and `ConfigMap` key.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Type of the values of some kinds.
pub trait SettingType: Sized {
    /// Whether the values of a kind have this type.
    fn is_of(kind: Kind) -> bool;

    /// `None`: the value has another type.
    fn of(value: &Value) -> Option<Self>;
}

impl SettingType for bool {
    fn is_of(kind: Kind) -> bool {
        kind == Kind::Bool
    }

    fn of(value: &Value) -> Option<Self> {
        if let Value::Bool(value) = value { Some(*value) } else { None }
    }
}

impl SettingType for i64 {
    fn is_of(kind: Kind) -> bool {
        matches!(kind, Kind::Int { .. })
    }

    fn of(value: &Value) -> Option<Self> {
        if let Value::Int(value) = value { Some(*value) } else { None }
    }
}

impl SettingType for Duration {
    fn is_of(kind: Kind) -> bool {
        matches!(kind, Kind::Duration { .. })
    }

    fn of(value: &Value) -> Option<Self> {
        if let Value::Duration(value) = value { Some(value.get()) } else { None }
    }
}

/// `None`: disabled.
impl SettingType for Option<SocketAddr> {
    fn is_of(kind: Kind) -> bool {
        matches!(kind, Kind::Address | Kind::LoopbackAddress)
    }

    fn of(value: &Value) -> Option<Self> {
        if let Value::Address(value) = value { Some(*value) } else { None }
    }
}

/// All other kinds.
impl SettingType for String {
    fn is_of(kind: Kind) -> bool {
        !(bool::is_of(kind) || i64::is_of(kind) || Duration::is_of(kind) || Option::<SocketAddr>::is_of(kind))
    }

    fn of(value: &Value) -> Option<Self> {
        if let Value::Text(value) = value { Some(value.clone()) } else { None }
    }
}
