//! Work on many streams of one mount, in portions: a consumer may have a million streams, and while one turn ends them
//! all, all other sockets of the thread wait.
//!
//! While a mount has tasks, its further input waits. A mount whose streams are being ended gets nothing and keeps its
//! index, because the subscribers of items name mounts by index.

use std::collections::{VecDeque, hash_map};
use std::vec;

use rssl::rdm::items;
use rssl::rwf::{DataType, Request, RequestFlags};

use super::mount::Role;
use super::slots::Ticket;
use super::worker::Worker;

/// Streams that one portion handles. Ending or opening one takes up to 1 µs.
pub(super) const PORTION: usize = 1024;

/// The rest of work on streams of a mount.
pub(super) enum Task {
    /// Ends streams without messages: the consumer has left or logged out.
    End {
        streams: hash_map::IntoIter<i32, Ticket>,
        /// Whether frames of a batch fit the mount's transport unchanged.
        plain: bool,
    },
    /// Closes the streams that a batch lists.
    Close(vec::IntoIter<i32>),
    /// Pauses or resumes items.
    Pause { streams: vec::IntoIter<Ticket>, paused: bool },
    /// Opens the items, or reissues the streams, that a batch lists.
    Batch {
        /// The consumer's request.
        message: Vec<u8>,
        done: usize,
    },
    /// Opens the items that a part of a symbol list names.
    Listed {
        /// The stream of the list.
        list: Ticket,
        /// The map with the items.
        payload: Vec<u8>,
        done: usize,
    },
}

/// Tasks by mount; they have their portions in turn.
#[derive(Default)]
pub(super) struct Tasks {
    list: VecDeque<(Ticket, Task)>,
    /// Mounts whose task is done and whose input waits.
    resumed: Vec<Ticket>,
}

impl Tasks {
    /// Whether nothing is left to do.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.resumed.is_empty()
    }
}

impl Worker {
    /// Begins a task with its first portion.
    pub(super) fn begin(&mut self, id: Ticket, mut task: Task) {
        if self.portion(id, &mut task) {
            return self.finish(id, &task);
        }
        self.put_off(id, task);
    }

    /// Leaves the rest of a task to later turns.
    pub(super) fn put_off(&mut self, id: Ticket, task: Task) {
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.tasks += 1;
        }
        self.tasks.list.push_back((id, task));
    }

    /// Ends all streams of a mount without messages.
    pub(super) fn end_all_streams(&mut self, id: Ticket) {
        let Some(mount) = self.mounts.get_mut(id) else { return };
        let streams = std::mem::take(&mut mount.ids);
        mount.directories.clear();
        mount.ending = true;
        let plain = self.outputs.set_plain(id, false);
        self.begin(id, Task::End { streams: streams.into_iter(), plain });
    }

    /// Performs a portion of the oldest task, and handles the input that has waited for one. To be called once in a
    /// turn.
    pub(super) fn work(&mut self) {
        if let Some((id, mut task)) = self.tasks.list.pop_front() {
            if self.portion(id, &mut task) {
                if let Some(mount) = self.mounts.get_mut(id) {
                    mount.tasks = mount.tasks.saturating_sub(1);
                }
                self.finish(id, &task);
                self.tasks.resumed.push(id);
            } else {
                self.tasks.list.push_back((id, task));
            }
            self.send_requests(id);
            self.resume_queues();
        }
        for id in std::mem::take(&mut self.tasks.resumed) {
            self.resume_input(id);
        }
    }

    fn finish(&mut self, id: Ticket, task: &Task) {
        let Some(mount) = self.mounts.get_mut(id) else { return };
        if let Task::End { plain, .. } = task {
            mount.ending = false;
            self.outputs.set_plain(id, *plain);
            if mount.closed {
                self.mounts.remove(id);
            }
        }
    }

    /// Performs a portion of a task; returns whether it is done.
    fn portion(&mut self, id: Ticket, task: &mut Task) -> bool {
        let is_leaving = self.mounts.get(id).is_none_or(|mount| mount.disconnecting.is_some());
        match task {
            Task::End { streams, .. } => {
                for (_, ticket) in streams.by_ref().take(PORTION) {
                    self.end_stream(ticket);
                }
                streams.len() == 0
            }
            // A batch of closes may have closed the login too.
            _ if is_leaving || !self.logged_in(id) => true,
            Task::Close(streams) => {
                for stream in streams.by_ref().take(PORTION) {
                    self.close_one(id, stream);
                }
                streams.len() == 0
            }
            Task::Pause { streams, paused } => {
                for ticket in streams.by_ref().take(PORTION) {
                    self.pause_one(ticket, *paused);
                }
                streams.len() == 0
            }
            Task::Batch { message, done } => {
                let Ok(request) = Request::decode(message) else { return true };
                let next = self.batch_portion(id, &request, *done);
                *done += PORTION;
                next
            }
            Task::Listed { list, payload, done } => {
                let is_done = self.listed_portion(*list, payload, *done);
                *done += PORTION;
                is_done
            }
        }
    }

    /// Handles [`PORTION`] entries of a batch, from entry `from` on; returns whether these were the last.
    fn batch_portion(&mut self, id: Ticket, request: &Request<'_>, from: usize) -> bool {
        let mut one = request.clone();
        one.flags.remove(RequestFlags::BATCH);
        if !request.flags.contains(RequestFlags::VIEW) {
            (one.container, one.payload) = (DataType::NO_DATA, &[]);
        }
        if let Ok(Some(streams)) = items::stream_ids(request.payload) {
            for stream in streams.iter().skip(from).take(PORTION) {
                if let Some(ticket) = self.find_stream(id, *stream)
                    && self.streams.get(ticket).is_some_and(|stream| stream.role == Role::Item)
                {
                    self.reissue_as_before(ticket, &one);
                }
            }
            return from + PORTION >= streams.len();
        }
        let Ok(names) = items::batch_names(request.payload) else { return true };
        for (name, offset) in names.iter().zip(1..).skip(from).take(PORTION) {
            let Some(stream) = request.stream.checked_add(offset) else { return true };
            one.stream = stream;
            one.key.name = Some(name);
            // Ids in use and the limit of open streams are checked as for any request. There is no error: the id is
            // positive.
            if self.request(id, &one).is_err() {
                return true;
            }
        }
        from + PORTION >= names.len()
    }
}
