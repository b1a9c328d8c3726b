//! The methods that maps, vectors, series and filter lists have in common.

/// An iterator over as many entries as were announced, which ends after the first error of its `read`.
macro_rules! entries {
    ($entries:ident, $entry:ty) => {
        impl<'a> Iterator for $entries<'a> {
            type Item = Result<$entry>;

            fn next(&mut self) -> Option<Self::Item> {
                self.left = self.left.checked_sub(1)?;
                let entry = self.read();
                if entry.is_err() {
                    self.left = 0;
                }
                Some(entry)
            }
        }
    };
}

/// The set definitions of a container that may have some.
macro_rules! definitions {
    ($container:ident) => {
        impl<'a> $container<'a> {
            /// The set definitions, if the entries are field lists.
            ///
            /// # Errors
            /// As [`FieldSets::decode`].
            pub fn field_sets(&self) -> Result<FieldSets<'a>> {
                FieldSets::decode(self.sets.unwrap_or_default())
            }

            /// The set definitions, if the entries are element lists.
            ///
            /// # Errors
            /// As [`ElementSets::decode`].
            pub fn element_sets(&self) -> Result<ElementSets<'a>> {
                ElementSets::decode(self.sets.unwrap_or_default())
            }
        }
    };
}

/// The optional parts of a container, written: the second to the fourth, a map's key field is the first.
macro_rules! optional_parts {
    ($writer:ident, $flags:ident) => {
        impl<'b> $writer<'_, 'b> {
            /// Set definitions, written by `f` with [`super::sets::write_field_sets`] or its like.
            ///
            /// # Errors
            /// What `f` says; [`crate::Error::Full`], [`crate::Error::Malformed`] if it comes too late.
            pub fn sets(&mut self, f: impl FnOnce(&mut Writer<'b>) -> Result<()>) -> Result<()> {
                self.head.part(2, $flags::SETS.0, |w| w.nested15(f))
            }

            /// A summary, written by `f`.
            ///
            /// # Errors
            /// What `f` says; [`crate::Error::Full`], [`crate::Error::Malformed`] if it comes too late.
            pub fn summary(&mut self, f: impl FnOnce(&mut Writer<'b>) -> Result<()>) -> Result<()> {
                self.head.part(3, $flags::SUMMARY.0, |w| w.nested15(f))
            }

            /// An estimate of the number of entries in all parts.
            ///
            /// # Errors
            /// [`crate::Error::Full`], [`crate::Error::TooLong`] at 2^30 and above, [`crate::Error::Malformed`] if it
            /// comes too late.
            pub fn hint(&mut self, entries: u32) -> Result<()> {
                self.head.part(4, $flags::HINT.0, |w| w.rb30(entries))
            }
        }
    };
}

pub(super) use {definitions, entries, optional_parts};
