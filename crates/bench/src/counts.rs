//! Structs of counts.

/// Defines a struct of counts, all of them `u64`, which can be added and subtracted field by field.
#[macro_export]
macro_rules! counts {
    ($(#[$about:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        $vis struct $name { $($(#[$doc])* $vis $field: u64,)* }

        impl $name {
            /// Adds the counts of another part.
            $vis fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// The counts since `earlier`.
            #[must_use]
            $vis fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(earlier.$field),)* }
            }
        }
    };
}
