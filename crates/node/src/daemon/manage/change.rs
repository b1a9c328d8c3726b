//! Changes, except of bearers and media.

use utipc_core::addr::{ClusterId, NodeAddr, NodeId};
use utipc_core::broadcast::{MulticastPolicy, SMALLEST_WINDOW};
use utipc_core::crypto::{Key, KeyError, KeyUse, SetKeyError};
use utipc_core::wire::Method;
use utipc_core::{LinkProperty, PeerError, PropertyError};
use utipc_manage::family::BROADCAST_LINK;
use utipc_manage::{Errno, KeyChange, Properties, REKEY_NOW, Refusal};

use super::media::check;
use super::{Access, Naming, invalid};

/// Methods of the broadcast link, as the kernel numbers them.
pub(super) const BROADCAST: u32 = 1;
pub(super) const REPLICAST: u32 = 2;
pub(super) const CHOSEN: u32 = 4;

pub(super) fn no_link(name: &str) -> Refusal {
    invalid(format!("there is no link {name} (see `link list`)"))
}

fn out_of_range(error: &PropertyError) -> Refusal {
    invalid(error.to_string())
}

impl Access<'_> {
    pub(super) fn set_link_properties(&mut self, name: &str, new: &Properties) -> Result<(), Refusal> {
        if name == BROADCAST_LINK {
            return self.set_broadcast(new);
        }
        check(new)?;
        if !self.driver.stack.links().iter().any(|link| link.name == name) {
            return Err(no_link(name));
        }
        let wanted = [
            new.tolerance.map(LinkProperty::ToleranceMs),
            new.priority.map(|p| LinkProperty::Priority(p as u8)),
            new.window.map(|w| LinkProperty::Window(w as u16)),
        ];
        for property in wanted.into_iter().flatten() {
            self.driver.stack.set_link(self.now, name, property).map_err(|e| out_of_range(&e))?;
        }
        Ok(())
    }

    fn set_broadcast(&mut self, new: &Properties) -> Result<(), Refusal> {
        check(new)?;
        if new.window.is_none() && new.broadcast.is_none() && new.ratio.is_none() {
            return Err(Refusal::new(Errno::NOT_SUPPORTED, "the broadcast link has no such property"));
        }
        let stack = &mut self.driver.stack;
        let (ratio, method) = (new.ratio, new.broadcast);
        let policy = match (method, stack.broadcast().policy) {
            (Some(BROADCAST), _) => MulticastPolicy::Forced(Method::Broadcast),
            (Some(REPLICAST), _) => MulticastPolicy::Forced(Method::Replicast),
            (Some(CHOSEN), MulticastPolicy::Auto { ratio }) | (None, MulticastPolicy::Auto { ratio }) => {
                MulticastPolicy::Auto { ratio }
            }
            (Some(CHOSEN), _) => MulticastPolicy::default(),
            (Some(_), _) => return Err(invalid("the method must be BROADCAST, REPLICAST or AUTOSELECT")),
            (None, forced) => forced,
        };
        let policy = match (policy, ratio) {
            (MulticastPolicy::Auto { .. }, Some(ratio)) => MulticastPolicy::Auto { ratio },
            (_, Some(_)) if method.is_none() => {
                return Err(invalid("the ratio counts with AUTOSELECT only"));
            }
            (policy, _) => policy,
        };
        stack.set_multicast_policy(policy).map_err(|e| out_of_range(&e))?;
        if let Some(window) = new.window {
            let window = u16::try_from(window).unwrap_or(u16::MAX).max(SMALLEST_WINDOW);
            stack.set_broadcast_window(window).map_err(|e| out_of_range(&e))?;
        }
        Ok(())
    }

    pub(super) fn reset_link(&mut self, name: &str) -> Result<(), Refusal> {
        let stack = &mut self.driver.stack;
        let done = if name == BROADCAST_LINK {
            stack.clear_broadcast_stats(None)
        } else if let Some(peer) = name.strip_prefix(BROADCAST_LINK).and_then(|rest| rest.strip_prefix(':')) {
            let mut all = stack.broadcasts_from(NodeAddr::NONE);
            let from = all.find(|(_, id, _)| id.to_string() == peer).map(|(addr, ..)| addr);
            drop(all);
            from.is_some_and(|from| stack.clear_broadcast_stats(Some(from)))
        } else {
            stack.clear_link_stats(name)
        };
        if done { Ok(()) } else { Err(no_link(name)) }
    }

    pub(super) fn set_threshold(&mut self, nodes: Option<u32>) -> Result<(), Refusal> {
        let Some(nodes) = nodes else { return Ok(()) };
        let set = self.driver.stack.set_monitor_threshold(nodes as usize);
        set.map_err(|e| out_of_range(&e))
    }

    pub(super) fn remove_peer(
        &mut self,
        address: Option<u32>,
        identity: Option<[u8; 16]>,
    ) -> Result<(), Refusal> {
        let stack = &mut self.driver.stack;
        let address = match (address, identity.map(NodeId)) {
            (Some(0), _) | (None, None) => return Err(Errno::INVALID.into()),
            (_, Some(id)) => stack
                .nodes()
                .iter()
                .find(|n| n.id == id)
                .map_or_else(|| id.trial_address(), |known| known.addr),
            (Some(address), None) => NodeAddr(address),
        };
        stack.forget_peer(address).map_err(|error| {
            let errno = match error {
                PeerError::Own => Errno::OWN_NODE,
                PeerError::Unknown => Errno::NO_DEVICE_OR_ADDRESS,
                PeerError::Up => Errno::BUSY,
            };
            Refusal::new(errno, error.to_string())
        })
    }

    /// Sets a key, or when the node makes session keys.
    pub(super) fn change_keys(&mut self, change: &KeyChange) -> Result<(), Refusal> {
        let busy = |error: SetKeyError| {
            let errno = match error {
                SetKeyError::Busy => Errno::BUSY,
                SetKeyError::NoIdentity => Errno::NOT_PERMITTED,
                SetKeyError::TooMany => Errno::NO_MEMORY,
                SetKeyError::NoKey | SetKeyError::NoEntropy => Errno::INVALID,
            };
            Refusal::new(errno, error.to_string())
        };
        if let Some(secret) = &change.key {
            let key = Key::for_algorithm(secret.algorithm.as_bytes(), &secret.bytes).map_err(|error| {
                let unknown = error == KeyError::Algorithm;
                Refusal::new(if unknown { Errno::NO_DEVICE } else { Errno::KEY_REJECTED }, error.to_string())
            })?;
            let key_use = match change.identity {
                Some(identity) => KeyUse::Node(NodeId(identity)),
                None if change.master => KeyUse::Master,
                None => KeyUse::Cluster,
            };
            self.driver.stack.set_key(self.now, key_use, key).map_err(busy)?;
        }
        match change.rekeying {
            Some(REKEY_NOW) => self.driver.stack.rekey(self.now).map_err(busy),
            Some(minutes) => {
                self.driver.stack.set_rekeying(self.now, minutes);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn set_net(
        &mut self,
        naming: &mut Naming,
        cluster: Option<u32>,
        address: Option<u32>,
        identity: Option<[u8; 16]>,
    ) -> Result<(), Refusal> {
        if *naming == Naming::Final {
            let text = "the node has its address (set this before its first bearer, or in the daemon's configuration)";
            return Err(Refusal::new(Errno::NOT_PERMITTED, text));
        }
        if cluster.is_some_and(|id| !(1..=9999).contains(&id)) {
            return Err(invalid("the number of a cluster must be 1 to 9999"));
        }
        if address == Some(0) {
            return Err(Errno::INVALID.into());
        }
        // The kernel keeps the first identity that it is given, and reports no error.
        let identity = identity.filter(|_| *naming == Naming::Open);
        let renamed = self.driver.stack.rename(
            self.now,
            cluster.map(ClusterId),
            identity.map(NodeId),
            address.map(NodeAddr),
        );
        renamed.map_err(|error| Refusal::new(Errno::NOT_PERMITTED, error.to_string()))?;
        *naming = match (address, identity) {
            (Some(_), _) => Naming::Final,
            (None, Some(_)) => Naming::Identified,
            (None, None) => *naming,
        };
        Ok(())
    }
}
