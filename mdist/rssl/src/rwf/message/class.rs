//! The declaration of a message class, from which its struct, its decoder and its encoder are made.

/// Declares a message class: its flags, and the parts of its header in the order of the wire.
///
/// `always`: the part is always there. `flag`: it is there if the flag is set. `last`: senders may set the flag and end
/// the header before the part. Then follows what reads and writes the part: its type, or a method of [`Reader`] and
/// [`Writer`] and the name of the part in errors.
///
/// [`Reader`]: crate::wire::Reader
/// [`Writer`]: crate::wire::Writer
macro_rules! message {
    (@value $r:ident $codec:ident) => { $codec::read(&mut $r)? };
    (@value $r:ident $codec:ident $text:literal) => { $crate::Named::named($r.$codec(), $text)? };
    (@read always $r:ident $flags:ident $($codec:tt)+) => { message!(@value $r $($codec)+) };
    (@read flag $bit:literal $r:ident $flags:ident $($codec:tt)+) => {
        if $flags & $bit != 0 { Some(message!(@value $r $($codec)+)) } else { None }
    };
    (@read last $bit:literal $r:ident $flags:ident $($codec:tt)+) => {
        if $flags & $bit != 0 && !$r.is_empty() { Some(message!(@value $r $($codec)+)) } else { None }
    };
    (@put $w:ident $value:ident $codec:ident) => { $value.write($w)? };
    (@put $w:ident $value:ident $codec:ident $text:literal) => { $crate::Named::named($w.$codec(*$value), $text)? };
    (@write always $w:ident $part:expr, $($codec:tt)+) => {
        let value = &$part;
        message!(@put $w value $($codec)+);
    };
    (@write $presence:ident $bit:literal $w:ident $part:expr, $($codec:tt)+) => {
        if let Some(value) = &$part {
            message!(@put $w value $($codec)+);
        }
    };
    (
        $(#[$doc:meta])*
        $name:ident<$life:lifetime>
        $(#[$flags_doc:meta])*
        $flags:ident { $($flag:tt)* }
        $(
            $(#[$part_doc:meta])*
            $part:ident: $type:ty, $presence:ident $($bit:literal)? $codec:ident $($text:literal)?;
        )*
    ) => {
        $crate::rwf::flags::flags! {
            $(#[$flags_doc])*
            $flags(u16) { $($flag)* }
        }

        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name<$life> {
            /// Domain.
            pub domain: $crate::rwf::Domain,
            /// Stream id.
            pub stream: i32,
            /// Flags, except those of optional parts.
            pub flags: $flags,
            /// Type of the payload.
            pub container: $crate::rwf::DataType,
            $($(#[$part_doc])* pub $part: $type,)*
            /// Payload.
            pub payload: &$life [u8],
        }

        impl<$life> $name<$life> {
            const PRESENCE: u16 = 0 $($(| $bit)?)*;

            /// Reads a message of this class.
            ///
            /// # Errors
            /// Another class, or a header that is cut short or malformed.
            pub fn decode(message: &$life [u8]) -> $crate::Result<Self> {
                use $crate::rwf::message::{Class, Start};
                let Start { domain, stream, flags, container, header: mut r, payload } =
                    Start::read(message, Class::$name)?;
                $(let $part = message!(@read $presence $($bit)? r flags $codec $($text)?);)*
                let flags = $flags(flags & !Self::PRESENCE);
                Ok(Self { domain, stream, flags, container, $($part,)* payload })
            }

            /// Writes everything but the payload, which may then be written in place.
            ///
            /// # Errors
            /// As [`Message::encode`](crate::rwf::Message::encode).
            pub fn encode_header(&self, w: &mut $crate::wire::Writer<'_>) -> $crate::Result<()> {
                use $crate::rwf::message::{Class, Head, write_header};
                let head = Head { class: Class::$name, domain: self.domain, stream: self.stream };
                let mut flags = self.flags.0 & !Self::PRESENCE;
                $($(if self.$part.is_some() { flags |= $bit; })?)*
                write_header(w, head, flags, self.container, |w| {
                    $(message!(@write $presence $($bit)? w self.$part, $codec $($text)?);)*
                    Ok(())
                })
            }

            /// Writes header and payload.
            ///
            /// # Errors
            /// As [`Message::encode`](crate::rwf::Message::encode).
            #[inline]
            pub fn encode(&self, w: &mut $crate::wire::Writer<'_>) -> $crate::Result<()> {
                self.encode_header(w)?;
                w.bytes(self.payload)
            }

            /// The message as bytes.
            ///
            /// # Errors
            /// As [`Message::encode`](crate::rwf::Message::encode).
            pub fn to_vec(&self) -> $crate::Result<Vec<u8>> {
                $crate::wire::to_vec(|w| self.encode(w))
            }
        }
    };
}

pub(super) use message;
