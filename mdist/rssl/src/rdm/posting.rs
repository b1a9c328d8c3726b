//! Posts and their acknowledgements. Spec: rssl.md §6.1

use crate::Result;
use crate::rwf::{Ack, DataType, Message, Post, PostFlags};
use crate::wire::Writer;

/// The content of a post.
#[derive(Clone, Debug, PartialEq)]
pub enum Posted<'a> {
    /// A message, to apply with its flags.
    Message(Box<Message<'a>>),
    /// A container, to apply as an update.
    Data(DataType, &'a [u8]),
}

/// Reads the content of a post.
///
/// # Errors
/// A message that cannot be read, or of a class that a post cannot have.
pub fn posted<'a>(post: &Post<'a>) -> Result<Posted<'a>> {
    if post.container != DataType::MSG {
        return Ok(Posted::Data(post.container, post.payload));
    }
    match Message::decode(post.payload)? {
        message @ (Message::Refresh(_) | Message::Status(_) | Message::Update(_) | Message::Generic(_)) => {
            Ok(Posted::Message(Box::new(message)))
        }
        _ => Err(super::wrong("posted message")),
    }
}

/// Writes the acknowledgement of a post, if it requests one and has an id: success, or a refusal with one of
/// [`crate::rwf::nak`] and a text. Returns whether it was written.
pub fn acknowledge(post: &Post<'_>, refusal: Option<(u8, &[u8])>, w: &mut Writer<'_>) -> Result<bool> {
    let (true, Some(ack_id)) = (post.flags.contains(PostFlags::ACK), post.post_id) else { return Ok(false) };
    let ack = Ack {
        domain: post.domain,
        stream: post.stream,
        ack_id,
        nak: refusal.map(|(code, _)| code),
        text: refusal.map(|(_, text)| text),
        seq: post.seq,
        ..Ack::default()
    };
    ack.encode(w)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rwf::{Domain, Update, nak};

    #[test]
    fn posts_are_read_and_acknowledged() {
        let update = Update { domain: Domain::MARKET_PRICE, stream: 0, ..Update::default() }.to_vec();
        let update = update.unwrap();
        let mut post = Post {
            domain: Domain::MARKET_PRICE,
            stream: 5,
            flags: PostFlags::COMPLETE | PostFlags::ACK,
            container: DataType::MSG,
            post_id: Some(7),
            seq: Some(9),
            payload: &update,
            ..Post::default()
        };
        assert!(matches!(posted(&post), Ok(Posted::Message(m)) if matches!(*m, Message::Update(_))));
        let mut bytes = [0; 64];
        let mut w = Writer::new(&mut bytes);
        assert_eq!(acknowledge(&post, Some((nak::SOURCE_DOWN, b"down")), &mut w), Ok(true));
        let ack = Ack::decode(w.written()).unwrap();
        assert_eq!((ack.stream, ack.ack_id, ack.seq, ack.nak), (5, 7, Some(9), Some(nak::SOURCE_DOWN)));
        post.flags.remove(PostFlags::ACK);
        assert_eq!(acknowledge(&post, None, &mut w), Ok(false));
        let own = post.to_vec().unwrap();
        let nested = Post { payload: &own, ..post.clone() };
        assert!(posted(&nested).is_err());
        post.container = DataType::FIELD_LIST;
        assert_eq!(posted(&post), Ok(Posted::Data(DataType::FIELD_LIST, &update[..])));
    }
}
