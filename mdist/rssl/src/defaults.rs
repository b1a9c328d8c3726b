//! Structs that are declared together with their default values.

/// Declares a struct and its [`Default`]: each field has its value after `=`.
///
/// ```
/// rssl::with_defaults! {
///     /// Limits.
///     #[derive(Debug)]
///     pub struct Limits {
///         /// Maximum number of items.
///         pub items: u32 = 1000,
///     }
/// }
/// assert_eq!(Limits::default().items, 1000);
/// ```
#[macro_export]
macro_rules! with_defaults {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(<$life:lifetime>)? {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $name $(<$life>)? {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl $(<$life>)? Default for $name $(<$life>)? {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
