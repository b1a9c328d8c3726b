//! Structs of counters.

/// Declares a struct of counters, which can be added and subtracted.
macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $name { $($(#[$field_doc])* pub $field: u64,)* }

        impl $name {
            pub(super) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// The counts since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(earlier.$field),)* }
            }
        }
    };
}

pub(crate) use counts;
