//! The sockets at which consumers and publishers arrive.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Result;

use crate::net::{Interest, Now, Poller, Registry, Socket, SocketOptions, listen, resolve};

/// How long nobody is taken after the system refused a connection: out of descriptors, it would refuse the next too.
const REST: Duration = Duration::from_millis(200);

/// All listening sockets of a program; their tokens in the poller are 0, 1, 2 …
pub(super) struct Listeners {
    sockets: Vec<TcpListener>,
    options: SocketOptions,
    registry: Registry,
    /// Nobody is taken before then.
    rests_until: Option<Now>,
    /// The refusals in a row, of which only the first is logged.
    refusals: u64,
}

impl Listeners {
    /// At these addresses; `port` where one names none.
    ///
    /// # Errors
    /// An address that is taken, or not this host's; it is in the text.
    pub(super) fn open(at: &[String], port: u16, options: SocketOptions, poller: &Poller) -> Result<Self> {
        let mut sockets = Vec::new();
        for (token, text) in (0..).zip(at) {
            let socket = listen(resolve(text, port)?)?;
            poller.add(&socket, token, Interest::Read)?;
            sockets.push(socket);
        }
        let registry = poller.registry().clone();
        Ok(Self { sockets, options, registry, rests_until: None, refusals: 0 })
    }

    /// Where they listen, in the order of the settings.
    ///
    /// # Errors
    /// The system does not say.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        self.sockets.iter().map(|socket| Ok(socket.local_addr()?)).collect()
    }

    /// The next connection that waits at the listener of this token.
    pub(super) fn accept(&mut self, token: u64, now: Now) -> Option<Socket> {
        let listener = usize::try_from(token).ok().and_then(|place| self.sockets.get(place))?;
        if self.rests_until.is_some() {
            return None;
        }
        match Socket::accept(listener, self.options) {
            Ok(taken) => {
                if taken.is_some() && std::mem::take(&mut self.refusals) > 1 {
                    tracing::info!("connections are accepted again");
                }
                taken
            }
            Err(why) => {
                self.refusals += 1;
                if self.refusals == 1 {
                    tracing::warn!(%why, "a connection could not be accepted (raise the limit of open files, `ulimit -n`, if it is reached); tried again every {REST:?}");
                }
                // They stay readable: without a rest the poller would report nothing else.
                self.watch(Interest::End);
                self.rests_until = Some(now + REST);
                None
            }
        }
    }

    /// Ends a rest that is over.
    pub(super) fn tick(&mut self, now: Now) {
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
            self.watch(Interest::Read);
        }
    }

    /// When that is.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.rests_until
    }

    fn watch(&self, interest: Interest) {
        for (token, socket) in (0..).zip(&self.sockets) {
            if let Err(why) = self.registry.change(socket, token, interest) {
                tracing::error!(%why, "a listener is lost");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::{Listeners, REST};
    use crate::net::{Now, Poller, SocketOptions};

    /// A refusal as the system makes them when descriptors run out: here an option that cannot be set.
    const REFUSED: SocketOptions =
        SocketOptions { no_delay: true, receive_buffer: Some(usize::MAX), send_buffer: None };

    #[test]
    fn rests_after_a_refusal_and_comes_back() {
        let poller = Poller::new().unwrap();
        let mut listeners =
            Listeners::open(&["127.0.0.1:0".into()], 0, SocketOptions::default(), &poller).unwrap();
        let at = listeners.addresses().unwrap()[0];
        let mut events = Vec::new();

        let _first = TcpStream::connect(at).unwrap();
        poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
        listeners.options = REFUSED;
        assert!(listeners.accept(0, Now::ZERO).is_none());
        assert_eq!(listeners.deadline(), Some(REST));

        listeners.options = SocketOptions::default();
        let _second = TcpStream::connect(at).unwrap();
        events.clear();
        poller.wait(Some(Duration::from_millis(20)), &mut events).unwrap();
        assert!(events.is_empty(), "a listener that rests is not reported");
        assert!(listeners.accept(0, Now::ZERO).is_none());

        listeners.tick(REST);
        poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
        assert_eq!(events[0].token, 0);
        assert!(listeners.accept(0, REST).is_some());
        assert_eq!(listeners.deadline(), None);
    }

    #[test]
    fn a_token_of_nobody_is_nothing() {
        let poller = Poller::new().unwrap();
        let mut none = Listeners::open(&[], 0, SocketOptions::default(), &poller).unwrap();
        assert!(none.accept(7, Now::ZERO).is_none() && none.addresses().unwrap().is_empty());
    }
}
