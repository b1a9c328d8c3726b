//! The services of the server, and the choice of one.

use std::collections::BTreeMap;

use rssl::rdm::directory::{Action, Service};

/// The services by id, as the directory and its updates describe them.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    services: BTreeMap<u16, Entry>,
    /// Whether a directory was received.
    known: bool,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    name: String,
    up: bool,
}

/// The service to request items of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Its id and name.
    Service(u16, String),
    /// None yet: the reason, for the user.
    Wait(String),
    /// The server has services, and none of this name: the reason, for the user.
    Unknown(String),
}

impl Catalogue {
    /// Applies a directory or changes of it; `replaces`: services that `changes` lacks are gone.
    pub(super) fn apply(&mut self, changes: &[(Action, Service)], replaces: bool) {
        self.known = true;
        if replaces {
            self.services.clear();
        }
        for (action, service) in changes {
            if *action == Action::Delete {
                self.services.remove(&service.id);
                continue;
            }
            let entry = self.services.entry(service.id).or_default();
            if let Some(info) = &service.info {
                entry.name.clone_from(&info.name);
            }
            if let Some(state) = &service.state {
                entry.up = state.up;
            }
        }
    }

    /// The service named `wanted`, or without a name the first that is up.
    pub(super) fn choose(&self, wanted: Option<&str>) -> Choice {
        let found = match wanted {
            Some(name) => self.services.iter().find(|(_, entry)| entry.name == name),
            None => self.services.iter().find(|(_, entry)| entry.up),
        };
        match (found, wanted) {
            (Some((id, entry)), _) => Choice::Service(*id, entry.name.clone()),
            (None, _) if !self.known => Choice::Wait("no directory yet".into()),
            (None, _) if self.services.is_empty() => Choice::Wait("the server has no services yet".into()),
            (None, None) => Choice::Wait(format!("no service is up yet: {}", self.list())),
            (None, Some(name)) => {
                Choice::Unknown(format!("no service '{name}' (use --service with one of: {})", self.list()))
            }
        }
    }

    /// The names, in the order of ids.
    fn list(&self) -> String {
        self.services.values().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Id, name and whether it is up, of each service; `None` before the directory.
    pub(super) fn all(&self) -> Option<impl Iterator<Item = (u16, &str, bool)>> {
        let all = self.services.iter().map(|(id, entry)| (*id, entry.name.as_str(), entry.up));
        self.known.then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use rssl::rdm::directory::{Info, ServiceState};

    use super::*;

    fn service(id: u16, name: &str, up: bool) -> (Action, Service) {
        let info = Some(Info { name: name.into(), ..Info::default() });
        let state = Some(ServiceState { up, accepting: up, status: None });
        (Action::Add, Service { id, info, state, ..Service::default() })
    }

    #[test]
    fn first_service_that_is_up_is_the_default() {
        let mut all = Catalogue::default();
        assert_eq!(all.choose(None), Choice::Wait("no directory yet".into()));
        all.apply(&[], true);
        assert_eq!(all.choose(Some("B")), Choice::Wait("the server has no services yet".into()));
        all.apply(&[service(1, "A", false), service(2, "B", true)], true);
        assert_eq!(all.choose(None), Choice::Service(2, "B".into()));
        assert_eq!(all.choose(Some("A")), Choice::Service(1, "A".into()));
        let Choice::Unknown(why) = all.choose(Some("C")) else { panic!("C is unknown") };
        assert!(why.contains("'C'") && why.contains("A, B"), "{why}");
        all.apply(&[(Action::Delete, Service { id: 2, ..Service::default() })], false);
        assert_eq!(all.choose(None), Choice::Wait("no service is up yet: A".into()));
        assert_eq!(all.all().unwrap().collect::<Vec<_>>(), [(1, "A", false)]);
    }
}
